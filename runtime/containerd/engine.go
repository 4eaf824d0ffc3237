package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/image"
)

// engine stores images in containerd. It is image.Engine.
type engine struct {
	client   *client.Client
	hosts    string
	platform platforms.MatchComparer // of this machine
	looks    looks

	mu    sync.Mutex
	cache map[string]image.Image  // by canonical name; valid as long as the digest is
	users map[string]specs.User   // by layers and name
	sizes map[digest.Digest]int64 // of the images that were there at the last look; never changed in place
}

// policyOf reads a pull policy; an empty one is what Kubernetes makes of it.
func policyOf(p corev1.PullPolicy, ref string) (image.Policy, error) {
	switch p {
	case corev1.PullAlways:
		return image.Always, nil
	case corev1.PullNever:
		return image.Never, nil
	case corev1.PullIfNotPresent:
		return image.IfNotPresent, nil
	case "":
		canonical, err := image.Canonical(ref)
		if err == nil && strings.HasSuffix(canonical, ":latest") {
			return image.Always, nil
		}
		return image.IfNotPresent, nil
	}
	return 0, fmt.Errorf("image pull policy %q is not known", p)
}

// Find returns an image that is present, unpacked.
func (e *engine) Find(ctx context.Context, ref string) (image.Image, error) {
	found, err := e.client.ImageService().Get(ctx, ref)
	if errdefs.IsNotFound(err) {
		return image.Image{}, image.ErrNotFound
	}
	if err != nil {
		return image.Image{}, err
	}
	e.mu.Lock()
	cached, ok := e.cache[ref]
	e.mu.Unlock()
	if ok && cached.Digest == found.Target.Digest {
		return cached, nil
	}
	img, err := e.read(ctx, found)
	if errdefs.IsNotFound(err) { // a pull that was interrupted: parts are missing
		return image.Image{}, image.ErrNotFound
	}
	return img, err
}

// known is Find for an image that was found before, without asking containerd.
func (e *engine) known(ctx context.Context, ref string) (image.Image, error) {
	e.mu.Lock()
	cached, ok := e.cache[ref]
	e.mu.Unlock()
	if ok {
		return cached, nil
	}
	return e.Find(ctx, ref)
}

// forget drops what is remembered of an image whose layers are gone.
func (e *engine) forget(ref string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.cache, ref)
}

// longestConfig bounds an image's configuration, in bytes.
const longestConfig = 8 << 20

// read reads an image's configuration and unpacks it where it is not yet.
func (e *engine) read(ctx context.Context, stored images.Image) (image.Image, error) {
	i := client.NewImage(e.client, stored)
	desc, err := i.Config(ctx)
	if err != nil {
		return image.Image{}, fmt.Errorf("read manifest of %s: %w", stored.Name, err)
	}
	if desc.Size > longestConfig {
		return image.Image{}, fmt.Errorf("configuration of %s has %d bytes: at most %d are read", stored.Name, desc.Size, longestConfig)
	}
	data, err := content.ReadBlob(ctx, i.ContentStore(), desc)
	if err != nil {
		return image.Image{}, fmt.Errorf("read configuration of %s: %w", stored.Name, err)
	}
	var conf ocispec.Image
	if err := json.Unmarshal(data, &conf); err != nil {
		return image.Image{}, fmt.Errorf("decode configuration of %s: %w", stored.Name, err)
	}
	img := image.Image{
		Reference: stored.Name, Digest: stored.Target.Digest, ID: desc.Digest, Config: conf.Config,
		ChainID: identity.ChainID(conf.RootFS.DiffIDs).String(),
	}
	if _, err := e.client.SnapshotService(snapshotter).Stat(ctx, img.ChainID); errdefs.IsNotFound(err) {
		err = i.Unpack(ctx, snapshotter)
		if err != nil {
			return image.Image{}, fmt.Errorf("unpack %s: %w", stored.Name, err)
		}
	} else if err != nil {
		return image.Image{}, fmt.Errorf("inspect layers of %s: %w", stored.Name, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cache[stored.Name] = img
	return img, nil
}

// Import stores the images of an archive.
func (e *engine) Import(ctx context.Context, archive io.Reader, name func(string) (string, error)) error {
	var bad error
	translate := func(n string) string {
		full, err := name(n)
		if err != nil {
			bad = err
		}
		return full
	}
	stored, err := e.client.Import(ctx, archive, client.WithImageRefTranslator(translate))
	if err != nil {
		return err
	}
	if bad != nil {
		return bad
	}
	for _, s := range stored {
		full, err := name(s.Name)
		if err != nil {
			return err
		}
		if full != s.Name { // an annotation named it, in a short form
			s.Name = full
			if _, err := e.client.ImageService().Create(ctx, s); errdefs.IsAlreadyExists(err) {
				_, err = e.client.ImageService().Update(ctx, s, "target")
				if err != nil {
					return fmt.Errorf("name image %s: %w", full, err)
				}
			} else if err != nil {
				return fmt.Errorf("name image %s: %w", full, err)
			}
		}
		if _, err := e.read(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// userName is what a container runs as, in the form user[:group]. "": root.
func userName(spec agent.ContainerSpec) string {
	var user, group *int64
	if s := spec.Pod.Spec.SecurityContext; s != nil {
		user, group = s.RunAsUser, s.RunAsGroup
	}
	if s := spec.Container.SecurityContext; s != nil {
		if s.RunAsUser != nil {
			user = s.RunAsUser
		}
		if s.RunAsGroup != nil {
			group = s.RunAsGroup
		}
	}
	name := spec.Image.User
	if user != nil {
		name = strconv.FormatInt(*user, 10)
	}
	if group != nil {
		name, _, _ = strings.Cut(name, ":")
		if name == "" {
			name = "0"
		}
		name += ":" + strconv.FormatInt(*group, 10)
	}
	return name
}
