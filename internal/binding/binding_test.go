package binding

import (
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type volumeChange func(*corev1.PersistentVolume)

func aVolume(name, size string, change ...volumeChange) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:         corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		StorageClassName: "slow",
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}}
	for _, c := range change {
		c(v)
	}
	return v
}

func of(claim string, uid types.UID) volumeChange {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: claim, UID: uid}
	}
}

func aClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := "slow"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "u1"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class,
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
	}}
	for _, c := range change {
		c(claim)
	}
	return claim
}

// A claim gets the smallest volume that has what it asks for, and one that names it
// before all others.
func TestCandidates(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	released := func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased }
	volumes := []*corev1.PersistentVolume{
		aVolume("large", "9Gi"), aVolume("fitting", "2Gi"), aVolume("middle", "3Gi", func(v *corev1.PersistentVolume) { v.Labels = map[string]string{"disk": "ssd"} }),
		aVolume("small", "1Gi"), aVolume("taken", "2Gi", of("other", "u2")), aVolume("released", "2Gi", of("c", "u0"), released),
		aVolume("other-class", "2Gi", func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "" }),
		aVolume("other-mode", "2Gi", func(v *corev1.PersistentVolume) {
			v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}),
		aVolume("block", "2Gi", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = &block }),
		aVolume("going", "2Gi", func(v *corev1.PersistentVolume) { v.DeletionTimestamp = &metav1.Time{} }),
		aVolume("failed", "2Gi", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeFailed }),
	}
	mine := slices.Concat(volumes, []*corev1.PersistentVolume{aVolume("mine", "8Gi", of("c", ""))})
	for _, c := range []struct {
		name    string
		claim   *corev1.PersistentVolumeClaim
		volumes []*corev1.PersistentVolume
		want    string
	}{
		{"the smallest first", aClaim(), volumes, "fitting middle large"},
		{"its selector", aClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}}
		}), volumes, "middle"},
		{"no class", aClaim(func(c *corev1.PersistentVolumeClaim) { *c.Spec.StorageClassName = "" }), volumes, "other-class"},
		{"another access mode", aClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}), volumes, "other-mode"},
		{"one that names it", aClaim(), mine, "mine"},
		{"one that names an earlier claim of its name", aClaim(), []*corev1.PersistentVolume{aVolume("mine", "8Gi", of("c", "u0"))}, ""},
	} {
		got, err := Candidates(c.claim, c.volumes)
		if err != nil || names(got) != c.want {
			t.Errorf("%s: %q (%v), want %q", c.name, names(got), err, c.want)
		}
	}
	bad := aClaim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Sometimes"}}}
	})
	if _, err := Candidates(bad, volumes); err == nil {
		t.Error("a selector that cannot be read selects")
	}
}

func names(list []*corev1.PersistentVolume) string {
	var out []string
	for _, v := range list {
		out = append(out, v.Name)
	}
	return strings.Join(out, " ")
}

// Both sides say the same once they are bound.
func TestBind(t *testing.T) {
	v, claim := aVolume("v", "3Gi"), aClaim()
	volume, bound, err := Bind(v, claim)
	if err != nil {
		t.Fatal(err)
	}
	switch ref := volume.Spec.ClaimRef; {
	case ref == nil || ref.UID != "u1" || ref.Name != "c" || ref.Namespace != "default" || ref.Kind != "PersistentVolumeClaim" || ref.APIVersion != "v1":
		t.Errorf("claimRef %v", ref)
	case volume.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes", bound.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes", bound.Annotations["pv.kubernetes.io/bind-completed"] != "yes":
		t.Errorf("annotations %v and %v", volume.Annotations, bound.Annotations)
	case volume.Status.Phase != corev1.VolumeBound || bound.Status.Phase != corev1.ClaimBound || bound.Status.Capacity.Storage().String() != "3Gi" || len(bound.Status.AccessModes) != 1:
		t.Errorf("status %v and %v", volume.Status, bound.Status)
	case !slices.Contains(volume.Finalizers, api.ProtectVolume) || !slices.Contains(bound.Finalizers, api.ProtectClaim):
		t.Errorf("finalizers %v and %v", volume.Finalizers, bound.Finalizers)
	case !Holds(volume, bound) || Holds(v, claim) || Holds(volume, claim):
		t.Error("what is bound is not told from what is not")
	}
	if v.Spec.ClaimRef != nil || claim.Spec.VolumeName != "" || len(claim.Annotations)+len(v.Annotations) > 0 {
		t.Error("an argument was changed")
	}
	// By hand on both sides, nobody claims to have done it.
	volume, bound, err = Bind(aVolume("v", "3Gi", of("c", "")), aClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }))
	if err != nil || len(volume.Annotations) > 0 || len(bound.Annotations) != 1 || volume.Spec.ClaimRef.UID != "u1" {
		t.Errorf("%v, %v, %v", volume, bound, err)
	}
}

// A volume that is made for a claim passes Kubernetes' validation and is on the node.
func TestProvision(t *testing.T) {
	retain := corev1.PersistentVolumeReclaimRetain
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: api.LocalProvisioner, ReclaimPolicy: &retain}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{api.VolumesDirAnnotation: "/var/lib/headway/volumes"}}}
	claim := aClaim()
	claim.UID = "6f1c0f6e-2b7a-4d43-9a53-0a8f5b0c6d11"
	volume, bound, err := Provision(claim, class, node)
	if err != nil {
		t.Fatal(err)
	}
	if errs := api.Validate(volume); len(errs) > 0 {
		t.Errorf("the volume is invalid: %v", errs)
	}
	s := volume.Spec
	if s.Local.Path != "/var/lib/headway/volumes/pvc-"+string(claim.UID) || s.PersistentVolumeReclaimPolicy != retain || api.LocalVolumeNode(volume) != "n1" || s.Capacity.Storage().String() != "2Gi" || !Holds(volume, bound) {
		t.Errorf("volume %v, claim %v", volume, bound)
	}
	if got := strings.Join(volume.Finalizers, " "); got != api.ProtectVolume+" "+api.LocalVolumeFinalizer {
		t.Errorf("finalizers %s", got)
	}
	if bound.Annotations["volume.kubernetes.io/selected-node"] != "n1" {
		t.Errorf("annotations %v", bound.Annotations)
	}
}

func TestAllows(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "a", "disk": "ssd"}}}
	term := func(pairs ...string) (t corev1.TopologySelectorTerm) {
		for _, p := range pairs {
			key, values, _ := strings.Cut(p, "=")
			t.MatchLabelExpressions = append(t.MatchLabelExpressions, corev1.TopologySelectorLabelRequirement{Key: key, Values: strings.Split(values, ",")})
		}
		return t
	}
	for _, c := range []struct {
		terms []corev1.TopologySelectorTerm
		want  bool
	}{
		{nil, true},
		{[]corev1.TopologySelectorTerm{term("zone=a,b", "disk=ssd")}, true},
		{[]corev1.TopologySelectorTerm{term("zone=a", "disk=hdd")}, false},
		{[]corev1.TopologySelectorTerm{term("zone=b"), term("zone=a")}, true},
		{[]corev1.TopologySelectorTerm{term("rack=1")}, false},
	} {
		if got := Allows(&storagev1.StorageClass{AllowedTopologies: c.terms}, node); got != c.want {
			t.Errorf("%v: %v", c.terms, got)
		}
	}
}
