package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/controllers/statefulset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"
)

func ptr[T any](v T) *T { return &v }

// identityOf makes the pod of a StatefulSet, bound to node, and running when it is.
func (f *fixture) identityOf(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	f.t.Helper()
	p := pod(name, node)
	p.Labels = map[string]string{"app": "db", appsv1.StatefulSetPodNameLabel: name}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db-uid", Controller: ptr(true)}}
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(60))
	for _, c := range change {
		c(p)
	}
	made, err := f.admin.CoreV1().Pods("default").Create(f.t.Context(), p, metav1.CreateOptions{})
	must(f.t, err)
	if node != "" {
		made.Status.Phase = corev1.PodRunning
		made.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		made, err = f.admin.CoreV1().Pods("default").UpdateStatus(f.t.Context(), made, metav1.UpdateOptions{})
		must(f.t, err)
	}
	return made
}

// livePod reads a pod from the backend; nil when it is gone.
func (f *fixture) livePod(name string) *corev1.Pod {
	f.t.Helper()
	p, err := f.admin.CoreV1().Pods("default").Get(f.t.Context(), name, metav1.GetOptions{ResourceVersion: ""})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(f.t, err)
	return p
}

// warned collects the warnings that a client gets.
type warned struct {
	mu   sync.Mutex
	text []string
}

func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warned) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.text, "\n")
	w.text = nil
	return text
}

// listening is an administrator whose warnings are collected.
func (f *fixture) listening() (*kubernetes.Clientset, *warned) {
	f.t.Helper()
	w := &warned{}
	conf := rest.CopyConfig(f.config())
	conf.WarningHandler = w
	client, err := kubernetes.NewForConfig(conf)
	must(f.t, err)
	return client, w
}

func force() metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))} }

// TestR10_ForceDeletionWaitsForTheAgent: `kubectl delete pod --force` of a
// StatefulSet's pod that a node may run has its agent kill it, and takes no object
// away: only then would its name be free.
func TestR10_ForceDeletionWaitsForTheAgent(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	admin, warnings := f.listening()
	f.identityOf("db-0", "n1")
	must(t, admin.CoreV1().Pods("default").Delete(ctx, "db-0", force()))
	p := f.livePod("db-0")
	if p == nil || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 1 || time.Until(p.DeletionTimestamp.Time) > 2*time.Second {
		t.Fatalf("after the deletion: %+v", p)
	}
	if said := warnings.take(); !strings.Contains(said, "pod default/db-0 has an identity and stays until node n1 has stopped it") ||
		!strings.Contains(said, "kubectl taint node n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute") {
		t.Errorf("warned %q", said)
	}
	// Not by a second request, a change, or an eviction either.
	must(t, admin.CoreV1().Pods("default").Delete(ctx, "db-0", force()))
	_, err := f.admin.CoreV1().Pods("default").Patch(ctx, "db-0", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	must(t, err)
	must(t, f.admin.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: "default"}, DeleteOptions: ptr(force())}))
	must(t, f.admin.CoreV1().Pods("default").DeleteCollection(ctx, force(), metav1.ListOptions{}))
	again := f.livePod("db-0")
	if again == nil || *again.DeletionGracePeriodSeconds != 1 || again.DeletionTimestamp.After(p.DeletionTimestamp.Time) {
		t.Fatalf("after more of that: %+v", again)
	}

	// One whose set went without it has its name still.
	f.identityOf("db-1", "n1", func(p *corev1.Pod) { p.OwnerReferences = nil })
	must(t, admin.CoreV1().Pods("default").Delete(ctx, "db-1", force()))
	if f.livePod("db-1") == nil {
		t.Error("a pod that its StatefulSet left is gone")
	}
}

// TestR10_AnIdentityIsNotStripped: what says that a pod has an identity is not taken off
// it to force its deletion then.
func TestR10_AnIdentityIsNotStripped(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	f.identityOf("db-0", "n1")
	pods := f.admin.CoreV1().Pods("default")
	patch := func(text string) error {
		_, err := pods.Patch(ctx, "db-0", types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	other := `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"x","uid":"x","controller":true}]}}`
	for _, bad := range []string{other, `{"metadata":{"ownerReferences":null,"labels":null}}`} {
		if err := patch(bad); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it has an identity while node n1 may run it") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	must(t, patch(`{"metadata":{"ownerReferences":null}}`)) // its set may leave it: the label stays
	if err := patch(`{"metadata":{"labels":{"statefulset.kubernetes.io/pod-name":null}}}`); !apierrors.IsForbidden(err) {
		t.Errorf("%v", err)
	}
	must(t, pods.Delete(ctx, "db-0", force()))
	if f.livePod("db-0") == nil {
		t.Error("the pod is gone")
	}
	f.identityOf("db-1", "")
	_, err := pods.Patch(ctx, "db-1", types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null,"labels":null}}`), metav1.PatchOptions{})
	must(t, err) // no node runs it
}

// TestR10_DeletionOfAnEndedPodWaitsForItsContainers: one that is over its deadline is
// Failed while its containers stop, which they do in their own time.
func TestR10_DeletionOfAnEndedPodWaitsForItsContainers(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	p := f.identityOf("db-0", "n1")
	p.Status.Phase, p.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
	p, err := f.admin.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{})
	must(t, err)
	must(t, f.admin.CoreV1().Pods("default").Delete(ctx, "db-0", metav1.DeleteOptions{}))
	if p = f.livePod("db-0"); p == nil || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 60 {
		t.Fatalf("after the deletion: %+v", p)
	}
	must(t, f.admin.CoreV1().Pods("default").Delete(ctx, "db-0", force()))
	if p = f.livePod("db-0"); p == nil || *p.DeletionGracePeriodSeconds != 1 {
		t.Fatalf("after it was forced: %+v", p)
	}
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	_, err = f.admin.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{})
	must(t, err)
	must(t, f.admin.CoreV1().Pods("default").Delete(ctx, "db-0", force()))
	if p = f.livePod("db-0"); p != nil {
		t.Errorf("nothing of it runs, and it is kept: %+v", p)
	}
}

// What has no identity, or never ran, goes at once, as documented:
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-forced
func TestForceDeletionOfOthersIsImmediate(t *testing.T) {
	f := start(t, 0, nil)
	admin, warnings := f.listening()
	f.identityOf("db-0", "")
	f.identityOf("web-x", "n1", func(p *corev1.Pod) {
		p.OwnerReferences[0].Kind = "ReplicaSet"
	})
	f.identityOf("bare", "n1", func(p *corev1.Pod) { p.OwnerReferences, p.Labels = nil, nil })
	for _, name := range []string{"db-0", "web-x", "bare"} {
		must(t, admin.CoreV1().Pods("default").Delete(t.Context(), name, force()))
		if f.livePod(name) != nil {
			t.Errorf("%s is there still", name)
		}
	}
	if said := warnings.take(); said != "" {
		t.Errorf("warned %q", said)
	}
}

// TestR10_AForcedPodIsReplacedWhenItsAgentHasReported has the StatefulSet controller
// beside the API: after --force there is no second pod of the name, and no first one
// of another identity, until the node's report has taken the object away.
func TestR10_AForcedPodIsReplacedWhenItsAgentHasReported(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}}, Spec: podSpec()}
	_, err := f.admin.AppsV1().StatefulSets("default").Create(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}, metav1.CreateOptions{})
	must(t, err)
	settle := func() *corev1.Pod {
		t.Helper()
		now, err := f.store.Current(ctx)
		must(t, err)
		must(t, f.store.WaitRevision(ctx, now))
		loop := statefulset.New(statefulset.Config{Store: f.store, Fence: func() store.Fence { return store.Fence{} }, Now: time.Now})
		for loop.Step(ctx) {
		}
		return f.livePod("db-0")
	}
	first := settle()
	if first == nil {
		t.Fatal("there is no db-0")
	}
	bound := first.DeepCopy()
	bound.Spec.NodeName = "n1"
	_, err = f.store.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Update, Object: bound}}}) // as the scheduler does
	must(t, err)
	must(t, f.admin.CoreV1().Pods("default").Delete(ctx, "db-0", force()))
	if p := settle(); p == nil || p.UID != first.UID {
		t.Fatalf("before its agent has reported: %+v", p)
	}
	_, err = f.store.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Delete, Object: f.livePod("db-0")}}}) // as server/nodes does by the report
	must(t, err)
	if p := settle(); p == nil || p.UID == first.UID || p.Spec.NodeName != "" {
		t.Errorf("after its agent has reported: %+v", p)
	}
}

// TestR10_NoRequestTakesARunningIdentityAway asks for the deletion of a running
// StatefulSet's pod in every way, in any order, with finalizers that come and go.
func TestR10_NoRequestTakesARunningIdentityAway(t *testing.T) {
	f := start(t, 0, nil)
	pods := f.admin.CoreV1().Pods("default")
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		name := fmt.Sprintf("db-%d", n)
		f.identityOf(name, "n1", func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = ptr(int64(rapid.IntRange(0, 2).Draw(rt, "grace")))
			if rapid.Bool().Draw(rt, "held") {
				p.Finalizers = []string{"example.com/hold"}
			}
		})
		for range rapid.IntRange(1, 6).Draw(rt, "requests") {
			var err error
			options := metav1.DeleteOptions{}
			if g := rapid.IntRange(-2, 2).Draw(rt, "asked"); g > -2 {
				options.GracePeriodSeconds = ptr(int64(g))
			}
			switch rapid.SampledFrom([]string{"delete", "evict", "hold", "release", "fail"}).Draw(rt, "request") {
			case "delete":
				err = pods.Delete(t.Context(), name, options)
			case "evict":
				err = f.admin.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, DeleteOptions: &options})
			case "hold":
				_, err = pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), metav1.PatchOptions{})
				if apierrors.IsInvalid(err) { // no new finalizers once it is being deleted
					err = nil
				}
			case "release":
				_, err = pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			case "fail":
				_, err = pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
			}
			if err != nil {
				rt.Fatal(err)
			}
			if f.livePod(name) == nil {
				rt.Fatal("the pod is gone, and nobody has said that it was stopped")
			}
		}
	})
}

// A dry run of a forced deletion tells and changes nothing.
func TestForceDeletionDryRun(t *testing.T) {
	f := start(t, 0, nil)
	f.identityOf("db-0", "n1")
	options := force()
	options.DryRun = []string{metav1.DryRunAll}
	must(t, f.admin.CoreV1().Pods("default").Delete(t.Context(), "db-0", options))
	if p := f.livePod("db-0"); p == nil || p.DeletionTimestamp != nil {
		t.Errorf("after the dry run: %+v", p)
	}
	if _, _, err := f.store.GetAt(context.Background(), store.Key{GroupResource: api.Pods(), Namespace: "default", Name: "db-0"}, 0); err != nil {
		t.Error(err)
	}
}
