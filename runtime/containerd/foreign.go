package containerd

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

const (
	// labelOrphan is on what deleteOrphan makes for a moment.
	labelOrphan = "headway.dev/orphan"
	// maxForeign bounds what Foreign tells.
	maxForeign = 100
	// lookTime bounds the look at one container, during which no event is taken.
	lookTime = 5 * time.Second
)

// foreign says whether a container of our namespace is none that we made for a pod.
func foreign(c containers.Container) bool {
	if c.Labels[labelOrphan] != "" {
		return false
	}
	_, err := strconv.Atoi(c.Labels[labelAttempt])
	return err != nil || validUID(types.UID(c.Labels[labelUID])) != nil
}

func (r *Runtime) foreignOf(c containers.Container) agent.ForeignContainer {
	return agent.ForeignContainer{ID: c.ID, Namespace: r.cfg.Namespace, Image: c.Image, CreatedAt: c.CreatedAt}
}

// Foreign is agent.Runtime's: it answers from the mirror.
func (r *Runtime) Foreign(context.Context) ([]agent.ForeignContainer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]agent.ForeignContainer, 0, len(r.strangers))
	for _, c := range r.strangers {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b agent.ForeignContainer) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), maxForeign)], nil
}

// appeared looks whether a container that was created is foreign. Ours are looked at,
// too: the event may come before we know that we have made one.
func (r *Runtime) appeared(ctx context.Context, id string) {
	r.mu.Lock()
	_, ours := r.owners[id]
	r.mu.Unlock()
	if ours {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	c, err := r.client.ContainerService().Get(ctx, id)
	switch {
	case errdefs.IsNotFound(err):
		return
	case err != nil:
		// It is found when everything is read again.
		r.cfg.Log.Warn("new container not looked at", "container", id, "err", err)
		return
	case !foreign(c):
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.strangers[id] = r.foreignOf(c)
	r.notify("")
}

// vanished forgets a foreign container.
func (r *Runtime) vanished(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.strangers[id]; ok {
		delete(r.strangers, id)
		r.notify("")
	}
}
