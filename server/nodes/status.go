package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

const (
	retryFirst = 50 * time.Millisecond
	retryMost  = 2 * time.Second
)

// write puts what the agent sent into the store. While one transaction is under
// way the next batch gathers.
func (a *attendance) write(ctx context.Context) error {
	for {
		wrote, err := a.writeNext(ctx)
		switch {
		case err != nil:
			return err
		case wrote:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.inward:
		}
	}
}

// writeNext writes one batch of what waits, and says whether anything did.
func (a *attendance) writeNext(ctx context.Context) (bool, error) {
	signed := a.signTokens(ctx)
	statuses, facts, events := a.inbox.take(store.BulkObjects)
	switch {
	case len(statuses) > 0:
		return true, a.writeStatuses(ctx, statuses)
	case facts != nil:
		return true, a.writeNode(ctx, facts)
	case len(events) > 0:
		return true, a.writeEvents(ctx, events)
	}
	if gone := a.inbox.takeGone(); len(gone) > 0 {
		return true, a.writeGone(ctx, gone)
	}
	if m := a.inbox.takeFigures(); m != nil {
		return true, a.writeFigures(ctx, m)
	}
	return signed, nil
}

// retry calls try until it succeeds, fails for good, or ctx ends. What try wrote
// may be there after an error: it reads again each time.
func (a *attendance) retry(ctx context.Context, try func() error) error {
	wait := retryFirst
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrExists), errors.Is(err, store.ErrNotFound):
			if err = a.catchUp(ctx); err == nil {
				continue
			}
		}
		if !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		if a.n.cfg.Pause(ctx, wait); ctx.Err() != nil {
			return err
		}
		wait = min(wait*2, retryMost)
	}
}

// pause waits by a timer.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// catchUp waits until the cache is where the store is now: what a transaction ran
// into is in it then.
func (a *attendance) catchUp(ctx context.Context) error {
	revision, err := a.n.cfg.Store.Current(ctx)
	if err != nil {
		return err
	}
	return a.n.cfg.Store.WaitRevision(ctx, revision)
}

// writeStatuses writes a batch of statuses in one transaction and answers each.
func (a *attendance) writeStatuses(ctx context.Context, batch []*session.PodStatus) error {
	var answers []*session.Down
	err := a.retry(ctx, func() error {
		var ops []store.Op
		var bytes int
		ops, answers, bytes = a.statusOps(batch)
		if len(ops) == 0 {
			return nil
		}
		if bytes > store.BulkBytes && len(ops) > 1 {
			return store.ErrTooLarge
		}
		if err := a.commit(ctx, ops); err != nil {
			return err
		}
		for _, op := range ops {
			if op.Verb == store.Delete {
				a.farewell.add(op.Object)
			}
		}
		return nil
	})
	if errors.Is(err, store.ErrTooLarge) && len(batch) > 1 {
		half := len(batch) / 2
		if err := a.writeStatuses(ctx, batch[:half]); err != nil {
			return err
		}
		return a.writeStatuses(ctx, batch[half:])
	}
	if errors.Is(err, store.ErrTooLarge) {
		a.reply(refused(subject(batch[0]), err.Error()))
		return nil
	}
	if err != nil {
		return fmt.Errorf("write pod statuses: %w", err)
	}
	a.reply(answers...)
	return nil
}

func subject(m *session.PodStatus) string { return "status of pod " + m.Namespace + "/" + m.Name }

// statusOps decides what a batch changes, by the cache. A pod that is gone needs
// nothing more; one of another node is refused.
func (a *attendance) statusOps(batch []*session.PodStatus) (ops []store.Op, answers []*session.Down, bytes int) {
	for _, m := range batch {
		key := store.Key{GroupResource: api.Pods(), Namespace: m.Namespace, Name: m.Name}
		pod, _ := a.n.cfg.Store.Get(key).(*corev1.Pod)
		if pod == nil || string(pod.UID) != m.Uid {
			answers = append(answers, stored(m))
			continue
		}
		if pod.Spec.NodeName != a.node {
			answers = append(answers, refused(subject(m), "the pod is not bound to node "+a.node))
			continue
		}
		var reported corev1.PodStatus
		if err := reported.Unmarshal(m.Status); err != nil {
			answers = append(answers, refused(subject(m), "it cannot be decoded: "+err.Error()))
			continue
		}
		answers = append(answers, stored(m))
		op, next := podOp(pod, reported, m.Stopped)
		if op.Verb != "" {
			ops = append(ops, op)
			bytes += next.Size()
		}
	}
	return ops, answers, bytes
}

// podOp is the change that a report makes to a pod; none when there is nothing to
// change. A pod that was deleted and has stopped goes, once its finalizers have.
func podOp(live *corev1.Pod, reported corev1.PodStatus, stopped bool) (op store.Op, next *corev1.Pod) {
	shallow := *live // what the agent does not write is shared, and only read
	next = &shallow
	next.Status = mergeStatus(&live.Status, reported)
	if stopped && live.DeletionTimestamp != nil {
		if len(live.Finalizers) == 0 {
			return store.Op{Verb: store.Delete, Object: next}, next
		}
		if live.DeletionGracePeriodSeconds == nil || *live.DeletionGracePeriodSeconds != 0 {
			next.DeletionGracePeriodSeconds = new(int64) // whoever takes the last finalizer off lets it go
			return store.Op{Verb: store.Update, Object: next}, next
		}
	}
	if equality.Semantic.DeepEqual(live.Status, next.Status) {
		return store.Op{}, next
	}
	return store.Op{Verb: store.Update, Object: next}, next
}

// The conditions of a pod that its agent writes; all others are kept as they are. Of
// DisruptionTarget, which others write too, an agent sends only that it evicted the pod.
func agentCondition(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.DisruptionTarget:
		return true
	}
	return false
}

// mergeStatus is live with everything in it that an agent writes taken from
// reported. A pod that has ended stays so, and begins once.
func mergeStatus(live *corev1.PodStatus, reported corev1.PodStatus) corev1.PodStatus {
	out := *live
	out.ObservedGeneration = reported.ObservedGeneration
	out.HostIP, out.HostIPs = reported.HostIP, reported.HostIPs
	out.PodIP, out.PodIPs = reported.PodIP, reported.PodIPs
	out.InitContainerStatuses, out.ContainerStatuses = reported.InitContainerStatuses, reported.ContainerStatuses
	out.EphemeralContainerStatuses = reported.EphemeralContainerStatuses
	if out.StartTime == nil {
		out.StartTime = reported.StartTime
	}
	if out.QOSClass == "" {
		out.QOSClass = reported.QOSClass
	}
	if live.Phase != corev1.PodSucceeded && live.Phase != corev1.PodFailed {
		out.Phase, out.Reason, out.Message = reported.Phase, reported.Reason, reported.Message
	}
	out.Conditions = slices.Clone(live.Conditions)
	for _, c := range reported.Conditions {
		if !agentCondition(c.Type) {
			continue
		}
		i := slices.IndexFunc(out.Conditions, func(x corev1.PodCondition) bool { return x.Type == c.Type })
		if i < 0 {
			out.Conditions = append(out.Conditions, c)
		} else {
			out.Conditions[i] = c
		}
	}
	return out
}
