package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/volume"
)

// Volumes are those of a machine without a disk: they outlive the agent, as the machine
// does, and remember who has had them.
type Volumes struct {
	dir string // where it says that persistent volumes are; "": it makes none

	mu    sync.Mutex
	pods  map[types.UID]map[string]volume.Volume
	data  map[string][]types.UID // pods that have had a persistent volume, the first first
	aside []string
}

// NewVolumes returns a machine's volumes, none yet.
func NewVolumes(dir string) *Volumes {
	return &Volumes{dir: dir, pods: map[types.UID]map[string]volume.Volume{}, data: map[string][]types.UID{}}
}

var _ agent.Volumes = (*Volumes)(nil)

// Ensure implements agent.Volumes.
func (v *Volumes) Ensure(_ context.Context, uid types.UID, volumes []volume.Volume) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pods[uid] == nil {
		v.pods[uid] = map[string]volume.Volume{}
	}
	for _, w := range volumes {
		v.pods[uid][w.Name] = w
		if w.Persistent != "" && !slices.Contains(v.data[w.Persistent], uid) {
			v.data[w.Persistent] = append(v.data[w.Persistent], uid)
		}
	}
	return nil
}

// Refresh implements agent.Volumes.
func (v *Volumes) Refresh(ctx context.Context, uid types.UID, volumes []volume.Volume) error {
	return v.Ensure(ctx, uid, volumes)
}

// Mounts implements agent.Volumes.
func (v *Volumes) Mounts(_ context.Context, uid types.UID, c *corev1.Container, _ []volume.Volume) ([]volume.Mount, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []volume.Mount
	for _, m := range c.VolumeMounts {
		w, ok := v.pods[uid][m.Name]
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
		}
		out = append(out, volume.Mount{Source: string(uid) + "/" + m.Name, Destination: m.MountPath, ReadOnly: m.ReadOnly || w.ReadOnly, Propagation: volume.Private})
	}
	return out, nil
}

// Usage implements agent.Volumes.
func (v *Volumes) Usage(types.UID, string) (agent.Room, error) { return agent.Room{}, nil }

// Remove implements agent.Volumes.
func (v *Volumes) Remove(_ context.Context, uid types.UID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.pods, uid)
	return nil
}

// Pods implements agent.Volumes.
func (v *Volumes) Pods() ([]types.UID, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.pods)), nil
}

// PersistentDir implements agent.Volumes.
func (v *Volumes) PersistentDir() string { return v.dir }

// Kept implements agent.Volumes.
func (v *Volumes) Kept() ([]string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.data)), nil
}

// Had lists the pods that have had a persistent volume, the first first; nil: it has no
// data.
func (v *Volumes) Had(name string) []types.UID {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.data[name])
}

// Discard implements agent.Volumes.
func (v *Volumes) Discard(_ context.Context, name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(v.pods)) {
		for _, w := range v.pods[uid] {
			if w.Persistent == name {
				return fmt.Errorf("the data of volume %s stays: pod %s has it", name, uid)
			}
		}
	}
	if v.data[name] != nil {
		delete(v.data, name)
		v.aside = append(v.aside, name)
	}
	return nil
}

// Clear implements agent.Volumes: one volume at a time.
func (v *Volumes) Clear(context.Context) ([]string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.aside) > 0 {
		v.aside = v.aside[1:]
	}
	return slices.Clone(v.aside), nil
}

// Reboot takes away what is in memory and what is mounted; the disk stays.
func (v *Volumes) Reboot() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.pods)
}
