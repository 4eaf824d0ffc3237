package podgarbage

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Config is what the controller needs. Store, Fence and Now are required.
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
	gone map[string]time.Time // when a node with pods was first seen gone; one worker only
}

// New returns the controller's loop. Its keys are nodes, whether they are there or
// not, and the sweep.
func New(cfg Config) *reconcile.Loop {
	c := &controller{Config: cfg, gone: map[string]time.Time{}}
	return reconcile.New(reconcile.Config{
		Name: "podgarbage", Reconciler: c, Workers: 1, List: c.list, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{
			{Resource: api.Nodes(), Keys: ofNode},
			{Resource: api.Pods(), Keys: c.ofPod},
			{Resource: api.Leases(), Keys: c.ofLease},
		},
	})
}

func nodeKey(name string) reconcile.Key { return store.Key{GroupResource: api.Nodes(), Name: name} }

// sweep is the key of the look at all pods that have ended.
func sweep() reconcile.Key { return store.Key{GroupResource: api.Pods()} }

// list has the sweep, the nodes out of service, and those that only pods know.
func (c *controller) list() []reconcile.Key {
	names := map[string]bool{}
	for _, obj := range c.Store.List(api.Pods(), "") {
		if on := obj.(*corev1.Pod).Spec.NodeName; on != "" && c.suspect(on) {
			names[on] = true
		}
	}
	keys := []reconcile.Key{sweep()}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		keys = append(keys, nodeKey(name))
	}
	return keys
}

// suspect says whether a node is gone or declared to be.
func (c *controller) suspect(name string) bool {
	node, ok := c.Store.Get(nodeKey(name)).(*corev1.Node)
	return !ok || declared(node)
}

func ofNode(e store.Event) []reconcile.Key {
	node, ok := e.Object.(*corev1.Node)
	if ok && e.Previous != nil && !declared(node) {
		return nil
	}
	return []reconcile.Key{e.Key}
}

func (c *controller) ofPod(e store.Event) []reconcile.Key {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || !c.suspect(pod.Spec.NodeName) {
		return nil
	}
	return []reconcile.Key{nodeKey(pod.Spec.NodeName)}
}

func (c *controller) ofLease(e store.Event) []reconcile.Key {
	if e.Key.Namespace != corev1.NamespaceNodeLease || !c.suspect(e.Key.Name) {
		return nil
	}
	return []reconcile.Key{nodeKey(e.Key.Name)}
}

// Reconcile works one node's pods, or the sweep.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	now := c.Now()
	if key == sweep() {
		pods, wait := planEnded(c.Store.List(api.Pods(), ""))
		for batch := range slices.Chunk(pods, store.BulkObjects) {
			txn := store.Txn{Fence: c.Fence()}
			for _, pod := range batch {
				txn.Ops = append(txn.Ops, store.Op{Verb: store.Delete, Object: pod})
			}
			if _, err := c.Store.Commit(ctx, txn); err != nil {
				return fmt.Errorf("remove ended pods: %w", err)
			}
		}
		return reconcile.After(wait, "the next sweep")
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: key.Name}}
	o := observed{pods: c.Store.OnNode(key.Name), lease: c.Store.Get(store.KeyOf(lease)) != nil}
	o.node, _ = c.Store.Get(key).(*corev1.Node)
	if o.node != nil || len(o.pods) == 0 {
		delete(c.gone, key.Name)
	} else if since, seen := c.gone[key.Name]; seen {
		o.gone = now.Sub(since)
	} else {
		c.gone[key.Name] = now
	}
	p := decide(o)
	if err := c.apply(ctx, key.Name, o, p, now); err != nil {
		return fmt.Errorf("remove the pods of node %s: %w", key.Name, err)
	}
	if p.again > 0 {
		return reconcile.After(p.again, "the node to be gone for certain")
	}
	return nil
}

// apply acts on the condition that the node is as it was seen, and, for what is
// removed without asking its agent, that there is no lease.
func (c *controller) apply(ctx context.Context, name string, o observed, p plan, now time.Time) error {
	is := []api.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	if o.node != nil {
		is[0] = o.node
	}
	if !o.lease {
		is = append(is, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}})
	}
	var ops []store.Op
	for _, pod := range p.mark {
		ops = append(ops, podset.Remove(disrupted(pod, p.why, now), now)...)
	}
	for _, pod := range p.remove {
		ops = append(ops, removal(pod, p.why, now)...)
	}
	for batch := range slices.Chunk(ops, store.BulkObjects-len(is)) {
		if _, err := c.Store.Commit(ctx, store.Txn{Fence: c.Fence(), If: is, Ops: batch}); err != nil {
			return err
		}
	}
	return nil
}
