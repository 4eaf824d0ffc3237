package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// storage does a command about a class, a volume or a claim.
func (w *world) storage(verb, name string, args []string) {
	w.t.Helper()
	claimKey := claimKey("default", name)
	switch verb {
	case "class":
		w.commit(store.Create, aClass(w.t, name, args))
	case "volume":
		w.commit(store.Create, aVolume(w.t, name, args))
	case "claim":
		w.addClaim(name, args)
	case "stop-claim":
		claim := w.st.Get(claimKey).DeepCopyObject().(*corev1.PersistentVolumeClaim)
		claim.DeletionTimestamp = &metav1.Time{Time: w.now}
		w.commit(store.Update, claim)
	case "drop-claim":
		w.commit(store.Delete, w.st.Get(claimKey))
	case "drop-volume":
		w.commit(store.Delete, w.st.Get(store.Key{GroupResource: api.PersistentVolumes(), Name: name}))
	}
}

func aClass(t testing.TB, name string, args []string) *storagev1.StorageClass {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: api.LocalProvisioner}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "immediate":
			mode = storagev1.VolumeBindingImmediate
		case "provisioner":
			class.Provisioner = value
		case "only":
			e := expression(t, value)
			class.AllowedTopologies = append(class.AllowedTopologies, corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: e.Key, Values: e.Values}}})
		default:
			t.Fatalf("unknown argument %q", arg)
		}
	}
	class.VolumeBindingMode = &mode
	return class
}

func aVolume(t testing.TB, name string, args []string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(args[0])},
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/" + name}},
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "class":
			v.Spec.StorageClassName = value
		case "node":
			v.Spec.NodeAffinity = api.LocalVolumeAffinity(value)
		case "for":
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: value}
		default:
			t.Fatalf("unknown argument %q", arg)
		}
	}
	return v
}

func (w *world) addClaim(name string, args []string) {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(args[0])}},
	}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "class":
			claim.Spec.StorageClassName = &value
		case "mode":
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(value)}
		case "volume":
			claim.Spec.VolumeName = value
		case "bound":
			v := w.st.Get(store.Key{GroupResource: api.PersistentVolumes(), Name: claim.Spec.VolumeName}).(*corev1.PersistentVolume)
			volume, bound, err := binding.Bind(v, claim)
			if err != nil {
				w.t.Fatal(err)
			}
			w.commit(store.Update, volume)
			claim = bound
		case "owner":
			yes := true
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: value, UID: w.pod(value).UID, Controller: &yes}}
		case "lost":
			claim.Status.Phase = corev1.ClaimLost
		default:
			w.t.Fatalf("unknown argument %q", arg)
		}
	}
	verb := store.Create
	if live := w.st.Get(store.KeyOf(claim)); live != nil {
		claim.ResourceVersion, verb = live.GetResourceVersion(), store.Update
	}
	w.commit(verb, claim)
}

// claimNews tells which claims have a volume.
func (w *world) claimNews(said map[string]string, out *strings.Builder) {
	for _, obj := range w.st.List(api.PersistentVolumeClaims(), "") {
		claim := obj.(*corev1.PersistentVolumeClaim)
		if name := "claim " + claim.Name; binding.Complete(claim) && said[name] != claim.Spec.VolumeName {
			said[name] = claim.Spec.VolumeName
			fmt.Fprintf(out, "%s: %s\n", name, claim.Spec.VolumeName)
		}
	}
}

// What is provisioned is whole: the claim, its volume and the pod's place are written
// together.
func TestProvisioningIsWhole(t *testing.T) {
	w := newWorld(t)
	for _, line := range []string{"class local", "node n1 volumes", "claim c 1Gi class=local", "pod a claim=c"} {
		w.command(line)
	}
	w.run()
	pod := w.pod("a")
	claim := w.st.Get(claimKey("default", "c")).(*corev1.PersistentVolumeClaim)
	v, ok := w.st.Get(store.Key{GroupResource: api.PersistentVolumes(), Name: "pvc-uid-c"}).(*corev1.PersistentVolume)
	if !ok || pod.Spec.NodeName != "n1" || !binding.Holds(v, claim) || v.UID == "" || v.Spec.Local.Path != "/volumes/pvc-uid-c" || api.LocalVolumeNode(v) != "n1" {
		t.Fatalf("pod on %q, claim %+v, volume %+v", pod.Spec.NodeName, claim.Spec, v)
	}
	if pod.ResourceVersion != claim.ResourceVersion || v.ResourceVersion != claim.ResourceVersion {
		t.Errorf("three writes: pod %s, claim %s, volume %s", pod.ResourceVersion, claim.ResourceVersion, v.ResourceVersion)
	}
	var told bool
	for _, obj := range w.st.List(api.Events(), "default") {
		e := obj.(*corev1.Event)
		told = told || e.Reason == "ProvisioningSucceeded" && e.InvolvedObject.Name == "c" && e.Message == "Successfully provisioned volume pvc-uid-c"
	}
	if !told {
		t.Error("nobody is told")
	}
}

// meddler changes a claim just before a transaction that binds it.
type meddler struct {
	*store.Store
	before func()
}

func (m *meddler) Commit(ctx context.Context, t store.Txn) (int64, error) {
	binds := slices.ContainsFunc(t.Ops, func(op store.Op) bool {
		_, ok := op.Object.(*corev1.PersistentVolumeClaim)
		return ok
	})
	if before := m.before; before != nil && binds {
		m.before = nil
		before()
	}
	return m.Store.Commit(ctx, t)
}

// A claim that changes while its pod is being placed holds up no other pod, and its own
// pod is decided about anew: here it is being deleted.
func TestClaimThatChangesMeanwhile(t *testing.T) {
	w := newWorld(t)
	m := &meddler{Store: w.st}
	w.loop = New(Config{Store: m, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
	w.st.OnEvents(w.loop.Handle)
	for _, line := range []string{"class local", "node n1 volumes", "claim c 1Gi class=local", "claim d 1Gi class=local"} {
		w.command(line)
	}
	m.before = func() { w.command("stop-claim c") }
	for _, line := range []string{"pod a claim=c", "pod b claim=d"} {
		w.command(line)
	}
	for range 20 {
		w.run()
		w.now = w.now.Add(time.Minute)
	}
	if got := w.pod("b").Spec.NodeName; got != "n1" {
		t.Errorf("b is on %q", got)
	}
	if a := w.pod("a"); a.Spec.NodeName != "" || !strings.Contains(a.Status.Conditions[0].Message, `persistentvolumeclaim "c" is being deleted`) {
		t.Errorf("a is on %q: %v", a.Spec.NodeName, a.Status.Conditions)
	}
	if got := len(w.st.List(api.PersistentVolumes(), "")); got != 1 {
		t.Errorf("%d volumes were made", got)
	}
}

// A pod that was read before its claim was given another volume is not placed by the
// claim of before.
func TestBoundClaimIsACondition(t *testing.T) {
	w := newWorld(t)
	for _, line := range []string{"node n1", "volume v 1Gi node=n1", "claim c 1Gi class= volume=v bound", "pod a claim=c"} {
		w.command(line)
	}
	b := newView(w.st).look()
	decisions := plan(b, []*corev1.Pod{w.pod("a")})
	if len(decisions) != 1 || decisions[0].node == nil || len(decisions[0].held) != 1 {
		t.Fatalf("%+v", decisions)
	}
	s := &scheduler{Config: Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }}, view: newView(w.st)}
	txn := s.transaction(decisions, false)
	w.command("stop-claim c")
	if _, err := w.st.Commit(context.Background(), txn); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the pod is placed all the same: %v", err)
	}
}
