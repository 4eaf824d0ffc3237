package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/controllers/garbage"
	"headway.dev/headway/controllers/namespace"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// collect runs the garbage collector until nothing but events changes any more.
func (f *fixture) collect() {
	f.t.Helper()
	state := func() string {
		now, err := f.store.Current(f.t.Context())
		must(f.t, err)
		must(f.t, f.store.WaitRevision(f.t.Context(), now))
		var out []string
		for _, k := range api.Kinds() {
			if k.GroupResource() == api.Events() {
				continue
			}
			for _, obj := range f.store.List(k.GroupResource(), "") {
				out = append(out, string(obj.GetUID())+" "+obj.GetResourceVersion())
			}
		}
		slices.Sort(out)
		return strings.Join(out, ",")
	}
	for before := state(); ; {
		loop := garbage.New(garbage.Config{Store: f.store, Fence: func() store.Fence { return store.Fence{} }, Now: time.Now})
		for loop.Step(f.t.Context()) {
		}
		after := state()
		if after == before {
			return
		}
		before = after
	}
}

// cascading is what `kubectl delete --cascade=…` sends.
func cascading(how metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &how}
}

// there lists the objects of namespace default that the tests make, a minus before
// what is being deleted.
func (f *fixture) there() string {
	f.t.Helper()
	now, err := f.store.Current(f.t.Context())
	must(f.t, err)
	must(f.t, f.store.WaitRevision(f.t.Context(), now))
	var out []string
	for _, k := range api.Kinds() {
		if !k.Namespaced || k.GroupResource() == api.Events() {
			continue
		}
		for _, obj := range f.store.List(k.GroupResource(), "default") {
			n := obj.GetName()
			if obj.GetDeletionTimestamp() != nil {
				n = "-" + n
			}
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (f *fixture) see(want string) {
	f.t.Helper()
	if got := f.there(); got != want {
		f.t.Fatalf("there is %q, want %q", got, want)
	}
}

// ownerOf refers to an owner, as blocking its deletion when blocks is true.
func ownerOf(o api.Object, blocks bool) metav1.OwnerReference {
	ref := podset.Controller(o)
	ref.Controller, ref.BlockOwnerDeletion = nil, &blocks
	return ref
}

// configMap makes a ConfigMap with owners.
func (f *fixture) configMap(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	f.t.Helper()
	cm, err := f.admin.CoreV1().ConfigMaps("default").Create(f.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
	must(f.t, err)
	return cm
}

func (f *fixture) deleteConfigMap(name string, how metav1.DeletionPropagation) {
	f.t.Helper()
	must(f.t, f.admin.CoreV1().ConfigMaps("default").Delete(f.t.Context(), name, cascading(how)))
}

// family is a Deployment d, its ReplicaSet rs, and a pod of that on a node.
func (f *fixture) family() {
	f.t.Helper()
	ctx := f.t.Context()
	d, err := f.admin.AppsV1().Deployments("default").Create(ctx, deployment("d", 1), metav1.CreateOptions{})
	must(f.t, err)
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", OwnerReferences: []metav1.OwnerReference{podset.Controller(d)}},
		Spec: appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template}}
	rs, err = f.admin.AppsV1().ReplicaSets("default").Create(ctx, rs, metav1.CreateOptions{})
	must(f.t, err)
	p := pod("pod", "n1")
	p.OwnerReferences = []metav1.OwnerReference{podset.Controller(rs)}
	_, err = f.admin.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
	must(f.t, err)
}

// stopped is the report of the pod's agent.
func (f *fixture) stopped() {
	f.t.Helper()
	_, err := f.store.Commit(f.t.Context(), store.Txn{Ops: []store.Op{{Verb: store.Delete, Object: f.livePod("pod")}}})
	must(f.t, err)
}

// "In foreground cascading deletion, the owner object you're deleting first enters a
// deletion in progress state: … the metadata.deletionTimestamp field … the
// metadata.finalizers field [is set] to foregroundDeletion. … the object remains
// visible through the Kubernetes API until the deletion process is complete."
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion
func TestForegroundDeletion(t *testing.T) {
	f := start(t, 0, nil)
	f.family()
	must(t, f.admin.AppsV1().Deployments("default").Delete(t.Context(), "d", cascading(metav1.DeletePropagationForeground)))
	d, err := f.admin.AppsV1().Deployments("default").Get(t.Context(), "d", metav1.GetOptions{})
	must(t, err)
	if d.DeletionTimestamp == nil || !slices.Equal(d.Finalizers, []string{metav1.FinalizerDeleteDependents}) {
		t.Errorf("after the request: %v, %v", d.DeletionTimestamp, d.Finalizers)
	}
	f.collect()
	f.see("-d -pod -rs")
	f.stopped()
	f.collect()
	f.see("")
}

// "In background cascading deletion, the Kubernetes API server deletes the owner object
// immediately and the garbage collector controller … cleans up the dependent objects in
// the background. … By default, Kubernetes uses background cascading deletion."
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#background-deletion
func TestBackgroundDeletion(t *testing.T) {
	for name, options := range map[string]metav1.DeleteOptions{"asked for": cascading(metav1.DeletePropagationBackground), "by default": {}} {
		t.Run(name, func(t *testing.T) {
			f := start(t, 0, nil)
			f.family()
			must(t, f.admin.AppsV1().Deployments("default").Delete(t.Context(), "d", options))
			f.see("pod rs")
			f.collect()
			f.see("-pod")
			f.stopped()
			f.see("")
		})
	}
}

// "When Kubernetes deletes an owner object, the dependents left behind are called
// orphan objects."
// https://kubernetes.io/docs/tasks/administer-cluster/use-cascading-deletion/#set-orphan-deletion-policy
func TestOrphanDeletion(t *testing.T) {
	f := start(t, 0, nil)
	f.family()
	must(t, f.admin.AppsV1().Deployments("default").Delete(t.Context(), "d", cascading(metav1.DeletePropagationOrphan)))
	d, err := f.admin.AppsV1().Deployments("default").Get(t.Context(), "d", metav1.GetOptions{})
	must(t, err)
	if d.DeletionTimestamp == nil || !slices.Equal(d.Finalizers, []string{metav1.FinalizerOrphanDependents}) {
		t.Errorf("after the request: %v, %v", d.DeletionTimestamp, d.Finalizers)
	}
	f.collect()
	f.see("pod rs")
	rs, err := f.admin.AppsV1().ReplicaSets("default").Get(t.Context(), "rs", metav1.GetOptions{})
	must(t, err)
	if len(rs.OwnerReferences) != 0 || len(f.livePod("pod").OwnerReferences) != 1 {
		t.Errorf("the ReplicaSet's owners are %v, the pod's %v", rs.OwnerReferences, f.livePod("pod").OwnerReferences)
	}
}

// A Job's pods are left when the request says nothing, for compatibility with the
// first versions of batch; kubectl always says what it wants.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/#delete-delete-a-job
func TestAJobsDefaultIsOrphan(t *testing.T) {
	f := start(t, 0, nil)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}}
	j.Spec.Template.Spec = podSpec()
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	for _, c := range []struct {
		options metav1.DeleteOptions
		want    string
	}{{metav1.DeleteOptions{}, "part"}, {cascading(metav1.DeletePropagationBackground), ""}} {
		made, err := f.admin.BatchV1().Jobs("default").Create(t.Context(), j, metav1.CreateOptions{})
		must(t, err)
		f.configMap("part", podset.Controller(made))
		must(t, f.admin.BatchV1().Jobs("default").Delete(t.Context(), "j", c.options))
		f.collect()
		f.see(c.want)
		if c.want != "" {
			must(t, f.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "part", metav1.DeleteOptions{}))
		}
	}
}

// "orphanDependents" is the older way to say it, and both together are refused.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/
func TestOrphanDependents(t *testing.T) {
	f := start(t, 0, nil)
	both := cascading(metav1.DeletePropagationForeground)
	both.OrphanDependents = ptr(true)
	owner := f.configMap("owner")
	f.configMap("part", ownerOf(owner, true))
	if err := f.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "owner", both); !apierrors.IsInvalid(err) {
		t.Errorf("both: %v", err)
	}
	must(t, f.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "owner", metav1.DeleteOptions{OrphanDependents: ptr(true)}))
	f.collect()
	f.see("part")
	what := "Nothing"
	if err := f.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "part", cascading(metav1.DeletionPropagation(what))); !apierrors.IsInvalid(err) {
		t.Errorf("a policy that there is not: %v", err)
	}
}

// "During foreground cascading deletion, the only dependents that block owner deletion
// are those that have the ownerReference.blockOwnerDeletion=true field."
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion
func TestOnlyBlockingDependentsBlock(t *testing.T) {
	f := start(t, 0, nil)
	owner := f.configMap("owner")
	hold := func(name string, blocks bool) {
		cm := f.configMap(name, ownerOf(owner, blocks))
		cm.Finalizers = []string{"example.com/hold"}
		_, err := f.admin.CoreV1().ConfigMaps("default").Update(t.Context(), cm, metav1.UpdateOptions{})
		must(t, err)
	}
	hold("blocks", true)
	hold("does-not", false)
	f.deleteConfigMap("owner", metav1.DeletePropagationForeground)
	f.collect()
	f.see("-blocks -does-not -owner")
	f.letGo("blocks")
	f.collect()
	f.see("-does-not")
	f.letGo("does-not")
	f.see("")
}

// letGo takes the finalizers off a ConfigMap.
func (f *fixture) letGo(name string) {
	f.t.Helper()
	_, err := f.admin.CoreV1().ConfigMaps("default").Patch(f.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(f.t, err)
}

// "When you tell Kubernetes to delete an object that has finalizers specified for it,
// the Kubernetes API marks the object for deletion by populating
// .metadata.deletionTimestamp, and returns a 202 status code … The target object
// remains in a terminating state while the control plane … take[s] the actions defined
// by the finalizers. … When the metadata.finalizers field is empty, Kubernetes
// considers the deletion complete and deletes the object." And: "In cases where
// objects are stuck in a deleting state … [one] can't add new finalizers."
// https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/#how-finalizers-work
func TestFinalizers(t *testing.T) {
	f := start(t, 0, nil)
	cms := f.admin.CoreV1().ConfigMaps("default")
	cm := f.configMap("cm")
	cm.Finalizers = []string{"example.com/a", "example.com/b"}
	_, err := cms.Update(t.Context(), cm, metav1.UpdateOptions{})
	must(t, err)
	must(t, cms.Delete(t.Context(), "cm", metav1.DeleteOptions{}))
	f.collect()
	f.see("-cm")
	patch := func(finalizers string) error {
		_, err := cms.Patch(t.Context(), "cm", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":[%s]}}`, finalizers), metav1.PatchOptions{})
		return err
	}
	if err := patch(`"example.com/a","example.com/b","example.com/c"`); !apierrors.IsInvalid(err) {
		t.Errorf("one more: %v", err)
	}
	must(t, patch(`"example.com/a"`))
	f.collect()
	f.see("-cm")
	must(t, patch(``))
	f.see("")
}

// "If the object has other finalizers, [the garbage collector] does not remove it": the
// owner of a foreground deletion waits for other finalizers, too, and a dependent with
// a finalizer holds up an owner that it blocks (above).
func TestForegroundDeletionKeepsToOtherFinalizers(t *testing.T) {
	f := start(t, 0, nil)
	owner := f.configMap("owner")
	owner.Finalizers = []string{"example.com/hold"}
	_, err := f.admin.CoreV1().ConfigMaps("default").Update(t.Context(), owner, metav1.UpdateOptions{})
	must(t, err)
	f.configMap("part", ownerOf(owner, true))
	f.deleteConfigMap("owner", metav1.DeletePropagationForeground)
	f.collect()
	f.see("-owner")
	f.letGo("owner")
	f.see("")
}

// An object with several owners goes when the last of them has. One whose owner is
// being deleted in the foreground while another stays is let go of at once.
func TestSeveralOwners(t *testing.T) {
	f := start(t, 0, nil)
	a, b, c := f.configMap("a"), f.configMap("b"), f.configMap("c")
	f.configMap("part", ownerOf(a, true), ownerOf(b, true), ownerOf(c, true))
	f.deleteConfigMap("a", metav1.DeletePropagationBackground)
	f.collect()
	f.see("b c part")
	f.deleteConfigMap("b", metav1.DeletePropagationForeground)
	f.collect()
	f.see("c part")
	part, err := f.admin.CoreV1().ConfigMaps("default").Get(t.Context(), "part", metav1.GetOptions{})
	must(t, err)
	if len(part.OwnerReferences) != 1 || part.OwnerReferences[0].Name != "c" {
		t.Errorf("the owners are %v", part.OwnerReferences)
	}
	f.deleteConfigMap("c", metav1.DeletePropagationForeground)
	f.collect()
	f.see("")
}

// An owner reference means one object, not whatever has its name: "ownerReferences …
// uid". A dependent of an owner that was made anew goes, also when it comes late.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/#owner-references-in-object-specifications
func TestAnOwnerMadeAnewIsAnother(t *testing.T) {
	f := start(t, 0, nil)
	first := f.configMap("owner")
	f.configMap("part", ownerOf(first, true))
	f.deleteConfigMap("owner", metav1.DeletePropagationBackground)
	second := f.configMap("owner")
	f.configMap("late", ownerOf(first, true))
	f.configMap("own", ownerOf(second, true))
	f.collect()
	f.see("own owner")
}

// "A namespaced owner must exist in the same namespace as the dependent. If it does
// not, the owner reference is treated as absent, and the dependent is subject to
// deletion once all owners are verified absent." And: "If … the garbage collector
// detects an invalid cross-namespace ownerReference, or a cluster-scoped dependent with
// an ownerReference referencing a namespaced kind, a warning Event with a reason of
// OwnerRefInvalidNamespace and an involvedObject of the invalid dependent is reported."
// https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/
func TestAnOwnerInAnotherNamespaceIsAbsent(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	other, err := f.admin.CoreV1().ConfigMaps("kube-system").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	must(t, err)
	f.configMap("part", ownerOf(other, true))
	// A cluster-scoped owner may own what is in a namespace.
	node, err := f.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	must(t, err)
	f.configMap("of-a-node", ownerOf(node, true))
	// "Cluster-scoped dependents can only specify cluster-scoped owners. … if a
	// cluster-scoped dependent specifies a namespaced kind as an owner, it is treated as
	// having an unresolvable owner reference, and is not able to be garbage collected."
	_, err = f.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", OwnerReferences: []metav1.OwnerReference{ownerOf(other, false)}}}, metav1.CreateOptions{})
	must(t, err)
	f.collect()
	f.see("of-a-node")
	told := map[string]string{}
	for _, obj := range f.store.List(api.Events(), "") {
		e := obj.(*corev1.Event)
		told[e.InvolvedObject.Kind+" "+e.InvolvedObject.Name+" "+e.Type+" "+e.Reason] = e.Message
	}
	for who, what := range map[string]string{"ConfigMap part Warning OwnerRefInvalidNamespace": `does not exist in namespace "default"`, "Namespace shop Warning OwnerRefInvalidNamespace": `is in a namespace`} {
		if !strings.Contains(told[who], what) {
			t.Errorf("%s: events %q", who, told)
		}
	}
	if ns, err := f.admin.CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{}); err != nil || ns.DeletionTimestamp != nil {
		t.Errorf("the namespace with an owner in another: %v, %v", ns, err)
	}
	must(t, f.admin.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}))
	f.collect()
	f.see("")
}

// An owner that is not there, and never was, is absent.
func TestAMissingOwnerIsAbsent(t *testing.T) {
	f := start(t, 0, nil)
	f.configMap("part", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: "no-such-uid"})
	f.configMap("foreign", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Database", Name: "x", UID: "no-such-uid"})
	f.collect()
	f.see("foreign") // of a kind that is not known nothing can be said
}

// Owners that own each other go together, whichever policy and whichever of them is
// deleted; none waits for ever for the other.
func TestOwnersInACircle(t *testing.T) {
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground} {
		for size := 1; size <= 4; size++ {
			t.Run(fmt.Sprintf("%s of %d", how, size), func(t *testing.T) {
				f := start(t, 0, nil)
				var ring []*corev1.ConfigMap
				for i := range size {
					ring = append(ring, f.configMap(fmt.Sprintf("c%d", i)))
				}
				for i, cm := range ring {
					cm.OwnerReferences = []metav1.OwnerReference{ownerOf(ring[(i+1)%size], true)}
					_, err := f.admin.CoreV1().ConfigMaps("default").Update(t.Context(), cm, metav1.UpdateOptions{})
					must(t, err)
				}
				f.configMap("leaf", ownerOf(ring[size-1], true))
				f.collect()
				f.deleteConfigMap("c0", how)
				f.collect()
				f.see("")
			})
		}
	}
	t.Run("orphan", func(t *testing.T) {
		f := start(t, 0, nil)
		a := f.configMap("a")
		b := f.configMap("b", ownerOf(a, true))
		a.OwnerReferences = []metav1.OwnerReference{ownerOf(b, true)}
		_, err := f.admin.CoreV1().ConfigMaps("default").Update(t.Context(), a, metav1.UpdateOptions{})
		must(t, err)
		f.deleteConfigMap("a", metav1.DeletePropagationOrphan)
		f.collect()
		f.see("b")
	})
}

// "Deleting a namespace deletes everything in it. This delete is asynchronous, so for a
// time you will see the namespace in the Terminating state." New objects are refused
// meanwhile, and one with a finalizer is waited for.
// https://kubernetes.io/docs/tasks/administer-cluster/namespaces/#deleting-a-namespace
func TestNamespaceDeletion(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	_, err := f.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	must(t, err)
	cms := f.admin.CoreV1().ConfigMaps("shop")
	for _, name := range []string{"a", "held"} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "held" {
			cm.Finalizers = []string{"example.com/hold"}
		}
		_, err := cms.Create(ctx, cm, metav1.CreateOptions{})
		must(t, err)
	}
	must(t, f.admin.CoreV1().Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}))
	empty := func() {
		t.Helper()
		for range 20 {
			before, err := f.store.Current(ctx)
			must(t, err)
			must(t, f.store.WaitRevision(ctx, before))
			loop := namespace.New(namespace.Config{Store: f.store, Fence: func() store.Fence { return store.Fence{} }, Now: time.Now, Authority: []byte("ca")})
			for loop.Step(ctx) {
			}
			if after, err := f.store.Current(ctx); err != nil || after == before {
				return
			}
		}
	}
	empty()
	ns, err := f.admin.CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{})
	must(t, err)
	if ns.Status.Phase != corev1.NamespaceTerminating || ns.DeletionTimestamp == nil {
		t.Errorf("the namespace is %s", ns.Status.Phase)
	}
	told := ""
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			told += string(c.Type) + ": " + c.Message + "\n"
		}
	}
	if !strings.Contains(told, "NamespaceContentRemaining: Some resources are remaining: configmaps. has 1 resource instances") ||
		!strings.Contains(told, "NamespaceFinalizersRemaining: Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances") {
		t.Errorf("the conditions say %q", told)
	}
	if _, err := cms.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("a new object: %v", err)
	}
	_, err = cms.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(t, err)
	empty()
	if _, err := f.admin.CoreV1().Namespaces().Get(context.WithoutCancel(ctx), "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("in the end: %v", err)
	}
}
