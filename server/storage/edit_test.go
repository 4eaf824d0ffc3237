package storage

import (
	"context"
	"fmt"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	kubestorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

// asked is the context of a request by a user.
func asked(ctx context.Context, name, verb, subresource string) context.Context {
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
	return request.WithRequestInfo(context.WithValue(ctx, agentKey{}, "kubectl"), &request.RequestInfo{Verb: verb, Subresource: subresource})
}

// TestWhoChangesADeclaredObjectIsRecorded in the transaction of the change.
func TestWhoChangesADeclaredObjectIsRecorded(t *testing.T) {
	st, kv := running(t, 0)
	s := over(st, kv, api.ConfigMaps(), func() runtime.Object { return &core.ConfigMap{} })
	add := func(name string, provenance bool) {
		cm := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u"}}
		if provenance {
			cm.Annotations = map[string]string{api.AnnotationSource: "main"}
		}
		must(t, s.Create(asked(t.Context(), "ann", "create", ""), "/configmaps/default/"+name, cm, nil, 0))
		must(t, s.fresh(t.Context()))
	}
	key := func(name string) store.Key {
		return store.Key{GroupResource: api.Edits(), Name: api.RecordName(api.ConfigMaps(), "default", name)}
	}
	edit := func(name string) *api.Edit {
		must(t, s.fresh(t.Context()))
		e, _ := st.Get(key(name)).(*api.Edit)
		return e
	}
	n := 0
	change := func(ctx context.Context, name string) {
		n++
		must(t, s.GuaranteedUpdate(ctx, "/configmaps/default/"+name, &core.ConfigMap{}, false, nil, kubestorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			obj.(*core.ConfigMap).Data = map[string]string{"k": fmt.Sprint(n)}
			return obj, nil
		}), nil))
	}
	add("declared", true)
	add("free", false)
	if edit("declared") != nil {
		t.Error("a creation is no edit")
	}
	change(asked(t.Context(), "ann", "patch", ""), "declared")
	e := edit("declared")
	if e == nil || e.Actor != (api.Actor{User: "ann", Manager: "kubectl", Verb: "patch"}) || e.Source != "main" || e.Object.Title() != "ConfigMap default/declared" {
		t.Fatalf("edit %+v", e)
	}
	if obj := st.Get(store.Key{GroupResource: api.ConfigMaps(), Namespace: "default", Name: "declared"}); obj.GetResourceVersion() != e.GetResourceVersion() {
		t.Error("not in the transaction of the change")
	}
	change(asked(t.Context(), "bob", "update", "scale"), "declared")
	if e = edit("declared"); e.Actor.User != "bob" || e.Actor.Verb != "update scale" {
		t.Errorf("edit %+v", e)
	}
	change(asked(t.Context(), "robot", "update", "status"), "declared")
	change(t.Context(), "declared") // nobody signed in
	if e = edit("declared"); e.Actor.User != "bob" {
		t.Errorf("edit %+v", e)
	}
	// The leader deletes the record, and this server's cache does not know it yet.
	behind := st.Get(key("declared"))
	other := store.New(kv, store.Options{})
	if _, err := other.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: store.Delete, Object: copyOf(behind)}}}); err != nil {
		t.Fatal(err)
	}
	change(asked(t.Context(), "ann", "patch", ""), "declared")
	if e = edit("declared"); e == nil || e.Actor.User != "ann" {
		t.Errorf("edit %+v", e)
	}
	// Another server writes the record first.
	later := copyOf(e).(*api.Edit)
	later.Actor.User = "carol"
	if _, err := other.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: store.Update, Object: later}}}); err != nil {
		t.Fatal(err)
	}
	must(t, s.Delete(asked(t.Context(), "ann", "delete", ""), "/configmaps/default/declared", &core.ConfigMap{}, nil, kubestorage.ValidateAllObjectFunc, nil, kubestorage.DeleteOptions{}))
	if e = edit("declared"); e.Actor != (api.Actor{User: "ann", Manager: "kubectl", Verb: "delete"}) {
		t.Errorf("edit %+v", e)
	}
	change(asked(t.Context(), "ann", "patch", ""), "free")
	must(t, s.Delete(asked(t.Context(), "ann", "delete", ""), "/configmaps/default/free", &core.ConfigMap{}, nil, kubestorage.ValidateAllObjectFunc, nil, kubestorage.DeleteOptions{}))
	if got := st.List(api.Edits(), ""); len(got) != 1 {
		t.Errorf("%d edits", len(got))
	}
}
