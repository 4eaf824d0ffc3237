package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// Classes of errors of a forge.
var (
	// ErrNotAllowed is the class of errors for credentials that are missing, wrong
	// or not enough, and for what the forge's own rules refuse.
	ErrNotAllowed = errors.New("not allowed")
	// ErrUnreachable is the class of errors for a forge that does not answer.
	ErrUnreachable = errors.New("unreachable")
)

// ForgeConfig says where the repository is. URL, Dir and Cluster must be set, for
// ssh also SSHKey and KnownHosts.
type ForgeConfig struct {
	URL     string // http(s)://…, ssh://…, user@host:path, or the path of a local repository; may hold user and password for http
	Dir     string // of the bare clone, which is ours alone
	Cluster string // for the names of our own refs
	Git     string // path of the git program; default from PATH

	Netrc      string // file with "machine HOST login USER password TOKEN"; may be empty
	NetrcMayBe bool   // without the file there are no credentials, which is no error
	SSHKey     string // file of a private key without a passphrase
	KnownHosts string // file of host keys in the form of OpenSSH

	MaxFetch int64         // bytes of one fetch; default 2 GiB
	MaxPush  int64         // bytes of one push; default 512 MiB, and 64 MiB over http, where it is held in memory
	Patience time.Duration // how long the other side may say nothing; default 1 minute
	Log      *slog.Logger
}

// Forge follows refs of one repository that is hosted elsewhere, for any number of
// sources. It fetches all of their history, without submodules, and pushes our own
// refs there. Embedded is the clone, to read it and to write our refs in it.
//
// go-git speaks the protocol; the git program stores what it brings, so that
// every write to the clone is git's own.
type Forge struct {
	*Repository
	*clone
	pushing chan struct{} // holds one token while nobody pushes; a fetch never waits for that
}

// clone is what all who follow one repository share.
type clone struct {
	config  ForgeConfig
	address string // the URL without user and password
	scheme  string // http, ssh or file
	ssh     sshAddress
	http    transport.Transport
	user    *url.Userinfo

	turn    chan struct{} // holds one token while nobody fetches
	mu      sync.Mutex
	wanted  map[string]int // refs that one fetch brings, with when each was last asked for
	asked   int            // how often any was
	started int            // fetches that have begun
	last    round          // the last fetch that has ended by itself
}

// OpenForge prepares the clone. It does not talk to the forge yet.
func OpenForge(ctx context.Context, c ForgeConfig) (*Forge, error) {
	path, err := find(c.Git)
	if err != nil {
		return nil, err
	}
	if c.MaxFetch == 0 {
		c.MaxFetch = 2 << 30
	}
	if c.Patience == 0 {
		c.Patience = time.Minute
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, fmt.Errorf("open the clone: %w", err)
	}
	f := &Forge{clone: &clone{config: c, turn: make(chan struct{}, 1), wanted: map[string]int{}}, pushing: make(chan struct{}, 1)}
	f.turn <- struct{}{}
	f.pushing <- struct{}{}
	if err := f.parse(); err != nil {
		return nil, err
	}
	if f.config.MaxPush == 0 {
		f.config.MaxPush = maxPushPack
		if f.scheme == "http" {
			f.config.MaxPush = maxHTTPPack
		}
	}
	p := program{path: path, dir: c.Dir}
	if err := prepare(ctx, p, common); err != nil {
		return nil, err
	}
	if err := sweep(c.Dir, 0); err != nil {
		return nil, err
	}
	f.Repository = newRepository(p, c.Cluster, c.Log)
	if err := f.upgrade(ctx); err != nil {
		f.Close()
		return nil, err
	}
	if f.scheme == "http" {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 1
		f.http = githttp.NewClient(&http.Client{Transport: bounded{t, f.config.MaxFetch}})
	}
	return f, nil
}

// As is the same clone with own refs of another name, for one more source that
// follows the repository: the two share what is fetched, and each has a live ref and
// notes of its own. Only the one that OpenForge made is closed.
func (f *Forge) As(name string) *Forge {
	out := &Forge{Repository: &Repository{Objects: f.Objects, cluster: name, log: f.log}, clone: f.clone, pushing: make(chan struct{}, 1)}
	out.pushing <- struct{}{}
	return out
}

// upgrade removes the one ref that a clone of an earlier release kept. Its objects
// are there still when the next fetch looks for them.
func (f *Forge) upgrade(ctx context.Context) error {
	ref := "refs/headway/" + f.cluster + "/fetched"
	old, err := f.at(ctx, ref)
	if err == nil && old != "" {
		err = f.edit(ctx, []edit{{ref: ref, old: old}})
	}
	if err != nil {
		return fmt.Errorf("open the clone: %w", err)
	}
	return nil
}

// parse takes user and password out of the URL: from here on no error and no
// log can show them (R14).
func (f *Forge) parse() error {
	given := f.config.URL
	f.config.URL = ""
	u, err := url.Parse(given)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https"):
		if u.Host == "" {
			return errors.New("the URL of the repository has no host")
		}
		f.scheme = "http"
		f.user = u.User
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		f.address = strings.TrimSuffix(u.String(), "/")
		return nil
	case BehindSSH(given):
		a, ok := parseSSH(given)
		if !ok {
			return errors.New("the URL of the repository is none of ssh: write ssh://git@HOST/PATH or git@HOST:PATH, without a password")
		}
		if f.config.SSHKey == "" || f.config.KnownHosts == "" {
			return errors.New("a repository behind ssh needs a key file and a known hosts file")
		}
		f.scheme, f.ssh = "ssh", a
		f.address = fmt.Sprintf("ssh://%s@%s/%s", a.user, a.dial(), strings.TrimPrefix(a.path, "/"))
		return nil
	case err != nil:
		return errors.New("the URL of the repository is not a URL and not a path") // err shows the URL
	case u.Scheme == "file" || u.Scheme == "":
		path := given
		if u.Scheme == "file" {
			path = u.Path
		}
		f.scheme = "file"
		if f.address, err = filepath.Abs(path); err != nil {
			return fmt.Errorf("the path of the repository: %w", err)
		}
		return nil
	}
	return errors.New("only http://, https://, ssh:// and local paths can be followed")
}

// bounded limits what a response may bring, and tells who waits that a request is
// being sent.
type bounded struct {
	next http.RoundTripper
	pack int64
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if wake, ok := r.Context().Value(wakeKey{}).(func()); ok && r.Body != nil {
		r = r.Clone(r.Context())
		r.Body = struct {
			io.Reader
			io.Closer
		}{&heard{r.Body, wake}, r.Body}
	}
	res, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit := int64(64 << 20) // a list of refs
	switch {
	case res.StatusCode != http.StatusOK:
		limit = 4 << 10 // a reason
	case r.Method == http.MethodPost:
		limit = b.pack + b.pack/100 + 1<<20 // git counts the pack itself, this its frames too
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, limit), res.Body}
	return res, nil
}
