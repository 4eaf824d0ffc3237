package namespace

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Config is what the controller needs. Store, Fence, Now and Authority are required.
type Config struct {
	Store interface {
		store.Reader
		store.Writer
		// ListAt reads the backend; at revision 0 it is linearizable.
		ListAt(ctx context.Context, gr schema.GroupResource, namespace string, revision int64, limit int, after string) (store.Page, error)
	}
	Fence     func() store.Fence
	Now       store.Clock
	Authority []byte // the certificate of the cluster's authority, PEM
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

type controller struct{ Config }

// New returns the controller's loop.
func New(cfg Config) *reconcile.Loop {
	c := &controller{Config: cfg}
	watches := []reconcile.Watch{reconcile.Itself(api.Namespaces())}
	for _, k := range content() {
		watches = append(watches, reconcile.Watch{Resource: k.GroupResource(), Keys: c.ofContent})
	}
	return reconcile.New(reconcile.Config{
		Name: "namespace", Reconciler: c, Watches: watches, List: c.list, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
	})
}

// content lists the kinds that live in namespaces.
func content() []api.Kind {
	var out []api.Kind
	for _, k := range api.Kinds() {
		if k.Namespaced {
			out = append(out, k)
		}
	}
	return out
}

func key(name string) reconcile.Key {
	return store.Key{GroupResource: api.Namespaces(), Name: name}
}

func (c *controller) list() []reconcile.Key {
	keys := []reconcile.Key{key(metav1.NamespaceDefault), key(metav1.NamespaceSystem), key(corev1.NamespaceNodeLease)}
	for _, obj := range c.Store.List(api.Namespaces(), "") {
		if !admission.Permanent(obj.GetName()) {
			keys = append(keys, store.KeyOf(obj))
		}
	}
	return keys
}

func (c *controller) get(name string) *corev1.Namespace {
	ns, _ := c.Store.Get(key(name)).(*corev1.Namespace)
	return ns
}

// ofContent wakes a namespace that is being deleted when something in it comes or
// goes, and any namespace whose default account or certificate has gone or changed.
func (c *controller) ofContent(e store.Event) []reconcile.Key {
	switch {
	case isRootCA(e.Key) && e.Previous != nil:
		return []reconcile.Key{key(e.Key.Namespace)}
	case e.Object != nil && e.Previous != nil:
		return nil
	case e.Deleted() && isAccount(e.Key), podset.Closed(c.get(e.Key.Namespace)):
		return []reconcile.Key{key(e.Key.Namespace)}
	}
	return nil
}

// What every namespace has.
const (
	account = "default"          // a ServiceAccount
	rootCA  = "kube-root-ca.crt" // a ConfigMap
)

func isAccount(k store.Key) bool {
	return k.GroupResource == api.ServiceAccounts() && k.Name == account
}

func isRootCA(k store.Key) bool { return k.GroupResource == api.ConfigMaps() && k.Name == rootCA }

// Reconcile observes, plans and applies.
func (c *controller) Reconcile(ctx context.Context, k reconcile.Key) error {
	o := observed{name: k.Name, namespace: c.get(k.Name), authority: string(c.Authority)}
	o.account = c.Store.Get(store.Key{GroupResource: api.ServiceAccounts(), Namespace: k.Name, Name: account}) != nil
	o.rootCA, _ = c.Store.Get(store.Key{GroupResource: api.ConfigMaps(), Namespace: k.Name, Name: rootCA}).(*corev1.ConfigMap)
	if o.deleting() {
		for _, kind := range content() {
			o.content = append(o.content, resource{kind: kind, objects: c.Store.List(kind.GroupResource(), k.Name)})
		}
	}
	steps := plan(o, c.Now())
	for _, s := range steps {
		if s.Verb != remove {
			continue
		}
		empty, err := c.empty(ctx, k.Name)
		if err != nil {
			return fmt.Errorf("look whether namespace %s is empty: %w", k.Name, err)
		}
		if !empty {
			return fmt.Errorf("remove namespace %s: %w", k.Name, store.ErrConflict) // the cache will show what there is
		}
	}
	if err := c.apply(ctx, steps); err != nil {
		return fmt.Errorf("namespace %s: %w", k.Name, err)
	}
	return nil
}

// empty asks the backend, since the cache may not show yet what was created just
// before the namespace closed.
func (c *controller) empty(ctx context.Context, name string) (bool, error) {
	for _, kind := range content() {
		page, err := c.Store.ListAt(ctx, kind.GroupResource(), name, 0, 1, "")
		if err != nil {
			return false, err
		}
		if len(page.Objects) > 0 {
			return false, nil
		}
	}
	return true, nil
}

// apply does all steps in one transaction.
func (c *controller) apply(ctx context.Context, steps []Step) error {
	txn := store.Txn{Fence: c.Fence()}
	for _, s := range steps {
		switch s.Verb {
		case create:
			obj := s.Object
			store.Stamp(obj, c.Now())
			obj.SetGeneration(0)
			txn.Ops = append(txn.Ops, store.Op{Verb: store.Create, Object: obj})
		case write:
			txn.Ops = append(txn.Ops, store.Op{Verb: store.Update, Object: s.Object})
		case empty:
			txn.Ops = append(txn.Ops, podset.RemoveAny(s.Object, c.Now())...)
		case remove:
			txn.Ops = append(txn.Ops, store.Op{Verb: store.Delete, Object: s.Object})
		}
	}
	if len(txn.Ops) == 0 {
		return nil
	}
	_, err := c.Store.Commit(ctx, txn)
	return err
}
