package nodes_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/session"
	"headway.dev/headway/server/certs"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
)

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestFullSetThenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		c.create(configMap("a"), configMap("b"), configMap("unused"), secret("s"), pod("p1", "n1", "a"), pod("other", "n2", "b"), pod("free", ""))
		s := c.session("n1")
		expect(t, s.settle(), "welcome", "set configmap a", "set pod p1", "synced", "mark")

		p2 := pod("p2", "n1", "a", "b", "later")
		p2.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}}
		c.create(p2)
		expect(t, s.settle(), "set configmap b", "set secret s", "set pod p2")
		c.create(configMap("later"))
		expect(t, s.settle(), "set configmap later")
		change(c, configMap("a"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "w" })
		expect(t, s.settle(), "set configmap a")
		change(c, configMap("unused"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "w" })
		expect(t, s.settle())
		c.remove(configMap("b"))
		expect(t, s.settle(), "unset configmaps b")
		c.remove(p2)
		expect(t, s.settle(), "unset pods p2", "unset configmaps later", "unset secrets s")

		change(c, pod("free", ""), func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
		expect(t, s.settle(), "set pod free")
		change(c, pod("free", ""), func(p *corev1.Pod) { p.Labels = map[string]string{"x": "y"} })
		expect(t, s.settle(), "set pod free")
	})
}

func TestStatusIsNotEchoed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p := pod("p1", "n1")
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		c.create(p)
		s := c.session("n1")
		s.settle()
		s.status(p, corev1.PodRunning, 7, false)
		expect(t, s.settle(), "stored p1 7")
		got := live(c, p)
		if got.Status.Phase != corev1.PodRunning || got.Status.PodIP != "10.1.0.2" {
			t.Fatalf("status is %+v", got.Status)
		}
		for _, cond := range got.Status.Conditions {
			if cond.Type == corev1.PodScheduled && cond.Status != corev1.ConditionTrue {
				t.Fatal("the agent wrote the scheduler's condition")
			}
		}
		before := c.kv.commits.Load()
		s.status(p, corev1.PodRunning, 8, false)
		expect(t, s.settle(), "stored p1 8")
		if c.kv.commits.Load() != before {
			t.Fatal("a status that changes nothing was written")
		}
	})
}

func TestEndedPodStaysEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p := pod("p1", "n1")
		p.Status.Phase = corev1.PodFailed
		c.create(p)
		s := c.session("n1")
		s.settle()
		s.status(p, corev1.PodRunning, 1, false)
		s.settle()
		if got := live(c, p).Status.Phase; got != corev1.PodFailed {
			t.Fatalf("phase is %s", got)
		}
	})
}

func TestNodeObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		n := facts("n1")
		n.Labels["node-restriction.kubernetes.io/trusted"] = "yes"
		n.Labels["team"] = "red"
		n.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}
		s := c.sessionWith("n1", n)
		s.settle()
		got := live(c, n)
		if len(got.Spec.Taints) != 0 || got.Labels["node-restriction.kubernetes.io/trusted"] != "" {
			t.Fatalf("the agent wrote what it may not: %+v", got)
		}
		if got.Labels["team"] != "red" || got.Labels["kubernetes.io/hostname"] != "n1" || got.Status.Capacity.Cpu().String() != "4" || got.UID == "" {
			t.Fatalf("node is %+v", got)
		}
		change(c, n, func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{{Key: "ours", Effect: corev1.TaintEffectNoSchedule}}
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		})
		raw, err := n.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		s.up(&session.Up{Message: &session.Up_NodeStatus{NodeStatus: raw}})
		expect(t, s.settle())
		got = live(c, n)
		if !got.Spec.Unschedulable || len(got.Spec.Taints) != 1 || got.Spec.Taints[0].Key != "ours" || got.Status.Conditions[0].Status != corev1.ConditionTrue {
			t.Fatalf("node is %+v", got)
		}
	})
}

func TestD4_OneKeepAlivePerRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		s := c.session("n1")
		s.settle()
		for i := range 5 {
			time.Sleep(10 * time.Second) // the bubble's clock
			s.up(&session.Up{Message: &session.Up_Renew{Renew: &session.Renew{Sent: int64(i)}}})
			got := s.settle()
			if len(got) != 1 || !strings.HasPrefix(got[0], "renewed ") || !strings.HasSuffix(got[0], " 40s") {
				t.Fatalf("got %v", got)
			}
		}
		if c.kv.keepAlives.Load() != 5 {
			t.Fatalf("%d keep-alives for 5 renewals", c.kv.keepAlives.Load())
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1"}}
		if live(c, lease) == nil {
			t.Fatal("the lease is gone while it is renewed")
		}
		time.Sleep(39 * time.Second)
		s.settle()
		if c.kv.keepAlives.Load() != 5 {
			t.Fatal("the server renewed on its own")
		}
		time.Sleep(2 * time.Second)
		s.settle()
		if live(c, lease) != nil {
			t.Fatal("the lease outlives its TTL")
		}
		select {
		case err := <-s.ended:
			if !strings.Contains(err.Error(), "run out") {
				t.Fatal(err)
			}
		default:
			t.Fatal("the session outlives its lease")
		}
	})
}

func TestD5_ReplacedSessionCannotWriteLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p := pod("p1", "n1")
		c.create(p)
		old := c.session("n1")
		old.settle()
		hold := make(chan struct{})
		c.kv.hold = hold
		old.status(p, corev1.PodFailed, 1, false) // on its way when the new session comes
		synctest.Wait()
		late := c.session("n1")
		synctest.Wait()
		c.kv.hold = nil
		// The new session's epoch is committed by hand before the old write goes on.
		lease := live(c, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1"}})
		if _, err := c.store.Commit(c.ctx, store.Txn{Ops: []store.Op{{Verb: store.Update, Object: lease.DeepCopy()}}}); err != nil {
			t.Fatal(err)
		}
		close(hold)
		late.settle()
		old.settle()
		if got := live(c, p).Status.Phase; got != "" {
			t.Fatalf("a replaced session wrote phase %s", got)
		}
		select {
		case err := <-old.ended:
			if !strings.Contains(err.Error(), "replaced") {
				t.Fatal(err)
			}
		default:
			t.Fatal("the replaced session goes on")
		}
	})
}

func TestD5_NewSessionReplacesTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p := pod("p1", "n1")
		c.create(p)
		old := c.session("n1")
		old.settle()
		next := c.session("n1")
		expect(t, next.settle(), "welcome", "set pod p1", "synced", "mark")
		if err := <-old.ended; !strings.Contains(err.Error(), "replaced") {
			t.Fatal(err)
		}
		next.status(p, corev1.PodRunning, 1, false)
		expect(t, next.settle(), "stored p1 1")
		if old.got[0].GetWelcome().Epoch >= next.got[0].GetWelcome().Epoch {
			t.Fatal("the epoch does not rise")
		}
	})
}

func TestD5_Confinement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		mine, theirs := pod("mine", "n1"), pod("theirs", "n2")
		c.create(mine, theirs, secret("s"))
		s := c.session("n1")
		expect(t, s.settle(), "welcome", "set pod mine", "synced", "mark")

		s.status(theirs, corev1.PodFailed, 1, true)
		got := s.settle()
		if len(got) != 1 || !strings.HasPrefix(got[0], "refused status of pod default/theirs") {
			t.Fatalf("got %v", got)
		}
		if live(c, theirs).Status.Phase != "" {
			t.Fatal("a session wrote another node's pod")
		}
		impostor := mine.DeepCopy()
		impostor.UID = "another"
		s.status(impostor, corev1.PodFailed, 2, false)
		expect(t, s.settle(), "stored mine 2") // nothing of that uid is left to write
		if live(c, mine).Status.Phase != "" {
			t.Fatal("a status of another uid was written")
		}
		other := facts("n2")
		raw, err := other.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		s.up(&session.Up{Message: &session.Up_NodeStatus{NodeStatus: raw}})
		if got := s.settle(); len(got) != 1 || !strings.HasPrefix(got[0], "refused node status") {
			t.Fatalf("got %v", got)
		}
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e1"}, Type: "Normal", Reason: "X",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "theirs", UID: theirs.UID}}
		raw, err = event.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		s.up(&session.Up{Message: &session.Up_Event{Event: raw}})
		s.settle()
		if live(c, event) != nil {
			t.Fatal("a session wrote an event about another node's pod")
		}
	})
}

func TestD5_IdentityIsTheCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		for node, n := range map[string]*corev1.Node{"": facts("n1"), "n2": facts("n1")} {
			s := c.sessionWith(node, n)
			s.settle()
			select {
			case err := <-s.ended:
				if !strings.Contains(err.Error(), "certificate") {
					t.Fatal(err)
				}
			default:
				t.Fatalf("certificate of %q opened a session of n1", node)
			}
		}
		other := storetest.Open(t)
		stranger, err := certs.Ensure(c.ctx, other, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for name, conn := range map[string]*grpc.ClientConn{
			"another authority's": c.dialAs("n1", stranger, time.Now()),
			"an expired":          c.dialAs("n1", c.ca, time.Now().Add(-365*24*time.Hour)),
		} {
			s := c.sessionOver(conn, facts("n1"))
			s.settle()
			select {
			case err := <-s.ended:
				if !strings.Contains(err.Error(), "certificate") {
					t.Fatal(err)
				}
			default:
				t.Fatalf("%s certificate opened a session", name)
			}
		}
		if live(c, facts("n1")) != nil {
			t.Fatal("a node was written")
		}
	})
}

func TestStatusesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		var pods []*corev1.Pod
		for i := range 60 {
			p := pod("p"+string(rune('a'+i/26))+string(rune('a'+i%26)), "n1")
			pods = append(pods, p)
			c.create(p)
		}
		s := c.session("n1")
		s.settle()
		hold := make(chan struct{})
		c.kv.hold = hold
		before := c.kv.commits.Load()
		for i, p := range pods {
			s.status(p, corev1.PodPending, int64(2*i), false)
			s.status(p, corev1.PodRunning, int64(2*i+1), false)
		}
		synctest.Wait()
		close(hold)
		got := s.settle()
		if n := c.kv.commits.Load() - before; n > 3 {
			t.Fatalf("%d transactions for %d pods", n, len(pods))
		}
		if last := got[len(got)-1]; !strings.HasPrefix(last, "stored ") {
			t.Fatal(last)
		}
		for _, p := range pods {
			if live(c, p).Status.Phase != corev1.PodRunning {
				t.Fatalf("pod %s has the older status", p.Name)
			}
		}
	})
}

func TestConflictIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p, q := pod("p1", "n1"), pod("p2", "n1")
		c.create(p, q)
		s := c.session("n1")
		s.settle()
		hold := make(chan struct{})
		c.kv.hold = hold
		s.status(p, corev1.PodRunning, 1, false)
		s.status(q, corev1.PodRunning, 2, false)
		synctest.Wait()
		c.kv.hold = nil
		change(c, p, func(p *corev1.Pod) { p.Labels = map[string]string{"changed": "meanwhile"} })
		close(hold)
		s.settle()
		got := live(c, p)
		if got.Labels["changed"] != "meanwhile" || got.Status.Phase != corev1.PodRunning || live(c, q).Status.Phase != corev1.PodRunning {
			t.Fatalf("pod is %+v", got)
		}
	})
}

func TestStoppedPodGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p, held := pod("p1", "n1"), pod("held", "n1")
		held.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
		now, grace := metav1.Now(), int64(30)
		for _, x := range []*corev1.Pod{p, held} {
			x.DeletionTimestamp, x.DeletionGracePeriodSeconds = &now, &grace
		}
		alive := pod("alive", "n1")
		c.create(p, held, alive)
		s := c.session("n1")
		s.settle()
		s.status(p, corev1.PodFailed, 1, true)
		s.status(held, corev1.PodFailed, 2, true)
		s.status(alive, corev1.PodRunning, 3, true)
		s.settle()
		if live(c, p) != nil {
			t.Fatal("a deleted pod that has stopped stays")
		}
		if live(c, alive) == nil {
			t.Fatal("a pod that nobody deleted is gone")
		}
		got := live(c, held)
		if got == nil || got.Status.Phase != corev1.PodFailed || *got.DeletionGracePeriodSeconds != 0 {
			t.Fatalf("pod is %+v", got)
		}
		change(c, held, func(p *corev1.Pod) { p.Finalizers = nil })
		if got := s.settle(); !slices.Contains(got, "set pod held") {
			t.Fatalf("the agent is not told: %v", got)
		}
		s.status(held, corev1.PodFailed, 4, true)
		s.settle()
		if live(c, held) != nil {
			t.Fatal("the pod stays after its last finalizer")
		}
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p := pod("p1", "n1")
		c.create(p)
		s := c.session("n1")
		s.settle()
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p1.1", Labels: map[string]string{"x": "y"}}, Type: "Normal", Reason: "Started", Message: "Container started", Count: 1,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p1", UID: p.UID, FieldPath: "spec.containers{main}"}}
		for _, count := range []int32{1, 2, 5} {
			e.Count = count
			raw, err := e.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			s.up(&session.Up{Message: &session.Up_Event{Event: raw}})
			synctest.Wait()
		}
		got := live(c, e)
		if got == nil || got.Count != 5 || got.Source.Host != "n1" || got.Message != "Container started" || len(got.Labels) != 0 {
			t.Fatalf("event is %+v", got)
		}

		// What is said of a pod's end may come after it.
		now := metav1.Now()
		change(c, p, func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, new(int64) })
		s.status(p, corev1.PodFailed, 9, true)
		s.settle()
		if live(c, p) != nil {
			t.Fatal("the pod stays")
		}
		e.Name, e.Reason = "p1.2", "Killing"
		raw, err := e.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		s.up(&session.Up{Message: &session.Up_Event{Event: raw}})
		s.settle()
		if live(c, e) == nil {
			t.Fatal("the event of the pod's end is lost")
		}
	})
}

// A session writes events of its own Node, and neither of another nor over those of
// somebody else.
func TestEventsOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		s := c.session("n1")
		s.settle()
		node := live(c, facts("n1"))
		say := func(name, namespace string, about corev1.ObjectReference, count int32) *corev1.Event {
			t.Helper()
			e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: "Warning", Reason: "ForeignContainer", Message: "x", Count: count, InvolvedObject: about}
			raw, err := e.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			s.up(&session.Up{Message: &session.Up_Event{Event: raw}})
			synctest.Wait()
			return live(c, e)
		}
		own := corev1.ObjectReference{Kind: "Node", Name: "n1", UID: "of another"}
		got := say("n1.1", "default", own, 1)
		if got == nil || got.InvolvedObject.UID != node.UID || got.InvolvedObject.APIVersion != "v1" || got.Source.Host != "n1" {
			t.Fatalf("event is %+v", got)
		}
		if got = say("n1.1", "default", own, 1); got.Count != 1 {
			t.Errorf("the same again: %+v", got)
		}
		other := own
		other.Name = "n2"
		within, field := own, own
		within.Namespace, field.FieldPath = "default", "spec"
		for _, e := range []struct {
			why, name, namespace string
			about                corev1.ObjectReference
		}{
			{"another node", "n1.2", "default", other}, {"another node", "n2.2", "default", other},
			{"a name that is not the node's", "n2.3", "default", own}, {"another namespace", "n1.4", "kube-system", own},
			{"a node in a namespace", "n1.5", "default", within}, {"a field", "n1.6", "default", field},
			{"another kind", "n1.7", "default", corev1.ObjectReference{Kind: "Service", Name: "n1"}},
		} {
			if got := say(e.name, e.namespace, e.about, 1); got != nil {
				t.Errorf("%s: %+v", e.why, got)
			}
		}
		theirs := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "n1.8", UID: "e8"}, Type: "Warning", Reason: "NodeNotReady", Count: 1,
			ReportingController: "node-controller", InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n1", UID: node.UID}}
		c.create(theirs)
		if got := say("n1.8", "default", own, 99); got == nil || got.Count != 1 {
			t.Errorf("the event of a controller was counted up: %+v", got)
		}
	})
}
