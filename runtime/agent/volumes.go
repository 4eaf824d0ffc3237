package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
	"headway.dev/headway/runtime/volume"
)

// Volumes makes the volumes of pods; runtime/volume does. Every method is idempotent.
type Volumes interface {
	// Ensure makes a pod's volumes and brings their content up to date.
	Ensure(ctx context.Context, uid types.UID, volumes []volume.Volume) error
	// Refresh only brings their content up to date.
	Refresh(ctx context.Context, uid types.UID, volumes []volume.Volume) error
	// Mounts prepares what a container mounts, and says where it is.
	Mounts(ctx context.Context, uid types.UID, c *corev1.Container, volumes []volume.Volume) ([]volume.Mount, error)
	// Usage is what a volume takes of the disk; when it is more than enough bytes, it
	// counts no further.
	Usage(ctx context.Context, uid types.UID, name string, enough int64) (Room, error)
	// Remove takes everything of a pod away.
	Remove(ctx context.Context, uid types.UID) error
	// Pods lists those of which something is there.
	Pods() ([]types.UID, error)
	Persistent
}

// Persistent are the volumes that outlive their pods, as far as this machine makes them.
type Persistent interface {
	// PersistentDir is the folder that has them; "": the machine makes none.
	PersistentDir() string
	// Kept lists those of which there are data.
	Kept() ([]string, error)
	// Discard sets the data of one aside for Clear, if no pod has it.
	Discard(ctx context.Context, name string) error
	// Clear removes a part of all that was set aside, and says of which volumes
	// something is left; with the error of those that cannot be removed.
	Clear(ctx context.Context) (left []string, err error)
}

const failedMount = "FailedMount"

// volumesOf says what a pod's volumes have to hold now. The caller holds mu.
func (a *Agent) volumesOf(pod *corev1.Pod) ([]volume.Volume, error) {
	if len(pod.Spec.Volumes) == 0 {
		return nil, nil
	}
	if a.cfg.Volumes == nil {
		return nil, errors.New("this node mounts no volumes")
	}
	s := surroundings{pod: pod, allocatable: a.node.Status.Allocatable}
	return volume.Wanted(pod, volume.Source{
		ConfigMap: func(name string) *corev1.ConfigMap { return a.things.configMap(pod.Namespace, name) },
		Secret:    func(name string) *corev1.Secret { return a.things.secret(pod.Namespace, name) },
		Field:     s.field,
		Resource: func(ref *corev1.ResourceFieldSelector) (string, error) {
			c := containerNamed(pod, ref.ContainerName)
			if c == nil {
				return "", fmt.Errorf("container %q of a resourceFieldRef not found", ref.ContainerName)
			}
			return s.resource(c, ref)
		},
		Token: func(p *corev1.ServiceAccountTokenProjection) (string, error) {
			return a.token(pod, session.TokenOf(p))
		},
		Memory: a.node.Status.Allocatable.Memory().Value(),
		Claim: func(name string) *corev1.PersistentVolumeClaim {
			return a.things.claims[pod.Namespace+"/"+name]
		},
		PersistentVolume: func(name string) *corev1.PersistentVolume { return a.things.volumes[name] },
		Node:             a.name, Dir: a.cfg.Volumes.PersistentDir(),
	})
}

// fill makes a pod's volumes, before its sandbox. False: it could not, and the pod
// waits.
func (a *Agent) fill(ctx context.Context, e *entry, pod *corev1.Pod) bool {
	if len(pod.Spec.Volumes) == 0 {
		return true
	}
	a.mu.Lock()
	e.stale = false
	wanted, err := a.volumesOf(pod)
	a.mu.Unlock()
	if err == nil {
		err = a.cfg.Volumes.Ensure(ctx, pod.UID, wanted)
	}
	if err == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e.record.clean = false // some may be there
	if ctx.Err() == nil {
		now := a.cfg.Now()
		e.record.sandbox = trouble{reason: failedMount, message: err.Error(), backoff: e.record.sandbox.backoff.next(now, errorFirst, errorMost), forObject: true}
		if e.stale { // what was missing has come meanwhile
			e.record.sandbox.backoff.Delay = 0
		}
		if errors.Is(err, volume.ErrComing) {
			return false // within a moment, as a rule
		}
		a.event(pod, "", corev1.EventTypeWarning, failedMount, err.Error(), now)
	}
	return false
}

// refillable says that the content of a pod's volumes may not be what it should, and
// that now is the time to look. The caller holds mu.
func (a *Agent) refillable(e *entry, now time.Time) bool {
	return e.stale && e.pod != nil && !e.released && e.sandbox != nil && e.sandbox.Ready && e.pod.DeletionTimestamp == nil &&
		!terminal(e.record.last.Phase) && !now.Before(e.content.backoff.until())
}

// refill brings the content of a running pod's volumes up to date. What cannot be
// made anew stays as it was.
func (a *Agent) refill(ctx context.Context, e *entry, pod *corev1.Pod) {
	a.mu.Lock()
	e.stale = false
	wanted, err := a.volumesOf(contentOnly(pod)) // what is mounted stays so, whatever became of its claim
	a.mu.Unlock()
	if err == nil {
		err = a.cfg.Volumes.Refresh(ctx, pod.UID, wanted)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		e.content = trouble{}
		return
	}
	if ctx.Err() != nil {
		e.stale = true
		return
	}
	now := a.cfg.Now()
	e.content = trouble{reason: failedMount, message: err.Error(), backoff: e.content.backoff.next(now, errorFirst, errorMost)}
	if !errors.Is(err, volume.ErrComing) {
		a.event(pod, "", corev1.EventTypeWarning, failedMount, err.Error(), now)
	}
	var known *volume.Error
	if errors.As(err, &known) && known.Missing { // nothing to try until it comes
		e.content.backoff.Delay = 0
		return
	}
	e.stale = true
}

// changes says whether the content of a volume can change while its pod runs.
func changes(v corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// hasContent says whether a pod has a volume whose content can change while it runs.
func hasContent(spec *corev1.PodSpec) bool { return slices.ContainsFunc(spec.Volumes, changes) }

// contentOnly is a pod without its other volumes.
func contentOnly(pod *corev1.Pod) *corev1.Pod {
	out := *pod
	out.Spec.Volumes = slices.DeleteFunc(slices.Clone(pod.Spec.Volumes), func(v corev1.Volume) bool { return !changes(v) })
	return &out
}

// outdate has the content of a pod's volumes looked at. The caller holds mu.
func (a *Agent) outdate(e *entry) {
	if e.pod != nil && hasContent(&e.pod.Spec) {
		e.stale = true
		a.wake(e)
	}
}

// mounts prepares what a container mounts. Its error is one for
// CreateContainerConfigError.
func (a *Agent) mounts(ctx context.Context, pod *corev1.Pod, c *corev1.Container, vars map[string]string) ([]volume.Mount, error) {
	if len(c.VolumeMounts) == 0 {
		return nil, nil
	}
	if a.cfg.Volumes == nil {
		return nil, errors.New("this node mounts no volumes")
	}
	places, err := volume.Places(pod)
	if err != nil {
		return nil, err
	}
	plain := *c
	plain.VolumeMounts = slices.Clone(c.VolumeMounts)
	for i := range plain.VolumeMounts {
		m := &plain.VolumeMounts[i]
		if m.SubPath, err = volume.SubPath(m, func(s string) (string, error) { return expandAll(s, vars) }); err != nil {
			return nil, err
		}
	}
	return a.cfg.Volumes.Mounts(ctx, pod.UID, &plain, places)
}

// expandAll is expand where every variable must be known.
func expandAll(s string, vars map[string]string) (string, error) {
	var unknown error
	out, err := expand(s, func(name string) (string, bool) {
		v, ok := vars[name]
		if !ok && unknown == nil {
			unknown = fmt.Errorf("missing value for %q", name)
		}
		return v, ok
	}, unix.PathMax)
	if unknown == nil && err != nil {
		unknown = fmt.Errorf("a subPathExpr becomes longer than %d bytes", unix.PathMax)
	}
	return out, unknown
}

// empty takes a pod's volumes away.
func (a *Agent) empty(ctx context.Context, uid types.UID) error {
	if a.cfg.Volumes == nil {
		return nil
	}
	return a.cfg.Volumes.Remove(ctx, uid)
}

// left are the pods of which there are volumes.
func (a *Agent) left() ([]types.UID, error) {
	if a.cfg.Volumes == nil {
		return nil, nil
	}
	return a.cfg.Volumes.Pods()
}
