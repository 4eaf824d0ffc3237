package daemonset

import (
	"maps"
	"slices"
	"strconv"

	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// labelGeneration is the label by which Kubernetes once told versions apart.
const labelGeneration = "pod-template-generation"

// tolerations are those of a template and what every pod of a DaemonSet tolerates:
// what is wrong with a node is no reason to take its own pod away.
func tolerations(spec *corev1.PodSpec) []corev1.Toleration {
	out := slices.Clone(spec.Tolerations)
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		i := slices.IndexFunc(out, func(o corev1.Toleration) bool { return t.MatchToleration(&o) })
		if i < 0 {
			out = append(out, t)
		} else {
			out[i] = t // without its tolerationSeconds
		}
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
	return out
}

// suits is whether nodes suit a template; it is read once for all of them.
type suits struct {
	nodeName    string
	tolerations []corev1.Toleration
	affinity    nodeaffinity.RequiredNodeAffinity
}

func suitsOf(spec *corev1.PodSpec) suits {
	return suits{spec.NodeName, tolerations(spec), nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)}
}

// node says whether a pod should be made for a node, and whether one that is there
// may stay.
func (s suits) node(n *corev1.Node) (run, stay bool) {
	if s.nodeName != "" && s.nodeName != n.Name {
		return false, false
	}
	if ok, err := s.affinity.Match(n); err != nil || !ok {
		return false, false
	}
	run, stay = true, true
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, s.tolerations, t, true) {
			continue
		}
		run = false
		if t.Effect == corev1.TaintEffectNoExecute {
			stay = false
		}
	}
	return run, stay
}

// newPod makes a pod of the revision, for no node yet, which is not admitted.
func newPod(set *appsv1.DaemonSet, hash string) *corev1.Pod {
	pod := podset.New(set, &set.Spec.Template)
	pod.Labels = maps.Clone(pod.Labels)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = hash
	if n, err := strconv.ParseInt(set.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64); err == nil {
		pod.Labels[labelGeneration] = strconv.FormatInt(n, 10)
	}
	pod.Spec.Tolerations = tolerations(&pod.Spec)
	pod.Spec.Affinity = pinned(pod.Spec.Affinity, "")
	return pod
}

// pinned is the affinity with the node's name as the only required term: the node
// was chosen by the template's own.
func pinned(affinity *corev1.Affinity, node string) *corev1.Affinity {
	out := affinity.DeepCopy()
	if out == nil {
		out = &corev1.Affinity{}
	}
	if out.NodeAffinity == nil {
		out.NodeAffinity = &corev1.NodeAffinity{}
	}
	out.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}
	return out
}

// nodeOf is the node that a pod is on or is meant for; "" for none.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}
