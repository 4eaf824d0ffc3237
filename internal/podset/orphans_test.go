package podset_test

import (
	"context"
	"fmt"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

// TestOrphansAreFound changes pods in any order, with fills from old lists, and
// compares what the index finds with a look at everything.
func TestOrphansAreFound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st := storetest.Open(t)
		index := podset.NewOrphans(api.Pods())
		st.OnEvents(func(events []store.Event) {
			for _, e := range events {
				index.Note(e)
			}
		})
		selector := labels.SelectorFromSet(labels.Set{"app": "web"})
		owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "u", Controller: new(bool)}
		*owner.Controller = true
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		var old []api.Object
		commit := func(op store.Op) {
			if _, err := st.Commit(context.Background(), store.Txn{Ops: []store.Op{op}}); err != nil {
				rt.Fatalf("commit: %v", err)
			}
			storetest.Settle(t, st)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name.Draw(t, "name"), Labels: map[string]string{"app": rapid.SampledFrom([]string{"web", "other"}).Draw(t, "app")}}}
				if rapid.Bool().Draw(t, "owned") {
					p.OwnerReferences = []metav1.OwnerReference{owner}
				}
				op := store.Op{Verb: store.Create, Object: p}
				if live := st.Get(store.KeyOf(p)); live != nil {
					p.ResourceVersion, op.Verb = live.GetResourceVersion(), store.Update
				}
				commit(op)
			},
			"delete": func(t *rapid.T) {
				if live := st.Get(store.Key{GroupResource: api.Pods(), Namespace: "shop", Name: name.Draw(t, "name")}); live != nil {
					commit(store.Op{Verb: store.Delete, Object: live})
				}
			},
			"list": func(*rapid.T) { old = st.List(api.Pods(), "") },
			"fill": func(*rapid.T) { index.Fill(old) },
			"": func(t *rapid.T) {
				var want []string
				for _, obj := range st.List(api.Pods(), "shop") {
					if metav1.GetControllerOf(obj) == nil && selector.Matches(labels.Set(obj.GetLabels())) {
						want = append(want, obj.GetName())
					}
				}
				var got []string
				for _, obj := range index.Match(st, "shop", selector) {
					got = append(got, obj.GetName())
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("found %v, want %v", got, want)
				}
			},
		})
	})
}
