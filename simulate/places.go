package simulate

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// fits is R11, for a pod that was bound in the state that the bind left.
func (r *rules) fits(e store.Event) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return
	}
	if was, ok := e.Previous.(*corev1.Pod); ok && was.Spec.NodeName != "" {
		return
	}
	r.checked["R11"]++
	node, _ := r.w.truth.Get(store.Key{GroupResource: api.Nodes(), Name: pod.Spec.NodeName}).(*corev1.Node)
	if node == nil {
		r.w.fail("R11", "pod %s is bound to %s, which is no node", pod.Name, pod.Spec.NodeName)
		return
	}
	var cpu, memory, pods int64
	ports := map[int32]string{}
	for _, other := range r.w.truth.OnNode(node.Name) {
		if ended(other) {
			continue
		}
		pods++
		for _, c := range other.Spec.Containers {
			cpu += c.Resources.Requests.Cpu().MilliValue()
			memory += c.Resources.Requests.Memory().Value()
			for _, p := range c.Ports {
				if p.HostPort == 0 {
					continue
				}
				if holder, taken := ports[p.HostPort]; taken {
					r.w.fail("R11", "pods %s and %s hold port %d of %s", holder, other.Name, p.HostPort, node.Name)
				}
				ports[p.HostPort] = other.Name
			}
		}
	}
	room := node.Status.Allocatable
	if cpu > room.Cpu().MilliValue() || memory > room.Memory().Value() || pods > room.Pods().Value() {
		r.w.fail("R11", "with pod %s, node %s has %d pods that request %dm of cpu and %d of memory", pod.Name, node.Name, pods, cpu, memory)
	}
	for key, value := range pod.Spec.NodeSelector {
		if node.Labels[key] != value {
			r.w.fail("R11", "pod %s selects %s=%s and is bound to %s", pod.Name, key, value, node.Name)
		}
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || tolerated(pod, taint) {
			continue
		}
		r.w.fail("R11", "pod %s does not tolerate taint %s:%s of %s", pod.Name, taint.Key, taint.Effect, node.Name)
	}
}

func tolerated(pod *corev1.Pod, taint corev1.Taint) bool {
	for _, t := range pod.Spec.Tolerations {
		if (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == taint.Key || t.Key == "" && t.Operator == corev1.TolerationOpExists) &&
			(t.Operator == corev1.TolerationOpExists || t.Value == taint.Value) {
			return true
		}
	}
	return false
}

// pods are those of the store by uid.
func (w *World) pods() map[types.UID]*corev1.Pod {
	out := map[types.UID]*corev1.Pod{}
	for _, o := range w.truth.List(api.Pods(), "") {
		out[o.GetUID()] = o.(*corev1.Pod)
	}
	return out
}

// stops is R9: whatever is lost of the control plane, a container that runs is only
// stopped when its pod is gone, going, ended or somewhere else.
func (r *rules) stops(n *node, what *run) {
	r.checked["R9"]++
	pod := r.w.pods()[what.uid]
	if pod == nil || pod.DeletionTimestamp != nil || ended(pod) || pod.Spec.NodeName != n.name {
		return
	}
	r.w.fail("R9", "%s stops %s of pod %s, which is to run there", n.name, what.name, what.pod)
}

// patience is how long something that crashed may stay down: the longest back-off is
// five minutes, and an engine may be slow a few times.
const patience = 9 * time.Minute

// restarted is the other half of R9: what crashes is started again, with or without a
// control plane.
func (r *rules) restarted() {
	now := time.Now()
	if now.Sub(r.looked) < 30*time.Second {
		return
	}
	r.looked = now
	var pods map[types.UID]*corev1.Pod
	for _, n := range r.w.nodes {
		if n.agent == nil || now.Sub(n.machine.agentSince) < patience {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(n.machine.crashed)) {
			c := n.machine.crashed[id]
			if now.Sub(c.at) < patience {
				continue
			}
			if pods == nil {
				pods = r.w.pods()
			}
			pod := pods[c.uid]
			if pod == nil || !active(pod) || !forever(pod) {
				delete(n.machine.crashed, id)
				continue
			}
			r.checked["R9"]++
			r.w.fail("R9", "%s has not started %s again, which ended %v ago", n.name, c.pod, now.Sub(c.at).Round(time.Second))
		}
	}
}
