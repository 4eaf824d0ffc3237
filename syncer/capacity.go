package syncer

import (
	"fmt"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Capacity asks the scheduler, on a copy of the live state without the leaving
// pods, where pods would go; it answers each ask in its order, and each sees those
// before it. ok is false when that would take too long. Without a node there is
// nothing to say, and every pod fits.
type Capacity func(leaving map[types.UID]bool, asks []Ask) (answers []Answer, ok bool)

// Ask is a number of pods of one form; with none of them only Answer.Never is
// asked.
type Ask struct {
	Pod   *corev1.Pod
	Count int
}

// Answer is what becomes of an Ask.
type Answer struct {
	Fit   int    // how many of them find a node
	Why   string // the others do not, in the scheduler's words
	Never bool   // not even an empty node would do
}

// maxPlaced bounds the pods that one judgement places.
const maxPlaced = 1000

// intake is what one changed workload brings and takes.
type intake struct {
	manifest *api.Manifest
	pod      *corev1.Pod
	count    int           // pods that are new
	leaving  []*corev1.Pod // pods that go when the new ones are there
	surge    bool          // none of the leaving goes before a new one runs
	later    bool          // the pods come some time: only whether they could ever run is asked
}

// intakes lists what the steps bring, in their order. owned lists what an object
// controls; classes are the PriorityClasses there will be.
func intakes(steps []Step, owned func(types.UID) []api.Object, classes []api.Object) []intake {
	var out []intake
	for _, s := range steps {
		var before []*corev1.Pod
		if s.Live != nil && s.Verb != Create {
			before = podsOf(s.Live, owned)
		}
		switch {
		case s.Verb == Delete:
			out = append(out, intake{leaving: before})
		case s.Manifest == nil || s.Verb == Record:
		case s.Op.Object != nil:
			if in, ok := intakeOf(s, before, classes); ok {
				out = append(out, in)
			}
		default: // it waits, and is made from its manifest
			if in, ok := intakeOf(Step{Verb: Create, Op: store.Op{Object: s.Manifest.Object}, Manifest: s.Manifest}, nil, classes); ok {
				out = append(out, in)
			}
		}
	}
	return out
}

func intakeOf(s Step, before []*corev1.Pod, classes []api.Object) (intake, bool) {
	in := intake{manifest: s.Manifest}
	obj := s.Op.Object
	live := s.Live
	if s.Verb == Create {
		live = nil
	}
	t, _ := template(obj)
	if t == nil {
		return in, false
	}
	wanted := 1
	rolls := false
	switch o := obj.(type) {
	case *corev1.Pod:
		if live != nil || o.Spec.NodeName != "" {
			return in, false
		}
		in.pod, in.count = o, 1
		return in, true
	case *appsv1.Deployment:
		wanted = count(o.Spec.Replicas)
		if was, ok := live.(*appsv1.Deployment); ok && !equality.Semantic.DeepEqual(was.Spec.Template, o.Spec.Template) {
			rolls = !o.Spec.Paused
			in.surge = rolls && keepsAll(o.Spec.Strategy, wanted)
		}
	case *appsv1.ReplicaSet:
		wanted = count(o.Spec.Replicas)
	case *corev1.ReplicationController:
		wanted = count(o.Spec.Replicas)
	case *appsv1.StatefulSet:
		wanted = count(o.Spec.Replicas)
		was, ok := live.(*appsv1.StatefulSet)
		rolls = ok && o.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType && !equality.Semantic.DeepEqual(was.Spec.Template, o.Spec.Template)
	case *appsv1.DaemonSet:
		return in, false // one for each node that suits, be it none
	case *batchv1.Job:
		wanted = count(o.Spec.Parallelism)
		if c := o.Spec.Completions; c != nil {
			wanted = min(wanted, int(*c))
		}
		if o.Spec.Suspend != nil && *o.Spec.Suspend {
			wanted = 0
		}
	default: // a CronJob
		in.later = true
	}
	switch {
	case in.later:
		if live != nil && sameTemplate(live, t) {
			return in, false
		}
	case rolls:
		in.count, in.leaving = wanted, before
	default:
		in.count = max(0, wanted-len(before))
	}
	if in.count == 0 && !in.later {
		return in, false
	}
	pod := podset.New(obj, t)
	admitted, err := admission.Admit(admission.Request{Verb: admission.Create, Object: pod},
		admission.Facts{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}}, PriorityClasses: classes, Accounts: anyAccount(pod)})
	// A class that is not there is told by a rule of its own.
	if p, ok := admitted.(*corev1.Pod); err == nil && ok {
		pod = p
	}
	in.pod = pod
	return in, true
}

// anyAccount is the ServiceAccount that a pod names: whether it is there, and what it
// gives, is not the question here.
func anyAccount(pod *corev1.Pod) []api.Object {
	return []api.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}}
}

func sameTemplate(live api.Object, t *corev1.PodTemplateSpec) bool {
	was, _ := template(live)
	return was != nil && equality.Semantic.DeepEqual(was.Spec, t.Spec)
}

func count(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// keepsAll says whether a rolling update stops no old pod before a new one runs.
func keepsAll(s appsv1.DeploymentStrategy, replicas int) bool {
	if s.Type != appsv1.RollingUpdateDeploymentStrategyType || s.RollingUpdate == nil || s.RollingUpdate.MaxUnavailable == nil {
		return false
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(s.RollingUpdate.MaxUnavailable, replicas, false)
	surge := 0
	if s.RollingUpdate.MaxSurge != nil {
		if v, err := intstr.GetScaledValueFromIntOrPercent(s.RollingUpdate.MaxSurge, replicas, true); err == nil {
			surge = v
		}
	}
	return err == nil && n == 0 && surge > 0
}

// podsOf are the active pods that an object has, by way of what it controls.
func podsOf(obj api.Object, owned func(types.UID) []api.Object) []*corev1.Pod {
	if pod, ok := obj.(*corev1.Pod); ok {
		return []*corev1.Pod{pod}
	}
	var out []*corev1.Pod
	for _, child := range owned(obj.GetUID()) {
		if !metav1.IsControlledBy(child, obj) {
			continue
		}
		if pod, ok := child.(*corev1.Pod); !ok {
			out = append(out, podsOf(child, owned)...)
		} else if podset.Active(pod) {
			out = append(out, pod)
		}
	}
	return out
}

// checkCapacity says which new pods would fit on no node.
func checkCapacity(ins []intake, ask Capacity, f *findings) {
	total := 0
	var asks []Ask
	var of []intake
	leaving := map[types.UID]bool{}
	for _, in := range ins {
		for _, pod := range in.leaving {
			leaving[pod.UID] = true
		}
		if in.pod == nil {
			continue
		}
		of, asks = append(of, in), append(asks, Ask{in.pod, in.count})
		total += in.count
	}
	if ask == nil || len(asks) == 0 {
		return
	}
	var answers []Answer
	ok := total <= maxPlaced
	if ok {
		answers, ok = ask(leaving, asks)
	}
	if !ok {
		f.add(ruleCapacityUnchecked, problem(of[0].manifest, "", fmt.Sprintf("whether the nodes have room was not checked: this commit brings %s, and at most %s are placed, fewer on many nodes; see how they start with headway status",
			plural(total, "new pod"), thousands(maxPlaced))))
		return
	}
	for i, a := range answers {
		in := of[i]
		switch name := titleOf(keyOf(in.manifest)); {
		case a.Never:
			f.add(ruleCapacityNever, problem(in.manifest, "", fmt.Sprintf("%s: its pods could run on no node even if it were empty: %s Lower what they ask for, or add a node that has it", name, a.Why)))
		case in.later:
		case a.Fit < in.count:
			f.add(ruleCapacityNow, problem(in.manifest, "", fmt.Sprintf("%s: %s of %s on no node: %s Add nodes, or ask for less", name, thousands(in.count-a.Fit), fits(in.count), a.Why)))
		case in.surge && len(in.leaving) > 0:
			checkSurge(in, name, ask, f)
		}
	}
}

func fits(count int) string {
	if count == 1 {
		return "1 new pod fits"
	}
	return thousands(count) + " new pods fit"
}

// checkSurge asks whether a rolling update that stops no old pod first can begin.
func checkSurge(in intake, name string, ask Capacity, f *findings) {
	answers, ok := ask(nil, []Ask{{in.pod, 1}})
	if ok && answers[0].Fit == 0 {
		f.add(ruleCapacityNow, problem(in.manifest, "spec.strategy.rollingUpdate.maxUnavailable", fmt.Sprintf("%s: the rolling update cannot begin: it stops no old pod first, and one more fits on no node: %s Add a node, or allow maxUnavailable: 1", name, answers[0].Why)))
	}
}
