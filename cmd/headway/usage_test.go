package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/etcd"
	"headway.dev/headway/store/memory"
	corev1 "k8s.io/api/core/v1"
)

// A store near its quota fails readiness and is an Event, before it refuses
// writes; a store with room is ready.
func TestStoreNearItsQuotaFailsReadinessAndIsAnEvent(t *testing.T) {
	near := etcd.Usage{State: etcd.Near, Bytes: 7 << 30, Quota: 8 << 30}
	if err := spaceLeft(near); err == nil || !strings.Contains(err.Error(), "7168 of 8192 MiB") {
		t.Errorf("near its quota: %v", err)
	}
	if err := spaceLeft(etcd.Usage{State: etcd.Full}); err == nil {
		t.Error("a full store is ready")
	}
	if err := spaceLeft(etcd.Usage{State: etcd.Roomy}); err != nil {
		t.Errorf("with room: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		st := store.New(memory.New(), store.Options{})
		if err := st.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := &cluster{store: st, usages: newUsages(), log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.recordUsage(ctx) }()
		c.usages.told(near)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for {
			more, err := st.Step(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
		}
		events := st.List(api.Events(), "")
		if len(events) != 1 || events[0].(*corev1.Event).Reason != "StoreNearQuota" || events[0].(*corev1.Event).Type != corev1.EventTypeWarning {
			t.Errorf("events %v", events)
		}
	})
}
