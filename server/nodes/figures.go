package nodes

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

// gauge is what a session knows of measuring.
type gauge struct {
	unsure bool               // which pods are to be measured may have changed
	asked  map[types.UID]bool // pods that the agent measures
	told   time.Time          // when it told of them last
}

// retargeted says whether an autoscaler came, went or has another target.
func retargeted(e store.Event) bool {
	before, _ := e.Previous.(*autoscalingv2.HorizontalPodAutoscaler)
	after, _ := e.Object.(*autoscalingv2.HorizontalPodAutoscaler)
	return before == nil || after == nil || before.Spec.ScaleTargetRef != after.Spec.ScaleTargetRef
}

// isTarget says whether an autoscaler has an object for its target.
func isTarget(r store.Reader, key store.Key) bool {
	return slices.ContainsFunc(r.List(api.HorizontalPodAutoscalers(), key.Namespace), func(obj api.Object) bool {
		resource, name, ok := api.ScaleTarget(obj.(*autoscalingv2.HorizontalPodAutoscaler))
		return ok && resource == key.GroupResource && name == key.Name
	})
}

// watched lists the pods of a node that autoscalers target, sorted, as many as a
// session may have.
func watched(r store.Reader, node string) []types.UID {
	if len(r.List(api.HorizontalPodAutoscalers(), "")) == 0 {
		return nil
	}
	selectors := map[string][]labels.Selector{}
	var out []types.UID
	for _, pod := range r.OnNode(node) {
		list, known := selectors[pod.Namespace]
		if !known {
			list = targets(r, pod.Namespace)
			selectors[pod.Namespace] = list
		}
		if !ended(pod) && slices.ContainsFunc(list, func(s labels.Selector) bool { return s.Matches(labels.Set(pod.Labels)) }) {
			out = append(out, pod.UID)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), session.MaxPods)]
}

// targets are the selectors of what the autoscalers of a namespace target.
func targets(r store.Reader, namespace string) []labels.Selector {
	var out []labels.Selector
	for _, obj := range r.List(api.HorizontalPodAutoscalers(), namespace) {
		resource, name, ok := api.ScaleTarget(obj.(*autoscalingv2.HorizontalPodAutoscaler))
		if !ok {
			continue
		}
		target := r.Get(store.Key{GroupResource: resource, Namespace: namespace, Name: name})
		if target == nil {
			continue
		}
		if scale, err := api.ScaleOf(target); err == nil { // else it selects nothing, and its autoscaler says so
			out = append(out, scale.Selector)
		}
	}
	return out
}

// rewatch has all sessions look again at which pods are to be measured. Nodes.mu is held.
func (n *Nodes) rewatch() {
	for _, a := range n.sessions {
		a.rewatch()
	}
}

// rewatch has the session look again at which pods are to be measured.
func (a *attendance) rewatch() {
	a.mu.Lock()
	a.gauge.unsure = true
	a.mu.Unlock()
	notify(a.outward)
}

// sendMeasure asks the agent for the figures of the pods that autoscalers target, if
// those are others than before.
func (a *attendance) sendMeasure(v *view) error {
	now := watched(a.n.cfg.Store, a.node)
	if len(now) == 0 && a.n.cfg.Store.Get(store.Key{GroupResource: api.NodeFigureRecords(), Name: a.node}) != nil {
		a.inbox.measured(&session.Figures{}) // what the agent said, perhaps in another session, goes
		notify(a.inward)
	}
	if slices.Equal(now, v.measured) {
		return nil
	}
	m := &session.Measure{PeriodNanos: int64(a.n.cfg.Measure)}
	asked := make(map[types.UID]bool, len(now))
	for _, uid := range now {
		m.Uids = append(m.Uids, string(uid))
		asked[uid] = true
	}
	v.measured = now
	a.mu.Lock()
	a.gauge.asked = asked
	a.mu.Unlock()
	return a.sendAll(&session.Down{Message: &session.Down_Measure{Measure: m}})
}

// takeFigures takes in what an agent measured. What comes more often than it was
// asked for is passed over.
func (a *attendance) takeFigures(m *session.Figures) {
	now := a.n.now()
	a.mu.Lock()
	early := now.Sub(a.gauge.told) < a.n.cfg.Measure*3/4
	if !early {
		a.gauge.told = now
	}
	a.mu.Unlock()
	if early {
		return
	}
	a.inbox.measured(m)
	notify(a.inward)
}

// writeFigures puts what the agent measured into the store, on the node's lease. It is
// news: what the store cannot take now is given up, and the next comes soon.
func (a *attendance) writeFigures(ctx context.Context, m *session.Figures) error {
	err := a.retryOnce(ctx, func() error {
		op := a.figuresOp(m)
		if op.Verb == "" {
			return nil
		}
		return a.commit(ctx, []store.Op{op})
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return nil
	case errors.Is(err, errReplaced):
		return err
	}
	a.n.log.Warn("figures of a node are lost", "node", a.node, "error", err)
	return nil
}

// figuresOp is the write of the node's record: none without pods and without a record.
func (a *attendance) figuresOp(m *session.Figures) store.Op {
	live, _ := a.n.cfg.Store.Get(store.Key{GroupResource: api.NodeFigureRecords(), Name: a.node}).(*api.NodeFigures)
	pods := a.readFigures(m)
	switch {
	case len(pods) == 0 && live == nil:
		return store.Op{}
	case len(pods) == 0:
		return store.Op{Verb: store.Delete, Object: live}
	}
	record, verb := &api.NodeFigures{}, store.Create
	if live != nil {
		record.ObjectMeta, verb = *live.ObjectMeta.DeepCopy(), store.Update
	} else {
		record.Name = a.node
		store.Stamp(record, a.n.now())
	}
	record.Time, record.Received, record.Pods = metav1.NewMicroTime(time.Unix(0, m.TimeNanos)), metav1.NewMicroTime(a.n.now()), pods
	return store.Op{Verb: verb, Object: record, Lease: a.grant}
}

// readFigures keeps of what an agent measured what it was asked for: pods of this node
// that an autoscaler targets and the containers that they have, each once, as far as a
// record may be large.
func (a *attendance) readFigures(m *session.Figures) []api.PodFigures {
	a.mu.Lock()
	asked := a.gauge.asked
	a.mu.Unlock()
	pods := map[types.UID]*corev1.Pod{}
	for _, pod := range a.n.cfg.Store.OnNode(a.node) {
		if asked[pod.UID] {
			pods[pod.UID] = pod
		}
	}
	found := map[types.UID]api.PodFigures{}
	size := 0
	for _, in := range m.Pods {
		pod := pods[types.UID(in.Uid)]
		if pod == nil {
			continue
		}
		delete(pods, pod.UID)
		p := api.PodFigures{UID: pod.UID, Millis: in.WindowNanos / int64(time.Millisecond)}
		names := containerNames(pod)
		for _, c := range in.Containers {
			if names[c.Name] && c.Cpu >= 0 {
				delete(names, c.Name)
				p.Containers = append(p.Containers, api.ContainerFigures{Name: c.Name, CPU: c.Cpu, Memory: max(c.Memory, -1)})
			}
		}
		if size += p.Size(); size > api.MaxFigures {
			a.n.log.Warn("a node's figures are more than a record holds; autoscalers get those of some pods", "node", a.node, "pods", len(found))
			break
		}
		if len(p.Containers) > 0 && p.Millis > 0 {
			slices.SortFunc(p.Containers, func(x, y api.ContainerFigures) int { return strings.Compare(x.Name, y.Name) })
			found[p.UID] = p
		}
	}
	return slices.SortedFunc(maps.Values(found), func(x, y api.PodFigures) int { return cmp.Compare(x.UID, y.UID) })
}

func containerNames(pod *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out[list[i].Name] = true
		}
	}
	return out
}
