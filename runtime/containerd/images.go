package containerd

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

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
	kept := map[digest.Digest]bool{}
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
		kept[at] = kept[at] || r.images.Kept(s.Name)
	}
	r.engine.mu.Lock()
	r.engine.sizes = sizes
	r.engine.mu.Unlock()
	out := make([]agent.PresentImage, 0, len(order))
	for _, at := range order {
		out = append(out, agent.PresentImage{ID: at.String(), Names: names[at], Size: sizes[at], Kept: kept[at]})
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

// RemoveImage deletes an image under all its names, and waits until containerd has
// freed what nothing else needs. What containers use of it stays on the disk as long
// as they do.
func (r *Runtime) RemoveImage(ctx context.Context, id string) error {
	stored, err := r.client.ImageService().List(ctx, "target.digest=="+id)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	var gone []digest.Digest // configurations
	for i, s := range stored {
		var opts []images.DeleteOpt
		if i == len(stored)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		if conf, err := client.NewImage(r.client, s).Config(ctx); err == nil { // else its parts were not all there
			gone = append(gone, conf.Digest)
		}
		if err := r.client.ImageService().Delete(ctx, s.Name, opts...); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove image %s: %w", s.Name, err)
		}
		r.engine.forget(s.Name)
	}
	return r.forgetPulls(ctx, gone)
}

// forgetPulls drops the record of who pulled what is gone. It stays for what is there
// under another digest, too: without it, that would be everybody's.
func (r *Runtime) forgetPulls(ctx context.Context, gone []digest.Digest) error {
	left, err := r.client.ImageService().List(ctx)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	there := map[digest.Digest]bool{}
	for _, s := range left {
		if conf, err := client.NewImage(r.client, s).Config(ctx); err == nil {
			there[conf.Digest] = true
		}
	}
	for _, id := range gone {
		if there[id] {
			continue
		}
		if err := r.images.Forget(id); err != nil {
			return err
		}
	}
	return nil
}

// ImageDisk is the file system that images are on.
func (r *Runtime) ImageDisk(ctx context.Context) (agent.DiskSpace, error) {
	plugins, err := r.client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1,id=="+snapshotter)
	if err != nil {
		return agent.DiskSpace{}, fmt.Errorf("ask containerd where it keeps images: %w", err)
	}
	for _, p := range plugins.Plugins {
		root := p.Exports["root"]
		if root == "" {
			continue
		}
		var s unix.Statfs_t
		if err := unix.Statfs(root, &s); err != nil {
			return agent.DiskSpace{}, fmt.Errorf("look at the file system of %s: %w", root, err)
		}
		return agent.DiskSpace{Capacity: int64(s.Blocks) * s.Bsize, Available: int64(s.Bavail) * s.Bsize}, nil
	}
	return agent.DiskSpace{}, errors.New("containerd does not say where it keeps images")
}
