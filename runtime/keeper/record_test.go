package keeper

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte().Filter(func(b byte) bool { return b != '\n' })).Draw(t, "text")
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "nano")).UTC()
		name := rapid.SampledFrom([]string{Stdout, Stderr}).Draw(t, "stream")
		partial := rapid.Bool().Draw(t, "partial")
		tag := byte('F')
		if partial {
			tag = 'P'
		}
		line := appendRecord(nil, appendPrefix(nil, at, name), tag, text)
		r, err := DecodeRecord(bytes.TrimSuffix(line, []byte{'\n'}))
		if err != nil || !r.Time.Equal(at) || r.Stream != name || r.Partial != partial || !bytes.Equal(r.Text, text) {
			t.Fatalf("%q became %+v, %v", line, r, err)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	for _, s := range []string{
		"2026-01-02T03:04:05.000000006Z stdout F hello", "2026-01-02T03:04:05Z stderr P ", "2026-01-02T03:04:05+02:00 stdout F:x text",
		"", " ", "2026-01-02T03:04:05Z stdout F", "2026-01-02T03:04:05Z stdin F x", "x stdout F x",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := DecodeRecord(line)
		if err != nil {
			return
		}
		if r.Stream != Stdout && r.Stream != Stderr {
			t.Errorf("stream %q", r.Stream)
		}
		if !bytes.HasSuffix(line, r.Text) {
			t.Errorf("text %q is not the end of %q", r.Text, line)
		}
		if r.Time.IsZero() && !strings.HasPrefix(string(line), "0001-01-01T00:00:00") {
			t.Errorf("no time in %q", line)
		}
	})
}

func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"op":"hello"}`, `{"version":1,"op":"close","id":"a"}`, `{"version":1,"op":"close","id":"../a"}`,
		`{"version":1,"op":"open","container":{"id":"a","stdout":"/x/o","stderr":"/x/e","log":"/x/l"}}`,
		`{"version":1,"op":"open","container":{"id":"a","stdout":"../o","log":"/x/l"}}`, `{"op":1}`, `{}{}`, `[]`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var req request
		if decode(line, &req) != nil || req.Container == nil || req.Container.validate() != nil {
			return
		}
		c := *req.Container
		if strings.ContainsAny(c.ID, "/\x00") || c.ID == "." || c.ID == ".." {
			t.Errorf("id %q is no file name", c.ID)
		}
		for _, p := range []string{c.Stdout, c.Log} {
			if !strings.HasPrefix(p, "/") || strings.Contains(p, "/../") {
				t.Errorf("path %q", p)
			}
		}
	})
}
