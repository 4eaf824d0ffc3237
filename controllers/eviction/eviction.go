package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
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
	events *event.Recorder
	// pending is which pods of a node are to go later; only for the event that they
	// stay after all. One worker only.
	pending map[string]map[types.UID]bool
}

// New returns the controller's loop. Its keys are nodes.
func New(cfg Config) *reconcile.Loop {
	c := &controller{Config: cfg, pending: map[string]map[types.UID]bool{},
		events: &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "taint-eviction-controller", Log: cfg.Log}}
	return reconcile.New(reconcile.Config{
		Name: "eviction", Reconciler: c, Workers: 1, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics,
		List: func() []reconcile.Key { return reconcile.Keys(cfg.Store, api.Nodes()) },
		Watches: []reconcile.Watch{
			{Resource: api.Nodes(), Keys: ofNode},
			{Resource: api.Pods(), Keys: c.ofPod},
		},
	})
}

// ofNode wakes a node that has, or had, taints that evict.
func ofNode(e store.Event) []reconcile.Key {
	for _, obj := range []api.Object{e.Previous, e.Object} {
		if node, ok := obj.(*corev1.Node); ok && len(noExecute(node)) > 0 {
			return []reconcile.Key{e.Key}
		}
	}
	return nil
}

// ofPod wakes the node of a pod that has come to one with taints that evict, or
// tolerates them otherwise.
func (c *controller) ofPod(e store.Event) []reconcile.Key {
	is, ok := e.Object.(*corev1.Pod)
	if !ok || is.Spec.NodeName == "" {
		return nil
	}
	key := store.Key{GroupResource: api.Nodes(), Name: is.Spec.NodeName}
	if node, ok := c.Store.Get(key).(*corev1.Node); !ok || len(noExecute(node)) == 0 {
		return nil
	}
	was, ok := e.Previous.(*corev1.Pod)
	if ok && was.Spec.NodeName != "" && equality.Semantic.DeepEqual(was.Spec.Tolerations, is.Spec.Tolerations) {
		return nil
	}
	return []reconcile.Key{key}
}

// perTxn is how many pods one transaction marks: each comes with its event.
const perTxn = store.BulkObjects/2 - 2

// Reconcile observes, decides and acts for one node.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	now := c.Now()
	o := observed{pods: c.Store.OnNode(key.Name), pending: c.pending[key.Name]}
	o.node, _ = c.Store.Get(key).(*corev1.Node)
	p := decide(o, now)
	for batch := range slices.Chunk(p.evict, perTxn) {
		txn := store.Txn{Fence: c.Fence(), If: []api.Object{o.node}}
		for _, pod := range batch {
			txn.Ops = append(txn.Ops, podset.Remove(disrupted(pod, now), now)...)
			txn.Ops = append(txn.Ops, c.events.Op(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion "+name(pod))...)
		}
		if _, err := c.Store.Commit(ctx, txn); err != nil {
			return fmt.Errorf("evict the pods of node %s: %w", key.Name, err)
		}
	}
	for _, pod := range p.cancelled {
		c.events.Event(ctx, pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of "+name(pod))
	}
	if c.pending[key.Name] = p.pending; len(p.pending) == 0 {
		delete(c.pending, key.Name)
	}
	if p.again > 0 {
		return reconcile.After(p.again, "the end of a toleration")
	}
	return nil
}
