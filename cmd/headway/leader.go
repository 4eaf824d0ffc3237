package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"headway.dev/headway/controllers/cronjob"
	"headway.dev/headway/controllers/daemonset"
	"headway.dev/headway/controllers/deployment"
	"headway.dev/headway/controllers/disruption"
	"headway.dev/headway/controllers/endpointslice"
	"headway.dev/headway/controllers/ephemeral"
	"headway.dev/headway/controllers/eviction"
	"headway.dev/headway/controllers/garbage"
	"headway.dev/headway/controllers/job"
	"headway.dev/headway/controllers/kubernetes"
	"headway.dev/headway/controllers/loadbalancer"
	"headway.dev/headway/controllers/namespace"
	"headway.dev/headway/controllers/node"
	"headway.dev/headway/controllers/persistentvolume"
	"headway.dev/headway/controllers/podautoscaler"
	"headway.dev/headway/controllers/podgarbage"
	"headway.dev/headway/controllers/quota"
	"headway.dev/headway/controllers/replicaset"
	"headway.dev/headway/controllers/statefulset"
	"headway.dev/headway/scheduler"
	"headway.dev/headway/store"
)

// leadershipTTL is how long after its last renewal a leader is deposed.
const leadershipTTL = 10 * time.Second

// leader runs what only one server at a time may run.
type leader struct {
	store    *store.Store
	identity string
	log      *slog.Logger
	fence    atomic.Pointer[store.Fence]
	parts    []part
}

// part is one component of the leader.
type part struct {
	name string
	run  func(context.Context) error
}

// newLeader makes the controllers and the scheduler, and lets them hear of the store's events. It
// must be called before the store is loaded. own is the cluster IP of the Service of the API, server
// is asked where pods reach this server; authority is the certificate of the cluster's, PEM.
func newLeader(st *store.Store, authority []byte, own netip.Addr, server func() netip.AddrPort, identity string, metrics prometheus.Registerer, log *slog.Logger) *leader {
	l := &leader{store: st, identity: identity, log: log}
	named := func(name string) *slog.Logger { return log.With("component", name) }
	l.add("namespace", namespace.New(namespace.Config{Store: st, Fence: l.current, Now: time.Now, Authority: authority, Log: named("namespace"), Metrics: metrics}))
	l.add("garbage", garbage.New(garbage.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("garbage"), Metrics: metrics}))
	l.add("deployment", deployment.New(deployment.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("deployment"), Metrics: metrics}))
	l.add("replicaset", replicaset.New(replicaset.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("replicaset"), Metrics: metrics}))
	l.add("replicationcontroller", replicaset.NewReplication(replicaset.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("replicationcontroller"), Metrics: metrics}))
	l.add("statefulset", statefulset.New(statefulset.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("statefulset"), Metrics: metrics}))
	l.add("daemonset", daemonset.New(daemonset.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("daemonset"), Metrics: metrics}))
	l.add("job", job.New(job.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("job"), Metrics: metrics}))
	l.add("cronjob", cronjob.New(cronjob.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("cronjob"), Metrics: metrics}))
	l.add("node", node.New(node.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("node"), Metrics: metrics}))
	l.add("eviction", eviction.New(eviction.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("eviction"), Metrics: metrics}))
	l.add("disruption", disruption.New(disruption.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("disruption"), Metrics: metrics}))
	l.add("quota", quota.New(quota.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("quota"), Metrics: metrics}))
	l.add("podautoscaler", podautoscaler.New(podautoscaler.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("podautoscaler"), Metrics: metrics}))
	l.add("podgarbage", podgarbage.New(podgarbage.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("podgarbage"), Metrics: metrics}))
	l.add("endpointslice", endpointslice.New(endpointslice.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("endpointslice"), Metrics: metrics}))
	l.add("loadbalancer", loadbalancer.New(loadbalancer.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("loadbalancer"), Metrics: metrics}))
	l.add("kubernetes", kubernetes.New(kubernetes.Config{Store: st, Fence: l.current, Address: own, Server: server, Now: time.Now, Log: named("kubernetes"), Metrics: metrics}))
	l.add("persistentvolume", persistentvolume.New(persistentvolume.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("persistentvolume"), Metrics: metrics}))
	l.add("ephemeral", ephemeral.New(ephemeral.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("ephemeral"), Metrics: metrics}))
	l.add("scheduler", scheduler.New(scheduler.Config{Store: st, Fence: l.current, Now: time.Now, Log: named("scheduler"), Metrics: metrics}))
	return l
}

// add makes a component run while we lead, and hear of the store's events if it wants
// to.
func (l *leader) add(name string, component interface{ Run(context.Context) error }) {
	if hears, ok := component.(interface{ Handle([]store.Event) }); ok {
		l.store.OnEvents(hears.Handle)
	}
	l.parts = append(l.parts, part{name, component.Run})
}

// current is the fence of the newest leadership of this server. It is read only
// by components that run under one; after it is lost the old fence refuses every
// write.
func (l *leader) current() store.Fence {
	if f := l.fence.Load(); f != nil {
		return *f
	}
	// No leadership yet: a fence that never holds, never the zero one, which asks
	// for nothing.
	return store.Fence{Key: store.ElectionKey, Revision: 1<<63 - 1}
}

// run leads whenever it can, until ctx ends.
func (l *leader) run(ctx context.Context) error {
	for ctx.Err() == nil {
		leadership, err := l.store.Elect(ctx, l.identity, leadershipTTL)
		if err != nil {
			return err
		}
		l.fence.Store(&leadership.Fence)
		l.log.Debug("leading", "identity", l.identity)
		err = l.term(ctx, leadership)
		resign, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		if rerr := leadership.Resign(resign); rerr != nil && ctx.Err() == nil {
			l.log.Warn("leadership not given back, it will expire", "error", rerr)
		}
		cancel()
		if err != nil {
			return err
		}
		if ctx.Err() == nil {
			l.log.Warn("leadership lost, standing again", "identity", l.identity)
		}
	}
	return nil
}

// term runs every part until the leadership or ctx ends.
func (l *leader) term(ctx context.Context, leadership *store.Leadership) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	group.Go(func() error {
		select {
		case <-leadership.Done():
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	for _, p := range l.parts {
		group.Go(func() error {
			defer cancel()
			if err := p.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}
