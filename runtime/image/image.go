package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"time"

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
	// anybody. It tells progress what comes, and goes on from what an earlier pull of
	// it left.
	Pull(ctx context.Context, canonical string, credential *Credential, progress *Progress) (Image, error)
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
	Reason     string
	RetryAfter time.Duration // what a registry asks for; 0: nothing
	Err        error
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
	Parallel int    // pulls at once
	PerHost  int    // of them from one registry; 0: all
	Dir      string // for the record of who pulled what; "": every image is for every pod
	Log      *slog.Logger
}

// Images makes images present. Safe for concurrent use.
type Images struct {
	cfg   Config
	lanes *lanes
	trust *trust // nil: no record is kept

	mu        sync.Mutex
	pulls     map[string]*pull
	importing chan struct{}   // closed when no import is going on; nil: none began
	preloaded map[string]bool // names in the archives
}

// New returns Images over an engine.
func New(cfg Config) (*Images, error) {
	i := &Images{cfg: cfg, lanes: newLanes(cfg.Parallel, cfg.PerHost), pulls: map[string]*pull{}, preloaded: map[string]bool{}}
	if cfg.Dir != "" {
		var err error
		if i.trust, err = openTrust(cfg.Dir); err != nil {
			return nil, err
		}
	}
	return i, nil
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
	ring := req.Keyring.For(ref)
	if policy != Always || isLocal(ref) {
		img, err := i.find(ctx, ref)
		// One that came with somebody's credential is asked of its registry again.
		if err == nil && (isLocal(ref) || i.trust.open(ref, img, ring)) {
			progress("Pulled", fmt.Sprintf("Container image %q already present on machine", name))
			return img, nil
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Image{}, &Error{Reason: ImageInspectError, Err: clean(fmt.Errorf("inspect image %s: %w", ref, err))}
		}
	}
	switch {
	case policy == Never: // nor is it said that it is there for others
		return Image{}, &Error{Reason: ErrImageNeverPull, Err: fmt.Errorf("container image %q is not present with pull policy of Never", name)}
	case isLocal(ref):
		return Image{}, &Error{Reason: ErrImagePull, Err: fmt.Errorf(
			"image %s is not on this node and no registry has images of %s: put its archive into the data directory's images folder and start again, or push it to a registry", ref, Local)}
	}
	progress("Pulling", fmt.Sprintf("Pulling image %q", name))
	img, err := i.pull(ctx, ref, ring, func(text string) { progress("Pulling", fmt.Sprintf("Pulling image %q: %s", name, text)) })
	if err != nil {
		e := &Error{Reason: ErrImagePull, Err: clean(fmt.Errorf("pull image %s: %w", ref, err))}
		var busy *BusyError
		if errors.As(err, &busy) {
			e.RetryAfter = busy.After
		}
		return Image{}, e
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

// Kept says that an image must stay though nothing uses it: no registry has it, or it
// came with an archive and would come with it again. Before the archives are known, any
// may be in one.
func (i *Images) Kept(canonical string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.importing != nil {
		select {
		case <-i.importing:
		default:
			return true
		}
	}
	return isLocal(canonical) || i.preloaded[canonical]
}

// Forget drops what is on record of an image that is gone, by the digest of its
// configuration.
func (i *Images) Forget(id digest.Digest) error { return i.trust.forget(id) }
