package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestVersionIsThatOfTheModule(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	must(t, err)
	if !strings.Contains(string(mod), "k8s.io/kubernetes v"+kubernetesVersion+"\n") {
		t.Errorf("go.mod does not have k8s.io/kubernetes v%s", kubernetesVersion)
	}
	f := start(t, 0, nil)
	v, err := f.admin.ServerVersion()
	must(t, err)
	if want := "v" + kubernetesVersion + "+headway.0.1.0"; v.GitVersion != want {
		t.Errorf("version %s, want %s", v.GitVersion, want)
	}
}

func TestDiscovery(t *testing.T) {
	f := start(t, 0, nil)
	_, lists, err := f.admin.ServerGroupsAndResources()
	must(t, err)
	have := map[string]bool{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			have[l.GroupVersion+" "+r.Name] = true
		}
	}
	for _, want := range []string{
		"v1 namespaces", "v1 namespaces/status", "v1 namespaces/finalize", "v1 nodes", "v1 nodes/status", "v1 pods", "v1 pods/status", "v1 pods/log", "v1 pods/eviction",
		"v1 configmaps", "v1 secrets", "v1 serviceaccounts", "v1 events", "apps/v1 deployments", "apps/v1 deployments/status", "apps/v1 deployments/scale",
		"apps/v1 replicasets", "apps/v1 replicasets/scale", "batch/v1 jobs", "batch/v1 jobs/status", "batch/v1 cronjobs", "coordination.k8s.io/v1 leases",
		"events.k8s.io/v1 events", "authorization.k8s.io/v1 selfsubjectaccessreviews",
	} {
		if !have[want] {
			t.Errorf("discovery lacks %s", want)
		}
	}
	for _, absent := range []string{"v1 pods/binding", "v1 serviceaccounts/token", "v1 bindings", "apps/v1 deployments/rollback"} {
		if have[absent] {
			t.Errorf("discovery offers %s", absent)
		}
	}
}

func TestOpenAPI(t *testing.T) {
	f := start(t, 0, nil)
	for path, want := range map[string]string{
		"/openapi/v2":                              "io.k8s.api.apps.v1.Deployment",
		"/openapi/v3":                              "apis/apps/v1",
		"/openapi/v3/apis/apps/v1":                 "io.k8s.api.apps.v1.Deployment",
		"/openapi/v3/apis/batch/v1":                "io.k8s.api.batch.v1.CronJob",
		"/openapi/v3/apis/autoscaling/v2":          "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
		"/openapi/v3/apis/apiextensions.k8s.io/v1": "JSONSchemaProps",
		"/openapi/v3/api/v1":                       "io.k8s.api.core.v1.Pod",
	} {
		resp, err := f.adminHTTP().Get(f.url + path)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, %d bytes, %q is not in it: %.200s", path, resp.StatusCode, len(body), want, body)
		}
		if strings.Contains(string(body), "io.k8s.api.certificates") {
			t.Errorf("%s has definitions of groups that are not served", path)
		}
	}
}

func TestTable(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	_, err := f.admin.AppsV1().Deployments("default").Create(ctx, deployment("web", 2), metav1.CreateOptions{})
	must(t, err)
	raw, err := f.admin.AppsV1().RESTClient().Get().Namespace("default").Resource("deployments").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	must(t, err)
	var table metav1.Table
	must(t, json.Unmarshal(raw, &table))
	var names []string
	for _, c := range table.ColumnDefinitions {
		names = append(names, c.Name)
	}
	if got, want := strings.Join(names, " "), "Name Ready Up-to-date Available Age Containers Images Selector"; got != want {
		t.Errorf("columns %q, want %q", got, want)
	}
	if len(table.Rows) != 1 || table.Rows[0].Cells[1] != "0/2" {
		t.Errorf("rows %+v", table.Rows)
	}
}

func TestGenerationStatusAndScale(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	deployments := f.admin.AppsV1().Deployments("default")
	d, err := deployments.Create(ctx, deployment("web", 2), metav1.CreateOptions{})
	must(t, err)
	if d.Generation != 1 || d.UID == "" || d.CreationTimestamp.IsZero() {
		t.Errorf("created: %+v", d.ObjectMeta)
	}
	d.Status.Replicas = 7
	d.Spec.MinReadySeconds = 3
	d, err = deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{})
	must(t, err)
	if d.Status.Replicas != 7 || d.Spec.MinReadySeconds != 0 || d.Generation != 1 {
		t.Errorf("a status update changes the status alone: %+v", d)
	}
	d.Status.Replicas = 1
	d.Spec.MinReadySeconds = 3
	d, err = deployments.Update(ctx, d, metav1.UpdateOptions{})
	must(t, err)
	if d.Status.Replicas != 7 || d.Spec.MinReadySeconds != 3 || d.Generation != 2 {
		t.Errorf("an update changes all but the status: %+v", d)
	}
	scaled, err := deployments.UpdateScale(ctx, "web", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 5},
	}, metav1.UpdateOptions{})
	must(t, err)
	if scaled.Spec.Replicas != 5 || scaled.Status.Replicas != 7 || scaled.Status.Selector != "app=web" {
		t.Errorf("scale: %+v", scaled)
	}
	d.ResourceVersion = "1"
	if _, err := deployments.Update(ctx, d, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old revision: %v, want a conflict", err)
	}
	if _, err := deployments.Create(ctx, deployment("web", 1), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: %v, want already exists", err)
	}
	if _, err := deployments.Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of nothing: %v, want not found", err)
	}
}

func TestServerSideApply(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	deployments := f.admin.AppsV1().Deployments("default")
	apply := func(manager string, replicas int, force bool) error {
		body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":%d,
			"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, replicas)
		_, err := deployments.Patch(ctx, "web", types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: manager, Force: &force})
		return err
	}
	must(t, apply("one", 1, false))
	if err := apply("two", 2, false); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Errorf("apply of another's field: %v, want a conflict about .spec.replicas", err)
	}
	must(t, apply("two", 2, true))
	d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	must(t, err)
	if *d.Spec.Replicas != 2 || len(d.ManagedFields) != 2 {
		t.Errorf("replicas %d, %d managers", *d.Spec.Replicas, len(d.ManagedFields))
	}
	before := d.ResourceVersion
	must(t, apply("two", 2, true))
	d, err = deployments.Get(ctx, "web", metav1.GetOptions{})
	must(t, err)
	if d.ResourceVersion != before {
		t.Errorf("an apply that changes nothing wrote revision %s after %s", d.ResourceVersion, before)
	}
}

// The very first request may ask for a privileged container, as a manifest may.
func TestPrivilegedPodsAreTaken(t *testing.T) {
	f := start(t, 0, nil)
	d := deployment("web", 1)
	d.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	_, err := f.admin.AppsV1().Deployments("default").Create(t.Context(), d, metav1.CreateOptions{})
	must(t, err)
}

func TestDryRunChangesNothing(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	deployments := f.admin.AppsV1().Deployments("default")
	d, err := deployments.Create(ctx, deployment("web", 2), metav1.CreateOptions{})
	must(t, err)
	before, err := f.store.Current(ctx)
	must(t, err)

	all := []string{metav1.DryRunAll}
	_, err = deployments.Create(ctx, deployment("other", 2), metav1.CreateOptions{DryRun: all})
	must(t, err)
	d.Spec.MinReadySeconds = 9
	d.Labels["new"] = "label"
	changed, err := deployments.Update(ctx, d, metav1.UpdateOptions{DryRun: all})
	must(t, err)
	if changed.Spec.MinReadySeconds != 9 {
		t.Error("a dry run does not show what would be")
	}
	_, err = deployments.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":"y"}},"spec":{"replicas":8}}`), metav1.PatchOptions{DryRun: all})
	must(t, err)
	must(t, deployments.Delete(ctx, "web", metav1.DeleteOptions{DryRun: all}))

	if after, err := f.store.Current(ctx); err != nil || after != before {
		t.Errorf("revision %d after dry runs, %d before: %v", after, before, err)
	}
	kept, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	must(t, err)
	if kept.Spec.MinReadySeconds != 0 || *kept.Spec.Replicas != 2 || len(kept.Annotations) != 0 || kept.Labels["new"] != "" || kept.DeletionTimestamp != nil {
		t.Errorf("a dry run reached the cache: %+v", kept)
	}
}

func TestPodsGoGracefully(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	pods := f.admin.CoreV1().Pods("default")
	_, err := pods.Create(ctx, pod("waiting", ""), metav1.CreateOptions{})
	must(t, err)
	must(t, pods.Delete(ctx, "waiting", metav1.DeleteOptions{}))
	if _, err := pods.Get(ctx, "waiting", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod without a node must be gone at once: %v", err)
	}
	_, err = pods.Create(ctx, pod("bound", "n1"), metav1.CreateOptions{})
	must(t, err)
	must(t, pods.Delete(ctx, "bound", metav1.DeleteOptions{}))
	p, err := pods.Get(ctx, "bound", metav1.GetOptions{})
	must(t, err)
	if p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 {
		t.Errorf("a pod on a node must be left to its node: %+v", p.ObjectMeta)
	}
	now := int64(0)
	must(t, pods.Delete(ctx, "bound", metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}}))
	if _, err := pods.Get(ctx, "bound", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a forced delete: %v", err)
	}
	wrong := types.UID("another")
	_, err = pods.Create(ctx, pod("bound", "n1"), metav1.CreateOptions{})
	must(t, err)
	if err := pods.Delete(ctx, "bound", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another pod of that name: %v, want a conflict", err)
	}
}

func TestNamespaces(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	namespaces := f.admin.CoreV1().Namespaces()
	_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{})
	must(t, err)
	configMaps := func(ns string) error {
		_, err := f.admin.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		return err
	}
	must(t, configMaps("team"))
	must(t, namespaces.Delete(ctx, "team", metav1.DeleteOptions{}))
	ns, err := namespaces.Get(ctx, "team", metav1.GetOptions{})
	must(t, err)
	if ns.Status.Phase != corev1.NamespaceTerminating || ns.DeletionTimestamp == nil || len(ns.Spec.Finalizers) != 1 {
		t.Errorf("deleted namespace: %+v", ns)
	}
	if err := configMaps("team"); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("create in a namespace that goes: %v", err)
	}
	ns.Spec.Finalizers = nil
	_, err = namespaces.Finalize(ctx, ns, metav1.UpdateOptions{})
	must(t, err)
	if _, err := namespaces.Get(ctx, "team", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("finalized namespace: %v", err)
	}
	if err := configMaps("team"); !apierrors.IsNotFound(err) {
		t.Errorf("create in no namespace: %v", err)
	}
	for _, name := range []string{"default", "kube-system", "kube-node-lease"} {
		if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("delete of %s: %v", name, err)
		}
	}
}

func TestAdmission(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	p, err := f.admin.CoreV1().Pods("default").Create(ctx, pod("p", ""), metav1.CreateOptions{})
	must(t, err)
	if p.Spec.ServiceAccountName != "default" || len(p.Spec.Tolerations) != 2 {
		t.Errorf("package admission did not complete the pod: %+v", p.Spec)
	}
	d, err := f.admin.AppsV1().Deployments("default").Create(ctx, deployment("web", 1), metav1.CreateOptions{})
	must(t, err)
	if len(d.Spec.Template.Spec.Tolerations) != 0 {
		t.Error("a template is no pod")
	}
	_, err = f.admin.CoordinationV1().Leases("kube-node-lease").Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a client may not write a node's lease: %v", err)
	}
	_, err = f.admin.BatchV1().CronJobs("default").Create(ctx, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("an invalid object: %v", err)
	}
}

// node streams a log that says what it was asked for.
type node struct{ asked chan *corev1.PodLogOptions }

func (n node) Logs(ctx context.Context, p *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	if p.Name == "broken" {
		return nil, apierrors.NewServiceUnavailable("node n1 is not connected")
	}
	n.asked <- o
	if !o.Follow {
		return io.NopCloser(strings.NewReader("line of " + p.Name + "\n")), nil
	}
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		if _, err := io.WriteString(w, "first line\n"); err != nil && !errors.Is(err, context.Canceled) {
			w.CloseWithError(err)
		}
	}()
	return r, nil
}

func TestLogs(t *testing.T) {
	n := node{asked: make(chan *corev1.PodLogOptions, 1)}
	f := start(t, 0, func(c *Config) { c.Logs = n; patient(c) })
	ctx := t.Context()
	pods := f.admin.CoreV1().Pods("default")
	two := pod("two", "n1")
	two.Spec.Containers = append(two.Spec.Containers, corev1.Container{Name: "side", Image: "i"})
	for _, p := range []*corev1.Pod{pod("web", "n1"), pod("waiting", ""), pod("broken", "n1"), two} {
		_, err := pods.Create(ctx, p, metav1.CreateOptions{})
		must(t, err)
	}
	tail := int64(3)
	out, err := pods.GetLogs("web", &corev1.PodLogOptions{TailLines: &tail, Timestamps: true, Previous: true}).DoRaw(ctx)
	must(t, err)
	asked := <-n.asked
	if string(out) != "line of web\n" || asked.Container != "main" || *asked.TailLines != 3 || !asked.Timestamps || !asked.Previous {
		t.Errorf("log %q, asked %+v", out, asked)
	}
	for _, c := range []struct {
		pod, container, says string
		opts                 corev1.PodLogOptions
	}{
		{pod: "waiting", says: "has no node yet"},
		{pod: "two", says: "a container name must be specified for pod two, choose one of: [main side]"},
		{pod: "two", opts: corev1.PodLogOptions{Container: "none"}, says: "container none is not valid for pod two"},
		{pod: "broken", says: "node n1 is not connected"},
		{pod: "absent", says: "not found"},
		{pod: "web", opts: corev1.PodLogOptions{TailLines: new(int64(-1))}, says: "must be greater than or equal to 0"},
	} {
		if _, err := pods.GetLogs(c.pod, &c.opts).Stream(ctx); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("logs of %s: %v, want %q", c.pod, err, c.says)
		}
	}
	stream, err := pods.GetLogs("web", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	must(t, err)
	line := make([]byte, len("first line\n"))
	if _, err := io.ReadFull(stream, line); err != nil || string(line) != "first line\n" {
		t.Fatalf("followed log: %q, %v", line, err)
	}
	<-n.asked
	f.stopsAtOnce()
	if _, err := io.ReadAll(stream); err != nil && !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "INTERNAL_ERROR") {
		t.Errorf("followed log at shutdown: %v", err)
	}
}
