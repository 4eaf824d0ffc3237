package main

import (
	"context"
	"fmt"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/store"
	"headway.dev/headway/store/etcd"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// usages carries what the store's maintenance tells to whoever writes it down. A
// state that finds it full is told in the log alone.
type usages chan etcd.Usage

func newUsages() usages { return make(usages, 8) }

// told is etcd.Config.OnUsage: it must not block.
func (u usages) told(usage etcd.Usage) {
	select {
	case u <- usage:
	default:
	}
}

// spaceLeft is why this server is not ready although it serves: a store that
// comes near its quota will soon refuse writes.
func spaceLeft(u etcd.Usage) error {
	if u.State == etcd.Near || u.State == etcd.Full {
		return fmt.Errorf("the store has %d of %d MiB (%s): delete what is not needed, or raise its quota", u.Bytes>>20, u.Quota>>20, u.State)
	}
	return nil
}

// recordUsage makes an Event of each change of the store's state, until ctx ends.
func (c *cluster) recordUsage(ctx context.Context) error {
	tell := c.teller()
	for {
		select {
		case <-ctx.Done():
			return nil
		case u := <-c.usages:
			kind, reason, message := corev1.EventTypeNormal, "StoreHasRoom", "The store is well below its quota again"
			if err := spaceLeft(u); err != nil {
				kind, reason, message = corev1.EventTypeWarning, "StoreNearQuota", err.Error()
			}
			c.log.Warn("the store's use of its quota changed", "state", u.State, "bytes", u.Bytes, "quota", u.Quota)
			tell(ctx, kind, reason, message)
		}
	}
}

// teller makes Events about the cluster as a whole, which name this server.
func (c *cluster) teller() func(ctx context.Context, kind, reason, message string) {
	recorder := &event.Recorder{Store: c.store, Now: time.Now, Component: "headway-server", Log: c.log}
	return func(ctx context.Context, kind, reason, message string) {
		recorder.Event(ctx, c.systemNamespace(), kind, reason, message+" (server "+c.identity+")")
	}
}

// systemNamespace is what events about the cluster as a whole are about.
func (c *cluster) systemNamespace() api.Object {
	if ns := c.store.Get(store.Key{GroupResource: api.Namespaces(), Name: metav1.NamespaceSystem}); ns != nil {
		return ns
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
}
