package agent

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Collector removes images that nothing uses. An Agent is one.
type Collector interface {
	// CollectImages frees at least so many bytes, if it can, and says how many it did.
	CollectImages(ctx context.Context, freeBytes int64) (freed int64, err error)
}

const (
	pressPeriod  = 10 * time.Second // Kubernetes'
	evictionWait = 30 * time.Second // for what an evicted pod held
)

// squeeze is what the agent knows of the machine's shortages.
type squeeze struct {
	strain strain
	holds  []corev1.NodeConditionType
	told   bool // the node's conditions say so
	victim types.UID
	since  time.Time // of its eviction
}

func (s *squeeze) conditions() []corev1.NodeConditionType { return s.holds }

// press looks on a period at how full the machine is.
func (a *Agent) press(ctx context.Context) {
	if a.cfg.Host == nil {
		return
	}
	tick := time.NewTicker(pressPeriod)
	defer tick.Stop()
	failed := false
	for {
		err := a.Press(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			a.log.Error("how full the machine is cannot be told: no pod is evicted meanwhile", "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Press looks at how full the machine is, shows it in the node's conditions, and
// where it is too full collects images, and evicts at most one pod. Who steps the agent
// calls it on a period.
func (a *Agent) Press(ctx context.Context) error {
	if a.cfg.Host == nil {
		return nil
	}
	host, err := a.cfg.Host()
	if err != nil {
		return err
	}
	due, waits := a.strained(host)
	if len(due) == 0 || waits {
		return nil
	}
	if t := due[0]; host.imagesHelp(t.Signal) {
		lacks := int64(math.MaxInt64) // nobody knows how many files an image has
		if resourceOf(t.Signal) == corev1.ResourceEphemeralStorage {
			lacks = t.least(host[t.Signal].All) - host[t.Signal].Free
		}
		freed, err := a.cfg.Images.CollectImages(ctx, lacks)
		if err != nil {
			a.log.Error("images could not be collected on a full disk", "error", err)
		}
		if freed > 0 {
			if host, err = a.cfg.Host(); err != nil {
				return err
			}
			a.mu.Lock()
			_, due, _ = a.squeeze.strain.look(host, a.cfg.Thresholds, a.cfg.Now())
			a.mu.Unlock()
			if len(due) == 0 {
				a.log.Info("images were collected, and the disk has room again", "bytes", freed)
				return nil
			}
		}
	}
	return a.relieve(ctx, due[0], host[due[0].Signal])
}

// strained takes in a look at the machine. waits: a pod that was evicted is on its way
// out still.
func (a *Agent) strained(host Host) (due []Threshold, waits bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, now := &a.squeeze, a.cfg.Now()
	next, due, holds := q.strain.look(host, a.cfg.Thresholds, now)
	for _, t := range pressures() {
		is := slices.Contains(holds, t)
		if was := slices.Contains(q.holds, t); !q.told || is != was {
			c := pressureCondition(t, is)
			a.condition(c)
			if is != was {
				reason := strings.Replace(c.Reason, "Kubelet", "Node", 1) // as Kubernetes' events have it
				a.out.event(a.nodeEvent(reason+" "+now.String(), corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", a.name, reason)))
				a.log.Warn("the machine's pressure changed", "condition", t, "holds", is)
			}
		}
	}
	q.strain, q.holds, q.told = next, holds, true
	e := a.entries[q.victim]
	waits = e != nil && e.sandbox != nil && e.sandbox.Ready && now.Sub(q.since) < evictionWait
	return due, waits
}

// relieve evicts the pod that is to go first.
func (a *Agent) relieve(ctx context.Context, t Threshold, level Level) error {
	pods, err := a.footprints(ctx, resourceOf(t.Signal), a.lively())
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.cfg.Now()
	about := fmt.Sprintf("Attempting to reclaim %s", resourceOf(t.Signal))
	often := now.UTC().Truncate(10 * time.Minute).String() // it may go on for long
	a.out.event(a.nodeEvent(about+often, corev1.EventTypeWarning, "EvictionThresholdMet", about))
	notify(a.send)
	for _, f := range rank(pods, t.Signal) {
		e := a.entries[f.pod.UID]
		if e == nil || !a.evict(e, evictionFor(f, t, level)) {
			continue
		}
		a.squeeze.victim, a.squeeze.since = e.uid, now
		a.log.Warn("a pod is evicted", "namespace", f.pod.Namespace, "pod", f.pod.Name, "signal", t.Signal, "free", level.Free, "least", t.least(level.All))
		return nil
	}
	return nil
}

// lively are the pods that something runs of, and that nothing ends yet.
func (a *Agent) lively() []*corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*corev1.Pod
	for _, uid := range sortedKeys(a.entries) {
		e := a.entries[uid]
		if e.pod != nil && !e.released && e.sandbox != nil && e.record.doom == nil && !terminal(e.record.last.Phase) {
			out = append(out, e.pod)
		}
	}
	return out
}

// footprints measures what pods take of one resource. One that cannot be measured is
// told of and left out.
func (a *Agent) footprints(ctx context.Context, name corev1.ResourceName, pods []*corev1.Pod) ([]footprint, error) {
	at := make(map[types.UID]int, len(pods))
	out := make([]footprint, len(pods))
	uids := make([]types.UID, len(pods))
	for i, pod := range pods {
		at[pod.UID], out[i].pod, uids[i] = i, pod, pod.UID
	}
	if name == corev1.ResourceMemory || name == "pids" {
		read, err := a.cfg.Runtime.Usage(ctx, uids...)
		if err != nil {
			return nil, fmt.Errorf("measure what pods use: %w", err)
		}
		for _, u := range read {
			f := &out[at[u.Pod]]
			f.containers = append(f.containers, use{name: u.Container, memory: max(u.Memory, 0), processes: u.Processes})
		}
		return out, nil
	}
	read, err := a.cfg.Runtime.Written(ctx, uids...)
	if err != nil {
		return nil, fmt.Errorf("measure what pods have written: %w", err)
	}
	for _, w := range read {
		f := &out[at[w.Pod]]
		f.containers = append(f.containers, use{name: w.Container, written: w.Room})
	}
	for i := range out {
		f := &out[i]
		for _, v := range f.pod.Spec.Volumes {
			if !onDisk(&v) || a.cfg.Volumes == nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			used, err := a.cfg.Volumes.Usage(ctx, f.pod.UID, v.Name, math.MaxInt64)
			if err != nil {
				a.log.Error("emptyDir not measured", "pod", f.pod.UID, "volume", v.Name, "error", err)
				continue
			}
			f.volumes.Add(used)
		}
	}
	return out, nil
}

// onDisk says whether a volume is an emptyDir on the node's disk.
func onDisk(v *corev1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault
}
