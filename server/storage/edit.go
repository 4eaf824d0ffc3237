package storage

import (
	"context"
	"errors"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// edited returns the record of who changes a declared object, for the transaction
// of the change; nil when the object is not declared, or nobody who signed in
// changes what could be declared. next is the object as it will be, nil when it is
// deleted.
func (s *Storage) edited(ctx context.Context, current, next api.Object) *api.Edit {
	if !s.kind.Declarable || current == nil {
		return nil
	}
	from, declared := api.ProvenanceOf(current)
	if !declared || metav1.GetControllerOfNoCopy(current) != nil {
		return nil
	}
	info, ok := request.RequestInfoFrom(ctx)
	user, signedIn := request.UserFrom(ctx)
	if !ok || !signedIn {
		return nil
	}
	verb := info.Verb
	switch info.Subresource {
	case "status", "finalize", "binding":
		return nil
	case "":
	default:
		verb += " " + info.Subresource
	}
	return &api.Edit{
		ObjectMeta: metav1.ObjectMeta{Name: api.RecordName(s.kind.GroupResource(), current.GetNamespace(), current.GetName())},
		Object:     api.RefTo(s.kind, current.GetNamespace(), current.GetName()),
		Source:     from.Source,
		Actor:      api.Actor{User: user.GetName(), Manager: manager(ctx, next), Verb: verb}.Bounded(),
		Time:       metav1.NewMicroTime(s.now()),
	}
}

// manager is the program that writes, by its own word: the field manager that the
// API server has noted with the change, or else the product in the User-Agent.
func manager(ctx context.Context, obj api.Object) string {
	name := agentOf(ctx)
	if obj == nil {
		return name
	}
	var at metav1.Time
	for _, f := range obj.GetManagedFields() {
		if f.Subresource != "status" && f.Time != nil && !f.Time.Time.Before(at.Time) {
			name, at = f.Manager, *f.Time
		}
	}
	return name
}

// commitWith does op and, in the same transaction, writes who does it. That record
// never makes the change fail: when another server has written it meanwhile it is
// read again.
func (s *Storage) commitWith(ctx context.Context, op store.Op, edit *api.Edit) (int64, error) {
	if edit == nil {
		return s.store.Commit(ctx, store.Txn{Ops: []store.Op{op}})
	}
	key := store.KeyOf(edit)
	before := s.store.Get(key)
	for {
		also := store.Op{Verb: store.Create, Object: edit}
		if before != nil {
			also.Verb = store.Update
			edit.SetResourceVersion(before.GetResourceVersion())
			edit.SetUID(before.GetUID())
			edit.SetCreationTimestamp(before.GetCreationTimestamp())
		} else {
			edit.SetResourceVersion("")
			store.Stamp(edit, s.now())
		}
		rev, err := s.store.Commit(ctx, store.Txn{Ops: []store.Op{op, also}})
		var at *store.KeyError
		if !lost(err) || !errors.As(err, &at) || at.Key != key || ctx.Err() != nil {
			return rev, err
		}
		before, _, err = s.store.GetAt(ctx, key, 0)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, err
		}
		if err != nil {
			before = nil
		}
	}
}
