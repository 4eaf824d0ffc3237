package statefulset

import (
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimed is a rolled-out set with a claim for each of its pods.
func claimed(t *testing.T, n int32, whenDeleted, whenScaled string) *world {
	t.Helper()
	w := newWorld(t, t)
	w.Create(db(n, retain(whenDeleted, whenScaled)))
	w.work()
	return w
}

func (w *world) claim(ordinal string) *corev1.PersistentVolumeClaim {
	c, _ := w.Store.Get(store.Key{GroupResource: api.PersistentVolumeClaims(), Namespace: "shop", Name: "data-db-" + ordinal}).(*corev1.PersistentVolumeClaim)
	return c
}

// owners are the claims with the kinds of their controllers.
func (w *world) owners() string {
	var out []string
	for _, obj := range w.Store.List(api.PersistentVolumeClaims(), "shop") {
		owner := ""
		if ref := metav1.GetControllerOf(obj); ref != nil {
			owner = ref.Kind
		}
		out = append(out, strings.TrimPrefix(obj.GetName(), "data-db-")+":"+owner)
	}
	return strings.Join(out, " ")
}

// ".spec.volumeClaimTemplates: for each a claim is made per Pod, named
// <template>-<set>-<ordinal>, with the labels of the selector; it takes the place of
// a volume of the template with its name." It stays with the identity.
func TestClaims(t *testing.T) {
	w := claimed(t, 2, "Retain", "Retain")
	if got := w.owners(); got != "0: 1:" {
		t.Fatalf("claims %s", got)
	}
	c := w.claim("1")
	if c.Labels["app"] != "db" || c.Status.Phase != corev1.ClaimPending || c.UID == "" || c.Spec.AccessModes[0] != corev1.ReadWriteOnce {
		t.Errorf("claim %+v", c)
	}
	if len(c.Finalizers) != 1 || c.Finalizers[0] != "kubernetes.io/pvc-protection" {
		t.Errorf("it is not protected: %v", c.Finalizers)
	}
	p := w.pod(1)
	if len(p.Spec.Volumes) != 2 || p.Spec.Volumes[0].Name != "data" || p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-db-1" {
		t.Errorf("volumes %+v", p.Spec.Volumes)
	}
	if got := w.Events("shop", "SuccessfulCreate"); len(got) != 4 || got[0] != "Create Claim data-db-0 Pod db-0 in StatefulSet db success" {
		t.Errorf("events %v", got)
	}
	uid := c.UID
	w.change(image("b"))
	w.work()
	w.change(replicas(0))
	w.work()
	w.change(replicas(2))
	w.work()
	if w.see("0:b 1:b"); w.claim("1").UID != uid {
		t.Error("the claim was made anew")
	}
}

// The persistentVolumeClaimRetentionPolicy as owners: whenDeleted Delete is the
// set, whenScaled Delete is the pod once it is too many, Retain is nobody.
func TestRetentionPolicy(t *testing.T) {
	for policy, want := range map[[2]string][2]string{
		{"Retain", "Retain"}: {"0: 1:", "0: 1:"},
		{"Delete", "Retain"}: {"0:StatefulSet 1:StatefulSet", "0:StatefulSet 1:StatefulSet"},
		{"Retain", "Delete"}: {"0: 1:", "0: 1:Pod"},
		{"Delete", "Delete"}: {"0:StatefulSet 1:StatefulSet", "0:StatefulSet 1:Pod"},
	} {
		w := claimed(t, 2, policy[0], policy[1])
		if got := w.owners(); got != want[0] {
			t.Errorf("%v: owners %q, want %q", policy, got, want[0])
		}
		w.change(replicas(1))
		w.see("0:a 1:a-")
		if got := w.owners(); got != want[1] {
			t.Errorf("%v: scaled down, owners %q, want %q", policy, got, want[1])
		}
		// Wanted again before the pod is gone: its claim is the set's again.
		w.change(replicas(2))
		w.work()
		if policy[1] == "Delete" && w.claim("1").OwnerReferences != nil && w.claim("1").OwnerReferences[0].Kind == "Pod" {
			continue // the pod went before: the garbage collector takes the claim
		}
		if got := w.owners(); got != want[0] {
			t.Errorf("%v: scaled up, owners %q, want %q", policy, got, want[0])
		}
	}
}

// The policy can be changed, and claims that are there follow.
func TestRetentionPolicyIsChanged(t *testing.T) {
	w := claimed(t, 1, "Retain", "Retain")
	w.change(func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	})
	if got := w.owners(); got != "0:StatefulSet" {
		t.Errorf("owners %q", got)
	}
	w.change(func(s *appsv1.StatefulSet) { s.Spec.PersistentVolumeClaimRetentionPolicy = nil })
	if got := w.owners(); got != "0:" {
		t.Errorf("owners %q", got)
	}
}

// A claim that goes with a pod that is gone must be gone before the next pod of the
// name is made; so must one that is being deleted.
func TestAClaimOnItsWayOutIsWaitedFor(t *testing.T) {
	w := claimed(t, 2, "Retain", "Delete")
	w.change(replicas(1))
	w.isGone(1)
	w.change(replicas(2))
	w.see("0:a")
	w.Commit(store.Op{Verb: store.Delete, Object: w.claim("1")}) // as the garbage collector does
	w.Settle()
	w.see("0:a 1:a!")
	if c := w.claim("1"); c == nil || c.OwnerReferences != nil {
		t.Errorf("claim %+v", c)
	}

	w = claimed(t, 1, "Retain", "Retain")
	held := w.claim("0").DeepCopy()
	held.Finalizers, held.DeletionTimestamp = []string{"kubernetes.io/pvc-protection"}, &metav1.Time{Time: w.Now}
	w.Update(held)
	w.Commit(podset.Remove(w.pod(0), w.Now)...)
	w.Settle()
	w.isGone(0)
	w.see("")
	w.Commit(store.Op{Verb: store.Delete, Object: w.claim("0")})
	w.Settle()
	w.see("0:a!")
}

// A claim that is deleted while the pod waits for it is made again.
func TestAClaimOfAPendingPodIsMadeAgain(t *testing.T) {
	w := newWorld(t, t)
	w.Create(db(1, retain("Retain", "Retain")))
	w.Settle()
	w.see("0:a!")
	w.Commit(store.Op{Verb: store.Delete, Object: w.claim("0")})
	w.Settle()
	if w.claim("0") == nil {
		t.Error("it was not")
	}
}

// A claim that somebody else controls is let be, and the set is told.
func TestAClaimOfSomebodyElse(t *testing.T) {
	w := newWorld(t, t)
	yes := true
	w.Create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-db-0", OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "Keeper", Name: "k", UID: "k", Controller: &yes}}}})
	w.Create(db(1, retain("Delete", "Delete")))
	w.work()
	w.see("0:a")
	if got := w.owners(); got != "0:Keeper" {
		t.Errorf("owners %q", got)
	}
	if got := w.Events("shop", "ConflictingController"); len(got) != 1 {
		t.Errorf("events %v", got)
	}
}
