package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"sync"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is one that is present: its layers are unpacked.
type Image struct {
	Reference string        // canonical
	Digest    digest.Digest // of what the reference names: manifest or index
	ID        digest.Digest // of the configuration
	ChainID   string        // of the unpacked layers
	Config    ocispec.ImageConfig
}

// RepoDigest is repository@digest, as in a pod's status.
func (i Image) RepoDigest() string { return Repository(i.Reference) + "@" + i.Digest.String() }

// ErrNotFound is what an Engine says of an image that it does not have.
var ErrNotFound = errors.New("image is not present")

// Engine stores images.
type Engine interface {
	// Find returns a present image, or ErrNotFound.
	Find(ctx context.Context, canonical string) (Image, error)
	// Pull fetches an image and unpacks it, with the credential or, with none, as
	// anybody.
	Pull(ctx context.Context, canonical string, credential *Credential) (Image, error)
	// Import stores the images of an archive and unpacks them. name completes the
	// names that the archive gives them.
	Import(ctx context.Context, archive io.Reader, name func(string) (string, error)) error
}

// Reasons of an Error, as Kubernetes names them.
const (
	ErrImagePull      = "ErrImagePull"
	ErrImageNeverPull = "ErrImageNeverPull"
	InvalidImageName  = "InvalidImageName"
	ImageInspectError = "ImageInspectError"
)

// Error says why an image is not present.
type Error struct {
	Reason string
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Policy says when to pull.
type Policy int

// The policies.
const (
	IfNotPresent Policy = iota
	Always
	Never
)

// Config of Images.
type Config struct {
	Engine   Engine
	Parallel int // pulls at once
	Log      *slog.Logger
}

// Images makes images present. Safe for concurrent use.
type Images struct {
	cfg   Config
	slots chan struct{}

	mu        sync.Mutex
	pulls     map[string]*pull
	importing chan struct{} // closed when no import is going on; nil: none began
}

// New returns Images over an engine.
func New(cfg Config) *Images {
	return &Images{cfg: cfg, slots: make(chan struct{}, max(cfg.Parallel, 1)), pulls: map[string]*pull{}}
}

// Request asks for an image.
type Request struct {
	Name    string // as in the pod
	Policy  Policy
	Keyring Keyring // to pull with
	// Progress, if set, hears what a user would want to see, by reason and message.
	Progress func(reason, message string)
}

// Ensure makes an image present under the policy. Errors: *Error.
func (i *Images) Ensure(ctx context.Context, req Request) (Image, error) {
	name, policy, progress := req.Name, req.Policy, req.Progress
	ref, err := Canonical(name)
	if err != nil {
		return Image{}, err
	}
	if progress == nil {
		progress = func(string, string) {}
	}
	if policy != Always || isLocal(ref) {
		img, err := i.find(ctx, ref)
		if err == nil {
			progress("Pulled", fmt.Sprintf("Container image %q already present on machine", name))
			return img, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return Image{}, &Error{ImageInspectError, clean(fmt.Errorf("inspect image %s: %w", ref, err))}
		}
	}
	switch {
	case policy == Never:
		return Image{}, &Error{ErrImageNeverPull, fmt.Errorf("container image %q is not present with pull policy of Never", name)}
	case isLocal(ref):
		return Image{}, &Error{ErrImagePull, fmt.Errorf(
			"image %s is not on this node and no registry has images of %s: put its archive into the data directory's images folder and start again, or push it to a registry", ref, Local)}
	}
	progress("Pulling", fmt.Sprintf("Pulling image %q", name))
	img, err := i.pull(ctx, ref, req.Keyring.For(ref))
	if err != nil {
		return Image{}, &Error{ErrImagePull, clean(fmt.Errorf("pull image %s: %w", ref, err))}
	}
	progress("Pulled", fmt.Sprintf("Successfully pulled image %q", name))
	return img, nil
}

// find waits for an import that is going on before it says that an image is not
// there: the first pods of a new node want the images that come with it.
func (i *Images) find(ctx context.Context, ref string) (Image, error) {
	img, err := i.cfg.Engine.Find(ctx, ref)
	i.mu.Lock()
	importing := i.importing
	i.mu.Unlock()
	if !errors.Is(err, ErrNotFound) || importing == nil {
		return img, err
	}
	select {
	case <-importing:
	case <-ctx.Done():
		return Image{}, ctx.Err()
	}
	return i.cfg.Engine.Find(ctx, ref)
}

// pull is one that is going on, with everyone who waits for it.
type pull struct {
	cancel  context.CancelFunc
	waiters int
	done    chan struct{}
	image   Image
	err     error
}

// pull joins the image's pull with the same credentials, or begins it. The last one
// to leave ends it.
func (i *Images) pull(ctx context.Context, ref string, ring Keyring) (Image, error) {
	key := ref + " " + ring.fingerprint()
	i.mu.Lock()
	p := i.pulls[key]
	if p == nil {
		work, cancel := context.WithCancel(context.WithoutCancel(ctx))
		p = &pull{cancel: cancel, done: make(chan struct{})}
		i.pulls[key] = p
		go i.fetch(work, key, ref, ring, p)
	}
	p.waiters++
	i.mu.Unlock()
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if p.waiters--; p.waiters == 0 {
			p.cancel()
			if i.pulls[key] == p {
				delete(i.pulls, key)
			}
		}
	}()
	select {
	case <-p.done:
		return p.image, p.err
	case <-ctx.Done():
		return Image{}, ctx.Err()
	}
}

func (i *Images) fetch(ctx context.Context, key, ref string, ring Keyring, p *pull) {
	defer close(p.done)
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	case <-ctx.Done():
		p.err = ctx.Err()
		return
	}
	p.image, p.err = i.fetchWith(ctx, ref, ring)
	i.mu.Lock()
	if i.pulls[key] == p { // who asks from now on begins anew
		delete(i.pulls, key)
	}
	i.mu.Unlock()
}

// fetchWith tries one credential after the other, as Kubernetes does: which of them
// opens a repository is not known before. With none it asks as anybody.
func (i *Images) fetchWith(ctx context.Context, ref string, ring Keyring) (Image, error) {
	if len(ring) == 0 {
		return i.cfg.Engine.Pull(ctx, ref, nil)
	}
	var errs []error
	for _, c := range ring {
		img, err := i.cfg.Engine.Pull(ctx, ref, &c)
		if err == nil || ctx.Err() != nil {
			return img, err
		}
		errs = append(errs, err)
	}
	return Image{}, errors.Join(errs...)
}

// cleaned is an error whose text has no credentials, with its chain kept for
// errors.Is.
type cleaned struct {
	text string
	err  error
}

func (c *cleaned) Error() string { return c.text }
func (c *cleaned) Unwrap() error { return c.err }

// clean cuts what may be secret out of the URLs in an error: a registry may
// redirect to a signed address, and that is then part of the message.
func clean(err error) error {
	url := regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)(?:[^\s/@"']*@)?([^\s?#"']*)(?:[?#][^\s"']*)?`)
	return &cleaned{url.ReplaceAllString(err.Error(), "$1$2"), err}
}
