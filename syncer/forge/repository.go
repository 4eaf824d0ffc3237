package forge

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"unicode"
)

// maxURL bounds the URL of a repository, in bytes.
const maxURL = 2048

// location is what the URL of a repository says, as far as forges go: no user, no
// password, no .git.
type location struct {
	scheme string // http, https, ssh or git
	host   string // lower case, without port
	port   string // empty: the scheme's own
	path   string // group/sub/repo
}

// locate reads the forms that git knows: https://host/path, ssh://user@host/path
// and user@host:path. Errors do not show the URL, which may hold a password.
func locate(raw string) (location, error) {
	if len(raw) > maxURL {
		return location{}, errors.New("the URL of the repository is too long")
	}
	if strings.ContainsFunc(raw, unicode.IsControl) {
		return location{}, errors.New("the URL of the repository has a control character")
	}
	var l location
	if strings.Contains(raw, "://") {
		u, err := url.Parse(raw)
		if err != nil {
			return location{}, errors.New("the URL of the repository is not a URL") // err shows it
		}
		l = location{scheme: strings.ToLower(u.Scheme), host: u.Hostname(), port: u.Port(), path: u.Path}
	} else {
		before, path, ok := cutSCP(raw)
		if !ok {
			return location{}, errors.New("the repository is a local path, which no forge hosts")
		}
		_, host, ok := strings.Cut(before, "@")
		if !ok {
			host = before
		}
		l = location{scheme: "ssh", host: strings.Trim(host, "[]"), path: path}
	}
	switch l.scheme {
	case "ssh+git", "git+ssh":
		l.scheme = "ssh"
	case "http", "https", "ssh", "git":
	default:
		return location{}, errors.New("only an https, http or ssh URL names a repository on a forge")
	}
	l.host = known(strings.TrimSuffix(strings.ToLower(l.host), "."))
	if l.port == standardPort(l.scheme) {
		l.port = ""
	}
	l.path = strings.TrimSuffix(strings.Trim(l.path, "/"), ".git")
	if l.host == "" || l.path == "" {
		return location{}, errors.New("the URL of the repository names no host or no path")
	}
	// A decoded path may hold what the URL did not.
	if strings.ContainsFunc(l.path, unicode.IsControl) {
		return location{}, errors.New("the URL of the repository has a control character")
	}
	for part := range strings.SplitSeq(l.path, "/") {
		if part == "" || part == "." || part == ".." {
			return location{}, errors.New("the path in the URL of the repository has an empty part, or . or ..")
		}
	}
	return l, nil
}

// cutSCP splits user@host:path. A colon after a slash belongs to a path.
func cutSCP(raw string) (host, path string, ok bool) {
	from := 0
	if i := strings.Index(raw, "]:"); i > 0 && strings.Contains(raw[:i], "[") {
		from = i // of an IPv6 address in brackets
	}
	i := strings.IndexByte(raw[from:], ':')
	if i < 0 || strings.Contains(raw[:from+i], "/") {
		return "", "", false
	}
	return raw[:from+i], raw[from+i+1:], true
}

// known gives the name of a host that answers to several.
func known(host string) string {
	switch host {
	case "ssh.github.com", "www.github.com": // the first is ssh on port 443
		return "github.com"
	case "altssh.gitlab.com":
		return "gitlab.com"
	}
	return host
}

func standardPort(scheme string) string {
	switch scheme {
	case "http":
		return "80"
	case "https":
		return "443"
	case "ssh":
		return "22"
	case "git":
		return "9418"
	}
	return ""
}

func (l location) web() bool { return l.scheme == "http" || l.scheme == "https" }

// site is the forge's own address: https://host. The port of an ssh URL says
// nothing about the port of the API.
func (l location) site() string {
	host, scheme := l.host, "https"
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if l.web() {
		scheme = l.scheme
		if l.port != "" {
			host = net.JoinHostPort(l.host, l.port)
		}
	}
	return scheme + "://" + host
}

// String is how messages show the repository: without user and password.
func (l location) String() string { return l.site() + "/" + l.path }

// Same says whether two URLs name one repository on one forge, in whatever form:
// user, password, .git and case do not count, nor whether it is http or https at
// their own ports. Two web URLs and two ssh URLs must agree in the port; the port
// of a web URL and that of an ssh URL have nothing to do with each other. What is
// not a URL of a forge is the same as nothing.
func Same(a, b string) bool {
	x, err := locate(a)
	if err != nil {
		return false
	}
	y, err := locate(b)
	if err != nil {
		return false
	}
	if x.web() == y.web() && x.port != y.port {
		return false
	}
	return x.host == y.host && strings.EqualFold(x.path, y.path)
}
