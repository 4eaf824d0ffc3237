package syncer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKeptCommitsAreCounted changes objects in every way that the store allows, and
// the count of their commits is what a listing gives.
func TestKeptCommitsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1")}))
	listed := func() map[string]int { return w.s.countCommits() }
	counted := w.s.provenances.count
	if !maps.Equal(counted, map[string]int{commitID("c1"): 1}) {
		t.Fatalf("counted %v", counted)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 500 {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("x%d", random.IntN(8))}}
		live := w.st.Get(store.KeyOf(obj))
		op := store.Op{Verb: store.Create, Object: obj}
		if live != nil {
			obj = live.DeepCopyObject().(*corev1.ConfigMap)
			op = store.Op{Verb: store.Update, Object: obj}
			if random.IntN(3) == 0 {
				op.Verb = store.Delete
			}
		}
		obj.Annotations, obj.OwnerReferences = nil, nil
		if random.IntN(4) > 0 {
			source := []string{"main", "other"}[random.IntN(2)]
			api.SetProvenance(obj, api.Provenance{Source: source, Commit: commitID(fmt.Sprintf("c%d", random.IntN(3)))})
		}
		if random.IntN(4) == 0 {
			yes := true
			obj.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: &yes}}
		}
		if live == nil {
			store.Stamp(obj, w.now)
		}
		if _, err := w.st.Commit(t.Context(), store.Txn{Ops: []store.Op{op}}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.st.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := listed(); !maps.Equal(counted, want) {
			t.Fatalf("step %d: counted %v, want %v", i, counted, want)
		}
	}
}

func TestKeptCommitsAreCountedAgain(t *testing.T) {
	var n provenances
	revision, listings := int64(7), 0
	listing := map[string]int{"a": 1}
	commits := func(since int64) string {
		got := n.commits(since, func() int64 { return revision }, func() map[string]int {
			listings++
			return maps.Clone(listing)
		})
		return fmt.Sprint(slices.Sorted(maps.Keys(got)), listings)
	}
	of := func(obj api.Object) string {
		if obj == nil {
			return ""
		}
		return obj.GetName()
	}
	made := func(commit string, revision int64) []store.Event {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: commit}}
		return []store.Event{{Key: store.KeyOf(obj), Object: obj, Revision: revision}}
	}
	n.note(made("b", 6), of) // nothing has been counted
	if got := commits(7); got != "[a] 1" {
		t.Errorf("at first: %s", got)
	}
	n.note(made("c", 7), of) // was in the listing, or was not there any more
	if got := commits(7); got != "[a] 1" {
		t.Errorf("an event from before the listing: %s", got)
	}
	n.note(made("d", 9), of)
	if got := commits(9); got != "[a d] 1" {
		t.Errorf("an event: %s", got)
	}
	listing["e"], revision = 1, 10
	if got := commits(10); got != "[a e] 2" {
		t.Errorf("the events of our own write have not come: %s", got)
	}
	n.note(made("e", 10), of)
	if got := commits(10); got != "[a e] 2" || n.count["e"] != 1 {
		t.Errorf("they come: %s, %v", got, n.count)
	}
	// A listing that is of no one revision counts this once only.
	n.commits(11, func() int64 { revision++; return revision }, func() map[string]int { return nil })
	if got := commits(11); got != "[a e] 3" {
		t.Errorf("after an unsteady listing: %s", got)
	}
}
