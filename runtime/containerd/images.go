package containerd

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/image"
)

// Images lists the images of this node's containerd namespace.
func (r *Runtime) Images(ctx context.Context) ([]agent.PresentImage, error) {
	stored, err := r.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	r.engine.mu.Lock()
	before := r.engine.sizes
	r.engine.mu.Unlock()
	sizes := make(map[digest.Digest]int64, len(stored)) // of those that are there, and no others
	names := map[digest.Digest][]string{}
	var order []digest.Digest
	for _, s := range stored {
		at := s.Target.Digest
		if _, seen := names[at]; !seen {
			size, known := before[at]
			if !known {
				if size, err = r.engine.size(ctx, s); errdefs.IsNotFound(err) {
					continue // a pull that is going on, or was interrupted
				} else if err != nil {
					return nil, fmt.Errorf("read manifest of %s: %w", s.Name, err)
				}
			}
			sizes[at] = size
			order = append(order, at)
		}
		names[at] = append(names[at], s.Name, image.Repository(s.Name)+"@"+at.String())
	}
	r.engine.mu.Lock()
	r.engine.sizes = sizes
	r.engine.mu.Unlock()
	out := make([]agent.PresentImage, 0, len(order))
	for _, at := range order {
		out = append(out, agent.PresentImage{Names: names[at], Size: sizes[at]})
	}
	return out, nil
}

// size is what a pull of an image fetches for this machine.
func (e *engine) size(ctx context.Context, s images.Image) (int64, error) {
	i := client.NewImage(e.client, s)
	m, err := images.Manifest(ctx, i.ContentStore(), i.Target(), i.Platform())
	if err != nil {
		return 0, err
	}
	size := m.Config.Size
	for _, layer := range m.Layers {
		size += layer.Size
	}
	return size, nil
}
