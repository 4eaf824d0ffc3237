package scheduler

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// kin is what a label selector sees of a pod: its namespace, its labels, and
// whether it is being deleted. Pods that agree in these share one kin, so that each
// selector is asked once for all of them.
type kin struct {
	key    string
	space  *space
	labels labels.Set
	going  bool

	on      map[int]int // pods by slot
	tallies []*tally    // those that count these pods
	repels  []*carried  // required anti-affinity of placed pods that is about these
	feels   []*carried  // what placed pods otherwise say about these
	used    uint64
}

// space is a namespace and its labels.
type space struct {
	name   string
	labels labels.Set
}

// shape is what decides where a pod may go and what it means to others, read once
// for all pods that share a spec and a kin.
type shape struct {
	err       error // the pod cannot be read: it fits nowhere
	pod       *corev1.Pod
	kin       *kin
	priority  int32
	meek      bool // never preempts
	demand    demand
	images    []string // of its containers
	ground    string   // key of what nodes are to it, apart from other pods
	affinity  nodeaffinity.RequiredNodeAffinity
	preferred *nodeaffinity.PreferredSchedulingTerms

	needs      []*term // required pod affinity
	alone      bool    // it satisfies its needs itself
	avoids     []*term // required pod anti-affinity
	likes      []liking
	hard, soft []*spread // DoNotSchedule, ScheduleAnyway
	carries    []liking  // what its terms mean to pods that come later
	used       uint64
}

// liking is a term that counts for or, below zero, against a node. The weight
// repel forbids.
type liking struct {
	*term
	weight int64
}

const repel = int64(-1 << 40)

// hardWeight is what required affinity of a placed pod counts for one that matches
// it, as in Kubernetes.
const hardWeight = 1

// term is one term of pod affinity.
type term struct {
	key        string // equal for terms that say the same
	topology   string
	namespaces map[string]bool
	spaces     labels.Selector // of the namespaces' labels; nil when it has none
	selector   labels.Selector
}

func (t *term) selects(k *kin) bool {
	return (t.namespaces[k.space.name] || t.spaces != nil && t.spaces.Matches(k.space.labels)) && t.selector.Matches(k.labels)
}

// spread is one topology spread constraint.
type spread struct {
	key        string
	topology   string
	all        []string // the topology keys of all constraints of the same kind; a node without one of them counts for nothing
	selector   labels.Selector
	maxSkew    int
	minDomains int
	self       int // 1 when the pod counts itself
	affinity   bool
	taints     bool // only nodes whose taints are tolerated count
}

func shapeOf(pod *corev1.Pod, k *kin) *shape {
	s := &shape{pod: pod, kin: k, demand: demandOf(pod), images: imagesOf(pod), affinity: nodeaffinity.GetRequiredNodeAffinity(pod)}
	if pod.Spec.Priority != nil {
		s.priority = *pod.Spec.Priority
	}
	s.meek = pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever
	var where *corev1.NodeAffinity
	if a := pod.Spec.Affinity; a != nil {
		where = a.NodeAffinity
		s.readTerms(a)
	}
	if where != nil && len(where.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		var err error
		if s.preferred, err = nodeaffinity.NewPreferredSchedulingTerms(where.PreferredDuringSchedulingIgnoredDuringExecution); err != nil {
			s.err = err
		}
	}
	s.ground = groundKey(pod, where)
	s.hard = s.readSpreads(corev1.DoNotSchedule)
	s.soft = s.readSpreads(corev1.ScheduleAnyway)
	return s
}

// groundKey is equal for pods that look at nodes alike.
func groundKey(pod *corev1.Pod, where *corev1.NodeAffinity) string {
	var key strings.Builder
	for _, k := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		key.WriteString(k + "=" + pod.Spec.NodeSelector[k] + ",")
	}
	if where != nil {
		key.WriteString("|" + where.String())
	}
	for i := range pod.Spec.Tolerations {
		key.WriteString("|" + pod.Spec.Tolerations[i].String())
	}
	return key.String()
}

// readTerms reads pod affinity and anti-affinity.
func (s *shape) readTerms(a *corev1.Affinity) {
	carry := func(t *term, weight int64) { s.carries = append(s.carries, liking{t, weight}) }
	required := func(terms []corev1.PodAffinityTerm) (out []*term) {
		for i := range terms {
			out = append(out, s.read(&terms[i]))
		}
		return out
	}
	prefer := func(terms []corev1.WeightedPodAffinityTerm, sign int64) {
		for i := range terms {
			t, weight := s.read(&terms[i].PodAffinityTerm), sign*int64(terms[i].Weight)
			s.likes = append(s.likes, liking{t, weight})
			carry(t, weight)
		}
	}
	if p := a.PodAffinity; p != nil {
		s.needs = required(p.RequiredDuringSchedulingIgnoredDuringExecution)
		s.alone = true
		for _, t := range s.needs {
			s.alone = s.alone && t.selects(s.kin)
			carry(t, hardWeight)
		}
		prefer(p.PreferredDuringSchedulingIgnoredDuringExecution, 1)
	}
	if p := a.PodAntiAffinity; p != nil {
		s.avoids = required(p.RequiredDuringSchedulingIgnoredDuringExecution)
		for _, t := range s.avoids {
			carry(t, repel)
		}
		prefer(p.PreferredDuringSchedulingIgnoredDuringExecution, -1)
	}
}

func (s *shape) read(a *corev1.PodAffinityTerm) *term {
	t := &term{topology: a.TopologyKey, namespaces: map[string]bool{}}
	for _, ns := range a.Namespaces {
		t.namespaces[ns] = true
	}
	if len(a.Namespaces) == 0 && a.NamespaceSelector == nil {
		t.namespaces[s.kin.space.name] = true
	}
	spaces := "-"
	if a.NamespaceSelector != nil {
		t.spaces = s.selector(a.NamespaceSelector)
		spaces = "+" + t.spaces.String()
	}
	wanted := withKeys(a.LabelSelector, s.kin.labels, metav1.LabelSelectorOpIn, a.MatchLabelKeys)
	wanted = withKeys(wanted, s.kin.labels, metav1.LabelSelectorOpNotIn, a.MismatchLabelKeys)
	t.selector = s.selector(wanted)
	t.key = strings.Join([]string{t.topology, strings.Join(slices.Sorted(maps.Keys(t.namespaces)), ","), spaces, selectorKey(wanted, t.selector)}, "|")
	return t
}

// selectorKey tells a selector of nothing from one of everything.
func selectorKey(from *metav1.LabelSelector, s labels.Selector) string {
	if from == nil {
		return "-"
	}
	return "+" + s.String()
}

func (s *shape) selector(from *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(from)
	if err != nil {
		s.err = err
		return labels.Nothing()
	}
	return out
}

// withKeys adds to a selector that labels have, or do not have, the values of the
// pod's own. A key that the pod has not is ignored.
func withKeys(from *metav1.LabelSelector, own labels.Set, op metav1.LabelSelectorOperator, keys []string) *metav1.LabelSelector {
	if from == nil || len(keys) == 0 {
		return from
	}
	out := from.DeepCopy()
	for _, key := range keys {
		if value, ok := own[key]; ok {
			out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
		}
	}
	return out
}

func (s *shape) readSpreads(when corev1.UnsatisfiableConstraintAction) (out []*spread) {
	var all []string
	constraints := s.pod.Spec.TopologySpreadConstraints
	for i := range constraints {
		if constraints[i].WhenUnsatisfiable == when {
			all = append(all, constraints[i].TopologyKey)
		}
	}
	slices.Sort(all)
	for i := range constraints {
		c := &constraints[i]
		if c.WhenUnsatisfiable != when {
			continue
		}
		t := &spread{topology: c.TopologyKey, all: all, maxSkew: int(c.MaxSkew), minDomains: 1,
			affinity: c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor,
			taints:   c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor}
		if c.MinDomains != nil {
			t.minDomains = int(*c.MinDomains)
		}
		wanted := withKeys(c.LabelSelector, s.kin.labels, metav1.LabelSelectorOpIn, c.MatchLabelKeys)
		t.selector = s.selector(wanted)
		if t.selector.Matches(s.kin.labels) {
			t.self = 1
		}
		ground := ""
		if t.affinity || t.taints {
			ground = s.ground
		}
		t.key = strings.Join([]string{"spread", s.kin.space.name, selectorKey(wanted, t.selector), t.topology, strings.Join(all, ","),
			strconv.FormatBool(t.affinity), strconv.FormatBool(t.taints), ground}, "|")
		out = append(out, t)
	}
	return out
}

// near says whether other pods decide where it may go.
func (s *shape) near() bool { return len(s.needs)+len(s.avoids)+len(s.hard) > 0 }
