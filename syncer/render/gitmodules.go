package render

import (
	"bytes"
	"net/url"
	"strings"

	"headway.dev/headway/api"
)

// submoduleReason names a submodule with its URL, which only .gitmodules knows.
func (ix *index) submoduleReason(p string) string {
	if ix.modules == nil {
		ix.modules = map[string]string{}
		if f, ok := ix.file(".gitmodules"); ok && f.Mode == Regular && f.Size <= api.MaxFileBytes {
			if data, err := ix.read(".gitmodules"); err == nil { // without it the reason says less
				ix.modules = submoduleURLs(data)
			}
		}
	}
	of := ""
	if u := ix.modules[p]; u != "" {
		of = " of " + u
	}
	return "a submodule" + of + " is not followed: commit its files, or leave it out with an ignore pattern"
}

// submoduleURLs reads .gitmodules: path → URL, without the credentials that a
// URL may hold.
func submoduleURLs(data []byte) map[string]string {
	out := map[string]string{}
	var at, from string
	note := func() {
		if at != "" && from != "" {
			out[strings.Trim(at, "/")] = from
		}
		at, from = "", ""
	}
	for line := range bytes.Lines(data) {
		text := strings.TrimSpace(string(line))
		if strings.HasPrefix(text, "[") {
			note()
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"`)
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "path":
			at = value
		case "url":
			from = withoutCredentials(value)
		}
	}
	note()
	return out
}

// withoutCredentials leaves out of a URL what may be secret: all of the user
// where it may be a token, the password, and the query.
func withoutCredentials(u string) string {
	parsed, err := url.Parse(u)
	if err != nil || parsed.Scheme == "" { // git@host:path has no password; user:token@host/path has
		if user, rest, ok := strings.Cut(u, "@"); ok && strings.Contains(user, ":") {
			return rest
		}
		return u
	}
	if parsed.User != nil && parsed.Scheme == "ssh" {
		parsed.User = url.User(parsed.User.Username())
	} else {
		parsed.User = nil
	}
	parsed.RawQuery = ""
	return parsed.String()
}
