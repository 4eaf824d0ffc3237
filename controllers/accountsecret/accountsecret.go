package accountsecret

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// life is how long a token in a Secret is good.
const life = 10 * 365 * 24 * time.Hour

// Config is what the controller needs. Log and Metrics may be left out.
type Config struct {
	Store interface {
		store.Reader
		store.Writer
	}
	Fence     func() store.Fence
	Sign      func(ctx context.Context, account *corev1.ServiceAccount, secret *corev1.Secret, life time.Duration) (string, error)
	Authority []byte // the certificate of the cluster's authority, PEM
	Now       store.Clock
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

type controller struct{ Config }

// New returns the loop.
func New(cfg Config) *reconcile.Loop {
	c := &controller{cfg}
	return reconcile.New(reconcile.Config{
		Name: "accountsecret", Reconciler: c, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics,
		List: func() (out []reconcile.Key) {
			for _, obj := range cfg.Store.List(api.Secrets(), "") {
				if holdsToken(obj) {
					out = append(out, store.KeyOf(obj))
				}
			}
			return out
		},
		Watches: []reconcile.Watch{
			{Resource: api.Secrets(), Keys: func(e store.Event) []reconcile.Key {
				if e.Object == nil || !holdsToken(e.Object) {
					return nil
				}
				return []reconcile.Key{e.Key}
			}},
			{Resource: api.ServiceAccounts(), Keys: func(e store.Event) (out []reconcile.Key) {
				for _, obj := range cfg.Store.List(api.Secrets(), e.Key.Namespace) {
					if holdsToken(obj) && obj.GetAnnotations()[corev1.ServiceAccountNameKey] == e.Key.Name {
						out = append(out, store.KeyOf(obj))
					}
				}
				return out
			}},
		},
	})
}

func holdsToken(obj api.Object) bool {
	s, ok := obj.(*corev1.Secret)
	return ok && s.Type == corev1.SecretTypeServiceAccountToken
}

// Reconcile observes, decides and acts.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	secret, ok := c.Store.Get(key).(*corev1.Secret)
	if !ok || !holdsToken(secret) {
		return nil
	}
	account, _ := c.Store.Get(store.Key{GroupResource: api.ServiceAccounts(), Namespace: key.Namespace, Name: secret.Annotations[corev1.ServiceAccountNameKey]}).(*corev1.ServiceAccount)
	next, sign := plan(secret, account, c.Authority, c.Now())
	if next == nil {
		return nil
	}
	if sign {
		token, err := c.Sign(ctx, account, secret, life)
		if err != nil {
			return fmt.Errorf("fill in %s: %w", key, err)
		}
		next.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	if _, err := c.Store.Commit(ctx, store.Txn{Fence: c.Fence(), If: []api.Object{account}, Ops: []store.Op{{Verb: store.Update, Object: next}}}); err != nil {
		return fmt.Errorf("fill in %s: %w", key, err)
	}
	return nil
}
