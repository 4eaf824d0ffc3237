package accounts

import (
	"context"
	"crypto/rsa"
	"strings"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func open(t *testing.T) (*store.Store, *memory.KV) {
	t.Helper()
	kv := memory.New()
	st := store.New(kv, store.Options{Seal: []byte(strings.Repeat("s", store.SealKeyBytes))})
	must(t, st.Load(t.Context()))
	return st, kv
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Many servers start at once over an empty store, and sign with one key; it is sealed
// (R14).
func TestR14_OneKeyForAllServers(t *testing.T) {
	st, kv := open(t)
	made := make([]*rsa.PrivateKey, 4)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			key, err := EnsureKey(context.Background(), st, time.Now())
			if err != nil {
				t.Error(err)
			}
			made[i] = key
		})
	}
	all.Wait()
	for _, key := range made {
		if !key.Equal(made[0]) {
			t.Fatal("two servers have two keys")
		}
	}
	r, err := kv.Range(t.Context(), store.RangeRequest{Start: store.ResourcePrefix(api.Authorities()), End: "/i"})
	must(t, err)
	if len(r.Entries) != 1 || strings.Contains(string(r.Entries[0].Value), "PRIVATE") {
		t.Errorf("%d entries, or the key is readable", len(r.Entries))
	}
}

func TestForPodRefusesWhatCannotBe(t *testing.T) {
	st, _ := open(t)
	key, err := EnsureKey(t.Context(), st, time.Now())
	must(t, err)
	tokens, err := New(key, st)
	must(t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}}
	store.Stamp(account, time.Now())
	_, err = st.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: account}}})
	must(t, err)
	pod := func(account string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}, Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: "n1"}}
	}
	if _, _, err := tokens.ForPod(t.Context(), pod("nobody"), "", 3607); err == nil || !strings.Contains(err.Error(), `"nobody" not found`) {
		t.Errorf("an account that is not there: %v", err)
	}
	for _, seconds := range []int64{-1, 0, 599, 1<<32 + 1} {
		if _, _, err := tokens.ForPod(t.Context(), pod("robot"), "", seconds); err == nil {
			t.Errorf("%d seconds are signed", seconds)
		}
	}
	if _, life, err := tokens.ForPod(t.Context(), pod("robot"), "vault", 1<<32); err != nil || life != Longest {
		t.Errorf("a century: %s, %v", life, err)
	}
}

func TestBuiltinRolesHaveTheirBindings(t *testing.T) {
	names := map[string]int{}
	for _, obj := range Builtin() {
		names[obj.GetName()]++
		if obj.GetLabels()["kubernetes.io/bootstrapping"] != "rbac-defaults" {
			t.Errorf("%s has the labels %v", obj.GetName(), obj.GetLabels())
		}
	}
	for name, n := range map[string]int{"cluster-admin": 2, "view": 1, "edit": 1, "admin": 1, "system:discovery": 2, "system:basic-user": 2, "system:public-info-viewer": 2, "system:node": 0} {
		if names[name] != n {
			t.Errorf("%s: %d objects, want %d", name, names[name], n)
		}
	}
}
