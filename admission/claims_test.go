package admission

import (
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func classNamed(name string, age int, isDefault, grows bool) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0))}, AllowVolumeExpansion: &grows}
	if isDefault {
		c.Annotations = map[string]string{DefaultClassAnnotation: "true"}
	}
	return c
}

// "If more than one default StorageClass is set, the most recently created is used" —
// and of equally old ones the first by name.
func TestDefaultClass(t *testing.T) {
	for _, c := range []struct {
		classes []*storagev1.StorageClass
		want    string
	}{
		{nil, ""},
		{[]*storagev1.StorageClass{classNamed("a", 0, false, false)}, ""},
		{[]*storagev1.StorageClass{classNamed("a", 5, true, false), classNamed("b", 1, true, false), classNamed("c", 9, true, false), classNamed("d", 0, false, false)}, "b"},
		{[]*storagev1.StorageClass{classNamed("b", 1, true, false), classNamed("a", 1, true, false)}, "a"},
	} {
		got := ""
		if class := DefaultClass(c.classes); class != nil {
			got = class.Name
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A new claim gets the default class when it names none, and both claims and volumes
// are protected; the request is not changed.
func TestClaimsAreCompleted(t *testing.T) {
	f := Facts{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, StorageClasses: []api.Object{classNamed("local", 1, true, true)}}
	none, other := "", "other"
	for _, c := range []struct {
		class      *string
		annotation string
		want       string
	}{{nil, "", "local"}, {&none, "", ""}, {&other, "", "other"}, {nil, "old", "nil"}} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: c.class}}
		if c.annotation != "" {
			claim.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: c.annotation}
		}
		out, err := Admit(Request{Verb: Create, Object: claim}, f)
		if err != nil {
			t.Fatal(err)
		}
		got := "nil"
		if name := out.(*corev1.PersistentVolumeClaim).Spec.StorageClassName; name != nil {
			got = *name
		}
		if got != c.want || strings.Join(out.GetFinalizers(), " ") != "kubernetes.io/pvc-protection" {
			t.Errorf("class %q, want %q, finalizers %v", got, c.want, out.GetFinalizers())
		}
		if claim.Spec.StorageClassName != c.class || len(claim.Finalizers) > 0 {
			t.Error("the request was changed")
		}
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	out, err := Admit(Request{Verb: Create, Object: volume}, f)
	if err != nil || strings.Join(out.GetFinalizers(), " ") != "kubernetes.io/pv-protection" || len(volume.Finalizers) > 0 {
		t.Errorf("%v, %v", out, err)
	}
}

// A claim grows only when it is bound and its class lets its volumes grow, as Kubernetes'
// admission has it.
func TestResize(t *testing.T) {
	f := Facts{StorageClasses: []api.Object{classNamed("grows", 1, false, true), classNamed("stays", 1, false, false)}}
	claim := func(class, size string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	}
	for _, c := range []struct {
		old, new *corev1.PersistentVolumeClaim
		want     string
	}{
		{claim("grows", "1Gi", corev1.ClaimBound), claim("grows", "2Gi", corev1.ClaimBound), ""},
		{claim("stays", "1Gi", corev1.ClaimBound), claim("stays", "1Gi", corev1.ClaimBound), ""},
		{claim("stays", "1Gi", corev1.ClaimBound), claim("stays", "2Gi", corev1.ClaimBound), "the storageclass that provisions the pvc must support resize"},
		{claim("", "1Gi", corev1.ClaimBound), claim("", "2Gi", corev1.ClaimBound), "only dynamically provisioned pvc can be resized"},
		{claim("grows", "1Gi", corev1.ClaimPending), claim("grows", "2Gi", corev1.ClaimPending), "Only bound persistent volume claims can be expanded"},
	} {
		_, err := Admit(Request{Verb: Update, Object: c.new, Old: c.old}, f)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
