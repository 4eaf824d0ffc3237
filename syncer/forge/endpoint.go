package forge

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// endpoint is the API of one repository on a forge whose kind is known.
type endpoint struct {
	kind    Kind
	base    string // https://api.github.com, https://host/api/v3, …/api/v4, …/api/v1
	project string // as the API wants it in a path: owner/repo, or group%2Fsub%2Frepo
}

// endpointOf derives the API of a repository. An override replaces the base, for
// forges behind another name or below a path.
func endpointOf(kind Kind, l location, override string) (endpoint, error) {
	e := endpoint{kind: kind, base: override}
	parts := strings.Split(l.path, "/")
	if len(parts) < 2 {
		return endpoint{}, fmt.Errorf("%s: the path of a repository on %s is owner/repo", l, kind.name())
	}
	if kind == GitLab {
		return gitlabEndpoint(e, l), nil
	}
	// Whatever stands before owner/repo is where the forge itself is.
	site := strings.Join(append([]string{l.site()}, parts[:len(parts)-2]...), "/")
	e.project = escape(parts[len(parts)-2:], "/")
	if e.base != "" {
		return e, nil
	}
	switch {
	case kind == Gitea:
		e.base = site + "/api/v1"
	case l.host == "github.com":
		e.base = "https://api.github.com"
	case strings.HasSuffix(l.host, ".ghe.com"):
		e.base = "https://api." + l.host
	default:
		e.base = site + "/api/v3"
	}
	return e, nil
}

// gitlabEndpoint takes the whole path as groups and project. A GitLab below a path
// cannot be told from a group of that name; the override says it.
func gitlabEndpoint(e endpoint, l location) endpoint {
	path := l.path
	if e.base == "" {
		e.base = l.site() + "/api/v4"
	} else if u, err := url.Parse(e.base); err == nil && l.web() {
		below, ok := strings.CutSuffix(u.Path, "/api/v4")
		if rest, under := strings.CutPrefix(path, strings.Trim(below, "/")+"/"); ok && below != "" && under {
			path = rest
		}
	}
	e.project = escape(strings.Split(path, "/"), "%2F")
	return e
}

func escape(parts []string, by string) string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = url.PathEscape(p)
	}
	return strings.Join(out, by)
}

// checkBase reads the override of the API's base URL.
func checkBase(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return "", errors.New("the base of the forge's API is not an http or https URL; it looks like https://git.example.com/api/v4")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("the base of the forge's API on %s has a user, a query or a fragment; the token goes into its own file", u.Host)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// statusURL is where a status of the commit is posted.
func (e endpoint) statusURL(commit string) string {
	if e.kind == GitLab {
		return e.base + "/projects/" + e.project + "/statuses/" + commit
	}
	return e.base + "/repos/" + e.project + "/statuses/" + commit
}
