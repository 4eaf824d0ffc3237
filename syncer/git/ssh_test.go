package git

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"headway.dev/headway/internal/loopback"
)

// sshServer is an ssh server on loopback that runs the git program of this machine
// on the repositories of a folder, for one key that may write and one that may not.
type sshServer struct {
	t       *testing.T
	address string
	root    string
	config  *ssh.ServerConfig
	writer  string // files of private keys
	reader  string
	hostKey ssh.Signer

	mu       sync.Mutex
	sessions int
}

func newSigner(t testing.TB, key crypto.Signer) ssh.Signer {
	t.Helper()
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func edKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// keyFile writes a private key to a file and returns its path.
func keyFile(t testing.TB, key crypto.PrivateKey) string {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, "of the test")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func startSSH(t *testing.T, more ...ssh.Signer) *sshServer {
	t.Helper()
	write, read := edKey(t), edKey(t)
	s := &sshServer{t: t, root: t.TempDir(), writer: keyFile(t, write), reader: keyFile(t, read), hostKey: newSigner(t, edKey(t))}
	writer, reader := newSigner(t, write).PublicKey(), newSigner(t, read).PublicKey()
	s.config = &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		who := map[string]string{string(writer.Marshal()): "writer", string(reader.Marshal()): "reader"}[string(key.Marshal())]
		if who == "" || c.User() != "git" {
			return nil, errors.New("nobody we know")
		}
		return &ssh.Permissions{Extensions: map[string]string{"who": who}}, nil
	}}
	for _, key := range append(more, s.hostKey) {
		s.config.AddHostKey(key)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return s
}

func (s *sshServer) serve(conn net.Conn) {
	defer conn.Close()
	c, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		return // a client that we do not let in
	}
	go ssh.DiscardRequests(requests)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for ch := range channels {
		channel, asks, err := ch.Accept()
		if err != nil {
			return
		}
		sessions.Go(func() {
			defer channel.Close()
			for r := range asks {
				if r.Type != "exec" {
					_ = r.Reply(false, nil)
					continue
				}
				_ = r.Reply(true, nil)
				status := s.exec(c.Permissions.Extensions["who"], string(r.Payload[4:]), channel)
				_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
				return
			}
		})
	}
}

// exec runs what a client asks for, as a forge does.
func (s *sshServer) exec(who, command string, channel ssh.Channel) int {
	s.mu.Lock()
	s.sessions++
	s.mu.Unlock()
	name, path, _ := strings.Cut(command, " ")
	path = strings.Trim(path, "'")
	if name == "git-receive-pack" && who == "reader" {
		fmt.Fprintln(channel.Stderr(), "ERROR: The key you are authenticating with has been marked as read only.")
		return 1
	}
	if name != "git-upload-pack" && name != "git-receive-pack" {
		fmt.Fprintln(channel.Stderr(), "unknown command")
		return 1
	}
	dir := filepath.Join(s.root, path)
	if _, err := os.Stat(dir); err != nil {
		fmt.Fprintln(channel.Stderr(), "ERROR: Repository not found.")
		return 1
	}
	cmd := exec.Command("git", strings.TrimPrefix(name, "git-"), dir)
	cmd.Env = cleanEnv()
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	in, err := cmd.StdinPipe()
	if err != nil {
		return 1
	}
	go func() {
		_, _ = io.Copy(in, channel)
		_ = in.Close()
	}()
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// known writes a known_hosts file.
func (s *sshServer) known(lines ...string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "known_hosts")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *sshServer) line(key ssh.PublicKey) string { return knownhosts.Line([]string{s.address}, key) }

func TestForgeSSH(t *testing.T) {
	ctx := context.Background()
	s := startSSH(t)
	w := newWork(t)
	first := w.commit("a", "1")
	bare := filepath.Join(s.root, "team", "repo.git")
	w.git("clone", "-q", "--bare", ".", bare)
	good := s.known("# ours", "other.example ssh-ed25519 "+strings.Fields(s.line(s.hostKey.PublicKey()))[2], s.line(s.hostKey.PublicKey()))
	url := "ssh://" + s.address + "/team/repo.git"
	for _, u := range []string{url, "ssh://git@" + s.address + "/team/repo.git"} {
		f := openForge(t, ForgeConfig{URL: u, SSHKey: s.writer, KnownHosts: good})
		if got, err := f.Fetch(ctx, "main", 0); err != nil || got != first {
			t.Fatalf("%s: %s %v", u, got, err)
		}
		if got, err := f.Fetch(ctx, "main", 0); err != nil || got != first {
			t.Errorf("again: %s %v", got, err)
		}
		if _, err := f.Fetch(ctx, "none", 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("a ref that is not there: %v", err)
		}
		second := w.commit("a", "of "+u)
		w.git("push", "-q", bare, "main")
		if got, err := f.Fetch(ctx, "main", 0); err != nil || got != second {
			t.Errorf("%s, want %s: %v", got, second, err)
		}
		first = second
	}
}

func TestForgeSSHErrors(t *testing.T) {
	ctx := context.Background()
	s := startSSH(t)
	w := newWork(t)
	w.commit("a", "1")
	w.git("clone", "-q", "--bare", ".", filepath.Join(s.root, "repo.git"))
	w.git("init", "-q", "--bare", filepath.Join(s.root, "empty.git"))
	url := "ssh://" + s.address + "/repo.git"
	line := s.line(s.hostKey.PublicKey())
	good := s.known(line)
	other := newSigner(t, edKey(t)).PublicKey()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(edKey(t), "", []byte("passphrase"))
	if err != nil {
		t.Fatal(err)
	}
	lockedFile := filepath.Join(t.TempDir(), "locked")
	if err := os.WriteFile(lockedFile, pem.EncodeToMemory(locked), 0o600); err != nil {
		t.Fatal(err)
	}
	openFile := keyFile(t, edKey(t))
	if err := os.Chmod(openFile, 0o640); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	strange := keyFile(t, edKey(t))
	strangeKey, err := readKey(strange)
	if err != nil {
		t.Fatal(err)
	}
	closed := loopback.Reserve(t, 1)
	shown := "ssh-ed25519 " + ssh.FingerprintSHA256(s.hostKey.PublicKey())
	none := filepath.Join(t.TempDir(), "none")
	changed := s.known("# one", s.line(other))

	for name, c := range map[string]struct {
		config ForgeConfig
		want   []string
		class  error
	}{
		"wrong key":         {ForgeConfig{SSHKey: strange}, []string{"does not accept the key of " + strange, string(ssh.MarshalAuthorizedKey(strangeKey.PublicKey()))[:60]}, ErrNotAllowed},
		"wrong user":        {ForgeConfig{URL: "ssh://mallory@" + s.address + "/repo.git"}, []string{"does not accept the key"}, ErrNotAllowed},
		"unknown host":      {ForgeConfig{KnownHosts: s.known("other.example " + strings.SplitN(line, " ", 2)[1])}, []string{"is not known", shown, line}, nil},
		"no known hosts":    {ForgeConfig{KnownHosts: none}, []string{"add this line to " + none, line}, nil},
		"changed host key":  {ForgeConfig{KnownHosts: changed}, []string{"has changed", shown, changed + ":2 has ssh-ed25519 " + ssh.FingerprintSHA256(other), line}, nil},
		"another kind":      {ForgeConfig{KnownHosts: s.known(s.line(newSigner(t, ec).PublicKey()))}, []string{"has changed", "ecdsa-sha2-nistp256", line}, nil},
		"revoked":           {ForgeConfig{KnownHosts: s.known("@revoked " + line)}, []string{"is revoked by"}, nil},
		"broken known host": {ForgeConfig{KnownHosts: s.known("# x", "host ssh-ed25519 !!!")}, []string{"known_hosts:2"}, nil},
		"passphrase":        {ForgeConfig{SSHKey: lockedFile}, []string{"has a passphrase"}, nil},
		"open key":          {ForgeConfig{SSHKey: openFile}, []string{"can be read by others (mode 0640): chmod 600"}, nil},
		"no key":            {ForgeConfig{SSHKey: none}, []string{"read the ssh key", none}, nil},
		"not a key":         {ForgeConfig{SSHKey: garbage}, []string{"not a private key"}, nil},
		"no repository":     {ForgeConfig{URL: "ssh://" + s.address + "/none.git"}, []string{"no such repository"}, ErrNotFound},
		"empty":             {ForgeConfig{URL: "ssh://" + s.address + "/empty.git"}, []string{"empty"}, ErrNotFound},
		"unreachable":       {ForgeConfig{URL: "ssh://" + closed + "/a"}, []string{"unreachable"}, ErrUnreachable},
		"silent":            {ForgeConfig{URL: "ssh://" + strings.TrimSuffix(strings.TrimPrefix(silent(t), "http://"), "/a.git") + "/a", Patience: 50 * time.Millisecond}, []string{"nothing came for 50ms"}, ErrUnreachable},
		"not ssh":           {ForgeConfig{URL: "ssh://" + talking(t, "220 mail ready\r\n") + "/a"}, []string{"ssh: "}, ErrUnreachable},
		"too large":         {ForgeConfig{MaxFetch: 10}, []string{"too large"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(to *string, value string) {
				if *to == "" {
					*to = value
				}
			}
			set(&c.config.URL, url)
			set(&c.config.SSHKey, s.writer)
			set(&c.config.KnownHosts, good)
			f := openForge(t, c.config)
			got, err := f.Fetch(ctx, "main", 0)
			if err == nil {
				t.Fatalf("fetched %s", got)
			}
			t.Log(err)
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if c.class != nil && !errors.Is(err, c.class) {
				t.Errorf("it is not of the class %v", c.class)
			}
			if strings.Contains(err.Error(), "c2VjcmV0") {
				t.Error("the key is shown")
			}
		})
	}
	// What the error says mends it.
	path := s.known("# nobody yet")
	f := openForge(t, ForgeConfig{URL: url, SSHKey: s.writer, KnownHosts: path})
	_, err = f.Fetch(ctx, "main", 0)
	if err == nil {
		t.Fatal("trusted on first use")
	}
	_, add, _ := strings.Cut(err.Error(), path+": ")
	if err := os.WriteFile(path, []byte(add+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Fetch(ctx, "main", 0); err != nil {
		t.Errorf("with the line %q: %v", add, err)
	}
	for _, c := range []ForgeConfig{{URL: url, SSHKey: s.writer}, {URL: url, KnownHosts: good}} {
		c.Dir, c.Cluster = t.TempDir(), "main"
		if _, err := OpenForge(ctx, c); err == nil || !strings.Contains(err.Error(), "needs a key file and a known hosts file") {
			t.Errorf("%v", err)
		}
	}
}

// talking is a server that says one thing.
func talking(t *testing.T, text string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// A host that proves itself with a certificate of a known authority.
func TestForgeSSHHostCertificate(t *testing.T) {
	ctx := context.Background()
	authority, key := newSigner(t, edKey(t)), newSigner(t, edKey(t))
	cert := &ssh.Certificate{Key: key.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewCertSigner(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s := startSSH(t, signer)
	w := newWork(t)
	head := w.commit("a", "1")
	w.git("clone", "-q", "--bare", ".", filepath.Join(s.root, "repo.git"))
	host, _, _ := net.SplitHostPort(s.address)
	_, port, _ := net.SplitHostPort(s.address)
	ca := fmt.Sprintf("@cert-authority [%s]:%s %s", host, port, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(authority.PublicKey()))))
	c := ForgeConfig{URL: "ssh://" + s.address + "/repo.git", SSHKey: s.writer, KnownHosts: s.known(ca)}
	if got, err := openForge(t, c).Fetch(ctx, "main", 0); err != nil || got != head {
		t.Errorf("with the authority: %s %v", got, err)
	}
	c.Dir, c.KnownHosts = "", s.known(s.line(s.hostKey.PublicKey()))
	if got, err := openForge(t, c).Fetch(ctx, "main", 0); err != nil || got != head {
		t.Errorf("with the plain key of a host that has a certificate too: %s %v", got, err)
	}
}

func TestParseSSH(t *testing.T) {
	for url, want := range map[string]string{
		"ssh://git@github.com/a/b.git": "git github.com:22 /a/b.git",
		"ssh://github.com:443/a/b.git": "git github.com:443 /a/b.git",
		"ssh://ann@host/~ann/b":        "ann host:22 ~ann/b",
		"git@github.com:a/b.git":       "git github.com:22 a/b.git",
		"host:b":                       "git host:22 b",
		"git@host:/abs/b":              "git host:22 /abs/b",
		"ssh://git@[::1]:2222/b":       "git [::1]:2222 /b",
		"git@[::1]:b":                  "git [::1]:22 b",
		"ssh://a@b@host/b":             "a@b host:22 /b",
		"ssh://host":                   "",
		"ssh://host/":                  "",
		"ssh://git:secret@host/b":      "",
		"ssh://host:22x/b":             "",
		"ssh://-oProxyCommand=x/b":     "",
		"ssh:///b":                     "",
		"host:":                        "",
		"ssh://[::1/b":                 "",
		"ssh://host/a\nb":              "",
	} {
		a, ok := parseSSH(url)
		got := ""
		if ok {
			got = fmt.Sprintf("%s %s %s", a.user, a.dial(), a.path)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", url, got, want)
		}
	}
}

func FuzzParseSSH(f *testing.F) {
	f.Add("ssh://git@host:22/path")
	f.Add("git@[::1]:path")
	f.Fuzz(func(t *testing.T, url string) {
		a, ok := parseSSH(url)
		if ok && (a.host == "" || a.user == "" || strings.ContainsAny(a.user+a.host+a.path, "\x00\n") || strings.HasPrefix(a.host, "-")) {
			t.Errorf("%q: %+v", url, a)
		}
	})
}
