package persistentvolume

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func truth(t testing.TB, kv store.KV) *store.Store {
	t.Helper()
	s := store.New(kv, store.Options{Seal: storetest.SealKey()})
	if err := s.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDataStaysWhileItIsUsed lets the controller work on a cache that lags, over a
// backend that loses writes and answers, while claims, volumes and pods come and go. No
// claim goes that a pod on a node uses, no volume that a claim has, and the data of one
// is only given up when its claim is gone.
func TestDataStaysWhileItIsUsed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kv := memory.New()
		w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), st: truth(t, kv)}
		w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
		w.st.OnEvents(w.loop.Handle)
		fault := ""
		kv.Fail(func(op string) error {
			if op == fault {
				return fmt.Errorf("cut: %w", store.ErrUnavailable)
			}
			return nil
		})
		user := func(given []api.Object, ops ...store.Op) {
			_, err := w.st.Commit(context.Background(), store.Txn{If: given, Ops: ops})
			if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrExists) {
				rt.Fatal(err)
			}
		}
		n := 0
		name := func(prefix string) string { n++; return fmt.Sprintf("%s%d", prefix, n) }
		some := func(list []api.Object) api.Object {
			if len(list) == 0 {
				return nil
			}
			return rapid.SampledFrom(list).Draw(rt, "which").DeepCopyObject().(api.Object)
		}
		policy := corev1.PersistentVolumeReclaimDelete
		wait := storagev1.VolumeBindingWaitForFirstConsumer
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: api.LocalProvisioner, ReclaimPolicy: &policy, VolumeBindingMode: &wait}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{api.VolumesDirAnnotation: "/volumes"}}}
		user(nil, store.Op{Verb: store.Create, Object: class.DeepCopy()}, store.Op{Verb: store.Create, Object: node.DeepCopy()})
		newClaim := func(class string) *corev1.PersistentVolumeClaim {
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name("c")}, Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
			c.UID = types.UID("uid-" + c.Name)
			return c
		}
		check := func() { checkData(rt, truth(t, kv)) }
		work := func(*rapid.T) {
			fault = rapid.SampledFrom([]string{"", "", "commit", "committed"}).Draw(rt, "fault")
			for range rapid.IntRange(1, 5).Draw(rt, "steps") {
				w.loop.Step(context.Background())
				check()
				fault = ""
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": func(*rapid.T) { user(nil, store.Op{Verb: store.Create, Object: newClaim("")}) },
			"volume": func(*rapid.T) {
				v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name("v")}, Spec: corev1.PersistentVolumeSpec{
					Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					PersistentVolumeReclaimPolicy: rapid.SampledFrom([]corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimRetain, policy}).Draw(rt, "policy")}}
				user(nil, store.Op{Verb: store.Create, Object: v})
			},
			"placed": func(*rapid.T) { // a pod and its volume, as the scheduler makes them
				v, c, err := binding.Provision(newClaim("local"), class, node)
				if err != nil {
					rt.Fatal(err)
				}
				user(nil, store.Op{Verb: store.Create, Object: v}, store.Op{Verb: store.Create, Object: c})
			},
			"use": func(*rapid.T) { // on the condition that the scheduler has
				c, ok := some(w.st.List(api.PersistentVolumeClaims(), "")).(*corev1.PersistentVolumeClaim)
				if !ok || c.DeletionTimestamp != nil || !binding.Complete(c) {
					return
				}
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name("p")}, Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{
					Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name}}}}}}
				user([]api.Object{c}, store.Op{Verb: store.Create, Object: pod})
			},
			"end": func(*rapid.T) {
				if pod := some(w.st.List(api.Pods(), "")); pod != nil {
					user(nil, store.Op{Verb: store.Delete, Object: pod})
				}
			},
			"delete": func(*rapid.T) {
				gr := api.PersistentVolumeClaims()
				if rapid.Bool().Draw(rt, "a volume") {
					gr = api.PersistentVolumes()
				}
				if obj := some(w.st.List(gr, "")); obj != nil && len(obj.GetFinalizers()) > 0 && obj.GetDeletionTimestamp() == nil {
					obj.SetDeletionTimestamp(&metav1.Time{Time: w.now})
					user(nil, store.Op{Verb: store.Update, Object: obj})
				}
			},
			"see": func(*rapid.T) {
				for range rapid.IntRange(1, 8).Draw(rt, "revisions") {
					if _, err := w.st.Step(context.Background()); err != nil {
						rt.Fatal(err)
					}
				}
			},
			"see all":   func(*rapid.T) { storetest.Settle(t, w.st) },
			"work":      work,
			"work more": work,
			"wait": func(*rapid.T) {
				if next := w.loop.Next(); !next.IsZero() {
					w.now = next
				}
			},
			"": func(*rapid.T) { check() },
		})
	})
}

// checkData looks at what is really in the store.
func checkData(t *rapid.T, s *store.Store) {
	owner := map[types.UID]string{}
	for _, obj := range s.List(api.PersistentVolumes(), "") {
		v := obj.(*corev1.PersistentVolume)
		ref := v.Spec.ClaimRef
		if ref == nil {
			continue
		}
		if other := owner[ref.UID]; other != "" {
			t.Fatalf("claim %s has volumes %s and %s", ref.Name, other, v.Name)
		}
		owner[ref.UID] = v.Name
		if v.DeletionTimestamp == nil || v.Annotations[api.ProvisionedByAnnotation] == "" {
			continue
		}
		claim := s.Get(claimKey(ref.Namespace, ref.Name))
		if protected := len(v.Finalizers) == 2; claim != nil && claim.GetUID() == ref.UID && !protected {
			t.Fatalf("the data of claim %s would be removed from volume %s: finalizers %v", ref.Name, v.Name, v.Finalizers)
		}
	}
	for _, obj := range s.List(api.PersistentVolumeClaims(), "") {
		claim := obj.(*corev1.PersistentVolumeClaim)
		if owner[claim.UID] != claim.Spec.VolumeName || claim.Status.Phase == corev1.ClaimLost {
			t.Fatalf("claim %s is %s and says %q, and of the volumes %q says that it has it", claim.Name, claim.Status.Phase, claim.Spec.VolumeName, owner[claim.UID])
		}
	}
	for _, obj := range s.List(api.Pods(), "") {
		pod := obj.(*corev1.Pod)
		if name := pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName; s.Get(claimKey("default", name)) == nil {
			t.Fatalf("claim %s is gone, and pod %s uses it", name, pod.Name)
		}
	}
}
