package api

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The checks of a configuration. None of them repeats what the file says: a text
// in the wrong place may be a credential (R14).

func (d *configDecoder) count(field string, n int) bool {
	if n > maxConfigList {
		d.add(field, "holds %d entries; at most %d can be read", n, maxConfigList)
	}
	return n <= maxConfigList
}

func (d *configDecoder) drift(field string, v Drift) {
	if v != DriftHeal && v != DriftReport {
		d.add(field, "must be %s or %s", DriftHeal, DriftReport)
	}
}

func (d *configDecoder) label(field, v string) bool {
	errs := validation.IsDNS1123Label(v)
	for _, e := range errs {
		d.add(field, "%s", e)
	}
	return len(errs) == 0
}

func (d *configDecoder) poll(field string, v Duration) {
	if v.Duration < minPoll || v.Duration > maxPoll {
		d.add(field, "must be from %v to %v", Duration{minPoll}, Duration{maxPoll})
	}
}

func (d *configDecoder) namespaces(field string, list []string) {
	if len(list) == 0 {
		d.add(field, `missing: name the namespaces that the source may write to, or "*" for all`)
	}
	if !d.count(field, len(list)) {
		return
	}
	for i, n := range list {
		switch at := field + nth(i); {
		case n == everyNamespace && len(list) > 1:
			d.add(at, `"*" means every namespace: write it alone`)
		case n == everyNamespace:
		case d.label(at, n) && slices.Index(list, n) < i:
			d.add(at, "is named already by %s[%d]", field, slices.Index(list, n))
		}
	}
}

// path checks a path in a tree and cleans it; from names the folder that it
// starts at.
func (d *configDecoder) path(field string, p *string, from string) bool {
	reason := ""
	switch v := *p; {
	case len(v) > maxConfigText:
		reason = "is too long"
	case strings.HasPrefix(v, "/"):
		reason = "starts at the " + from + "'s root: leave the leading / out"
	case slices.Contains(strings.Split(v, "/"), ".."):
		reason = `must not hold "..": write it from the ` + from + "'s root"
	case strings.ContainsFunc(v, unprintable):
		reason = "must not hold control characters"
	default:
		if *p = path.Clean(v); *p == "." {
			*p = ""
		}
		return true
	}
	d.add(field, "%s", reason)
	return false
}

func unprintable(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }

func (d *configDecoder) patterns(field string, list []string) {
	if !d.count(field, len(list)) {
		return
	}
	before := d.held
	if d.held += len(list); before <= maxPatterns && d.held > maxPatterns {
		d.add(field, "brings the patterns of this file to more than %d, all lists taken together: a folder in one pattern takes the place of many", maxPatterns)
	}
	for i, text := range list {
		if reason := patternProblem(text); reason != "" {
			d.add(field+nth(i), "%s", reason)
		}
	}
}

// repositoryProblem says what is wrong with where a repository is; "" when it can
// be fetched from there.
func repositoryProblem(v string) string {
	const forms = "an https or ssh URL, user@host:path, or an absolute path on the servers"
	switch {
	case v == "":
		return "missing: name the repository by " + forms
	case len(v) > maxConfigText:
		return "is too long"
	case strings.ContainsFunc(v, func(r rune) bool { return unprintable(r) || unicode.IsSpace(r) }):
		return "must not hold blanks or control characters"
	case strings.HasPrefix(v, "/"):
		if slices.Contains(strings.Split(v, "/"), "..") {
			return `must not hold ".."`
		}
		return ""
	case strings.Contains(v, "://"):
		return urlProblem(v)
	}
	host, at, ok := strings.Cut(v, ":")
	user, rest, named := strings.Cut(host, "@")
	switch {
	case !ok:
		return "must be " + forms
	case strings.Contains(at, "@") && !named:
		return credentials
	case named && (user == "" || strings.HasPrefix(user, "-")):
		return "must be " + forms
	case named:
		host = rest
	}
	if host == "" || at == "" || strings.HasPrefix(host, "-") || strings.HasPrefix(at, "-") || strings.ContainsAny(host, "/@") {
		return "must be " + forms
	}
	return ""
}

const credentials = "holds a user name or a password, and everybody who can read the repository reads them: take them out, make them void where they were made, and give new ones to the server in a file"

func urlProblem(v string) string {
	u, err := url.Parse(v) // the error would repeat the URL
	if err != nil || u.Opaque != "" {
		return "is not a URL"
	}
	_, password := u.User.Password()
	switch {
	case u.User != nil && (u.Scheme != "ssh" || password):
		return credentials
	case u.Scheme == "http":
		return "must be https or ssh: over http, anybody on the way can change what runs"
	case u.Scheme == "file":
		return "write the absolute path without file://"
	case u.Scheme != "https" && u.Scheme != "ssh":
		return "must be https or ssh"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return `must end with the repository's path: take away what follows "?" or "#"`
	case u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-") || strings.HasPrefix(u.User.Username(), "-"):
		return "names no host"
	case strings.Trim(u.Path, "/") == "":
		return "names no repository on the host"
	}
	return ""
}

// completeRef makes a short name a branch's full one and says what is wrong with
// it.
func completeRef(v string) (ref, reason string) {
	switch {
	case v == "":
		return DefaultRef, ""
	case v == "HEAD" || v == "@":
		return v, "must name a branch or a tag: what HEAD means can change without a commit"
	case !strings.HasPrefix(v, "refs/"):
		v = "refs/heads/" + v
	}
	bad := len(v) > 500 || strings.HasSuffix(v, "/") || strings.HasSuffix(v, ".") || strings.Count(v, "/") < 2 ||
		strings.Contains(v, "..") || strings.Contains(v, "//") || strings.Contains(v, "@{") ||
		strings.ContainsAny(v, " ~^:?*[\\") || strings.ContainsFunc(v, unprintable)
	for part := range strings.SplitSeq(v, "/") {
		bad = bad || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return v, "must be a branch such as main, or a full ref such as refs/tags/v1"
	}
	for _, own := range []string{"refs/heads/headway/", "refs/notes/", "refs/headway/"} {
		if strings.HasPrefix(v+"/", own) {
			return v, "is written by Headway itself and cannot be followed"
		}
	}
	return v, ""
}
