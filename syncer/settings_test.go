package syncer

import (
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A file that does not decode is told of once, by its field, even when its
// object is live and an update of it cannot be planned.
func TestR2_AProblemIsSaidOnce(t *testing.T) {
	w := newWorld(t)
	good := `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: web, image: web:1, envFrom: [{configMapRef: {name: settings}}]}
`
	c1 := w.repo.add("c1", "", map[string]string{"web.yaml": good, "settings.yaml": configMap("settings", "1")})
	w.push(c1)
	c2 := w.repo.add("c2", c1, map[string]string{"web.yaml": strings.Replace(good, "replicas:", "replica:", 1), "settings.yaml": configMap("settings", "1")})
	w.push(c2)
	st := w.status()
	if st.Refused != c2 || len(st.Problems) != 1 || !strings.Contains(st.Problems[0], "spec.replica: unknown field") {
		t.Errorf("problems %q", st.Problems)
	}
}

// A Deployment whose settings a commit has changed is not healthy before the
// rollout that they cause has begun.
func TestDeploymentOfOldSettingsIsNotHealthy(t *testing.T) {
	st := storetest.Open(t)
	one := int32(1)
	put := func(verb store.Verb, obj api.Object) {
		t.Helper()
		if _, err := st.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
			t.Fatal(err)
		}
		storetest.Settle(t, st)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}}
	api.SetProvenance(settings, api.Provenance{Source: "main", Hash: "before"})
	put(store.Create, settings)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "d"}}
	d.Spec.Replicas = &one
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}}
	d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	put(store.Create, d)
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "rs",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}}}
	podset.FillRefs(rs, podset.Refs(st, "default", &d.Spec.Template))
	put(store.Create, rs)
	if state, message := Health(d, st); state != Healthy {
		t.Fatalf("at rest it is %s: %s", state, message)
	}
	changed := settings.DeepCopy()
	api.SetProvenance(changed, api.Provenance{Source: "main", Hash: "after"})
	put(store.Update, changed)
	if state, message := Health(d, st); state != Progressing {
		t.Fatalf("with other settings it is %s: %s", state, message)
	}
}
