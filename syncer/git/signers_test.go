package git

import (
	"strings"
	"testing"
	"time"
)

const aKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIICGUkRS3kUOqK/6zLNRrdfaP4IGEJGZPA4nShAlxWoC"

func TestAllowedSigners(t *testing.T) {
	for line, want := range map[string]string{
		"ann@example.org " + aKey:                                                             "ann@example.org",
		"  ann@example.org\t" + aKey + " a comment":                                           "ann@example.org",
		"\"ann with a blank,*@example.org\" " + aKey:                                          "ann with a blank,*@example.org",
		"* cert-authority " + aKey:                                                            "* CA",
		"* CERT-AUTHORITY,Namespaces=\"git, x\" " + aKey:                                      "* CA [git, x]",
		`a namespaces="file,git",valid-after="20260101",valid-before="202602012359Z" ` + aKey: "a [file,git] 2026-01-01T00:00:00Z 2026-02-01T23:59:00Z",
		`a valid-before="20260201235959UTC" ` + aKey:                                          "a  2026-02-01T23:59:59Z",
		`a namespaces="a\"b" ` + aKey:                                                         `a [a"b]`,
	} {
		var s Signers
		if err := s.AddAllowed("f", []byte("# a comment\n\n"+line+"\n")); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		one := s.ssh[0]
		got := one.principals
		if one.authority {
			got += " CA"
		}
		if one.namespaces != "" {
			got += " [" + one.namespaces + "]"
		}
		if !one.before.IsZero() {
			after := ""
			if !one.after.IsZero() {
				after = one.after.Format(time.RFC3339)
			}
			got += " " + after + " " + one.before.Format(time.RFC3339)
		}
		if got != want || one.where != "f:3" {
			t.Errorf("%s: %q at %s, want %q", line, got, one.where, want)
		}
	}
	dss := "ssh-dss AAAAB3NzaC1kc3MAAAAVAP" // cut off; the type says enough
	for line, want := range map[string]string{
		"ann@example.org":                                          "a line has principals",
		"ann@example.org ssh-ed25519":                              "no key",
		"ann@example.org ssh-ed25519 !!!":                          "not in base64",
		"ann@example.org ssh-ed25519 AAAA":                         "cannot be read",
		"ann@example.org ssh-rsa " + aKey[12:]:                     "of type ssh-ed25519 and not ssh-rsa",
		"ann@example.org " + dss:                                   "f:1: ",
		"ann@example.org no-touch-required " + aKey:                `unknown option "no-touch-required"`,
		"a valid-befor=\"20260101\" " + aKey:                       `unknown option "valid-befor"`,
		"a valid-before=20260101 " + aKey:                          "must be in quotes",
		"a valid-before=\"2026\" " + aKey:                          `"2026" is no time`,
		"a valid-before=\"20261301\" " + aKey:                      "is no time",
		"a valid-before " + aKey:                                   "unknown option",
		"a namespaces=\"\" " + aKey:                                "unknown option",
		"a cert-authority,cert-authority " + aKey:                  "given twice",
		"a cert-authority=\"x\" " + aKey:                           "unknown option",
		`a valid-after="20260201",valid-before="20260101" ` + aKey: "valid-after is not before valid-before",
		`a namespaces="git" `:                                      "no key",
		`a namespaces="git"x ` + aKey:                              "a comma and another option",
		`"ann ` + aKey:                                             "do not end",
		`"" ` + aKey:                                               "no principals",
	} {
		var s Signers
		if err := s.AddAllowed("f", []byte(line)); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f:1: ") {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	var s Signers
	err := s.AddAllowed("f", []byte("x\n"+"a "+aKey+"\ny y\n"))
	if err == nil || !strings.Contains(err.Error(), "f:1: ") || !strings.Contains(err.Error(), "f:3: ") {
		t.Errorf("not every line is named: %v", err)
	}
	if err := s.AddAllowed("f", []byte(strings.Repeat("a "+aKey+"\n", maxSigners+1))); err == nil || !strings.Contains(err.Error(), "more than 10000 signers") {
		t.Errorf("%v", err)
	}
	if err := s.AddAllowed("f", make([]byte, maxSignersFile+1)); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("%v", err)
	}
}

func TestMatchList(t *testing.T) {
	for _, c := range []struct {
		patterns, text string
		want           bool
	}{
		{"git", "git", true}, {"git", "gi", false}, {"g*", "git", true}, {"*", "", true}, {"?", "", false}, {"?it", "git", true},
		{"file, git", "git", true}, {"!git,*", "git", false}, {"*,!git", "git", false}, {"!file", "git", false}, {"*@example.org", "a@b@example.org", true},
		{"*a*b*c*", "xxaxxbxxcxx", true}, {"*a*b*c*", "xxaxxcxxbxx", false}, {"", "git", false}, {"**", "git", true}, {"a*", "b", false},
		{strings.Repeat("a*", 40) + "b", strings.Repeat("a", 5000), false},
	} {
		if got := matchList(c.patterns, c.text); got != c.want {
			t.Errorf("%.40q matches %.40q: %v", c.patterns, c.text, got)
		}
	}
}

func FuzzAllowedSigners(f *testing.F) {
	f.Add("ann@example.org namespaces=\"git\",valid-before=\"20260101Z\" " + aKey + " comment\n")
	f.Add("\"a b\" cert-authority " + aKey)
	f.Add("a namespaces=\"\\")
	f.Fuzz(func(t *testing.T, content string) {
		var s Signers
		if s.AddAllowed("f", []byte(content)) != nil {
			return
		}
		for _, one := range s.ssh {
			if one.key == nil || one.principals == "" || one.where == "" {
				t.Errorf("%+v", one)
			}
			_, _ = one.allows(one.key, []time.Time{noon})
		}
	})
}

func FuzzKeyring(f *testing.F) {
	f.Add("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQAAABYJKwYBBAHaRw8BAQdA\n=abcd\n-----END PGP PUBLIC KEY BLOCK-----\n")
	f.Add("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n-----END PGP PRIVATE KEY BLOCK-----\n")
	f.Fuzz(func(t *testing.T, content string) {
		var s Signers
		if s.AddKeyring("f", []byte(content)) == nil && len(s.pgp) == 0 {
			t.Error("nobody is no keyring")
		}
	})
}

// Nobody is allowed, so nothing may count as signed.
func FuzzVerify(f *testing.F) {
	hash := strings.Repeat("ab", 20)
	head := "tree " + hash + "\nauthor Ann <a@b> 1700000000 +0100\ncommitter B <b@c> 1700000000 +0000\n"
	f.Add([]byte(head + "gpgsig -----BEGIN SSH SIGNATURE-----\n U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAg\n -----END SSH SIGNATURE-----\n\nsubject\n"))
	f.Add([]byte(head + "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iHUEABYKAB0WIQ\n =abcd\n -----END PGP SIGNATURE-----\n\nsubject\n"))
	f.Add([]byte(head + "gpgsig-sha256 x\n y\ngpgsig x\n\n"))
	f.Add([]byte("gpgsig\n \n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if (Signers{}).verify(raw, noon) == nil {
			t.Errorf("%q counts as signed", raw)
		}
		payload, signature, err := cutSignature(raw)
		if err == nil && len(payload)+len(signature) > len(raw)+1 {
			t.Errorf("%d and %d bytes out of %d", len(payload), len(signature), len(raw))
		}
	})
}
