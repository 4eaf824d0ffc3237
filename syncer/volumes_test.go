package syncer

import (
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	localClass = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}\nprovisioner: headway.dev/local\nvolumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: true\n"
	claimFile  = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {resources: {requests: {storage: 1Gi}}, accessModes: [ReadWriteOnce]}\n"
	setFile    = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: i}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
`
)

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	return w.get("persistentvolumeclaims", "default", name).DeepCopyObject().(*corev1.PersistentVolumeClaim)
}

// bind gives a claim a volume as the scheduler does.
func (w *world) bind(name string) {
	w.t.Helper()
	class := w.st.Get(store.Key{GroupResource: api.StorageClasses(), Name: "local"}).(*storagev1.StorageClass)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{api.VolumesDirAnnotation: "/volumes"}}}
	volume, claim, err := binding.Provision(w.claim(name), class, node)
	if err != nil {
		w.t.Fatal(err)
	}
	volume.UID = types.UID("uid-" + name)
	w.write(store.Create, volume)
	w.write(store.Update, claim)
}

func (w *world) applied(commit string) {
	w.t.Helper()
	w.push(commit)
	if st := w.status(); st.Applied != commit || st.Refused != "" {
		w.t.Fatalf("applied %s, refused %q: %v", st.Applied, st.Message, st.Problems)
	}
}

// What the cluster fills in of a claim is no drift: its class, its volume, its status.
// A claim grows in place, and its data does not go without being asked for.
func TestClaimFromGit(t *testing.T) {
	w := newWorld(t)
	files := map[string]string{"class.yaml": localClass, "claim.yaml": claimFile}
	w.applied(w.repo.add("c1", "", files))
	c := w.claim("data")
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != "local" || !slices.Contains(c.Finalizers, api.ProtectClaim) || c.Status.Phase != corev1.ClaimPending {
		t.Fatalf("claim %+v", c)
	}
	if state, why := Health(c, w.st); state != Healthy || why != "waiting for its first pod" {
		t.Errorf("%s: %s", state, why)
	}
	w.bind("data")
	w.settle()
	before := w.versions()
	w.settle()
	bound := w.claim("data")
	if state, why := Health(bound, w.st); state != Healthy || why != "bound to pvc-"+string(c.UID) {
		t.Errorf("%s: %s", state, why)
	}
	for name, version := range w.versions() {
		if before[name] != version {
			t.Errorf("%s is written again", name)
		}
	}
	if bound.Spec.VolumeName == "" || bound.Status.Phase != corev1.ClaimBound {
		t.Fatalf("the binding was taken back: %+v", bound.Spec)
	}

	grown := map[string]string{"class.yaml": localClass, "claim.yaml": strings.Replace(claimFile, "1Gi", "2Gi", 1)}
	w.applied(w.repo.add("c2", "c1", grown))
	if got := w.claim("data"); got.Spec.Resources.Requests.Storage().String() != "2Gi" || got.Spec.VolumeName != bound.Spec.VolumeName || got.UID != bound.UID {
		t.Errorf("claim %+v", got.Spec)
	}
	fixed := w.repo.add("c3", "c2", map[string]string{"class.yaml": strings.Replace(localClass, "true\n", "false\n", 1), "claim.yaml": strings.Replace(claimFile, "1Gi", "3Gi", 1)})
	w.push(fixed)
	if st := w.status(); st.Refused != fixed || !strings.Contains(strings.Join(st.Problems, "\n"), "only dynamically provisioned pvc can be resized") || !strings.Contains(strings.Join(st.Problems, "\n"), "Replace: PersistentVolumeClaim/default/data and Allow-Delete: PersistentVolumeClaim/default/data") {
		t.Errorf("a claim grows in a class that does not let it: %+v", st)
	}

	// A claim is precious: without the trailer nothing goes.
	gone := w.repo.add("c4", "c2", map[string]string{"class.yaml": localClass})
	w.push(gone)
	if st := w.status(); st.Refused != gone || !strings.Contains(strings.Join(st.Problems, "\n"), "PersistentVolumeClaim default/data would be deleted") {
		t.Errorf("the claim may go: %+v", st)
	}
	w.push(w.repo.say(w.repo.add("c5", "c4", map[string]string{"class.yaml": localClass}), "Allow-Delete: PersistentVolumeClaim/default/data"))
	if c := w.claim("data"); c.DeletionTimestamp == nil || !slices.Contains(c.Finalizers, api.ProtectClaim) {
		t.Errorf("the claim does not wait for who uses it: %+v", c.ObjectMeta)
	}
}

// Of a volume and a claim that name each other, what the binding adds is no drift.
func TestBoundByHandIsNoDrift(t *testing.T) {
	w := newWorld(t)
	w.applied(w.repo.add("c1", "", map[string]string{
		"v.yaml": "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /data}, claimRef: {namespace: default, name: data}}\n",
		"c.yaml": strings.Replace(claimFile, "spec: {", "spec: {volumeName: v, storageClassName: '', ", 1),
	}))
	volume, claim, err := binding.Bind(w.get("persistentvolumes", "", "v").(*corev1.PersistentVolume), w.claim("data"))
	if err != nil {
		t.Fatal(err)
	}
	w.write(store.Update, volume)
	w.write(store.Update, claim)
	w.settle()
	live := w.get("persistentvolumes", "", "v").(*corev1.PersistentVolume)
	if live.ResourceVersion != volume.ResourceVersion || w.claim("data").ResourceVersion != claim.ResourceVersion || live.Spec.ClaimRef.UID != claim.UID {
		t.Errorf("the binding was healed away: %+v, %+v", live.Spec.ClaimRef, w.claim("data"))
	}
	if state, why := Health(live, w.st); state != Healthy || why != "bound to default/data" {
		t.Errorf("%s: %s", state, why)
	}
	if state, why := Health(w.claim("data"), w.st); state != Healthy || why != "bound to v" {
		t.Errorf("%s: %s", state, why)
	}
}

// A StatefulSet's claims are not the source's to prune. They go with the set only where
// its policy says so, and then not without being asked for (R3).
func TestR3_ClaimsOfASet(t *testing.T) {
	for _, policy := range []string{"Retain", "Delete"} {
		w := newWorld(t)
		files := map[string]string{"class.yaml": localClass, "db.yaml": setFile + "  persistentVolumeClaimRetentionPolicy: {whenDeleted: " + policy + "}\n"}
		w.applied(w.repo.add("c1", "", files))
		set := w.get("statefulsets", "default", "db")
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-db-0", UID: "u"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
		if policy == "Delete" {
			yes := true
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: set.GetUID(), Controller: &yes}}
		}
		w.write(store.Create, claim)
		w.settle()
		scaled := int32(5)
		w.change("statefulsets", "default", "db", func(o api.Object) { o.(*appsv1.StatefulSet).Spec.Replicas = &scaled })
		w.settle() // undeclared, it stays; and what is declared is compared without trouble
		before := w.versions()
		w.settle()
		for name, version := range w.versions() {
			if before[name] != version {
				t.Errorf("%s is written again", name)
			}
		}

		other := w.repo.add("c2", "c1", map[string]string{"class.yaml": localClass, "db.yaml": strings.Replace(files["db.yaml"], "1Gi", "2Gi", 1)})
		w.push(other)
		if st := w.status(); st.Refused != other || !strings.Contains(strings.Join(st.Problems, "\n"), "the claims that were made of volumeClaimTemplates keep their size and class also then") {
			t.Errorf("other templates: %+v", st)
		}

		gone := w.repo.add("c3", "c1", map[string]string{"class.yaml": localClass})
		w.push(gone)
		st := w.status()
		if policy == "Retain" {
			if st.Applied != gone || w.claim("data-db-0").DeletionTimestamp != nil {
				t.Errorf("%s: %+v", policy, st)
			}
			continue
		}
		if st.Refused != gone || !strings.Contains(strings.Join(st.Problems, "\n"), "StatefulSet default/db would be deleted, and with it PersistentVolumeClaim default/data-db-0") {
			t.Errorf("%s: %+v", policy, st)
		}
		w.applied(w.repo.say(w.repo.add("c4", "c3", map[string]string{"class.yaml": localClass}), "Allow-Delete: StatefulSet/default/db"))
	}
}

// A claim is healthy when nobody has to do anything for it.
func TestClaimHealth(t *testing.T) {
	w := newWorld(t)
	wait, now := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	w.write(store.Create, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: api.LocalProvisioner, VolumeBindingMode: &wait})
	w.write(store.Create, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "ebs"}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &wait})
	w.write(store.Create, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: api.NoProvisioner, VolumeBindingMode: &now})
	storetest.Settle(t, w.st)
	for _, c := range []struct {
		class, volume string
		phase         corev1.PersistentVolumeClaimPhase
		bound         bool
		state         State
		why           string
	}{
		{"local", "", corev1.ClaimPending, false, Healthy, "waiting for its first pod"},
		{"local", "v", corev1.ClaimBound, true, Healthy, "bound to v"},
		{"local", "v", corev1.ClaimLost, true, Failed, "its volume v is gone, and the data with it"},
		{"ebs", "", corev1.ClaimPending, false, Progressing, "waiting for a PersistentVolume of class ebs: no driver ebs.csi.aws.com is run"},
		{"disks", "", corev1.ClaimPending, false, Progressing, "waiting for a PersistentVolume of class disks"},
		{"gone", "", corev1.ClaimPending, false, Progressing, "waiting for a PersistentVolume of class gone: there is no StorageClass of this name"},
		{"", "", corev1.ClaimPending, false, Progressing, "waiting for a PersistentVolume without a class"},
		{"", "v", corev1.ClaimPending, false, Progressing, "waiting for volume v"},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &c.class, VolumeName: c.volume}, Status: corev1.PersistentVolumeClaimStatus{Phase: c.phase}}
		if c.bound {
			claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		}
		if state, why := Health(claim, w.st); state != c.state || why != c.why {
			t.Errorf("%s: %s, want %s: %s", state, why, c.state, c.why)
		}
	}
	if got := len(w.st.List(api.StorageClasses(), "")); got != 3 {
		t.Errorf("%d classes", got)
	}
	failed := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeFailed, Message: "so"}}
	if state, why := Health(failed, w.st); state != Failed || why != "so" {
		t.Errorf("%s: %s", state, why)
	}
}
