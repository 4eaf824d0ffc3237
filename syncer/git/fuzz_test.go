package git

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

func FuzzHello(f *testing.F) {
	var frame bytes.Buffer
	if err := writeFrame(&frame, frameHello, []byte(`{"version":2,"hook":"pre-receive","push":"x","input":"a b c","options":["dry-run"]}`)); err != nil {
		f.Fatal(err)
	}
	f.Add(frame.Bytes())
	f.Add([]byte("H\xff\xff\xff\xff"))
	f.Add([]byte("P\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := readHello(bytes.NewReader(raw))
		if err != nil {
			return
		}
		if len(h.Input) > maxHello || h.Version != hookVersion || len(h.Options) > maxOptions {
			t.Errorf("%d bytes of input, version %d, %d options", len(h.Input), h.Version, len(h.Options))
		}
		for _, o := range h.Options {
			if _, err := dryRun(h.Options); len(o) > maxOption || (err == nil && o != optionDryRun) {
				t.Errorf("option %q is taken", o)
			}
		}
	})
}

func FuzzUpdates(f *testing.F) {
	hash := strings.Repeat("ab", 20)
	f.Add(noHash + " " + hash + " refs/heads/main\n")
	f.Add(hash + " " + noHash + " refs/heads/a/b\n" + hash + " " + hash + " refs/tags/v\n")
	f.Fuzz(func(t *testing.T, input string) {
		updates, err := parseUpdates(input)
		if err != nil {
			return
		}
		if len(updates) > maxUpdates {
			t.Errorf("%d updates", len(updates))
		}
		for _, u := range updates {
			if checkRef(u.Ref) != nil || (u.Old != "" && !isHash(u.Old)) || (u.New != "" && !isHash(u.New)) {
				t.Errorf("%+v", u)
			}
			if strings.ContainsAny(u.Ref, " \n\x00") {
				t.Errorf("ref %q", u.Ref)
			}
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(strings.Repeat("ab", 20) + " blob 12\n")
	f.Add("refs/heads/x missing\n")
	f.Add(strings.Repeat("ab", 20) + " tree -1\n")
	f.Fuzz(func(t *testing.T, line string) {
		h, err := parseHeader(line)
		if err == nil && h.kind != "" && (!isHash(h.hash) || h.size < 0) {
			t.Errorf("%+v", h)
		}
	})
}

func FuzzTree(f *testing.F) {
	f.Add([]byte("100644 a\x0012345678901234567890" + "40000 b\x0012345678901234567890"))
	f.Add([]byte("160000 ..\x0012345678901234567890"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := parseTree(raw)
		if err != nil {
			return
		}
		for _, e := range entries {
			if !isHash(e.hash) || strings.Contains(e.name, "/") || e.mode == 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}

func FuzzCommit(f *testing.F) {
	hash := strings.Repeat("ab", 20)
	f.Add([]byte("tree " + hash + "\nparent " + hash + "\nauthor Ann <a@b> 1700000000 +0100\ncommitter B <b@c> 99999999999999 -9999\n\nsubject\n\nbody"))
	f.Add([]byte("tree " + hash + "\nauthor  <> \ngpgsig x\n y\n\n\x1b[31m"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parseCommit(raw)
		if err == nil && (!isHash(c.Tree) || strings.ContainsAny(c.Subject+c.Author, "\n\x1b\x00")) {
			t.Errorf("%+v", c)
		}
	})
}

func FuzzInflated(f *testing.F) {
	var good bytes.Buffer
	z := gzip.NewWriter(&good)
	_, _ = z.Write([]byte("0000"))
	_ = z.Close()
	f.Add(good.Bytes())
	f.Add(append(good.Bytes(), good.Bytes()...))
	f.Add(good.Bytes()[:good.Len()-3])
	f.Add([]byte("0000"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		from := bytes.NewReader(raw)
		n, err := io.Copy(io.Discard, io.LimitReader(&inflated{from: from}, 1<<20))
		// Its end is taken for that of the request, so nothing may be left.
		if err == nil && n < 1<<20 && from.Len() > 0 {
			t.Errorf("%d bytes left of %q", from.Len(), raw)
		}
	})
}

func FuzzNetrc(f *testing.F) {
	f.Add("machine a login b password c\ndefault password d", "a")
	f.Add("machine", "")
	f.Add("login x password", "a")
	f.Fuzz(func(t *testing.T, content, host string) {
		login, password := parseNetrc(content, []string{host})
		if !strings.Contains(content, login) || !strings.Contains(content, password) {
			t.Errorf("%q %q", login, password)
		}
	})
}
