package scheduler

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestScripts runs testdata/*.txt. A script begins with a sentence that names the
// documented rule. Then come blocks of commands, "----", and what came of them: each
// pod that has a new place ("a: n1"), a new reason to wait, room that is being made
// for it ("a: for n1: why it waits"), or that was sent away ("b: preempted"), and each
// claim that has got a volume ("claim c: v").
//
//	node NAME [cpu=4] [memory=8Gi] [pods=110] [gpu=1] [label:KEY=VALUE] [taint=KEY=VALUE:EFFECT] [image=NAME@SIZE] [unschedulable] [notready] [nolease]
//	edit NODE [as node] | lease NODE | remove NODE
//	namespace NAME [label:KEY=VALUE] | budget NAME KEY=VALUE ALLOWED
//	pod NAME [ns=NAME] [label:KEY=VALUE] [cpu=1] [memory=1Gi] [gpu=1] [image=NAME] [port=80/TCP@IP] [owner=UID] [select:KEY=VALUE] [require=KEY in A,B]
//	    [field=NAME] [prefer=KEY in A,B] [tolerate=KEY=VALUE:EFFECT] [on=NODE] [gate=NAME] [priority=N] [never] [started=N]
//	    [near=TERM] [apart=TERM] [likes=WEIGHT/TERM] [dislikes=WEIGHT/TERM]    TERM: TOPOLOGY:KEY=VALUE[;ns=A,B][;spaces=KEY=VALUE|*][;match=KEY][;mismatch=KEY]
//	    [spread=MAXSKEW/TOPOLOGY:KEY=VALUE[;soft][;min=N][;affinity=Ignore][;taints=Honor][;match=KEY]]
//	    [claim=NAME] [ephemeral=VOLUME]
//	class NAME [provisioner=NAME] [immediate] [only=KEY in A,B]
//	volume NAME SIZE [class=NAME] [node=NAME] [for=CLAIM] | claim NAME SIZE [class=NAME] [mode=ReadWriteOncePod] [volume=NAME] [bound] [owner=POD] [lost]
//	stop-claim NAME | drop-claim NAME | drop-volume NAME
//	end POD | delete POD | stop POD | relabel POD KEY=VALUE | ungate POD
//
// Words with spaces use "+" for them. "stop" marks a pod as being deleted, "delete"
// takes it away.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 60 {
		t.Errorf("%d scenarios, and there are to be 60", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(data), "# ") {
				t.Error("no sentence at the beginning says what rule this is about")
			}
			w := newWorld(t)
			said := map[string]string{}
			for i, block := range strings.Split(strings.TrimSpace(string(data)), "\n\n") {
				input, want, ok := strings.Cut(block+"\n", "----\n")
				if !ok {
					t.Fatalf("block %d has no ----", i+1)
				}
				for line := range strings.Lines(input) {
					if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
						w.command(line)
					}
				}
				w.run()
				if got := w.news(said); strings.TrimSpace(got) != strings.TrimSpace(want) {
					t.Errorf("block %d:\n%s---- got\n%s---- want\n%s", i+1, input, got, want)
				}
			}
		})
	}
}

// news tells where pods are that said does not have yet.
func (w *world) news(said map[string]string) string {
	var out strings.Builder
	pods := w.pods()
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		where := pod.Spec.NodeName
		for _, c := range pod.Status.Conditions {
			switch {
			case c.Type == corev1.PodScheduled && where == "" && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable:
				if where = c.Message; pod.Status.NominatedNodeName != "" {
					where = "for " + pod.Status.NominatedNodeName + ": " + where
				}
			case c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler && pod.DeletionTimestamp != nil:
				where = "preempted"
			}
		}
		if where != "" && said[pod.Name] != where {
			said[pod.Name] = where
			fmt.Fprintf(&out, "%s: %s\n", pod.Name, where)
		}
	}
	w.claimNews(said, &out)
	return out.String()
}

func (w *world) command(line string) {
	w.t.Helper()
	words := strings.Fields(line)
	verb, name, args := words[0], words[1], words[2:]
	switch verb {
	case "node":
		w.commit(store.Create, aNode(w.t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name)}}, args))
		if !slices.Contains(args, "nolease") {
			w.lease(name)
		}
	case "lease":
		w.lease(name)
	case "edit":
		w.commit(store.Update, aNode(w.t, w.node(name), args))
	case "remove":
		w.commit(store.Delete, w.node(name))
	case "namespace":
		w.namespace(name, args)
	case "class", "volume", "claim", "stop-claim", "drop-claim", "drop-volume":
		w.storage(verb, name, args)
	case "budget":
		w.commit(store.Create, aBudget(w.t, name, args))
	case "pod":
		w.now = w.now.Add(time.Second)
		w.commit(store.Create, aPod(w.t, name, w.now, args))
	case "end":
		pod := w.pod(name)
		pod.Status.Phase = corev1.PodSucceeded
		w.commit(store.Update, pod)
	case "delete":
		w.commit(store.Delete, w.pod(name))
	case "stop":
		pod := w.pod(name)
		pod.DeletionTimestamp = &metav1.Time{Time: w.now.Add(30 * time.Second)}
		w.commit(store.Update, pod)
	case "relabel":
		pod := w.pod(name)
		key, value, _ := strings.Cut(args[0], "=")
		pod.Labels = map[string]string{key: value}
		w.commit(store.Update, pod)
	case "ungate":
		pod := w.pod(name)
		pod.Spec.SchedulingGates = nil
		w.commit(store.Update, pod)
	default:
		w.t.Fatalf("unknown command %q", line)
	}
}

func (w *world) namespace(name string, args []string) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, arg := range args {
		key, value, _ := strings.Cut(strings.TrimPrefix(arg, "label:"), "=")
		ns.Labels[key] = value
	}
	verb := store.Create
	if live := w.st.Get(store.KeyOf(ns)); live != nil {
		ns.ResourceVersion, verb = live.GetResourceVersion(), store.Update
	}
	w.commit(verb, ns)
}

func aBudget(t testing.TB, name string, args []string) *policyv1.PodDisruptionBudget {
	t.Helper()
	key, value, _ := strings.Cut(args[0], "=")
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: number(t, args[1])}}
}

func number(t testing.TB, s string) int32 {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

func taint(s string) (key, value, effect string) {
	s, effect, _ = strings.Cut(s, ":")
	key, value, _ = strings.Cut(s, "=")
	return key, value, effect
}

// expression reads KEY+in+A,B.
func expression(t testing.TB, s string) corev1.NodeSelectorRequirement {
	t.Helper()
	key, values, ok := strings.Cut(strings.ReplaceAll(s, "+", " "), " in ")
	if !ok {
		t.Fatalf("%q is not KEY+in+A,B", s)
	}
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: strings.Split(values, ",")}
}

func labelsOf(s string) *metav1.LabelSelector {
	if s == "*" {
		return &metav1.LabelSelector{}
	}
	key, value, _ := strings.Cut(s, "=")
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// aTerm reads TOPOLOGY:KEY=VALUE and what follows.
func aTerm(t testing.TB, s string) corev1.PodAffinityTerm {
	t.Helper()
	parts := strings.Split(s, ";")
	topology, selector, _ := strings.Cut(parts[0], ":")
	out := corev1.PodAffinityTerm{TopologyKey: topology, LabelSelector: labelsOf(selector)}
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "ns":
			out.Namespaces = strings.Split(value, ",")
		case "spaces":
			out.NamespaceSelector = labelsOf(value)
		case "match":
			out.MatchLabelKeys = append(out.MatchLabelKeys, value)
		case "mismatch":
			out.MismatchLabelKeys = append(out.MismatchLabelKeys, value)
		default:
			t.Fatalf("unknown part %q", part)
		}
	}
	return out
}

func aSpread(t testing.TB, s string) corev1.TopologySpreadConstraint {
	t.Helper()
	skew, rest, _ := strings.Cut(s, "/")
	parts := strings.Split(rest, ";")
	topology, selector, _ := strings.Cut(parts[0], ":")
	out := corev1.TopologySpreadConstraint{MaxSkew: number(t, skew), TopologyKey: topology, LabelSelector: labelsOf(selector), WhenUnsatisfiable: corev1.DoNotSchedule}
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		policy := corev1.NodeInclusionPolicy(value)
		switch key {
		case "soft":
			out.WhenUnsatisfiable = corev1.ScheduleAnyway
		case "min":
			n := number(t, value)
			out.MinDomains = &n
		case "affinity":
			out.NodeAffinityPolicy = &policy
		case "taints":
			out.NodeTaintsPolicy = &policy
		case "match":
			out.MatchLabelKeys = append(out.MatchLabelKeys, value)
		default:
			t.Fatalf("unknown part %q", part)
		}
	}
	return out
}

func aPod(t testing.TB, name string, now time.Time, args []string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	store.Stamp(pod, now)
	c := corev1.Container{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
	where, near, apart := &corev1.NodeAffinity{}, &corev1.PodAffinity{}, &corev1.PodAntiAffinity{}
	require := func(term corev1.NodeSelectorTerm) {
		if where.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			where.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		}
		r := where.RequiredDuringSchedulingIgnoredDuringExecution
		r.NodeSelectorTerms = append(r.NodeSelectorTerms, term)
	}
	weighted := func(s string) corev1.WeightedPodAffinityTerm {
		weight, rest, _ := strings.Cut(s, "/")
		return corev1.WeightedPodAffinityTerm{Weight: number(t, weight), PodAffinityTerm: aTerm(t, rest)}
	}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case key == "cpu" || key == "memory":
			c.Resources.Requests[corev1.ResourceName(key)] = resource.MustParse(value)
		case key == "image":
			c.Image = value
		case key == "gpu":
			c.Resources.Requests["example.com/gpu"] = resource.MustParse(value)
		case key == "port":
			value, ip, _ := strings.Cut(value, "@")
			port, protocol, _ := strings.Cut(value, "/")
			n := number(t, port)
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: n, HostPort: n, Protocol: corev1.Protocol(protocol), HostIP: ip})
		case key == "owner":
			yes := true
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: value, UID: types.UID(value), Controller: &yes}}
		case key == "ns":
			pod.Namespace = value
		case strings.HasPrefix(key, "label:"):
			metav1.SetMetaDataLabel(&pod.ObjectMeta, strings.TrimPrefix(key, "label:"), value)
		case strings.HasPrefix(key, "select:"):
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = map[string]string{}
			}
			pod.Spec.NodeSelector[strings.TrimPrefix(key, "select:")] = value
		case key == "require":
			require(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expression(t, value)}})
		case key == "field":
			require(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}})
		case key == "prefer":
			where.PreferredDuringSchedulingIgnoredDuringExecution = append(where.PreferredDuringSchedulingIgnoredDuringExecution,
				corev1.PreferredSchedulingTerm{Weight: 10, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expression(t, value)}}})
		case key == "tolerate":
			k, v, e := taint(value)
			op := corev1.TolerationOpEqual
			if v == "" {
				op = corev1.TolerationOpExists
			}
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: k, Operator: op, Value: v, Effect: corev1.TaintEffect(e)})
		case key == "on":
			pod.Spec.NodeName = value
		case key == "scheduler":
			pod.Spec.SchedulerName = value
		case key == "claim":
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v-" + value, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: value}}})
		case key == "ephemeral":
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: value, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}})
		case key == "gate":
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: value})
		case key == "priority":
			n := number(t, value)
			pod.Spec.Priority = &n
		case key == "never":
			never := corev1.PreemptNever
			pod.Spec.PreemptionPolicy = &never
		case key == "started":
			pod.Status.StartTime = &metav1.Time{Time: time.Unix(int64(number(t, value)), 0)}
		case key == "near":
			near.RequiredDuringSchedulingIgnoredDuringExecution = append(near.RequiredDuringSchedulingIgnoredDuringExecution, aTerm(t, value))
		case key == "apart":
			apart.RequiredDuringSchedulingIgnoredDuringExecution = append(apart.RequiredDuringSchedulingIgnoredDuringExecution, aTerm(t, value))
		case key == "likes":
			near.PreferredDuringSchedulingIgnoredDuringExecution = append(near.PreferredDuringSchedulingIgnoredDuringExecution, weighted(value))
		case key == "dislikes":
			apart.PreferredDuringSchedulingIgnoredDuringExecution = append(apart.PreferredDuringSchedulingIgnoredDuringExecution, weighted(value))
		case key == "spread":
			pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, aSpread(t, value))
		default:
			t.Fatalf("unknown argument %q", arg)
		}
	}
	pod.Spec.Containers = []corev1.Container{c}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: where, PodAffinity: near, PodAntiAffinity: apart}
	return pod
}
