package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// config makes a small object whose one value is told from others by n.
func config(namespace, name string, n int) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"n": strconv.Itoa(n)}}
	store.Stamp(cm, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	return cm
}

func secret(name, value string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"password": []byte(value)}}
	store.Stamp(s, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	return s
}

func pod(namespace, name, node, owner string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "web", Image: "headway.local/hello:1",
			Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "EMPTY"}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	store.Stamp(p, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: types.UID(owner)}}
	}
	return p
}

func create(objs ...api.Object) store.Txn { return txn(store.Create, objs...) }

func txn(verb store.Verb, objs ...api.Object) store.Txn {
	var t store.Txn
	for _, o := range objs {
		t.Ops = append(t.Ops, store.Op{Verb: verb, Object: o})
	}
	return t
}

func commit(t testing.TB, s *store.Store, x store.Txn) int64 {
	t.Helper()
	rev, err := s.Commit(t.Context(), x)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return rev
}

// loaded returns a store over kv that somebody else must Step or Run.
func loaded(t testing.TB, kv store.KV) *store.Store {
	t.Helper()
	s := store.New(kv, store.Options{Seal: SealKey()})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// running returns a store over kv that runs until the test ends.
func running(t testing.TB, kv store.KV, o store.Options) *store.Store {
	t.Helper()
	if o.Seal == nil {
		o.Seal = SealKey()
	}
	s := store.New(kv, o)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-s.Synced():
	case <-time.After(Patience):
		t.Fatal("the store did not load")
	}
	return s
}

// reach waits until s shows a revision.
func reach(t testing.TB, s *store.Store, rev int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := s.WaitRevision(ctx, rev); err != nil {
		t.Fatal(err)
	}
}

// wants checks an error's class and, unless key is zero, whose it is.
func wants(t testing.TB, err, class error, key store.Key) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("got error %v, want class %v", err, class)
		return
	}
	var ke *store.KeyError
	if key != (store.Key{}) && (!errors.As(err, &ke) || ke.Key != key) {
		t.Errorf("got error %v, want one about %s", err, key)
	}
}

func names(objs []api.Object) string {
	var out string
	for _, o := range objs {
		out += fmt.Sprintf(" %s/%s", o.GetNamespace(), o.GetName())
	}
	return out
}

// cuttable is a backend whose watches the test can cut.
type cuttable struct {
	store.KV
	mu   sync.Mutex
	cuts []chan error
}

func (c *cuttable) Watch(ctx context.Context, prefix string, from int64) (<-chan store.Batch, error) {
	ctx, cancel := context.WithCancel(ctx)
	in, err := c.KV.Watch(ctx, prefix, from)
	if err != nil {
		cancel()
		return nil, err
	}
	cut := make(chan error, 1)
	c.mu.Lock()
	c.cuts = append(c.cuts, cut)
	c.mu.Unlock()
	out := make(chan store.Batch)
	go func() {
		defer close(out)
		defer cancel()
		for {
			select {
			case err := <-cut:
				select {
				case out <- store.Batch{Err: err}:
				case <-ctx.Done():
				}
				return
			case b, ok := <-in:
				if !ok {
					return
				}
				select {
				case out <- b:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// cut ends every open watch with err.
func (c *cuttable) cut(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.cuts {
		ch <- err
	}
	c.cuts = nil
}

// settle steps s until it has what the backend had at the call. Backends deliver
// when they like.
func settle(t testing.TB, s *store.Store) {
	t.Helper()
	want, err := s.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	timeout := time.After(Patience)
	for s.Revision() < want {
		more, err := s.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if more {
			continue
		}
		if err := s.KV().Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(time.Millisecond): // then look again
		case <-timeout:
			t.Fatalf("the cache stays at %d, the backend is at %d", s.Revision(), want)
		}
	}
}
