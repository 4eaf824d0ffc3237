package daemonset

import (
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// "RollingUpdate: after you update a DaemonSet template, old Pods will be killed,
// and new ones created automatically, in a controlled fashion": at most
// maxUnavailable nodes are without.
func TestRollingUpdate(t *testing.T) {
	w := rolledOut(t, three())
	w.change(of("b"))
	w.see("n1:a- n2:a n3:a")
	w.ready("n1") // the old one is gone
	w.see("n1:b! n2:a n3:a")
	w.seeStatus("3/3/2/1/2/1/0")
	w.ready("n1")
	w.see("n1:b n2:a- n3:a")
	w.work()
	w.see("n1:b n2:b n3:b")
	w.seeStatus("3/3/3/3/3/0/0")
}

// "maxUnavailable: an absolute number or a percentage of the total number of
// DaemonSet Pods; rounded up."
func TestMaxUnavailableRoundsUp(t *testing.T) {
	w := rolledOut(t, three(), limit("0", "34%"))
	w.change(of("b"))
	w.see("n1:a- n2:a- n3:a")
}

// An old pod that is not available is replaced at once, and counts as unavailable.
func TestAnUnavailableOldPodGoesAtOnce(t *testing.T) {
	w := rolledOut(t, three())
	w.Update(w.running(w.on("n3")[0], false))
	w.change(of("b"))
	w.see("n1:a n2:a n3:a-")
	w.work()
	w.see("n1:b n2:b n3:b")
}

// R13: a revision that never gets ready is replaced by the next one.
func TestAStuckRevisionIsReplacedByTheNext(t *testing.T) {
	for _, how := range []func(*appsv1.DaemonSet){limit("0", "1"), limit("1", "0")} {
		w := rolledOut(t, three(), how)
		w.change(of("bad"))
		w.work()
		w.change(of("c"))
		w.work()
		w.see("n1:c n2:c n3:c")
	}
}

// "OnDelete: new DaemonSet Pods will only be created when you manually delete old
// ones."
func TestOnDelete(t *testing.T) {
	w := rolledOut(t, []string{"n1", "n2"}, onDelete)
	w.change(of("b"))
	w.work()
	w.see("n1:a n2:a")
	w.seeStatus("2/2/2/0/2/0/0")
	w.Commit(podset.Remove(w.on("n2")[0], w.Now)...)
	w.work()
	w.see("n1:a n2:b")
}

// "maxSurge: the maximum number of nodes with an existing available Pod that can
// have an updated one during an update; the old one is deleted when the new one is
// available."
func TestSurge(t *testing.T) {
	w := rolledOut(t, three(), limit("1", "0"))
	w.change(of("b"))
	w.see("n1:a n1:b! n2:a n3:a")
	w.ready("n1")
	w.see("n1:a- n1:b n2:a n2:b! n3:a")
	w.work()
	w.see("n1:b n2:b n3:b")
	w = rolledOut(t, three(), limit("50%", "0")) // rounded up
	w.change(of("b"))
	w.see("n1:a n1:b! n2:a n2:b! n3:a")
}

// With surge an old pod that is not available gets a successor beyond maxSurge, and
// goes.
func TestSurgeOfAnUnavailablePod(t *testing.T) {
	w := rolledOut(t, three(), limit("1", "0"))
	w.Update(w.running(w.on("n3")[0], false))
	w.change(of("b"))
	w.see("n1:a n1:b! n2:a n3:a- n3:b!")
	w.work()
	w.see("n1:b n2:b n3:b")
}

// With surge, a failed pod of the new revision is not made again and again.
func TestSurgeBacksOff(t *testing.T) {
	w := rolledOut(t, []string{"n1"}, limit("1", "0"))
	for range 3 {
		p := w.on("n1")[0].DeepCopy()
		p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodFailed
		w.Update(p)
		w.Settle()
	}
	w.see("n1:ax")
	w.Now = w.Now.Add(time.Minute)
	w.Settle()
	w.see("n1:a!")
}

// "With maxSurge, pods of nodes that do not suit any more go when there are enough
// without them."
func TestSurgeOntoOtherNodes(t *testing.T) {
	w := rolledOut(t, []string{"n1", "n2"}, limit("1", "0"), nodeSelector(map[string]string{"name": "n1"}))
	w.see("n1:a")
	w.node("n1", taint("gone", corev1.TaintEffectNoSchedule))
	w.change(nodeSelector(nil), of("b"))
	w.see("n1:a n2:b!")
	w.ready("n2")
	w.see("n1:a- n2:b")
	w.work()
	w.see("n2:b")
}

// ".spec.minReadySeconds" holds for updates.
func TestMinReadySeconds(t *testing.T) {
	w := newWorld(t, t, "n1", "n2")
	w.Create(logs(func(s *appsv1.DaemonSet) { s.Spec.MinReadySeconds = 10 }))
	w.work()
	w.seeStatus("2/2/2/2/0/2/0")
	w.Now = w.Now.Add(10 * time.Second)
	w.Settle()
	w.seeStatus("2/2/2/2/2/0/0")
	w.change(of("b"))
	w.work()
	w.see("n1:b n2:a")
	w.Now = w.Now.Add(10 * time.Second)
	w.Settle()
	w.see("n1:b n2:a-")
}

func (w *world) revisions() []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	for _, obj := range w.Store.List(api.ControllerRevisions(), "shop") {
		out = append(out, obj.(*appsv1.ControllerRevision))
	}
	podset.SortRevisions(out)
	return out
}

// ".spec.revisionHistoryLimit: the number of old history to retain to allow
// rollback"; a rollback is the old revision with a new number.
func TestRevisions(t *testing.T) {
	two := int32(2)
	w := rolledOut(t, []string{"n1"}, func(s *appsv1.DaemonSet) { s.Spec.RevisionHistoryLimit = &two })
	for _, image := range []string{"b", "c", "d"} {
		w.change(of(image))
		w.work()
	}
	revs := w.revisions()
	if len(revs) != 3 || revs[0].Revision != 2 {
		t.Fatalf("%d revisions from %d on", len(revs), revs[0].Revision)
	}
	second := revs[0].Name
	w.change(of("b"))
	w.work()
	if revs = w.revisions(); len(revs) != 3 || revs[2].Name != second || revs[2].Revision != 5 {
		t.Errorf("revisions %v", revs)
	}
}

// D13: a commit that changes a ConfigMap which the template names rolls, its revert
// rolls back to the first revision, and a hand edit rolls nothing.
func TestReferredContent(t *testing.T) {
	w := newWorld(t, t, "n1", "n2")
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = "shop", "settings"
	api.SetProvenance(cm, api.Provenance{Source: "main", Commit: "c1", Path: "a.yaml", Line: 1, Hash: "hash-of-the-first-manifest"})
	w.Create(cm)
	w.Create(logs(func(s *appsv1.DaemonSet) {
		s.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	}))
	w.work()
	first := hashOf(w.on("n1")[0])
	commit := func(hash string) string {
		live := w.Store.Get(store.KeyOf(cm)).DeepCopyObject().(*corev1.ConfigMap)
		if hash == "" {
			live.Data = map[string]string{"color": "blue"}
		} else {
			api.SetProvenance(live, api.Provenance{Source: "main", Commit: "c2", Path: "a.yaml", Line: 1, Hash: hash})
		}
		w.Update(live)
		w.work()
		if a, b := hashOf(w.on("n1")[0]), hashOf(w.on("n2")[0]); a != b {
			t.Errorf("revisions %s and %s", a, b)
		}
		return hashOf(w.on("n1")[0])
	}
	if got := commit(""); got != first {
		t.Error("a hand edit rolled")
	}
	if got := commit("another-manifest"); got == first || *w.set().Status.CollisionCount != 1 {
		t.Error("the commit did not roll")
	}
	if got := commit("hash-of-the-first-manifest"); got != first {
		t.Error("the revert did not roll back")
	}
}
