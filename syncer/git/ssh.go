package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshAddress is a repository behind ssh.
type sshAddress struct {
	user, host, port string
	path             string // as the server's git gets it
}

func (a sshAddress) dial() string { return net.JoinHostPort(a.host, a.port) }

// BehindSSH says whether the URL of a repository is one of ssh.
func BehindSSH(url string) bool {
	first, _, _ := strings.Cut(url, "/")
	return strings.HasPrefix(url, "ssh://") || !strings.Contains(url, "://") && strings.Contains(first, ":")
}

// parseSSH reads ssh://user@host:port/path and user@host:path, the form of git's
// own. The user is git when none is named.
func parseSSH(url string) (a sshAddress, ok bool) {
	rest, isURL := strings.CutPrefix(url, "ssh://")
	at := strings.LastIndexByte(strings.SplitN(rest, "/", 2)[0], '@')
	if at >= 0 {
		a.user, rest = rest[:at], rest[at+1:]
	}
	a.user, a.port = cmp.Or(a.user, "git"), "22"
	if strings.HasPrefix(rest, "[") { // an IPv6 address
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return a, false
		}
		a.host, rest = rest[1:end], rest[end+1:]
	} else {
		end := strings.IndexAny(rest, ":/")
		if end < 0 {
			return a, false
		}
		a.host, rest = rest[:end], rest[end:]
	}
	if isURL {
		hostPort, path, _ := strings.Cut(rest, "/")
		if port, has := strings.CutPrefix(hostPort, ":"); has && port != "" {
			a.port = port
		} else if hostPort != "" && hostPort != ":" {
			return a, false
		}
		if a.path = "/" + path; strings.HasPrefix(path, "~") {
			a.path = path // a home folder, as git has it
		}
	} else if a.path, ok = strings.CutPrefix(rest, ":"); !ok {
		return a, false
	}
	bad := a.host == "" || strings.HasPrefix(a.host, "-") || strings.Trim(a.path, "/") == "" ||
		strings.ContainsAny(a.user, ":/") || strings.ContainsFunc(a.user+a.host+a.path, func(r rune) bool { return r < ' ' || r == 0x7f }) ||
		strings.Trim(a.port, "0123456789") != ""
	return a, !bad
}

// runSSH starts a git service on the server. Closing ctx ends it.
func (f *Forge) runSSH(ctx context.Context, name string) (service, error) {
	client, err := f.dialSSH(ctx)
	if err != nil {
		return service{}, err
	}
	release := context.AfterFunc(ctx, func() { _ = client.Close() })
	fail := func(err error) (service, error) {
		release()
		_ = client.Close()
		return service{}, ofClass(ErrUnreachable, "ssh: %v", err)
	}
	run, err := client.NewSession()
	if err != nil {
		return fail(err)
	}
	in, err := run.StdinPipe()
	if err != nil {
		return fail(err)
	}
	out, err := run.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	said := &head{max: 4 << 10}
	run.Stderr = said
	if err := run.Start(name + " " + quote(f.ssh.path)); err != nil {
		return fail(err)
	}
	end := sync.OnceValue(func() error {
		_ = in.Close()
		timer := time.AfterFunc(endTime, func() { _ = client.Close() })
		defer timer.Stop()
		_, _ = io.Copy(io.Discard, out)
		err := run.Wait()
		release()
		_ = client.Close()
		return err
	})
	return service{in: in, out: &io.LimitedReader{R: out}, end: end, said: said.String}, nil
}

// endTime is how long a service may take to end when nothing is asked of it any more.
const endTime = 5 * time.Second

// dialSSH connects and signs in. The key and the known hosts are read anew each
// time, so that they can be changed while we run.
func (f *Forge) dialSSH(ctx context.Context) (*ssh.Client, error) {
	key, err := readKey(f.config.SSHKey)
	if err != nil {
		return nil, err
	}
	hosts, err := readKnownHosts(f.config.KnownHosts)
	if err != nil {
		return nil, err
	}
	address := f.ssh.dial()
	dialer := net.Dialer{Timeout: f.config.Patience}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, ofClass(ErrUnreachable, "unreachable: %v", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var wrongHost error
	c, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User:              f.ssh.user,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyAlgorithms: hosts.algorithms(address),
		HostKeyCallback: func(host string, remote net.Addr, shown ssh.PublicKey) error {
			wrongHost = hosts.check(host, remote, shown)
			return wrongHost
		},
		ClientVersion: "SSH-2.0-headway",
	})
	switch {
	case err == nil:
		return ssh.NewClient(c, channels, requests), nil
	case wrongHost != nil:
		err = wrongHost
	case strings.Contains(err.Error(), "unable to authenticate"):
		err = ofClass(ErrNotAllowed, "the server does not accept the key of %s: add its public half to the deploy keys of the repository: %s",
			f.config.SSHKey, bytes.TrimSpace(ssh.MarshalAuthorizedKey(key.PublicKey())))
	default:
		err = ofClass(ErrUnreachable, "%v", err)
	}
	_ = conn.Close()
	return nil, err
}

// readKey reads a private key without a passphrase. Errors never show it.
func readKey(path string) (ssh.Signer, error) {
	raw, err := readSmall(path, 64<<10)
	if err != nil {
		return nil, fmt.Errorf("read the ssh key: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the ssh key: %w", err)
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int(sys.Uid) == os.Getuid() && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the ssh key %s can be read by others (mode %04o): chmod 600 %s", path, info.Mode().Perm(), path)
	}
	key, err := ssh.ParsePrivateKey(raw)
	if missing := new(ssh.PassphraseMissingError); errors.As(err, &missing) {
		return nil, fmt.Errorf("the ssh key %s has a passphrase, which nobody is there to type: make a key of its own for Headway with ssh-keygen -N ''", path)
	}
	if err != nil {
		return nil, fmt.Errorf("the ssh key %s is not a private key that can be read", path) // err may show a part of it
	}
	return key, nil
}

// readSmall reads a file that may not have more than limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return raw, err
}

// knownHosts is a known_hosts file in the form of OpenSSH.
type knownHosts struct {
	path   string
	lines  []string
	lookUp ssh.HostKeyCallback
}

// readKnownHosts reads the file. One that is not there knows no host.
func readKnownHosts(path string) (*knownHosts, error) {
	raw, err := readSmall(path, 4<<20)
	var files []string
	if err == nil {
		files = []string{path}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the known hosts: %w", err)
	}
	k := &knownHosts{path: path, lines: strings.Split(string(raw), "\n")}
	if k.lookUp, err = knownhosts.New(files...); err != nil {
		return nil, fmt.Errorf("read the known hosts: %w", err)
	}
	return k, nil
}

// check says whether a host may show a key. Nothing is trusted on first use.
func (k *knownHosts) check(host string, remote net.Addr, shown ssh.PublicKey) error {
	err := k.lookUp(host, remote, shown)
	if err == nil {
		return nil
	}
	line := knownhosts.Line([]string{host}, shown)
	print := shown.Type() + " " + ssh.FingerprintSHA256(shown)
	var revoked *knownhosts.RevokedError
	var wrong *knownhosts.KeyError
	switch {
	case errors.As(err, &revoked):
		return fmt.Errorf("the host key of %s (%s) is revoked by %s:%d", host, print, revoked.Revoked.Filename, revoked.Revoked.Line)
	case !errors.As(err, &wrong):
		return fmt.Errorf("the host key of %s (%s): %w", host, print, err)
	case len(wrong.Want) == 0:
		return fmt.Errorf("the host key of %s is not known: it shows %s; when its operator says that this is right, add this line to %s: %s", host, print, k.path, line)
	}
	known := wrong.Want[0]
	for _, w := range wrong.Want { // the one of that type, if there is one
		if w.Key.Type() == shown.Type() {
			known = w
		}
	}
	return fmt.Errorf("the host key of %s has changed: it shows %s, and %s:%d has %s %s; somebody may listen in between. When its operator says that the new one is right, put this line in the place of that one: %s",
		host, print, known.Filename, known.Line, known.Key.Type(), ssh.FingerprintSHA256(known.Key), line)
}

// algorithms lists the kinds of host keys that we take, best first: those that the
// file has for the host, so that a host with several keys shows the one we know.
func (k *knownHosts) algorithms(host string) []string {
	var known *knownhosts.KeyError
	errors.As(k.lookUp(host, &net.TCPAddr{IP: net.IPv4zero}, noKey{}), &known)
	all := ssh.SupportedAlgorithms().HostKeys
	certificate := func(a string) bool { return strings.Contains(a, "-cert-") }
	var first []string
	if known != nil {
		for _, w := range known.Want {
			switch {
			case w.Line <= len(k.lines) && strings.HasPrefix(strings.TrimSpace(k.lines[w.Line-1]), "@cert-authority"):
				for _, a := range all {
					if certificate(a) {
						first = append(first, a)
					}
				}
			case w.Key.Type() == ssh.KeyAlgoRSA:
				first = append(first, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			case slices.Contains(all, w.Key.Type()):
				first = append(first, w.Key.Type())
			}
		}
	}
	for _, a := range all {
		if !slices.Contains(first, a) && !certificate(a) {
			first = append(first, a)
		}
	}
	return first
}

// noKey is a key that no host has.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return []byte("none") }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }
