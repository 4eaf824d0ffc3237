package forge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

const (
	maxDepth = 64   // of a payload
	maxField = 2048 // bytes of a field that we read
)

// Event is a push that a forge tells of.
type Event struct {
	Forge      Kind
	Repository []string // its URLs, for http, for ssh and for a browser; never empty for a push
	Ref        string   // refs/heads/main
	Commit     string   // that the ref names now, or the tag object; empty: the ref was deleted
}

// payload is what we read of a delivery, by the path of each field.
type payload map[string]string

// fields are those that we read. GitLab has the URLs twice, and system hooks only
// once.
func (k Kind) fields() []string {
	if k == GitLab {
		return []string{"ref", "after", "object_kind", "event_name",
			"project.git_http_url", "project.git_ssh_url", "project.web_url",
			"repository.git_http_url", "repository.git_ssh_url", "repository.homepage"}
	}
	return []string{"ref", "after", "repository.clone_url", "repository.ssh_url", "repository.html_url"}
}

// decode reads the fields of a kind's payload, token by token: what we do not need
// is not kept. A field of ours that is neither a string nor null is an error.
func decode(k Kind, r io.Reader) (payload, error) {
	d := json.NewDecoder(r)
	d.UseNumber() // whatever their size, numbers are not ours
	wanted := map[string]bool{}
	for _, f := range k.fields() {
		wanted[f] = true
	}
	p := payload{}
	if err := expect(d, '{'); err != nil {
		return nil, err
	}
	if err := p.object(d, "", 1, wanted); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the payload is more than one JSON object")
	}
	return p, nil
}

func expect(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return malformed(err)
	}
	if t != want {
		return errors.New("the payload is not a JSON object")
	}
	return nil
}

// object reads the members of an object whose opening brace has been read.
func (p payload) object(d *json.Decoder, prefix string, depth int, wanted map[string]bool) error {
	for {
		t, err := d.Token()
		if err != nil {
			return malformed(err)
		}
		if t == json.Delim('}') {
			return nil
		}
		key, ok := t.(string)
		if !ok {
			return errors.New("the payload is not JSON: a key is not a string")
		}
		path := prefix + key
		if strings.Contains(key, ".") {
			path = "" // must not pass for a member of a member
		}
		if err := p.value(d, path, depth, wanted); err != nil {
			return err
		}
	}
}

func (p payload) value(d *json.Decoder, path string, depth int, wanted map[string]bool) error {
	t, err := d.Token()
	if err != nil {
		return malformed(err)
	}
	if delim, ok := t.(json.Delim); ok {
		if wanted[path] {
			return fmt.Errorf("%s of the payload is not a string", path)
		}
		if delim == '{' && depth == 1 {
			return p.object(d, path+".", depth+1, wanted)
		}
		return skip(d, depth+1)
	}
	if !wanted[path] {
		return nil
	}
	switch v := t.(type) {
	case nil:
		delete(p, path)
	case string:
		if len(v) > maxField || strings.ContainsFunc(v, unicode.IsControl) {
			return fmt.Errorf("%s of the payload is too long or has a control character", path)
		}
		p[path] = v
	default:
		return fmt.Errorf("%s of the payload is not a string", path)
	}
	return nil
}

// skip reads to the end of an object or array that has been opened at a depth.
func skip(d *json.Decoder, depth int) error {
	for open := 1; open > 0; {
		t, err := d.Token()
		if err != nil {
			return malformed(err)
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			if open++; depth+open > maxDepth {
				return fmt.Errorf("the payload is nested deeper than %d", maxDepth)
			}
		case json.Delim('}'), json.Delim(']'):
			open--
		}
	}
	return nil
}

func malformed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the payload ends too early")
	}
	return errors.New("the payload is not JSON")
}

// event makes of a payload the event of a push. A payload without a ref or a
// repository is an error.
func (p payload) event(k Kind) (Event, error) {
	e := Event{Forge: k, Ref: p["ref"], Commit: p["after"], Repository: p.repository(k)}
	if !strings.HasPrefix(e.Ref, "refs/") {
		return Event{}, errors.New("ref of the payload is not the full name of a ref")
	}
	if !isCommit(e.Commit) {
		return Event{}, errors.New("after of the payload is not the name of a commit")
	}
	if strings.Trim(e.Commit, "0") == "" {
		e.Commit = ""
	}
	if len(e.Repository) == 0 {
		return Event{}, errors.New("the payload names no URL of the repository")
	}
	return e, nil
}

// repository lists the URLs that the payload names, each once.
func (p payload) repository(k Kind) []string {
	var urls []string
	seen := map[string]bool{}
	for _, f := range k.fields() {
		if v := p[f]; strings.Contains(f, ".") && v != "" && !seen[v] {
			seen[v] = true
			urls = append(urls, v)
		}
	}
	return urls
}

// ours says whether a ref is one that Headway itself pushes.
func ours(ref string) bool {
	for _, prefix := range []string{"refs/heads/headway/", "refs/notes/headway/", "refs/headway/"} {
		if strings.HasPrefix(ref, prefix) {
			return true
		}
	}
	return false
}
