package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"headway.dev/headway/runtime/image"
)

// Pull fetches an image. The credential is shown to the registry that the image is
// named for, never to a mirror of it. What an earlier pull left half fetched is gone
// on with.
func (e *engine) Pull(ctx context.Context, ref string, credential *image.Credential, progress *image.Progress) (image.Image, error) {
	hosts := config.HostOptions{
		HostDir: config.HostDirFromRoot(e.hosts),
		UpdateClient: func(c *http.Client) error {
			c.Transport = progress.Transport(c.Transport)
			return nil
		},
	}
	if credential != nil {
		hosts.Credentials = func(host string) (user, secret string, err error) {
			own := image.Host(ref)
			if host != own && !(own == "docker.io" && host == "registry-1.docker.io") {
				return "", "", nil
			}
			if credential.IdentityToken != "" {
				return "", credential.IdentityToken, nil
			}
			return credential.Username, credential.Password, nil
		}
	}
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, hosts)})
	began := time.Now()
	for again := true; ; again = false {
		pulled, err := e.client.Pull(ctx, ref, client.WithResolver(resolver), client.WithPullUnpack, client.WithPullSnapshotter(snapshotter))
		switch {
		case err == nil:
			return e.read(ctx, pulled.Metadata())
		case errdefs.IsFailedPrecondition(err): // what came is not what was asked for
			older, failed := e.discardLies(ctx, err, began)
			if failed == nil && older && again {
				continue // it went on with what another pull had left: that may be what is false
			}
			return image.Image{}, errors.Join(err, failed)
		case errdefs.IsNotFound(err):
			return image.Image{}, e.explainPlatforms(ctx, resolver, ref, err)
		}
		return image.Image{}, err
	}
}

// discardLies throws away what a registry sent under a false digest: else the next pull
// would go on with it, for as long as containerd keeps it. older: some of it is from
// before a time.
func (e *engine) discardLies(ctx context.Context, cause error, than time.Time) (older bool, err error) {
	ctx, cancel := undo(ctx)
	defer cancel()
	parts, err := e.client.ContentStore().ListStatuses(ctx)
	if err != nil {
		return false, fmt.Errorf("list what is half fetched: %w", err)
	}
	var errs []error
	for _, part := range parts {
		// Only the text says which part it was.
		if !strings.Contains(cause.Error(), fmt.Sprintf("%q", part.Ref)) {
			continue
		}
		older = older || part.StartedAt.Before(than)
		if err := e.client.ContentStore().Abort(ctx, part.Ref); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("throw away %s: %w", part.Ref, err))
		}
	}
	return older, errors.Join(errs...)
}

// maxNamedPlatforms bounds an error's text.
const maxNamedPlatforms = 20

// explainPlatforms says which platforms an index is for, if it is for none of this
// machine's; else what containerd said. An image that stands alone is taken as it is:
// the machine may run it by an emulator.
func (e *engine) explainPlatforms(ctx context.Context, resolver remotes.Resolver, ref string, cause error) error {
	name, desc, err := resolver.Resolve(ctx, ref)
	if err != nil {
		return cause
	}
	fetcher, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return cause
	}
	if !images.IsIndexType(desc.MediaType) || desc.Size > longestConfig {
		return cause
	}
	r, err := fetcher.Fetch(ctx, desc)
	if err != nil {
		return cause
	}
	defer r.Close() // opened for reading: nothing to lose
	var index ocispec.Index
	if data, err := io.ReadAll(io.LimitReader(r, longestConfig)); err != nil || json.Unmarshal(data, &index) != nil {
		return cause
	}
	var found []string
	for _, m := range index.Manifests {
		// An attestation says that it is for no platform.
		if m.Platform == nil || m.Platform.OS == "unknown" {
			continue
		}
		if e.platform.Match(*m.Platform) {
			return cause // it is something else that is missing
		}
		found = append(found, platforms.Format(*m.Platform))
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if more := len(found) - maxNamedPlatforms; more > 0 {
		found = append(found[:maxNamedPlatforms], fmt.Sprintf("and %d more", more))
	}
	if len(found) == 0 {
		found = []string{"no platform"}
	}
	return fmt.Errorf("it is not built for this machine's platform %s, only for %s: %w",
		platforms.Format(platforms.DefaultSpec()), strings.Join(found, ", "), cause)
}
