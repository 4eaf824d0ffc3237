package deployment

import (
	"slices"
	"testing"

	"headway.dev/headway/internal/podset"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func declaredMap(hash string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}, Data: map[string]string{"color": "red"}}
	api.SetProvenance(cm, api.Provenance{Source: "main", Commit: "c1", Path: "a.yaml", Line: 1, Hash: hash})
	return cm
}

// configured is a rolled-out deployment that reads the ConfigMap settings.
func configured(t *testing.T) *world {
	w := newWorld(t, t)
	w.Create(declaredMap("hash-of-the-first-manifest"))
	d := web(2, "1", "0")
	d.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	w.Create(d)
	w.work()
	w.see("1:2/2/2")
	return w
}

func (w *world) settings() *corev1.ConfigMap {
	return w.Store.Get(store.Key{GroupResource: api.ConfigMaps(), Namespace: "shop", Name: "settings"}).(*corev1.ConfigMap).DeepCopy()
}

func (w *world) commitSettings(hash string) {
	cm := w.settings()
	api.SetProvenance(cm, api.Provenance{Source: "main", Commit: "c2", Path: "a.yaml", Line: 1, Hash: hash})
	w.Update(cm)
}

func TestACommitThatChangesAConfigMapRolls(t *testing.T) {
	w := configured(t)
	first := w.sets()[0].Name
	w.commitSettings("another-manifest")
	w.work()
	w.see("1:0/0/0 2:2/2/2")
	w.commitSettings("hash-of-the-first-manifest") // git revert
	w.work()
	w.see("2:0/0/0 3:2/2/2")
	if got := w.sets()[1].Name; got != first {
		t.Errorf("the revert runs %s, want the first set, %s", got, first)
	}
}

func TestAHandEditOfAConfigMapRollsNothing(t *testing.T) {
	w := configured(t)
	before := w.Commits
	cm := w.settings()
	cm.Data["color"] = "blue"
	w.Update(cm)
	w.work()
	w.see("1:2/2/2")
	if w.Commits != before {
		t.Errorf("%d transactions", w.Commits-before)
	}
}

func TestAMissingOrOlderRecordIsFilledInAndRollsNothing(t *testing.T) {
	for name, record := range map[string]string{"missing": "", "older": "v0:something=else", "garbled": "v1"} {
		t.Run(name, func(t *testing.T) {
			w := configured(t)
			want := w.sets()[0].Annotations[podset.AnnotationRefs]
			if want != "v1:configmap/settings=hash-of-the-firs" {
				t.Fatalf("record %q", want)
			}
			rs := w.sets()[0].DeepCopy()
			rs.Annotations[podset.AnnotationRefs] = record
			w.Update(rs)
			w.work()
			w.see("1:2/2/2")
			if got := w.sets()[0].Annotations[podset.AnnotationRefs]; got != want {
				t.Errorf("record %q, want %q", got, want)
			}
		})
	}
}

func TestAConfigMapThatComesLateRollsNothing(t *testing.T) {
	w := configured(t)
	w.change(func(d *appsv1.Deployment) {
		from := &d.Spec.Template.Spec.Containers[0].EnvFrom
		*from = append(*from, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}})
	})
	w.work()
	w.see("1:0/0/0 2:2/2/2")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "keys"}}
	api.SetProvenance(secret, api.Provenance{Source: "main", Hash: "s1"})
	w.Create(secret)
	w.work()
	w.see("1:0/0/0 2:2/2/2")
	if got := w.sets()[1].Annotations[podset.AnnotationRefs]; got != "v1:configmap/settings=hash-of-the-firs,secret/keys=s1" {
		t.Errorf("record %q", got)
	}
}

func TestEveryPlaceThatNamesContentCounts(t *testing.T) {
	name := func(n string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: n} }
	spec := &corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{name("pull")},
		InitContainers:   []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name("a")}}}}},
		Containers: []corev1.Container{{Env: []corev1.EnvVar{
			{Name: "x", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name("b")}}},
			{Name: "y", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name("c")}}},
			{Name: "z", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		}, EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name("b")}}}}},
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: name("d")}}},
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "e"}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name("f")}}, {Secret: &corev1.SecretProjection{LocalObjectReference: name("g")}}}}}},
		},
	}
	want := []string{"configmap/b", "configmap/d", "configmap/f", "secret/a", "secret/c", "secret/e", "secret/g"}
	if got := podset.RefNames(spec); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
