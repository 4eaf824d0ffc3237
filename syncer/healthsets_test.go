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

func TestHealthOfSets(t *testing.T) {
	three, one := int32(3), int32(1)
	stateful := func(strategy appsv1.StatefulSetUpdateStrategyType, partition *int32, total, updated, available int32) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &three, UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: strategy}}}
		if partition != nil {
			s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: partition}
		}
		s.Status = appsv1.StatefulSetStatus{Replicas: total, UpdatedReplicas: updated, AvailableReplicas: available}
		return s
	}
	daemon := func(strategy appsv1.DaemonSetUpdateStrategyType, updated, available int32) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: strategy}},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: updated, NumberAvailable: available}}
	}
	const rolling, onDelete = appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType
	unseen := stateful(rolling, nil, 3, 3, 3)
	unseen.Generation = 1
	for name, tt := range map[string]struct {
		obj   api.Object
		state State
		text  string
	}{
		"all of the newest":      {stateful(rolling, nil, 3, 3, 3), Healthy, "3/3 ready"},
		"one is old":             {stateful(rolling, nil, 3, 2, 3), Progressing, "3/3 ready, 2 of 3 updated"},
		"one is not available":   {stateful(rolling, nil, 3, 3, 2), Progressing, "2/3 ready"},
		"one is too many":        {stateful(rolling, nil, 4, 3, 4), Progressing, "3/3 ready, 1 to stop"},
		"not seen yet":           {unseen, Progressing, "0/3 ready"},
		"above the partition":    {stateful(rolling, &one, 3, 2, 3), Healthy, "3/3 ready"},
		"not yet above it":       {stateful(rolling, &one, 3, 1, 3), Progressing, "3/3 ready, 1 of 2 updated"},
		"OnDelete":               {stateful(onDelete, nil, 3, 0, 3), Healthy, "3/3 ready"},
		"DaemonSet":              {daemon(appsv1.RollingUpdateDaemonSetStrategyType, 3, 3), Healthy, "3/3 ready"},
		"DaemonSet, one old":     {daemon(appsv1.RollingUpdateDaemonSetStrategyType, 2, 3), Progressing, "3/3 ready, 2 of 3 updated"},
		"DaemonSet, one missing": {daemon(appsv1.RollingUpdateDaemonSetStrategyType, 3, 2), Progressing, "2/3 ready"},
		"DaemonSet, OnDelete":    {daemon(appsv1.OnDeleteDaemonSetStrategyType, 0, 3), Healthy, "3/3 ready"},
	} {
		if state, text := Health(tt.obj, newWorld(t).st); state != tt.state || text != tt.text {
			t.Errorf("%s: got %s %q, want %s %q", name, state, text, tt.state, tt.text)
		}
	}
}

// A set whose newest revision does not get ready says which pod of it is in trouble,
// and one whose settings a commit has changed is not healthy before it rolls.
// A set whose pods no node would have says why, unless another of its pods has something
// else to tell.
func TestRejectedPodsAreTold(t *testing.T) {
	rejected := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: no room"}}
	waits := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no nodes"}}}}
	if state, text := troubled("0/1 ready", []*corev1.Pod{rejected}); state != Progressing || text != "0/1 ready: pod a: OutOfcpu: Pod was rejected: no room" {
		t.Errorf("%s %q", state, text)
	}
	if state, text := troubled("0/1 ready", []*corev1.Pod{rejected, waits}); state != Progressing || text != "0/1 ready: pod b: no nodes" {
		t.Errorf("%s %q", state, text)
	}
}

func TestHealthOfSetsByTheirRevisions(t *testing.T) {
	st := storetest.Open(t)
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
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}}}}
	two := int32(2)
	db := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db"}, Spec: appsv1.StatefulSetSpec{Replicas: &two, Template: template}}
	db.Status = appsv1.StatefulSetStatus{Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1, UpdateRevision: "db-2"}
	logs := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs", UID: "logs"}, Spec: appsv1.DaemonSetSpec{Template: template}}
	logs.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberAvailable: 1}
	put(store.Create, db)
	put(store.Create, logs)
	owned := func(owner api.Object, kind, name, revision string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u", Labels: map[string]string{"controller-revision-hash": revision},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}}
	}
	for number, name := range []string{"db-1", "db-2"} {
		r := &appsv1.ControllerRevision{ObjectMeta: owned(db, "StatefulSet", name, ""), Revision: int64(number + 1)}
		podset.FillRefs(r, podset.Refs(st, "default", &template))
		put(store.Create, r)
	}
	r := &appsv1.ControllerRevision{ObjectMeta: owned(logs, "DaemonSet", "logs-7", ""), Revision: 1}
	podset.FillRefs(r, podset.Refs(st, "default", &template))
	put(store.Create, r)
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}
	}
	put(store.Create, &corev1.Pod{ObjectMeta: owned(db, "StatefulSet", "db-0", "db-1"), Status: waiting("ErrImagePull")})
	put(store.Create, &corev1.Pod{ObjectMeta: owned(db, "StatefulSet", "db-1", "db-2"), Status: waiting("ImagePullBackOff")})
	if state, text := Health(db, st); state != Failed || !strings.Contains(text, "1/2 ready, 1 of 2 updated: container c of pod db-1: ImagePullBackOff") {
		t.Errorf("%s %q", state, text)
	}
	db.Status.UpdatedReplicas, db.Status.AvailableReplicas = 2, 2
	for _, obj := range []api.Object{db, logs} {
		if state, text := Health(obj, st); state != Healthy {
			t.Errorf("at rest %s is %s: %s", obj.GetName(), state, text)
		}
	}
	changed := settings.DeepCopy()
	api.SetProvenance(changed, api.Provenance{Source: "main", Hash: "after"})
	put(store.Update, changed)
	for _, obj := range []api.Object{db, logs} {
		if state, text := Health(obj, st); state != Progressing || !strings.HasSuffix(text, ", of the settings before") {
			t.Errorf("with other settings %s is %s: %s", obj.GetName(), state, text)
		}
	}
	if got := podsNow(db, st); len(got) != 1 || got[0].Name != "db-1" {
		t.Errorf("of the newest revision are %v", got)
	}
}

const setManifests = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: "i:1"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs}
spec:
  selector: {matchLabels: {app: logs}}
  template:
    metadata: {labels: {app: logs}}
    spec: {containers: [{name: c, image: "i:1"}]}
`

// Sets come from a commit and are changed in place, with the generation of a
// DaemonSet's template; a hand's scaling is drift as long as replicas are declared.
func TestSetsFromGit(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": setManifests}))
	w.push(w.repo.add("c2", "c1", map[string]string{"a.yaml": strings.ReplaceAll(setManifests, "i:1", "i:2")}))
	if st := w.status(); st.Applied != commitID("c2") {
		t.Fatalf("applied %s, refused %q: %v", st.Applied, st.Message, st.Problems)
	}
	db, logs := w.get("statefulsets", "default", "db").(*appsv1.StatefulSet), w.get("daemonsets", "default", "logs").(*appsv1.DaemonSet)
	if db.Spec.Template.Spec.Containers[0].Image != "i:2" || db.Generation != 2 || logs.Generation != 2 || logs.Annotations[appsv1.DeprecatedTemplateGeneration] != "2" {
		t.Errorf("%+v\n%+v", db.ObjectMeta, logs.ObjectMeta)
	}
	w.change("statefulsets", "default", "db", func(o api.Object) { o.(*appsv1.StatefulSet).Spec.Replicas = new(int32) })
	w.settle()
	if n := *w.get("statefulsets", "default", "db").(*appsv1.StatefulSet).Spec.Replicas; n != 3 {
		t.Errorf("%d replicas after healing", n)
	}
	if r := w.s.Status(); r.State != Progressing {
		t.Errorf("report %+v", r)
	}
}
