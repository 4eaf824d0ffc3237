package persistentvolume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
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
	now  time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, st: storetest.Open(t), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
	w.st.OnEvents(w.loop.Handle)
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
	w.t.Helper()
	for range 1000 {
		if !w.loop.Step(context.Background()) {
			return
		}
		storetest.Settle(w.t, w.st)
	}
	w.t.Fatal("the loop does not come to rest")
}

type pvChange = func(*corev1.PersistentVolume)
type claimChange = func(*corev1.PersistentVolumeClaim)

func (w *world) volume(name, size string, change ...pvChange) {
	w.t.Helper()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}}
	for _, c := range change {
		c(v)
	}
	w.commit(store.Create, v)
}

func (w *world) claim(name, class string, change ...claimChange) {
	w.t.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	for _, f := range change {
		f(c)
	}
	w.commit(store.Create, c)
}

func (w *world) class(name, provisioner string, mode storagev1.VolumeBindingMode, change ...func(*storagev1.StorageClass)) {
	w.t.Helper()
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(w.now)}, Provisioner: provisioner, VolumeBindingMode: &mode}
	for _, f := range change {
		f(c)
	}
	w.commit(store.Create, c)
}

func isDefault(c *storagev1.StorageClass) {
	c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
}

func (w *world) getVolume(name string) *corev1.PersistentVolume {
	v, _ := w.st.Get(volumeKey(name)).(*corev1.PersistentVolume)
	return v.DeepCopy()
}

func (w *world) getClaim(name string) *corev1.PersistentVolumeClaim {
	c, _ := w.st.Get(claimKey("default", name)).(*corev1.PersistentVolumeClaim)
	return c.DeepCopy()
}

// mark deletes an object as the API does.
func (w *world) mark(obj api.Object) {
	w.t.Helper()
	obj.SetDeletionTimestamp(&metav1.Time{Time: w.now})
	w.commit(store.Update, obj)
}

// provisioned makes a claim with the volume that the scheduler makes for it.
func (w *world) provisioned(claim string, policy corev1.PersistentVolumeReclaimPolicy) string {
	w.t.Helper()
	class := "made-" + strings.ToLower(string(policy))
	if w.st.Get(store.Key{GroupResource: api.StorageClasses(), Name: class}) == nil {
		grows := true
		w.class(class, api.LocalProvisioner, storagev1.VolumeBindingWaitForFirstConsumer, func(c *storagev1.StorageClass) { c.ReclaimPolicy, c.AllowVolumeExpansion = &policy, &grows })
	}
	w.claim(claim, class)
	live := w.st.Get(store.Key{GroupResource: api.StorageClasses(), Name: class}).(*storagev1.StorageClass)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{api.VolumesDirAnnotation: "/volumes"}}}
	if w.st.Get(store.KeyOf(node)) == nil {
		w.commit(store.Create, node)
	}
	volume, bound, err := binding.Provision(w.getClaim(claim), live, node)
	if err != nil {
		w.t.Fatal(err)
	}
	volume.UID = types.UID("uid-" + volume.Name)
	w.commit(store.Create, volume)
	w.commit(store.Update, bound)
	return volume.Name
}

// state is one line about each volume and claim.
func (w *world) state() string {
	var out []string
	for _, obj := range w.st.List(api.PersistentVolumes(), "") {
		v := obj.(*corev1.PersistentVolume)
		line := fmt.Sprintf("%s %s", v.Name, v.Status.Phase)
		if v.Spec.ClaimRef != nil {
			line += " of " + v.Spec.ClaimRef.Name
		}
		if v.DeletionTimestamp != nil {
			line += " going"
		}
		out = append(out, line)
	}
	for _, obj := range w.st.List(api.PersistentVolumeClaims(), "") {
		c := obj.(*corev1.PersistentVolumeClaim)
		line := fmt.Sprintf("%s %s", c.Name, c.Status.Phase)
		if c.Spec.VolumeName != "" {
			line += " by " + c.Spec.VolumeName
		}
		if c.DeletionTimestamp != nil {
			line += " going"
		}
		out = append(out, line)
	}
	return strings.Join(out, ", ")
}

func (w *world) expect(want string) {
	w.t.Helper()
	w.run()
	if got := w.state(); got != want {
		w.t.Errorf("got  %s\nwant %s", got, want)
	}
}

func (w *world) told(name string) string {
	var out []string
	for _, ns := range []string{"default", ""} {
		for _, obj := range w.st.List(api.Events(), ns) {
			if e := obj.(*corev1.Event); e.InvolvedObject.Name == name && !slices.Contains(out, e.Reason+": "+e.Message) {
				out = append(out, e.Reason+": "+e.Message)
			}
		}
	}
	return strings.Join(out, "; ")
}

// The smallest volume that fits is bound, both sides at once, and the same one is not
// given twice.
func TestBinding(t *testing.T) {
	w := newWorld(t)
	w.volume("large", "9Gi")
	w.volume("small", "2Gi")
	w.expect("large Available, small Available")
	w.claim("a", "")
	w.claim("b", "")
	w.claim("c", "")
	w.expect("large Bound of b, small Bound of a, a Bound by small, b Bound by large, c Pending")
	if got := w.told("c"); got != "FailedBinding: no persistent volumes available for this claim and no storage class is set" {
		t.Errorf("told %q", got)
	}
	a, small := w.getClaim("a"), w.getVolume("small")
	if a.Status.Capacity.Storage().String() != "2Gi" || !slices.Contains(a.Finalizers, api.ProtectClaim) || !slices.Contains(small.Finalizers, api.ProtectVolume) || small.Spec.ClaimRef.UID != a.UID {
		t.Errorf("claim %+v, volume %+v", a, small)
	}
	if a.ResourceVersion != small.ResourceVersion {
		t.Errorf("bound in two writes: %s and %s", a.ResourceVersion, small.ResourceVersion)
	}
	w.volume("late", "1Gi")
	w.expect("large Bound of b, late Bound of c, small Bound of a, a Bound by small, b Bound by large, c Bound by late")
	before := w.st.Revision()
	w.now = w.now.Add(24 * time.Hour)
	w.run()
	if w.st.Revision() != before {
		t.Error("what is right is written again")
	}
}

// A claim that names a volume, and a volume that names a claim, get each other or nobody.
func TestPreBinding(t *testing.T) {
	w := newWorld(t)
	w.volume("mine", "9Gi", func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "a"}
	})
	w.volume("other", "1Gi")
	w.claim("a", "")
	w.claim("b", "", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "mine" })
	w.claim("c", "", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "tiny" })
	w.claim("d", "", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "nowhere" })
	w.volume("tiny", "1Mi", func(v *corev1.PersistentVolume) { v.Labels = map[string]string{"a": "b"} })
	w.expect("mine Bound of a, other Available, tiny Available, a Bound by mine, b Pending by mine, c Pending by tiny, d Pending by nowhere")
	for name, want := range map[string]string{
		"b": `FailedBinding: volume "mine" already bound to a different claim.`,
		"c": `VolumeMismatch: Cannot bind to requested volume "tiny": requested PV is too small`,
		"d": `FailedBinding: volume "nowhere" not found`,
	} {
		if got := w.told(name); !strings.Contains(got, want) {
			t.Errorf("%s: told %q", name, got)
		}
	}
	w.volume("nowhere", "1Gi")
	w.expect("mine Bound of a, nowhere Bound of d, other Available, tiny Available, a Bound by mine, b Pending by mine, c Pending by tiny, d Bound by nowhere")
}

// Claims wait as their classes say, and are told why.
func TestWaiting(t *testing.T) {
	w := newWorld(t)
	w.class("wait", api.LocalProvisioner, storagev1.VolumeBindingWaitForFirstConsumer)
	w.class("ebs", "ebs.csi.aws.com", storagev1.VolumeBindingImmediate)
	w.class("disks", api.NoProvisioner, storagev1.VolumeBindingImmediate)
	w.volume("v", "9Gi", func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "wait" })
	w.claim("a", "wait")
	w.claim("b", "ebs")
	w.claim("c", "disks")
	w.claim("d", "unknown")
	w.expect("v Available, a Pending, b Pending, c Pending, d Pending")
	for name, want := range map[string]string{
		"a": "WaitForFirstConsumer: waiting for first consumer to be created before binding",
		"b": `ProvisioningFailed: StorageClass "ebs": no driver ebs.csi.aws.com is run`,
		"c": "ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner",
		"d": `ProvisioningFailed: storageclass.storage.k8s.io "unknown" not found`,
	} {
		if got := w.told(name); !strings.Contains(got, want) || strings.Contains(got, ";") {
			t.Errorf("%s: told %q", name, got)
		}
	}
	w.volume("meant", "9Gi", func(v *corev1.PersistentVolume) {
		v.Spec.StorageClassName, v.Spec.ClaimRef = "wait", &corev1.ObjectReference{Namespace: "default", Name: "a"}
	})
	w.expect("meant Bound of a, v Available, a Bound by meant, b Pending, c Pending, d Pending")
}

// The class local is there, and the default unless another class is.
func TestLocalClass(t *testing.T) {
	for _, other := range []bool{false, true} {
		w := newWorld(t)
		if other {
			w.class("fast", "example.org/fast", storagev1.VolumeBindingImmediate, isDefault)
		}
		w.run()
		class, ok := w.st.Get(localClass()).(*storagev1.StorageClass)
		if !ok || class.UID == "" || class.Provisioner != api.LocalProvisioner || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer || *class.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			t.Fatalf("class %+v", class)
		}
		if got := class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"; got == other {
			t.Errorf("default %v although another one is: %v", got, other)
		}
		if errs := append(api.Validate(class), api.Unsupported(class)...); len(errs) > 0 {
			t.Errorf("it could not be declared: %v", errs)
		}
		w.commit(store.Delete, class)
		w.run()
		if w.st.Get(localClass()) == nil {
			t.Error("it is not made again")
		}
	}
}

// A claim that was there before there was a default class gets it when it comes; one
// that asks for none never does.
func TestDefaultClassLater(t *testing.T) {
	w := newWorld(t)
	w.class(api.LocalClass, api.LocalProvisioner, storagev1.VolumeBindingWaitForFirstConsumer)
	w.claim("a", "", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil })
	w.claim("b", "")
	w.run()
	if c := w.getClaim("a"); c.Spec.StorageClassName != nil {
		t.Fatalf("class %q", *c.Spec.StorageClassName)
	}
	w.class("old", "example.org/old", storagev1.VolumeBindingImmediate, isDefault)
	w.now = w.now.Add(time.Hour)
	w.class("new", api.LocalProvisioner, storagev1.VolumeBindingWaitForFirstConsumer, isDefault)
	w.run()
	if c := w.getClaim("a"); c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != "new" {
		t.Errorf("class %v", c.Spec.StorageClassName)
	}
	if c := w.getClaim("b"); *c.Spec.StorageClassName != "" {
		t.Errorf("class %q", *c.Spec.StorageClassName)
	}
}

// A claim that is being deleted stays while a pod on a node uses it, and its volume then
// does what its policy says.
func TestReclaim(t *testing.T) {
	w := newWorld(t)
	w.volume("kept", "1Gi")
	w.volume("by-hand", "1Gi", func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	w.claim("a", "")
	w.claim("b", "")
	made, retained := w.provisioned("c", corev1.PersistentVolumeReclaimDelete), w.provisioned("d", corev1.PersistentVolumeReclaimRetain)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	for _, claim := range []string{"a", "b", "c", "d"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	w.commit(store.Create, pod)
	waiting := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "waiting", UID: "waiting"}, Spec: corev1.PodSpec{Volumes: pod.Spec.Volumes}}
	w.commit(store.Create, waiting)
	w.run()
	for _, claim := range []string{"a", "b", "c", "d"} {
		w.mark(w.getClaim(claim))
	}
	w.expect("by-hand Bound of a, kept Bound of b, " + made + " Bound of c, " + retained + " Bound of d, a Bound by by-hand going, b Bound by kept going, c Bound by " + made + " going, d Bound by " + retained + " going")
	w.commit(store.Delete, w.st.Get(store.KeyOf(pod)))
	w.expect("by-hand Failed of a, kept Released of b, " + made + " Released of c going, " + retained + " Released of d")
	if got := strings.Join(w.getVolume(made).Finalizers, " "); got != api.LocalVolumeFinalizer {
		t.Errorf("its node's agent is not waited for: %s", got)
	}
	if got := w.told("by-hand"); !strings.Contains(got, "VolumeFailedDelete: no deletable volume plugin matched") {
		t.Errorf("told %q", got)
	}
	// A claim of the same name is another one.
	w.claim("b", "", func(c *corev1.PersistentVolumeClaim) { c.UID = "uid-b2" })
	w.expect("by-hand Failed of a, kept Released of b, " + made + " Released of c going, " + retained + " Released of d, b Pending")
	// Who has looked at the data gives the volume free.
	kept := w.getVolume("kept")
	kept.Spec.ClaimRef = nil
	w.commit(store.Update, kept)
	w.expect("by-hand Failed of a, kept Bound of b, " + made + " Released of c going, " + retained + " Released of d, b Bound by kept")
}

// A volume that is deleted while a claim has it stays until the claim is gone.
func TestVolumeInUse(t *testing.T) {
	w := newWorld(t)
	w.volume("v", "1Gi")
	w.claim("a", "")
	w.run()
	w.mark(w.getVolume("v"))
	w.expect("v Bound of a going, a Bound by v")
	w.mark(w.getClaim("a"))
	w.expect("")
}

// A volume whose node is gone for good does not wait for it.
func TestNodeGone(t *testing.T) {
	w := newWorld(t)
	name := w.provisioned("a", corev1.PersistentVolumeReclaimDelete)
	w.run()
	w.mark(w.getClaim("a"))
	w.expect(name + " Released of a going")
	w.commit(store.Delete, w.st.Get(store.Key{GroupResource: api.Nodes(), Name: "n1"}))
	w.expect("")
	if got := w.told(name); !strings.Contains(got, "node n1 is gone") {
		t.Errorf("told %q", got)
	}
}

// A claim whose volume is gone, or is another's, is Lost.
func TestLost(t *testing.T) {
	w := newWorld(t)
	w.volume("v", "1Gi")
	w.volume("w", "1Gi")
	w.claim("a", "")
	w.claim("b", "")
	w.expect("v Bound of a, w Bound of b, a Bound by v, b Bound by w")
	w.commit(store.Delete, w.getVolume("v"))
	stolen := w.getVolume("w")
	stolen.Spec.ClaimRef.UID = "another"
	w.commit(store.Update, stolen)
	w.expect("w Released of b, a Lost by v, b Lost by w")
	if got := w.told("a"); !strings.Contains(got, "ClaimLost: Bound claim has lost its PersistentVolume. Any data on the volume is lost!") {
		t.Errorf("told %q", got)
	}
	if got := w.told("b"); !strings.Contains(got, "ClaimMisbound: Two claims are bound to the same volume") {
		t.Errorf("told %q", got)
	}
	w.volume("v", "1Gi", func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "a", UID: "uid-a"}
	})
	w.expect("v Bound of a, w Released of b, a Bound by v, b Lost by w")
}

// A claim that asks for more gets it where the class lets volumes grow.
func TestResize(t *testing.T) {
	w := newWorld(t)
	name := w.provisioned("a", corev1.PersistentVolumeReclaimDelete)
	w.run()
	claim := w.getClaim("a")
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("3Gi")
	w.commit(store.Update, claim)
	w.run()
	if c, v := w.getClaim("a"), w.getVolume(name); c.Status.Capacity.Storage().String() != "3Gi" || v.Spec.Capacity.Storage().String() != "3Gi" {
		t.Errorf("claim %v, volume %v", c.Status.Capacity, v.Spec.Capacity)
	}
}
