package ephemeral

import (
	"context"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type world struct {
	t    *testing.T
	st   *store.Store
	loop *reconcile.Loop
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, st: storetest.Open(t)}
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }})
	w.st.OnEvents(w.loop.Handle)
	w.commit(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	return w
}

func (w *world) commit(verb store.Verb, obj api.Object) {
	w.t.Helper()
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.t.Fatal(err)
	}
	storetest.Settle(w.t, w.st)
}

func (w *world) run() {
	for range 100 {
		if !w.loop.Step(context.Background()) {
			return
		}
		storetest.Settle(w.t, w.st)
	}
	w.t.Fatal("the loop does not come to rest")
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	c, _ := w.st.Get(store.Key{GroupResource: api.PersistentVolumeClaims(), Namespace: "default", Name: name}).(*corev1.PersistentVolumeClaim)
	return c
}

func (w *world) pod(name string) *corev1.Pod {
	t := &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "cache", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: t}}},
		{Name: "other", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}}}
	w.commit(store.Create, pod)
	return pod
}

// A pod gets a claim of its own for each ephemeral volume: with the template's labels, the
// default class, and the pod as its owner. It is made again while the pod is there.
func TestClaimIsMade(t *testing.T) {
	w := newWorld(t)
	w.commit(store.Create, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: api.LocalProvisioner})
	pod := w.pod("web")
	w.run()
	c := w.claim("web-cache")
	if c == nil || len(w.st.List(api.PersistentVolumeClaims(), "")) != 1 {
		t.Fatal("the claim was not made")
	}
	ref := metav1.GetControllerOf(c)
	if ref == nil || ref.UID != pod.UID || ref.Kind != "Pod" || ref.APIVersion != "v1" || ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion {
		t.Errorf("owner %+v", ref)
	}
	if c.Labels["a"] != "b" || c.Annotations["c"] != "d" || *c.Spec.StorageClassName != "local" || c.UID == "" || c.Status.Phase != corev1.ClaimPending || len(c.Finalizers) != 1 {
		t.Errorf("claim %+v", c)
	}
	w.commit(store.Delete, c)
	w.run()
	if w.claim("web-cache") == nil {
		t.Error("it is not made again")
	}
	w.commit(store.Delete, w.st.Get(store.KeyOf(pod)))
	w.commit(store.Delete, w.claim("web-cache"))
	w.run()
	if w.claim("web-cache") != nil {
		t.Error("a claim is made for a pod that is gone")
	}
}

// A claim of that name which is somebody else's is left alone, and the pod is told.
func TestForeignClaim(t *testing.T) {
	w := newWorld(t)
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-cache", UID: "foreign"}}
	w.commit(store.Create, foreign)
	w.pod("web")
	w.run()
	if c := w.claim("web-cache"); c.UID != "foreign" || len(c.OwnerReferences) > 0 {
		t.Errorf("it was taken: %+v", c.ObjectMeta)
	}
	var told string
	for _, obj := range w.st.List(api.Events(), "default") {
		e := obj.(*corev1.Event)
		told += e.Reason + ": " + e.Message
	}
	if want := "FailedBinding: ephemeral volume cache: PVC default/web-cache was not created for pod default/web (pod is not owner)"; told != want {
		t.Errorf("told %q, want %q", told, want)
	}
	w.commit(store.Delete, w.claim("web-cache"))
	w.run()
	if c := w.claim("web-cache"); c == nil || metav1.GetControllerOf(c) == nil {
		t.Error("the claim is not made when the other one is gone")
	}
}

// Nothing is made in a namespace that is being deleted.
func TestClosedNamespace(t *testing.T) {
	w := newWorld(t)
	ns := w.st.Get(store.Key{GroupResource: api.Namespaces(), Name: "default"}).DeepCopyObject().(*corev1.Namespace)
	ns.Status.Phase = corev1.NamespaceTerminating
	ns.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.commit(store.Update, ns)
	w.pod("web")
	w.run()
	if w.claim("web-cache") != nil {
		t.Error("a claim was made in a namespace that goes")
	}
}
