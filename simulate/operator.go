package simulate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
)

func labelsOf(pod *corev1.Pod) labels.Set { return labels.Set(pod.Labels) }

// operate writes as the API server does for a person: on the newest state.
func (w *World) operate(what string, ops ...store.Op) bool {
	w.actor = actor{part: "operator"}
	if _, err := w.truth.Commit(context.Background(), store.Txn{Ops: ops}); err != nil {
		if !errors.Is(err, store.ErrConflict) {
			w.fail("people can write", "%s: %v", what, err)
		}
		return false
	}
	w.trace.add("operator", "%s", what)
	w.observe(nil)
	return true
}

// nodeObject is a copy of a node's object; nil: there is none.
func (w *World) nodeObject(name string) *corev1.Node {
	node, _ := w.truth.Get(store.Key{GroupResource: api.Nodes(), Name: name}).(*corev1.Node)
	return node.DeepCopy()
}

// drain cordons a node; its pods are evicted by and by, and one day it is put back.
func (u *user) drain(n *node) {
	w := u.w
	node := w.nodeObject(n.name)
	if node == nil || node.Spec.Unschedulable {
		return
	}
	node.Spec.Unschedulable = true
	if !w.operate("cordon "+n.name, store.Op{Verb: store.Update, Object: node}) {
		return
	}
	w.later(20*time.Second, 3*time.Minute, "uncordon "+n.name, func() {
		if node := w.nodeObject(n.name); node != nil && node.Spec.Unschedulable {
			node.Spec.Unschedulable = false
			w.operate("uncordon "+n.name, store.Op{Verb: store.Update, Object: node})
		}
	})
	u.evictAll()
}

// evictAll asks once for the eviction of each pod of nodes that are being drained.
func (u *user) evictAll() {
	w := u.w
	for _, n := range w.nodes {
		if node := w.nodeObject(n.name); node == nil || !node.Spec.Unschedulable {
			continue
		}
		for _, pod := range w.truth.OnNode(n.name) {
			if owner := metav1.GetControllerOfNoCopy(pod); active(pod) && (owner == nil || owner.Kind != "DaemonSet") {
				w.evict(pod)
			}
		}
	}
}

// evict is the transaction of the API's eviction: what the budget allows is used up
// first, then the pod is deleted.
func (w *World) evict(pod *corev1.Pod) {
	for _, o := range w.truth.List(api.PodDisruptionBudgets(), pod.Namespace) {
		b := o.(*policyv1.PodDisruptionBudget).DeepCopy()
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labelsOf(pod)) || !podset.Ready(pod) {
			continue
		}
		if b.Status.ObservedGeneration < b.Generation || b.Status.DisruptionsAllowed <= 0 {
			return
		}
		b.Status.DisruptionsAllowed--
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[pod.Name] = metav1.NewTime(time.Now().Truncate(time.Second))
		if !w.operate("use budget "+b.Name, store.Op{Verb: store.Update, Object: b}) {
			return
		}
	}
	if ops := podset.Remove(pod, time.Now()); len(ops) > 0 {
		w.operate("evict "+pod.Name, ops...)
	}
}

// force deletes a pod with no grace. One that a node may run is only marked, and goes
// when its agent has stopped it, as the API has it (R10).
func (u *user) force() {
	w := u.w
	pods := w.truth.List(api.Pods(), "default")
	if len(pods) == 0 {
		return
	}
	pod := pods[w.rand.IntN(len(pods))].(*corev1.Pod)
	if podset.GoesAtOnce(pod) {
		w.operate("force "+pod.Name, store.Op{Verb: store.Delete, Object: pod})
		return
	}
	pod = pod.DeepCopy()
	at, grace := metav1.NewTime(time.Now().Truncate(time.Second)), int64(0)
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	w.operate("force "+pod.Name, store.Op{Verb: store.Update, Object: pod})
}

// replaceMachine is what an operator does about a machine that has no power: declare
// it gone, and put one with an empty disk in its place. The declaration is taken back
// when that is there.
func (w *World) replaceMachine(n *node) {
	node := w.nodeObject(n.name)
	gone := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }
	if node == nil || n.agent != nil || slices.ContainsFunc(node.Spec.Taints, gone) {
		return
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	if !w.operate("declares "+n.name+" gone", store.Op{Verb: store.Update, Object: node}) {
		return
	}
	if err := os.RemoveAll(filepath.Join(w.opts.Dir, n.name)); err != nil {
		w.fail("a disk is replaced", "%s: %v", n.name, err)
	}
	n.startAt = time.Time{}
	w.later(time.Minute, 4*time.Minute, n.name+" is a new machine", func() {
		node := w.nodeObject(n.name)
		if node == nil {
			w.fail("nodes stay", "%s is gone", n.name)
			return
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, gone)
		w.operate("takes back that "+n.name+" is gone", store.Op{Verb: store.Update, Object: node})
		n.startAt = time.Now()
	})
}
