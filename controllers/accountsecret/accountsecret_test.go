package accountsecret

import (
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type world struct {
	t      *testing.T
	st     *store.Store
	c      *controller
	now    time.Time
	signed int
}

func open(t *testing.T) *world {
	w := &world{t: t, st: storetest.Open(t), now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	w.c = &controller{Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Authority: []byte("the authority"), Now: func() time.Time { return w.now },
		Sign: func(_ context.Context, a *corev1.ServiceAccount, s *corev1.Secret, life time.Duration) (string, error) {
			w.signed++
			claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"of":%q,"for":%q}`, w.now.Unix(), w.now.Add(life).Unix(), a.UID, s.UID)
			return "head." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature", nil
		}}}
	return w
}

func (w *world) write(verb store.Verb, obj api.Object) {
	w.t.Helper()
	if verb == store.Create {
		store.Stamp(obj, w.now)
	}
	if _, err := w.st.Commit(w.t.Context(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.t.Fatal(err)
	}
	storetest.Settle(w.t, w.st)
}

// secret reconciles, and is the Secret then.
func (w *world) secret() *corev1.Secret {
	w.t.Helper()
	key := store.Key{GroupResource: api.Secrets(), Namespace: "default", Name: "ci"}
	if err := w.c.Reconcile(w.t.Context(), key); err != nil {
		w.t.Fatal(err)
	}
	storetest.Settle(w.t, w.st)
	return w.st.Get(key).DeepCopyObject().(*corev1.Secret)
}

func account() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deployer"}}
}

func TestASecretGetsTheTokenOfItsAccount(t *testing.T) {
	w := open(t)
	w.write(store.Create, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ci", Annotations: map[string]string{corev1.ServiceAccountNameKey: "deployer"}}, Type: corev1.SecretTypeServiceAccountToken})
	if s := w.secret(); len(s.Data) != 0 {
		t.Fatalf("without its account it has %d keys", len(s.Data))
	}
	robot := account()
	w.write(store.Create, robot)
	s := w.secret()
	first := string(s.Data["token"])
	if first == "" || string(s.Data["ca.crt"]) != "the authority" || string(s.Data["namespace"]) != "default" || s.Annotations[corev1.ServiceAccountUIDKey] != string(robot.UID) {
		t.Fatalf("%v %q", s.Annotations, s.Data)
	}
	w.now = w.now.Add(4 * 365 * 24 * time.Hour)
	if s = w.secret(); string(s.Data["token"]) != first || w.signed != 1 {
		t.Errorf("signed %d times", w.signed)
	}
	s.Data["ca.crt"] = []byte("another")
	w.write(store.Update, s)
	if s = w.secret(); string(s.Data["ca.crt"]) != "the authority" || string(s.Data["token"]) != first {
		t.Errorf("what was changed by hand: %q", s.Data)
	}
	w.now = w.now.Add(2 * 365 * 24 * time.Hour)
	if s = w.secret(); string(s.Data["token"]) == first || w.signed != 2 {
		t.Errorf("after half of its life: signed %d times", w.signed)
	}
	second := string(s.Data["token"])
	w.write(store.Delete, w.st.Get(store.KeyOf(robot)))
	w.write(store.Create, account())
	if s = w.secret(); string(s.Data["token"]) == second {
		t.Error("another account of the same name has the token of the first")
	}
	s.Type, s.Data = corev1.SecretTypeOpaque, nil
	w.write(store.Update, s)
	if s = w.secret(); len(s.Data) != 0 {
		t.Error("a Secret of another type is filled in")
	}
}
