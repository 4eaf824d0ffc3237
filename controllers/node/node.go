package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Margin is how long after a lease's key is gone the cluster acts (D4): the
// agent's right has ended before.
const Margin = 2 * time.Second

// Config is what the controller needs. Log and Metrics may be left out.
type Config struct {
	Store interface {
		store.Reader
		store.Writer
	}
	Fence   func() store.Fence
	Now     store.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

type controller struct {
	Config
	events *event.Recorder
	lost   map[string]time.Time // when a node's lease was first seen gone; one worker only
	last   map[string]time.Time // when a node of a zone was tainted last; one worker only
	halted bool                 // no node is ready; one worker only
}

// New returns the loop of Nodes. It keeps the times at which leases were seen to
// vanish, so it works one key at a time.
func New(cfg Config) *reconcile.Loop {
	c := &controller{Config: cfg, lost: map[string]time.Time{}, last: map[string]time.Time{},
		events: &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "node-controller", Log: cfg.Log}}
	return reconcile.New(reconcile.Config{
		Name:       "node",
		Reconciler: c,
		Workers:    1,
		Now:        cfg.Now,
		Log:        cfg.Log,
		Metrics:    cfg.Metrics,
		List:       func() []reconcile.Key { return append(reconcile.Keys(cfg.Store, api.Nodes()), allNodes()) },
		Watches: []reconcile.Watch{
			{Resource: api.Nodes(), Keys: concerned},
			{Resource: api.Leases(), Keys: func(e store.Event) []reconcile.Key {
				if e.Key.Namespace != corev1.NamespaceNodeLease {
					return nil
				}
				return []reconcile.Key{{GroupResource: api.Nodes(), Name: e.Key.Name}}
			}},
		},
	})
}

// allNodes is the key of the pass over all nodes.
func allNodes() reconcile.Key { return store.Key{GroupResource: api.Nodes()} }

// concerned wakes the node, and the pass over all when it may decide otherwise.
func concerned(e store.Event) []reconcile.Key {
	was, _ := e.Previous.(*corev1.Node)
	is, _ := e.Object.(*corev1.Node)
	if was != nil && is != nil && ready(was) == ready(is) && (evictedSince(was) == nil) == (evictedSince(is) == nil) {
		return []reconcile.Key{e.Key}
	}
	return []reconcile.Key{e.Key, allNodes()}
}

// Reconcile observes, decides and acts for one node, or makes the pass over all.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	if key == allNodes() {
		return c.pass(ctx)
	}
	node, ok := c.Store.Get(key).(*corev1.Node)
	if !ok {
		delete(c.lost, key.Name)
		return nil
	}
	o := observed{node: node, pods: c.Store.OnNode(key.Name)}
	o.lease = c.Store.Get(store.Key{GroupResource: api.Leases(), Namespace: corev1.NamespaceNodeLease, Name: key.Name}) != nil
	now := c.Now()
	if o.lease {
		delete(c.lost, key.Name)
	} else if since, seen := c.lost[key.Name]; !seen {
		c.lost[key.Name] = now
		return reconcile.After(Margin, "the margin after a lost lease")
	} else if left := since.Add(Margin).Sub(now); left > 0 {
		return reconcile.After(min(left, Margin), "the margin after a lost lease")
	}
	return c.apply(ctx, o, decide(o, now))
}

// apply writes the node with its event first, then its pods, in bounded
// transactions, each conditioned on the node, and on the lease that was not there:
// so a node that came back meanwhile is not written over.
func (c *controller) apply(ctx context.Context, o observed, p plan) error {
	node := o.node
	var absent []api.Object
	if !o.lease {
		absent = noLease(node)
	}
	if p.node != nil {
		t := store.Txn{Fence: c.Fence(), If: absent, Ops: []store.Op{{Verb: store.Update, Object: p.node}}}
		if p.reason != "" {
			t.Ops = append(t.Ops, c.events.Op(o.node, corev1.EventTypeNormal, p.reason, fmt.Sprintf("Node %s status is now: %s", o.node.Name, p.reason))...)
		}
		if _, err := c.Store.Commit(ctx, t); err != nil {
			return fmt.Errorf("mark node %s: %w", o.node.Name, err)
		}
		node = p.node
	}
	for len(p.pods) > 0 {
		n := min(len(p.pods), store.BulkObjects)
		t := store.Txn{Fence: c.Fence(), If: append([]api.Object{node}, absent...)}
		for _, pod := range p.pods[:n] {
			t.Ops = append(t.Ops, store.Op{Verb: store.Update, Object: pod})
		}
		if _, err := c.Store.Commit(ctx, t); err != nil {
			return fmt.Errorf("mark the pods of node %s: %w", o.node.Name, err)
		}
		p.pods = p.pods[n:]
	}
	return nil
}

// noLease is the condition that a node has no lease.
func noLease(node *corev1.Node) []api.Object {
	return []api.Object{&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node.Name}}}
}

// pass writes what planPace decides, a transaction for each node: one that changed
// meanwhile holds up no other.
func (c *controller) pass(ctx context.Context) error {
	now := c.Now()
	var nodes []*corev1.Node
	for _, obj := range c.Store.List(api.Nodes(), "") {
		nodes = append(nodes, obj.(*corev1.Node))
	}
	p := planPace(nodes, c.last, now)
	if p.stopped != c.halted {
		c.halted = p.stopped
		if c.Log != nil && p.stopped {
			c.Log.Warn("no node is ready, so no pod is evicted", "nodes", len(nodes))
		} else if c.Log != nil {
			c.Log.Info("nodes are ready again, so pods of those that are not are evicted in their turn")
		}
	}
	for _, node := range p.nodes {
		t := store.Txn{Fence: c.Fence(), Ops: []store.Op{{Verb: store.Update, Object: node}}}
		if ready(node) == corev1.ConditionUnknown && !p.stopped {
			t.If = noLease(node)
		}
		if _, err := c.Store.Commit(ctx, t); err != nil {
			return fmt.Errorf("taint node %s: %w", node.Name, err)
		}
		if !p.stopped {
			c.last[zoneOf(node)] = now
		}
	}
	if p.again > 0 {
		return reconcile.After(p.again, "the turn of the next node that is not ready")
	}
	return nil
}
