package server

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// StatefulSets, DaemonSets and their ControllerRevisions are served by Kubernetes'
// registries: status and scale apart, columns, and a history as kubectl reads it.
func TestSets(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	apps := f.admin.AppsV1()
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	s, err := apps.StatefulSets("default").Create(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{ServiceName: "db", Selector: selector, Template: template}}, metav1.CreateOptions{})
	must(t, err)
	if u := s.Spec.UpdateStrategy.RollingUpdate; s.Generation != 1 || *s.Spec.Replicas != 1 || u == nil || u.MaxUnavailable == nil || u.MaxUnavailable.IntValue() != 1 {
		t.Errorf("created %+v", s)
	}
	s.Status.Replicas, s.Spec.MinReadySeconds = 1, 9
	s, err = apps.StatefulSets("default").UpdateStatus(ctx, s, metav1.UpdateOptions{})
	must(t, err)
	if s.Status.Replicas != 1 || s.Spec.MinReadySeconds != 0 || s.Generation != 1 {
		t.Errorf("a status update changes the status alone: %+v", s)
	}
	scale, err := apps.StatefulSets("default").GetScale(ctx, "db", metav1.GetOptions{})
	must(t, err)
	scale.Spec.Replicas = 5
	_, err = apps.StatefulSets("default").UpdateScale(ctx, "db", scale, metav1.UpdateOptions{})
	must(t, err)
	if s, err = apps.StatefulSets("default").Get(ctx, "db", metav1.GetOptions{}); err != nil || *s.Spec.Replicas != 5 || s.Generation != 2 {
		t.Errorf("scaled to %v, %v", s, err)
	}

	d, err := apps.DaemonSets("default").Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, metav1.CreateOptions{})
	must(t, err)
	d.Status.DesiredNumberScheduled = 3
	d, err = apps.DaemonSets("default").UpdateStatus(ctx, d, metav1.UpdateOptions{})
	must(t, err)
	if d.Status.DesiredNumberScheduled != 3 || d.Annotations[appsv1.DeprecatedTemplateGeneration] != "1" {
		t.Errorf("updated %+v", d)
	}

	data := []byte(`{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"image":"i","name":"c"}]}}}}`)
	_, err = apps.ControllerRevisions("default").Create(ctx, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "db-1"}, Data: runtime.RawExtension{Raw: data}, Revision: 1}, metav1.CreateOptions{})
	must(t, err)
	r, err := apps.ControllerRevisions("default").Get(ctx, "db-1", metav1.GetOptions{})
	must(t, err)
	if string(r.Data.Raw) != string(data) || r.Revision != 1 {
		t.Errorf("the revision is %s, %d", r.Data.Raw, r.Revision)
	}
	r.Data.Raw = []byte(`{}`)
	if _, err = apps.ControllerRevisions("default").Update(ctx, r, metav1.UpdateOptions{}); err == nil {
		t.Error("a revision was changed")
	}

	for resource, want := range map[string]string{
		"statefulsets":        "Name|Ready|Age|Containers|Images",
		"daemonsets":          "Name|Desired|Current|Ready|Up-to-date|Available|Node Selector|Age|Containers|Images|Selector",
		"controllerrevisions": "Name|Controller|Revision|Age",
	} {
		raw, err := apps.RESTClient().Get().Namespace("default").Resource(resource).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
		must(t, err)
		var table metav1.Table
		must(t, json.Unmarshal(raw, &table))
		var names []string
		for _, c := range table.ColumnDefinitions {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, "|"); got != want || len(table.Rows) != 1 {
			t.Errorf("columns of %s: %q, %d rows", resource, got, len(table.Rows))
		}
	}
	// What nobody acts on is refused here as in a push (R12).
	block := corev1.PersistentVolumeBlock
	claims := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "claims"}, Spec: appsv1.StatefulSetSpec{ServiceName: "db", Selector: selector, Template: template,
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeMode: &block}}}}}
	if _, err = apps.StatefulSets("default").Create(ctx, claims, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "spec.volumeClaimTemplates[0].spec.volumeMode: Forbidden: only Filesystem is supported") {
		t.Errorf("claims: %v", err)
	}
}
