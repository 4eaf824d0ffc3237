package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// talk is what one conversation with the forge needs.
type talk struct {
	idle *time.Timer          // ends the conversation unless something comes or we stop it
	auth transport.AuthMethod // of http
}

// talk runs one conversation. Its errors never show a secret.
func (f *Forge) talk(ctx context.Context, do func(ctx context.Context, t *talk) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &talk{idle: time.AfterFunc(f.config.Patience, func() {
		cancel(ofClass(ErrUnreachable, "nothing came for %s", f.config.Patience))
	})}
	defer t.idle.Stop()
	auth, secrets, err := f.auth()
	if err == nil {
		t.auth = auth
		err = do(ctx, t)
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause // what came of it says less
	}
	return newRedactor(secrets...).hide(err)
}

// greet opens a conversation and reads the forge's refs. verb is what it is for:
// read or write to. What follows is our own work, so the idle timer stands.
func greet[S transport.Session](ctx context.Context, t *talk, open func(context.Context, *talk) (S, error), verb string) (session S, refs *packp.AdvRefs, err error) {
	if session, err = open(ctx, t); err != nil {
		return session, nil, err
	}
	refs, err = session.AdvertisedReferencesContext(ctx)
	if err != nil {
		err = explain(err, verb)
	} else {
		t.idle.Stop()
		err = checkFormat(refs)
	}
	if err != nil {
		_ = session.Close() // there is an error already
	}
	return session, refs, err
}

// upload opens a conversation with git-upload-pack.
func (f *Forge) upload(ctx context.Context, t *talk) (transport.UploadPackSession, error) {
	if f.scheme == "http" {
		endpoint, err := transport.NewEndpoint(f.address)
		if err != nil {
			return nil, err
		}
		return f.http.NewUploadPackSession(endpoint, t.auth)
	}
	return f.run(ctx, transport.UploadPackServiceName)
}

// receive opens a conversation with git-receive-pack.
func (f *Forge) receive(ctx context.Context, t *talk) (transport.ReceivePackSession, error) {
	if f.scheme == "http" {
		endpoint, err := transport.NewEndpoint(f.address)
		if err != nil {
			return nil, err
		}
		return f.http.NewReceivePackSession(endpoint, t.auth)
	}
	return f.run(ctx, transport.ReceivePackServiceName)
}

func (f *Forge) run(ctx context.Context, name string) (*session, error) {
	start := f.runLocal
	if f.scheme == "ssh" {
		start = f.runSSH
	}
	s, err := start(ctx, name)
	if err != nil {
		return nil, err
	}
	return &session{service: s, write: name == transport.ReceivePackServiceName, maxPack: f.config.MaxFetch + f.config.MaxFetch/100 + 1<<20}, nil
}

// runLocal starts a git service on a repository of this machine.
func (f *Forge) runLocal(ctx context.Context, name string) (service, error) {
	if info, err := os.Stat(f.address); err != nil {
		return service{}, fmt.Errorf("no such repository: %w", err)
	} else if !info.IsDir() {
		return service{}, errors.New("not a git repository but a file")
	}
	p := program{path: f.program.path, dir: f.address}
	cmd := p.command(p.path, strings.TrimPrefix(name, "git-"), f.address)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(s string) bool {
		// Reading may be from a repository of another user, for the operator named
		// it. Writing there would run its hooks as us, which git then refuses.
		return strings.HasPrefix(s, "GIT_DIR=") || name == transport.ReceivePackServiceName && strings.HasPrefix(s, "GIT_CONFIG_COUNT=")
	})
	said := &head{max: 4 << 10}
	cmd.Stderr = said
	in, out, err := start(cmd)
	if err != nil {
		return service{}, fmt.Errorf("start %s: %w", name, err)
	}
	release := context.AfterFunc(ctx, func() { kill(cmd) })
	end := sync.OnceValue(func() error {
		_ = in.Close()
		timer := time.AfterFunc(endTime, func() { kill(cmd) })
		defer timer.Stop()
		_, _ = io.Copy(io.Discard, out)
		release()
		return cmd.Wait()
	})
	return service{in: in, out: &io.LimitedReader{R: out}, end: end, said: said.String}, nil
}

// auth returns what the URL or the file of credentials says, read anew for each
// conversation so that a token can be changed while we run.
func (f *Forge) auth() (auth transport.AuthMethod, secrets []string, err error) {
	if f.scheme != "http" {
		return nil, nil, nil
	}
	var login, password string
	if f.user != nil {
		login = f.user.Username()
		password, _ = f.user.Password()
	} else if f.config.Netrc != "" {
		u, err := url.Parse(f.address)
		if err != nil {
			return nil, nil, err
		}
		login, password, err = credentials(f.config.Netrc, u.Host, u.Hostname())
		if err != nil && !(f.config.NetrcMayBe && errors.Is(err, fs.ErrNotExist)) {
			return nil, nil, err
		}
	}
	if login == "" && password == "" {
		return nil, nil, nil
	}
	if password == "" {
		secrets = []string{login} // a token may stand in the place of the user
	} else {
		secrets = []string{password, url.QueryEscape(password)}
	}
	return &githttp.BasicAuth{Username: login, Password: password}, secrets, nil
}

// explain says in our words what the person can do about an error of go-git.
// verb is what was tried: read or write.
func explain(err error, verb string) error {
	var network *url.Error
	var status *githttp.Err
	var wrapped *plumbing.UnexpectedError
	if errors.As(err, &wrapped) { // it does not unwrap itself
		err = wrapped.Err
	}
	switch {
	case errors.Is(err, ErrNotAllowed), errors.Is(err, ErrUnreachable), errors.Is(err, ErrNotFound):
		return err
	case errors.Is(err, transport.ErrAuthenticationRequired):
		return ofClass(ErrNotAllowed, "authentication failed: the repository is private or the token is wrong; put a valid token into the URL or the credentials file")
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return ofClass(ErrNotAllowed, "authorization failed: the token may not %s this repository", verb)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fmt.Errorf("the repository is empty: %w", ErrNotFound)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return fmt.Errorf("no such repository, or it is private and there are no credentials for it: %w", ErrNotFound)
	case errors.As(err, &status):
		return ofClass(ErrUnreachable, "the forge answered with status %d", status.StatusCode())
	case errors.As(err, &network):
		return ofClass(ErrUnreachable, "unreachable: %v", network.Err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case strings.Contains(err.Error(), "object-format=sha256"):
		return errors.New("the repository uses sha256 object names; only sha1 can be followed")
	}
	return fmt.Errorf("not a git repository, or not one that can be used: %.300s", printable(err.Error()))
}
