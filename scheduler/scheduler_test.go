package scheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// world is a store with the scheduler over it.
type world struct {
	t    testing.TB
	st   *store.Store
	loop *reconcile.Loop
	now  time.Time
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, st: storetest.Open(t), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
	w.st.OnEvents(w.loop.Handle)
	return w
}

func (w *world) commit(verb store.Verb, obj api.Object) {
	w.t.Helper()
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.t.Fatal(err)
	}
	storetest.Settle(w.t, w.st)
}

// run steps until nothing is due.
func (w *world) run() {
	w.t.Helper()
	storetest.Settle(w.t, w.st)
	for range 10_000 {
		if !w.loop.Step(context.Background()) {
			return
		}
		storetest.Settle(w.t, w.st)
	}
	w.t.Fatal("the loop does not come to rest")
}

func (w *world) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, obj := range w.st.List(api.Pods(), "") {
		out = append(out, obj.(*corev1.Pod))
	}
	return out
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod, ok := w.st.Get(store.Key{GroupResource: api.Pods(), Namespace: "default", Name: name}).(*corev1.Pod)
	if !ok {
		w.t.Fatalf("no pod %s", name)
	}
	return pod.DeepCopy()
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	node, ok := w.st.Get(store.Key{GroupResource: api.Nodes(), Name: name}).(*corev1.Node)
	if !ok {
		w.t.Fatalf("no node %s", name)
	}
	return node.DeepCopy()
}

// TestScripts runs testdata/*.txt. A script is blocks of commands, "----", and
// what came of them: each pod that has a new place or a new reason to wait.
//
//	node NAME [cpu=4] [memory=8Gi] [pods=110] [label:KEY=VALUE] [taint=KEY=VALUE:EFFECT] [unschedulable] [notready] [nolease]
//	pod NAME [cpu=1] [memory=1Gi] [gpu=1] [port=80/TCP@IP] [owner=UID] [select:KEY=VALUE] [require=KEY in A,B] [field=NAME] [prefer=KEY in A,B] [tolerate=KEY=VALUE:EFFECT] [on=NODE]
//	end NAME | delete NAME | edit NODE [as node]
//
// Words with spaces use "+" for them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d scripts: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
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
	for _, pod := range w.pods() {
		where := pod.Spec.NodeName
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && where == "" && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				where = c.Message
			}
		}
		if where != "" && said[pod.Name] != where {
			said[pod.Name] = where
			fmt.Fprintf(&out, "%s: %s\n", pod.Name, where)
		}
	}
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
	case "pod":
		w.now = w.now.Add(time.Second)
		w.commit(store.Create, aPod(w.t, name, w.now, args))
	case "end":
		pod := w.pod(name)
		pod.Status.Phase = corev1.PodSucceeded
		w.commit(store.Update, pod)
	case "delete":
		w.commit(store.Delete, w.pod(name))
	default:
		w.t.Fatalf("unknown command %q", line)
	}
}

func (w *world) lease(node string) {
	w.commit(store.Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}})
}

func aNode(t testing.TB, n *corev1.Node, args []string) *corev1.Node {
	t.Helper()
	list := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")}
	n.Spec, n.Labels = corev1.NodeSpec{}, map[string]string{corev1.LabelHostname: n.Name}
	status := corev1.ConditionTrue
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case key == "cpu" || key == "memory" || key == "pods":
			list[corev1.ResourceName(key)] = resource.MustParse(value)
		case key == "gpu":
			list["example.com/gpu"] = resource.MustParse(value)
		case strings.HasPrefix(key, "label:"):
			n.Labels[strings.TrimPrefix(key, "label:")] = value
		case key == "taint":
			k, v, e := taint(value)
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Value: v, Effect: corev1.TaintEffect(e)})
		case arg == "unschedulable":
			n.Spec.Unschedulable = true
		case arg == "notready":
			status = corev1.ConditionFalse
		case arg == "nolease":
		default:
			t.Fatalf("unknown argument %q", arg)
		}
	}
	n.Status.Allocatable = list
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	return n
}

func taint(s string) (key, value, effect string) {
	s, effect, _ = strings.Cut(s, ":")
	key, value, _ = strings.Cut(s, "=")
	return key, value, effect
}

func aPod(t testing.TB, name string, now time.Time, args []string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	store.Stamp(pod, now)
	c := corev1.Container{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
	expression := func(s string) corev1.NodeSelectorRequirement {
		key, values, ok := strings.Cut(strings.ReplaceAll(s, "+", " "), " in ")
		if !ok {
			t.Fatalf("%q is not KEY+in+A,B", s)
		}
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: strings.Split(values, ",")}
	}
	affinity := &corev1.NodeAffinity{}
	require := func(term corev1.NodeSelectorTerm) {
		if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		}
		r := affinity.RequiredDuringSchedulingIgnoredDuringExecution
		r.NodeSelectorTerms = append(r.NodeSelectorTerms, term)
	}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case key == "cpu" || key == "memory":
			c.Resources.Requests[corev1.ResourceName(key)] = resource.MustParse(value)
		case key == "gpu":
			c.Resources.Requests["example.com/gpu"] = resource.MustParse(value)
		case key == "port":
			value, ip, _ := strings.Cut(value, "@")
			number, protocol, _ := strings.Cut(value, "/")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: int32(n), HostPort: int32(n), Protocol: corev1.Protocol(protocol), HostIP: ip})
		case key == "owner":
			yes := true
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: value, UID: types.UID(value), Controller: &yes}}
		case strings.HasPrefix(key, "select:"):
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = map[string]string{}
			}
			pod.Spec.NodeSelector[strings.TrimPrefix(key, "select:")] = value
		case key == "require":
			require(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expression(value)}})
		case key == "field":
			require(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}})
		case key == "prefer":
			affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
				corev1.PreferredSchedulingTerm{Weight: 10, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expression(value)}}})
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
		default:
			t.Fatalf("unknown argument %q", arg)
		}
	}
	pod.Spec.Containers = []corev1.Container{c}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: affinity}
	return pod
}
