package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signing is a working copy whose commits are signed by the real programs.
type signing struct {
	*work
	keys string // folder of the ssh keys and of gpg
}

func newSigning(t *testing.T) *signing {
	t.Helper()
	s := &signing{newWork(t), t.TempDir()}
	s.git("config", "gpg.format", "ssh")
	return s
}

// run runs a program with the environment of git and of gpg.
func (s *signing) run(stdin string, name string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdin = s.keys, strings.NewReader(stdin)
	cmd.Env = append(cleanEnv(), "GNUPGHOME="+s.keys)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// sshKey makes a key with ssh-keygen and returns its public half.
func (s *signing) sshKey(name, kind string) string {
	s.t.Helper()
	s.run("", "ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", filepath.Join(s.keys, name))
	return s.public(name)
}

func (s *signing) public(name string) string {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.keys, name+".pub"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

// sign commits one change, signed with a key; "" signs nothing.
func (s *signing) sign(key string, args ...string) string {
	s.t.Helper()
	s.write("counter", s.git("rev-list", "--all", "--count"))
	s.git("add", "-A")
	set := []string{"commit", "-q", "--no-gpg-sign", "-m", "change"}
	if key != "" {
		set = []string{"-c", "user.signingkey=" + filepath.Join(s.keys, key), "commit", "-q", "-S", "-m", "change"}
	}
	s.git(append(set, args...)...)
	return s.git("rev-parse", "HEAD")
}

// object writes a commit as it is given, and makes it the head.
func (s *signing) object(raw string) string {
	s.t.Helper()
	path := filepath.Join(s.keys, "object")
	if err := os.WriteFile(path, []byte(raw), 0o600); err != nil {
		s.t.Fatal(err)
	}
	hash := s.git("hash-object", "-t", "commit", "-w", path)
	s.git("reset", "-q", "--hard", hash)
	return hash
}

func (s *signing) raw(commit string) string {
	s.t.Helper()
	out, err := s.try("cat-file", "commit", commit)
	if err != nil {
		s.t.Fatal(out)
	}
	return out
}

// withSignature puts a signature into an unsigned commit.
func withSignature(raw, signature string) string {
	head, message, _ := strings.Cut(raw, "\n\n")
	return head + "\ngpgsig " + strings.ReplaceAll(strings.TrimRight(signature, "\n"), "\n", "\n ") + "\n\n" + message
}

func allowed(t *testing.T, lines ...string) Signers {
	t.Helper()
	var s Signers
	if err := s.AddAllowed("allowed_signers", []byte(strings.Join(lines, "\n")+"\n")); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVerifySSH(t *testing.T) {
	ctx := context.Background()
	s := newSigning(t)
	ann, rsa, ec, eve := s.sshKey("ann", "ed25519"), s.sshKey("rsa", "rsa"), s.sshKey("ec", "ecdsa"), s.sshKey("eve", "ed25519")
	ca := s.sshKey("ca", "ed25519")
	for name, args := range map[string][]string{
		"good":     {"-n", "ann@example.org", "-V", "-1d:+52w"},
		"stranger": {"-n", "eve@example.net", "-V", "-1d:+52w"},
		"late":     {"-n", "ann@example.org", "-V", "20200101:20200102"},
		"nobody":   {"-V", "-1d:+52w"},
		"host":     {"-h", "-n", "ann@example.org", "-V", "-1d:+52w"},
	} {
		s.sshKey(name, "ed25519")
		s.run("", "ssh-keygen", append(append([]string{"-q", "-s", "ca", "-I", name}, args...), name+".pub")...)
	}
	s.sshKey("other-ca", "ed25519")
	s.sshKey("foreign", "ed25519")
	s.run("", "ssh-keygen", "-q", "-s", "other-ca", "-I", "x", "-n", "ann@example.org", "foreign.pub")
	base := s.sign("ann")
	r := bareOf(t, s.work)
	now := time.Now()
	annLine := "ann@example.org " + ann

	byHand := func(key, namespace string) func() string {
		return func() string {
			raw := s.raw(s.sign(""))
			signature := s.run(raw, "ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", key)
			return s.object(withSignature(raw, signature))
		}
	}
	by := func(key string, args ...string) func() string { return func() string { return s.sign(key, args...) } }
	changed := func(old, new string) func() string {
		return func() string { return s.object(strings.Replace(s.raw(s.sign("ann")), old, new, 1)) }
	}
	for name, c := range map[string]struct {
		lines []string
		make  func() string
		why   string // "" is signed
		git   bool   // git says the same
	}{
		"ed25519":           {[]string{annLine}, by("ann"), "", true},
		"rsa":               {[]string{annLine, "bob " + rsa}, by("rsa"), "", true},
		"ecdsa":             {[]string{"bob " + ec}, by("ec"), "", true},
		"by hand":           {[]string{annLine}, byHand("ann", "git"), "", true},
		"for git only":      {[]string{`ann namespaces="file,git" ` + ann}, by("ann"), "", true},
		"in its time":       {[]string{`ann valid-after="20200101Z",valid-before="29991231" ` + ann}, by("ann"), "", true},
		"second line":       {[]string{`ann valid-before="20200101" ` + ann, annLine}, by("ann"), "", false},
		"certificate":       {[]string{"*@example.org cert-authority " + ca}, by("good-cert.pub"), "", true},
		"not signed":        {[]string{annLine}, by(""), "it is not signed", true},
		"nobody allowed":    {nil, by("ann"), "not among the allowed signers", true},
		"unknown key":       {[]string{annLine}, by("eve"), "signed with the key ssh-ed25519 " + fingerprint(t, eve) + ", which is not among", true},
		"other namespace":   {[]string{annLine}, byHand("ann", "file"), `for the namespace "file"`, true},
		"line of another":   {[]string{`ann namespaces="file" ` + ann}, by("ann"), "is not allowed for the namespace git but for file", true},
		"expired":           {[]string{`ann valid-before="20200101" ` + ann}, by("ann"), "has expired: it was valid until 2020-01-01", true},
		"not yet valid":     {[]string{`ann valid-after="29990101" ` + ann}, by("ann"), "is valid from 2999-01-01", true},
		"another authority": {[]string{"*@example.org cert-authority " + ca}, by("foreign-cert.pub"), "its authority", true},
		"wrong principal":   {[]string{"*@example.org cert-authority " + ca}, by("stranger-cert.pub"), "none of its principals (eve@example.net) is allowed", true},
		"refused principal": {[]string{"!ann@*,*@example.org cert-authority " + ca}, by("good-cert.pub"), "none of its principals", true},
		"no principal":      {[]string{"* cert-authority " + ca}, by("nobody-cert.pub"), "none of its principals", true},
		"late certificate":  {[]string{"*@example.org cert-authority " + ca}, by("late-cert.pub"), "cert has expired", true},
		"host certificate":  {[]string{"* cert-authority " + ca}, by("host-cert.pub"), "none of a user", true},
		"authority itself":  {[]string{"* cert-authority " + ann}, by("ann"), "not among the allowed signers", true},
		"key of a cert":     {[]string{"* " + s.public("good")}, by("good-cert.pub"), "its authority", false},
		"other message":     {[]string{annLine}, changed("change", "chance"), "changed after it was signed", true},
		"other author":      {[]string{annLine}, changed("author Ann", "author Eve"), "changed after it was signed", true},
		"other tree":        {[]string{annLine}, changed("tree "+s.git("rev-parse", "HEAD^{tree}"), "tree "+emptyTree), "", false}, // changes nothing: the tree is another
		"more headers":      {[]string{annLine}, changed("\n\nchange", "\nx-header x\n\nchange"), "changed after it was signed", true},
		"damaged":           {[]string{annLine}, changed("\n U1NIU0lH", "\n U1NIU0lI"), "is damaged", true},
		"other kind":        {[]string{annLine}, changed("gpgsig -----BEGIN SSH SIGNATURE-----", "gpgsig -----BEGIN SIGNED MESSAGE-----"), "unknown kind", false},
		"two signatures":    {[]string{annLine}, changed("\ngpgsig -----BEGIN", "\ngpgsig x\ngpgsig -----BEGIN"), "two signatures", true},
		"sha256 beside":     {[]string{annLine}, changed("\n\nchange", "\ngpgsig-sha256 x\n y\n\nchange"), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s.git("reset", "-q", "--hard", base)
			head := c.make()
			if name == "other tree" {
				head = s.object(strings.Replace(s.raw(s.sign("ann")), "tree ", "tree "+emptyTree+"\nx ", 1))
				c.why = "changed after it was signed"
			}
			signers := allowed(t, c.lines...)
			unsigned, err := r.VerifyRange(ctx, base, head, signers, now)
			if err != nil {
				t.Fatal(err)
			}
			if c.why == "" {
				if len(unsigned) != 0 {
					t.Errorf("%v", unsigned)
				}
			} else {
				if len(unsigned) != 1 || unsigned[0].Commit != head || !strings.Contains(unsigned[0].Why, c.why) {
					t.Fatalf("%v, want %q", unsigned, c.why)
				}
				if u := unsigned[0].String(); !strings.Contains(u, head) || !strings.Contains(u, "@example.org>") || !strings.Contains(u, c.why) {
					t.Errorf("shown as %s", u)
				}
			}
			if !c.git {
				return
			}
			file := filepath.Join(s.keys, "allowed")
			if err := os.WriteFile(file, []byte(strings.Join(c.lines, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := s.try("-c", "gpg.ssh.allowedSignersFile="+file, "verify-commit", head)
			if (err == nil) != (c.why == "") {
				t.Errorf("git says %v\n%s", err, out)
			}
		})
	}
}

const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

func fingerprint(t *testing.T, public string) string {
	t.Helper()
	out, err := exec.Command("ssh-keygen", "-lf", writeTemp(t, public)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))[1]
}

func writeTemp(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whoever has found an expired key can give any time; the first commit cannot have
// been made under a key that expired since.
func TestVerifyBackdated(t *testing.T) {
	ctx := context.Background()
	s := newSigning(t)
	signers := allowed(t, `ann valid-before="20240101Z" `+s.sshKey("ann", "ed25519"))
	base := s.sign("")
	s.git("config", "gpg.ssh.allowedSignersFile", "/dev/null")
	s.write("x", "1")
	s.git("add", "-A")
	s.git("-c", "user.signingkey="+filepath.Join(s.keys, "ann"), "commit", "-q", "-S", "-m", "x", "--date=2023-06-01T00:00:00Z")
	head := s.git("rev-parse", "HEAD")
	r := bareOf(t, s.work)
	// Its author's date is old; the committer's is what counts.
	if unsigned, err := r.VerifyRange(ctx, "", head, signers, noon); err != nil || len(unsigned) != 1 || !strings.Contains(unsigned[0].Why, "has expired") {
		t.Errorf("%v %v", unsigned, err)
	}
	raw := s.raw(head)
	payload, _, err := cutSignature([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(payload), "committer Bob <bob@example.org> "+s.git("log", "-1", "--format=%ct", head), "committer Bob <bob@example.org> 1685577600", 1)
	backdated := s.object(withSignature(old, s.run(old, "ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", "ann")))
	if unsigned, err := r.VerifyRange(ctx, base, backdated, signers, noon); err != nil || len(unsigned) != 1 || !strings.Contains(unsigned[0].Why, "has expired") {
		t.Errorf("backdated: %v %v", unsigned, err)
	}
	if unsigned, err := r.VerifyRange(ctx, base, backdated, signers, time.Unix(1685577600, 0)); err != nil || len(unsigned) != 0 {
		t.Errorf("in its time: %v %v", unsigned, err)
	}
	if unsigned, err := r.VerifyRange(ctx, "", backdated, signers, noon); err != nil || len(unsigned) != 0 {
		t.Errorf("the first commit: %v %v", unsigned, err)
	}
}

func TestVerifyRange(t *testing.T) {
	ctx := context.Background()
	s := newSigning(t)
	ann, eve := s.sshKey("ann", "ed25519"), s.sshKey("eve", "ed25519")
	r := bareOf(t, s.work)
	now := time.Now()
	s.write("allowed_signers", "ann "+ann+"\n")
	ancient := s.sign("")
	base := s.sign("ann")
	check := func(from, to string, want ...string) {
		t.Helper()
		signers, err := r.SignersAt(ctx, base, "allowed_signers", "")
		if err != nil {
			t.Fatal(err)
		}
		unsigned, err := r.VerifyRange(ctx, from, to, signers, now)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range unsigned {
			got = append(got, u.Commit)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("unsigned %v, want %v", unsigned, want)
		}
	}
	check(base, base)
	check("", base)               // what came before was never applied
	check("", ancient, ancient)   // the first commit must be signed itself
	check(base, ancient, ancient) // an allowed rewind

	one := s.sign("")
	two := s.sign("ann")
	three := s.sign("eve")
	check(base, three, one, three)
	check(one, two)

	// A key that comes with the range signs nothing in it.
	s.git("reset", "-q", "--hard", base)
	s.write("allowed_signers", "ann "+ann+"\neve "+eve+"\n")
	adds := s.sign("eve")
	check(base, adds, adds)
	s.git("reset", "-q", "--hard", base)
	s.write("allowed_signers", "ann "+ann+"\neve "+eve+"\n")
	good := s.sign("ann")
	late := s.sign("eve")
	check(base, late, late)
	signers, err := r.SignersAt(ctx, good, "allowed_signers", "")
	if err != nil {
		t.Fatal(err)
	}
	if unsigned, err := r.VerifyRange(ctx, good, late, signers, now); err != nil || len(unsigned) > 0 {
		t.Errorf("after the key was added: %v %v", unsigned, err)
	}

	// All sides of a merge, also of one that was begun before the applied commit.
	s.git("checkout", "-q", "-b", "side", ancient)
	sneaky := s.sign("")
	covered := s.sign("ann")
	s.git("checkout", "-q", "-B", "main", base)
	s.git("-c", "user.signingkey="+filepath.Join(s.keys, "ann"), "merge", "-q", "-S", "-s", "ours", "-m", "merge", covered)
	check(base, s.git("rev-parse", "HEAD"), sneaky)
	s.git("checkout", "-q", "-B", "main", base)
	s.git("merge", "-q", "--no-gpg-sign", "-s", "ours", "-m", "merge", covered)
	merge := s.git("rev-parse", "HEAD")
	check(base, merge, sneaky, merge)

	// A replaced object is what it was.
	s.git("replace", one, two)
	check(base, two, one)
	s.git("replace", "-d", one)

	for name, try := range map[string][2]string{
		"no such from": {strings.Repeat("ab", 20), base},
		"no such to":   {base, strings.Repeat("ab", 20)},
		"no first":     {"", strings.Repeat("ab", 20)},
	} {
		if _, err := r.VerifyRange(ctx, try[0], try[1], Signers{}, now); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, from := range []string{"main", base[:10], "-x"} {
		if _, err := r.VerifyRange(ctx, from, base, Signers{}, now); err == nil {
			t.Errorf("from %q", from)
		}
	}
}

func TestVerifyBounds(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	commits := w.history(maxRange + 2)
	r := bareOf(t, w)
	if _, err := r.VerifyRange(ctx, commits[0], commits[maxRange+1], Signers{}, noon); err == nil || !strings.Contains(err.Error(), "more than 10000 commits since "+commits[0]) {
		t.Errorf("%v", err)
	}
	unsigned, err := r.VerifyRange(ctx, commits[0], commits[maxRange], Signers{}, noon)
	if err != nil || len(unsigned) != maxRange || unsigned[0].Commit != commits[1] {
		t.Errorf("%d unsigned, %v", len(unsigned), err)
	}
	var large strings.Builder
	fmt.Fprintf(&large, "commit refs/heads/large\ncommitter Bob <bob@example.org> 1700000000 +0000\ndata %d\n%s\n", maxCommit, strings.Repeat("x", maxCommit))
	w.fastImport(large.String())
	unsigned, err = r.VerifyRange(ctx, "", w.git("rev-parse", "large"), Signers{}, noon)
	if err != nil || len(unsigned) != 1 || !strings.Contains(unsigned[0].Why, "too large") {
		t.Errorf("%v %v", unsigned, err)
	}
}

func TestVerifyPGP(t *testing.T) {
	ctx := context.Background()
	s := newSigning(t)
	t.Cleanup(func() { s.run("", "gpgconf", "--kill", "all") })
	gpg := func(args ...string) string {
		return s.run("", "gpg", append([]string{"--batch", "--quiet", "--yes", "--pinentry-mode", "loopback", "--passphrase", ""}, args...)...)
	}
	fingerprintOf := func(user string) string {
		for line := range strings.Lines(gpg("--with-colons", "--list-keys", user)) {
			if f := strings.Split(line, ":"); f[0] == "fpr" {
				return f[9]
			}
		}
		t.Fatalf("no key of %s", user)
		return ""
	}
	// The git that signs must find a gpg with our options.
	wrapper := func(name string, options ...string) string {
		path := filepath.Join(s.keys, name)
		script := "#!/bin/sh\nGNUPGHOME=" + quote(s.keys) + " exec gpg --batch --quiet --pinentry-mode loopback --passphrase '' " + strings.Join(options, " ") + " \"$@\"\n"
		if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, weakHash, past := wrapper("gpg-plain"), wrapper("gpg-weak", "--digest-algo", "SHA1"), wrapper("gpg-past", "--faked-system-time", "20200105T000000!")
	gpg("--quick-gen-key", "Ann <ann@example.org>", "ed25519", "sign", "never")
	gpg("--quick-gen-key", "Rob <rob@example.org>", "rsa2048", "cert", "never")
	gpg("--quick-add-key", fingerprintOf("rob@example.org"), "rsa2048", "sign", "never")
	gpg("--quick-gen-key", "Eve <eve@example.org>", "ed25519", "sign", "never")
	gpg("--quick-gen-key", "Rex <rex@example.org>", "ed25519", "sign", "never")
	s.run("", past, "--quick-gen-key", "Old <old@example.org>", "ed25519", "sign", "10d")
	keyring := gpg("--armor", "--export", "ann@example.org", "old@example.org") + "\n# another block\n" + gpg("--armor", "--export", "rob@example.org") +
		gpg("--armor", "--export", "rex@example.org")
	var signers Signers
	if err := signers.AddKeyring("keyring.asc", []byte(keyring)); err != nil {
		t.Fatal(err)
	}
	s.git("config", "gpg.format", "openpgp")
	sign := func(program, user string) func() string {
		return func() string {
			s.write("counter", s.git("rev-list", "--all", "--count"))
			s.git("add", "-A")
			s.git("-c", "gpg.program="+program, "-c", "user.signingkey="+user, "commit", "-q", "-S", "-m", "change")
			return s.git("rev-parse", "HEAD")
		}
	}
	base := s.sign("")
	r := bareOf(t, s.work)
	rexOnly := Signers{}
	now := time.Now()
	revoke := func() Signers {
		raw, err := os.ReadFile(filepath.Join(s.keys, "openpgp-revocs.d", fingerprintOf("rex@example.org")+".rev"))
		if err != nil {
			t.Fatal(err)
		}
		_, block, _ := strings.Cut(string(raw), "\n:")
		if err := os.WriteFile(filepath.Join(s.keys, "revocation"), []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		gpg("--import", "revocation")
		if err := rexOnly.AddKeyring("k", []byte(gpg("--armor", "--export", "rex@example.org"))); err != nil {
			t.Fatal(err)
		}
		return rexOnly
	}
	for _, c := range []struct {
		name    string
		make    func() string
		signers func() Signers
		why     string
	}{
		{"primary key", sign(plain, "ann@example.org"), nil, ""},
		{"subkey", sign(plain, "rob@example.org"), nil, ""},
		{"third block", sign(plain, "rex@example.org"), nil, ""},
		{"unknown", sign(plain, "eve@example.org"), nil, "key " + fingerprintOf("eve@example.org") + ", which is not in the keyring"},
		{"expired", sign(past, "old@example.org"), nil, "has expired"},
		{"weak", sign(weakHash, "rob@example.org"), nil, "too weak"},
		{"changed", func() string {
			return s.object(strings.Replace(s.raw(sign(plain, "ann@example.org")()), "change", "chance", 1))
		}, nil, "changed after it was signed"},
		{"damaged", func() string {
			head, body, _ := strings.Cut(s.raw(sign(plain, "ann@example.org")()), "\n \n ")
			return s.object(head + "\n \n AAAA" + body[4:])
		}, nil, "damaged"},
		{"no keyring", sign(plain, "ann@example.org"), func() Signers { return Signers{} }, "no keyring of allowed signers"},
		{"revoked", sign(plain, "rex@example.org"), revoke, "is revoked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.git("reset", "-q", "--hard", base)
			head := c.make()
			who := signers
			if c.signers != nil {
				who = c.signers()
			}
			unsigned, err := r.VerifyRange(ctx, base, head, who, now)
			switch {
			case err != nil:
				t.Fatal(err)
			case c.why == "" && len(unsigned) > 0:
				t.Errorf("%v", unsigned)
			case c.why != "" && (len(unsigned) != 1 || !strings.Contains(unsigned[0].Why, c.why)):
				t.Errorf("%v, want %q", unsigned, c.why)
			}
			if c.name == "expired" {
				if unsigned, err := r.VerifyRange(ctx, "", head, who, now); err != nil || len(unsigned) > 0 {
					t.Errorf("as the first commit: %v %v", unsigned, err)
				}
			}
		})
	}
	s.write("keyring.asc", keyring)
	with := s.sign("")
	if at, err := r.SignersAt(ctx, with, "", "keyring.asc"); err != nil || len(at.pgp) != len(signers.pgp) {
		t.Errorf("%d keys: %v", len(at.pgp), err)
	}
	if _, err := r.SignersAt(ctx, with, "none", "keyring.asc"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing file: %v", err)
	}
	for name, try := range map[string]struct{ content, want string }{
		"private": {gpg("--armor", "--export-secret-keys", "ann@example.org"), "private key"},
		"empty":   {"", "no armored public key"},
		"text":    {"hello\n", "no armored public key"},
		"cut off": {keyring[:300], "keyring.asc"},
		"message": {strings.ReplaceAll(keyring, "PUBLIC KEY BLOCK", "MESSAGE"), "no block of public keys"},
		"large":   {strings.Repeat("x", maxSignersFile+1), "too many"},
	} {
		var into Signers
		if err := into.AddKeyring("keyring.asc", []byte(try.content)); err == nil || !strings.Contains(err.Error(), try.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
