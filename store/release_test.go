package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestR4_ReleaseFencesOffTheEarlierLife(t *testing.T) {
	ctx := context.Background()
	st := storetest.Open(t)
	old, err := st.Elect(ctx, "one", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Release(ctx, "another"); err != nil {
		t.Fatal(err)
	}
	if who, err := st.Leader(ctx); err != nil || who != "one" {
		t.Fatalf("the leader is %q, %v: somebody else's leadership was released", who, err)
	}
	if err := st.Release(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	again, err := st.Elect(ctx, "one", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	write := func(f store.Fence, name string) error {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		_, err := st.Commit(ctx, store.Txn{Fence: f, Ops: []store.Op{{Verb: store.Create, Object: cm}}})
		return err
	}
	if err := write(old.Fence, "late"); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the earlier life wrote: %v", err)
	}
	if err := write(again.Fence, "now"); err != nil {
		t.Error(err)
	}
	if err := again.Resign(ctx); err != nil {
		t.Error(err)
	}
}
