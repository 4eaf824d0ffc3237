package scheduler

import (
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// oracle answers by looking at every pod and every node each time, straight from
// the documentation's words and with nothing of the board.
type oracle struct {
	nodes  map[string]*corev1.Node
	pods   []*corev1.Pod // on nodes
	spaces map[string]map[string]string
}

func oracleOf(s *store.Store) *oracle {
	o := &oracle{nodes: map[string]*corev1.Node{}, spaces: map[string]map[string]string{}}
	for _, obj := range s.List(api.Nodes(), "") {
		o.nodes[obj.GetName()] = obj.(*corev1.Node)
	}
	for _, obj := range s.List(api.Namespaces(), "") {
		o.spaces[obj.GetName()] = obj.GetLabels()
	}
	for _, obj := range s.List(api.Pods(), "") {
		if pod := obj.(*corev1.Pod); pod.Spec.NodeName != "" && !ended(pod) && o.nodes[pod.Spec.NodeName] != nil {
			o.pods = append(o.pods, pod)
		}
	}
	return o
}

// objection is a hard constraint that the pod on that node would break; "" for none.
func (o *oracle) objection(pod *corev1.Pod, name string) string {
	node := o.nodes[name]
	if node == nil {
		return "there is no such node"
	}
	others := slices.DeleteFunc(slices.Clone(o.pods), func(p *corev1.Pod) bool { return p.UID == pod.UID })
	tolerates := func(t corev1.Taint) bool {
		return schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, &t, true)
	}
	if !ready(node) {
		return "not ready"
	}
	if node.Spec.Unschedulable && !tolerates(corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}) {
		return "cordoned"
	}
	if !o.tolerated(pod, node) {
		return "taint"
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !ok || err != nil {
		return "node affinity"
	}
	want := demandOf(pod)
	count, cpu, memory, gpu := int64(1), want.requests.cpu, want.requests.memory, want.requests.other["example.com/gpu"]
	for _, p := range others {
		if p.Spec.NodeName != name {
			continue
		}
		d := demandOf(p)
		count++
		cpu += d.requests.cpu
		memory += d.requests.memory
		gpu += d.requests.other["example.com/gpu"]
		for _, a := range want.ports {
			for _, b := range d.ports {
				if a.Number == b.Number && a.Protocol == b.Protocol && (a.IP == b.IP || a.IP == "0.0.0.0" || b.IP == "0.0.0.0") {
					return "host port"
				}
			}
		}
	}
	all := amountsOf(node.Status.Allocatable)
	if count > node.Status.Allocatable.Pods().Value() || want.requests.cpu > 0 && cpu > all.cpu || want.requests.memory > 0 && memory > all.memory ||
		want.requests.other["example.com/gpu"] > 0 && gpu > all.other["example.com/gpu"] {
		return "room"
	}
	if why := o.spreads(pod, node, others); why != "" {
		return why
	}
	return o.neighbours(pod, node, others)
}

func (o *oracle) tolerated(pod *corev1.Pod, node *corev1.Node) bool {
	for _, t := range node.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, &t, true) {
			return false
		}
	}
	return true
}

func (o *oracle) spreads(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) string {
	var hard []corev1.TopologySpreadConstraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			hard = append(hard, c)
		}
	}
	for _, c := range hard {
		if _, ok := node.Labels[c.TopologyKey]; !ok {
			return "no topology key"
		}
		sel := selectorOf(c.LabelSelector)
		for _, key := range c.MatchLabelKeys {
			if v, ok := pod.Labels[key]; ok {
				sel = both(sel, labels.SelectorFromSet(labels.Set{key: v}))
			}
		}
		counts := map[string]int{}
		for _, n := range o.nodes {
			if slices.ContainsFunc(hard, func(c corev1.TopologySpreadConstraint) bool { _, ok := n.Labels[c.TopologyKey]; return !ok }) {
				continue
			}
			if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
				if ok, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); !ok {
					continue
				}
			}
			if c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor && !o.tolerated(pod, n) {
				continue
			}
			counts[n.Labels[c.TopologyKey]] += 0
			for _, p := range others {
				if p.Spec.NodeName == n.Name && p.Namespace == pod.Namespace && p.DeletionTimestamp == nil && sel(p.Labels) {
					counts[n.Labels[c.TopologyKey]]++
				}
			}
		}
		fewest := -1
		for _, n := range counts {
			if fewest < 0 || n < fewest {
				fewest = n
			}
		}
		if c.MinDomains != nil && len(counts) < int(*c.MinDomains) || fewest < 0 {
			fewest = 0
		}
		there := counts[node.Labels[c.TopologyKey]]
		if sel(pod.Labels) {
			there++
		}
		if there-fewest > int(c.MaxSkew) {
			return "skew"
		}
	}
	return ""
}

type predicate func(map[string]string) bool

func selectorOf(s *metav1.LabelSelector) predicate {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return func(map[string]string) bool { return false }
	}
	return func(set map[string]string) bool { return sel.Matches(labels.Set(set)) }
}

func both(a predicate, b labels.Selector) predicate {
	return func(set map[string]string) bool { return a(set) && b.Matches(labels.Set(set)) }
}

// selects says whether a term of the pod "of" selects another pod.
func (o *oracle) selects(of *corev1.Pod, t *corev1.PodAffinityTerm, other *corev1.Pod) bool {
	in := slices.Contains(t.Namespaces, other.Namespace)
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		in = other.Namespace == of.Namespace
	}
	if t.NamespaceSelector != nil {
		in = in || selectorOf(t.NamespaceSelector)(o.spaces[other.Namespace])
	}
	if !in || !selectorOf(t.LabelSelector)(other.Labels) {
		return false
	}
	for _, key := range t.MatchLabelKeys {
		if v, ok := of.Labels[key]; ok && other.Labels[key] != v {
			return false
		}
	}
	for _, key := range t.MismatchLabelKeys {
		if v, ok := of.Labels[key]; ok {
			if theirs, has := other.Labels[key]; has && theirs == v {
				return false
			}
		}
	}
	return true
}

func (o *oracle) together(key string, a, b *corev1.Node) bool {
	x, ok := a.Labels[key]
	y, also := b.Labels[key]
	return ok && also && x == y
}

func antiTerms(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func (o *oracle) neighbours(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) string {
	for _, t := range antiTerms(pod) {
		for _, p := range others {
			if o.selects(pod, &t, p) && o.together(t.TopologyKey, node, o.nodes[p.Spec.NodeName]) {
				return "anti-affinity"
			}
		}
	}
	for _, p := range others {
		for _, t := range antiTerms(p) {
			if o.selects(p, &t, pod) && o.together(t.TopologyKey, node, o.nodes[p.Spec.NodeName]) {
				return "anti-affinity of " + p.Name
			}
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		return o.affinity(pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, node, others)
	}
	return ""
}

// affinity: a pod counts only if all terms select it. When none does anywhere, a
// pod that they select itself may be the first.
func (o *oracle) affinity(pod *corev1.Pod, terms []corev1.PodAffinityTerm, node *corev1.Node, others []*corev1.Pod) string {
	chosen := func(p *corev1.Pod) bool {
		for _, t := range terms {
			if !o.selects(pod, &t, p) {
				return false
			}
		}
		return true
	}
	found, met := false, true
	for _, t := range terms {
		if _, ok := node.Labels[t.TopologyKey]; !ok {
			return "affinity: no topology key"
		}
		here := false
		for _, p := range others {
			on := o.nodes[p.Spec.NodeName]
			if _, ok := on.Labels[t.TopologyKey]; ok && chosen(p) {
				found = true
				here = here || o.together(t.TopologyKey, node, on)
			}
		}
		met = met && here
	}
	if met || !found && chosen(pod) {
		return ""
	}
	return "affinity"
}
