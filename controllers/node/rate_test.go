package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// fleet makes nodes of "zone:ready,lost,tainted" counts.
func fleet(spec string) (out []*corev1.Node) {
	for part := range strings.FieldsSeq(spec) {
		name, counts, _ := strings.Cut(part, ":")
		var ready, lost, tainted int
		if _, err := fmt.Sscanf(counts, "%d,%d,%d", &ready, &lost, &tainted); err != nil {
			panic(err)
		}
		for i := range ready + lost + tainted {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%03d", name, i), Labels: map[string]string{corev1.LabelTopologyZone: name}}}
			c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Duration(i) * time.Second))}
			if i >= ready {
				c.Status = corev1.ConditionUnknown
			}
			n.Status.Conditions = []corev1.NodeCondition{c}
			retaint(n, noon)
			if i >= ready+lost {
				n = evicting(n, noon)
			}
			out = append(out, n)
		}
	}
	return out
}

// TestTaintsThatEvictComeAtTheDocumentedPace holds planPace against
// https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction.
func TestTaintsThatEvictComeAtTheDocumentedPace(t *testing.T) {
	for name, c := range map[string]struct {
		fleet string
		after time.Duration
		want  string // names; a minus before one that loses the taint
		again time.Duration
	}{
		"all ready":                            {fleet: "a:3,0,0"},
		"one lost":                             {fleet: "a:3,1,0", want: "a003"},
		"the one lost longest goes first":      {fleet: "a:3,2,0", want: "a004", again: interval},
		"one was tainted just now":             {fleet: "a:3,1,1", again: interval},
		"the next one's turn":                  {fleet: "a:3,1,1", after: interval, want: "a003"},
		"zones have their own pace":            {fleet: "a:3,1,1 b:3,1,0", want: "b003", again: interval},
		"most of a small zone is lost":         {fleet: "a:2,3,0"},
		"two of three are few":                 {fleet: "a:1,2,0", want: "a002", again: interval},
		"54 % of a large zone is lost":         {fleet: "a:46,54,0", want: "a099", again: interval},
		"55 % of a large zone is lost":         {fleet: "a:45,54,1", after: interval, again: slowInterval - interval},
		"55 % of a large zone, its slow turn":  {fleet: "a:45,54,1", after: slowInterval, want: "a098", again: slowInterval},
		"a whole zone is lost, others are not": {fleet: "a:0,4,0 b:1,0,0", want: "a003", again: interval},
		"all is lost":                          {fleet: "a:0,2,1 b:0,1,1", want: "-a002 -b001"},
		"one node, which is lost":              {fleet: "a:0,1,0"},
		"no nodes":                             {fleet: ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := planPace(fleet(c.fleet), nil, noon.Add(c.after))
			var got []string
			for _, n := range p.nodes {
				if evictedSince(n) == nil {
					got = append(got, "-"+n.Name)
				} else {
					got = append(got, n.Name)
				}
			}
			if strings.Join(got, " ") != c.want || p.again != c.again {
				t.Errorf("taints %q, again in %v; want %q, %v", got, p.again, c.want, c.again)
			}
		})
	}
}

func TestExcludedNodesDoNotCountButAreTainted(t *testing.T) {
	nodes := fleet("a:1,1,0")
	nodes[0].Labels[excluded] = "true"
	if p := planPace(nodes, nil, noon); !p.stopped || len(p.nodes) != 0 {
		t.Errorf("the only healthy node does not count: %+v", p)
	}
	nodes = fleet("a:1,1,0")
	nodes[1].Labels[excluded] = "true"
	if p := planPace(nodes, nil, noon); len(p.nodes) != 1 {
		t.Errorf("an excluded node that is lost: %+v", p)
	}
}

func TestThePaceIsRememberedWhenATaintIsGone(t *testing.T) {
	p := planPace(fleet("a:3,1,0"), map[string]time.Time{"/a": noon.Add(-time.Second)}, noon)
	if len(p.nodes) != 0 || p.again != interval-time.Second {
		t.Errorf("got %+v", p)
	}
}

// TestNeverMoreThanTheRate loses and mends nodes at random, with leaders that
// forget, and counts the taints that come in each zone.
func TestNeverMoreThanTheRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := fleet(rapid.SampledFrom([]string{"a:5,0,0", "a:3,0,0 b:4,0,0", "a:60,0,0 b:1,0,0"}).Draw(rt, "fleet"))
		now, last := noon, map[string]time.Time{}
		added := map[string]time.Time{}
		pick := rapid.IntRange(0, len(nodes)-1)
		rt.Repeat(map[string]func(*rapid.T){
			"lose": func(t *rapid.T) {
				i := pick.Draw(t, "node")
				n := nodes[i].DeepCopy()
				unknown(n, now)
				retaint(n, now)
				nodes[i] = n
			},
			"mend": func(t *rapid.T) {
				i := pick.Draw(t, "node")
				n := nodes[i].DeepCopy()
				n.Status.Conditions[0].Status = corev1.ConditionTrue
				retaint(n, now)
				if tainted(n) {
					t.Fatalf("a node that is ready keeps %v", n.Spec.Taints)
				}
				nodes[i] = n
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 12).Draw(t, "seconds")) * time.Second)
			},
			"pass": func(t *rapid.T) {
				p := planPace(nodes, last, now)
				for _, n := range p.nodes {
					nodes[slices.IndexFunc(nodes, func(o *corev1.Node) bool { return o.Name == n.Name })] = n
					if p.stopped {
						continue
					}
					z := zoneOf(n)
					if was, ok := added[z]; ok && now.Sub(was) < interval {
						t.Fatalf("two nodes of zone %s within %v", z, now.Sub(was))
					}
					if ready(n) == corev1.ConditionTrue {
						t.Fatalf("%s is ready", n.Name)
					}
					added[z], last[z] = now, now
				}
				if p.stopped != !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return ready(n) == corev1.ConditionTrue }) {
					t.Fatalf("stopped: %v", p.stopped)
				}
			},
		})
	})
}

func TestTaintsFollowFromConditionsAndTheCordon(t *testing.T) {
	node := readyNode()
	node.Spec.Unschedulable = true
	node.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoExecute}, {Key: "mine", Effect: corev1.TaintEffectNoSchedule}}
	node.Status.Conditions = append(node.Status.Conditions,
		corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
		corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
		corev1.NodeCondition{Type: corev1.NodePIDPressure, Status: corev1.ConditionTrue},
		corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue})
	retaint(node, noon)
	got := map[string]bool{}
	for _, taint := range node.Spec.Taints {
		got[taint.Key+":"+string(taint.Effect)] = true
		if taint.Effect == corev1.TaintEffectNoExecute && !taint.TimeAdded.Time.Equal(noon) {
			t.Errorf("a NoExecute taint without its time: %v", taint)
		}
	}
	want := "mine:NoExecute mine:NoSchedule node.kubernetes.io/disk-pressure:NoSchedule node.kubernetes.io/memory-pressure:NoSchedule " +
		"node.kubernetes.io/network-unavailable:NoSchedule node.kubernetes.io/pid-pressure:NoSchedule node.kubernetes.io/unschedulable:NoSchedule"
	if s := strings.Join(slices.Sorted(maps.Keys(got)), " "); s != want {
		t.Errorf("taints %s", s)
	}
	node.Spec.Unschedulable = false
	node.Status.Conditions = node.Status.Conditions[:1]
	if !retaint(node, noon) || len(node.Spec.Taints) != 2 {
		t.Errorf("what is over stays: %v", node.Spec.Taints)
	}
}

// A node whose agent says it is not ready, and that is lost then, keeps its place.
func TestTheOtherTaintKeepsTheTime(t *testing.T) {
	node := readyNode()
	node.Status.Conditions[0].Status = corev1.ConditionFalse
	retaint(node, noon)
	node = evicting(node, noon)
	unknown(node, noon.Add(time.Minute))
	retaint(node, noon.Add(time.Minute))
	for _, taint := range node.Spec.Taints {
		if taint.Key != corev1.TaintNodeUnreachable || taint.Effect == corev1.TaintEffectNoExecute && !taint.TimeAdded.Time.Equal(noon) {
			t.Errorf("taint %+v", taint)
		}
	}
	if len(node.Spec.Taints) != 2 {
		t.Errorf("taints %v", node.Spec.Taints)
	}
}

// TestNothingIsEvictedWhenAllNodesAreLost (R9): then the fault is on this side.
func TestNothingIsEvictedWhenAllNodesAreLost(t *testing.T) {
	f := setUp(t)
	f.healthy()
	f.commit(store.Create, readyNode())
	f.settle()
	f.now = f.now.Add(Margin)
	f.settle()
	if evictedSince(f.node()) == nil {
		t.Fatal("one of two nodes is lost and not tainted")
	}
	lease := f.st.Get(store.Key{GroupResource: api.Leases(), Namespace: corev1.NamespaceNodeLease, Name: "n2"})
	f.commit(store.Delete, lease)
	f.settle()
	f.now = f.now.Add(Margin)
	f.settle()
	if n := f.node(); evictedSince(n) != nil || !tainted(n) {
		t.Fatalf("all nodes are lost: %v", n.Spec.Taints)
	}
	back := f.st.Get(store.Key{GroupResource: api.Nodes(), Name: "n2"}).(*corev1.Node).DeepCopy()
	back.Status.Conditions[0].Status = corev1.ConditionTrue
	if _, err := f.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: noLease(back)[0]}, {Verb: store.Update, Object: back}}}); err != nil {
		t.Fatal(err)
	}
	f.settle()
	f.now = f.now.Add(interval)
	f.settle()
	if since := evictedSince(f.node()); since == nil || !since.Time.Equal(f.now) {
		t.Fatalf("n2 is back; n1 is tainted since %v, now is %v", since, f.now)
	}
}
