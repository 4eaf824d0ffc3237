package api

import (
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is any object of the API, always a pointer to its v1 type (*corev1.Pod).
type Object interface {
	metav1.Object
	runtime.Object
}

// Kind describes one kind that this version knows.
type Kind struct {
	schema.GroupVersionKind
	Resource   string         // plural, lower case: "deployments"
	Namespaced bool           // false: cluster-scoped
	Declarable bool           // may stand in a repository
	Inert      string         // why nothing acts on a declarable kind, which is kept and shown; "" when something does
	Told       bool           // a commit that has an inert kind is warned
	Risk       string         // what whoever relies on an inert kind would lose: a commit that has it is refused unless ConfigFile allows it
	Sealed     bool           // encrypted in the store
	Prototype  runtime.Object // a zero value; copy it, never change it
}

// GroupResource returns the group and the plural name.
func (k Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// New returns a zero object of the kind.
func (k Kind) New() Object { return k.Prototype.DeepCopyObject().(Object) }

// The group resources that components name most.
func gr(group, resource string) schema.GroupResource {
	return schema.GroupResource{Group: group, Resource: resource}
}

// Resources by name. They are functions, not variables, so that nobody can
// change them.
func Namespaces() schema.GroupResource             { return gr("", "namespaces") }
func Nodes() schema.GroupResource                  { return gr("", "nodes") }
func Pods() schema.GroupResource                   { return gr("", "pods") }
func ConfigMaps() schema.GroupResource             { return gr("", "configmaps") }
func Secrets() schema.GroupResource                { return gr("", "secrets") }
func ServiceAccounts() schema.GroupResource        { return gr("", "serviceaccounts") }
func Events() schema.GroupResource                 { return gr("", "events") }
func Services() schema.GroupResource               { return gr("", "services") }
func Endpoints() schema.GroupResource              { return gr("", "endpoints") }
func PersistentVolumes() schema.GroupResource      { return gr("", "persistentvolumes") }
func PersistentVolumeClaims() schema.GroupResource { return gr("", "persistentvolumeclaims") }
func StorageClasses() schema.GroupResource         { return gr("storage.k8s.io", "storageclasses") }
func ReplicationControllers() schema.GroupResource { return gr("", "replicationcontrollers") }
func ReplicaSets() schema.GroupResource            { return gr("apps", "replicasets") }
func Deployments() schema.GroupResource            { return gr("apps", "deployments") }
func StatefulSets() schema.GroupResource           { return gr("apps", "statefulsets") }
func DaemonSets() schema.GroupResource             { return gr("apps", "daemonsets") }
func ControllerRevisions() schema.GroupResource    { return gr("apps", "controllerrevisions") }
func Jobs() schema.GroupResource                   { return gr("batch", "jobs") }
func CronJobs() schema.GroupResource               { return gr("batch", "cronjobs") }
func EndpointSlices() schema.GroupResource         { return gr("discovery.k8s.io", "endpointslices") }
func PriorityClasses() schema.GroupResource        { return gr("scheduling.k8s.io", "priorityclasses") }
func Leases() schema.GroupResource                 { return gr("coordination.k8s.io", "leases") }
func Sources() schema.GroupResource                { return gr(Group, "sources") }
func GitRefs() schema.GroupResource                { return gr(Group, "gitrefs") }
func DoneRecords() schema.GroupResource            { return gr(Group, "donerecords") }
func Receipts() schema.GroupResource               { return gr(Group, "receipts") }
func CommitStatuses() schema.GroupResource         { return gr(Group, "commitstatuses") }
func Authorities() schema.GroupResource            { return gr(Group, "authorities") }
func JoinTokens() schema.GroupResource             { return gr(Group, "jointokens") }
func Edits() schema.GroupResource                  { return gr(Group, "edits") }
func DriftRecords() schema.GroupResource           { return gr(Group, "driftrecords") }
func SlotRecords() schema.GroupResource            { return gr(Group, "slotrecords") }
func Allocations() schema.GroupResource            { return gr(Group, "allocations") }

var table = sync.OnceValue(func() []Kind {
	k := func(group, kind, resource string, proto runtime.Object, opts ...func(*Kind)) Kind {
		out := Kind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Resource: resource, Namespaced: true, Prototype: proto}
		for _, o := range opts {
			o(&out)
		}
		return out
	}
	cluster := func(k *Kind) { k.Namespaced = false }
	declared := func(k *Kind) { k.Declarable = true }
	sealed := func(k *Kind) { k.Sealed = true }
	inert := func(why string) func(*Kind) { return func(k *Kind) { k.Inert = why } }
	return append([]Kind{
		k("", "Namespace", "namespaces", &corev1.Namespace{}, cluster, declared),
		k("", "Node", "nodes", &corev1.Node{}, cluster),
		k("", "Pod", "pods", &corev1.Pod{}, declared),
		k("", "ConfigMap", "configmaps", &corev1.ConfigMap{}, declared),
		k("", "Secret", "secrets", &corev1.Secret{}, declared, sealed),
		k("", "ServiceAccount", "serviceaccounts", &corev1.ServiceAccount{}, declared, inert("pods get no API credentials")),
		k("", "Event", "events", &corev1.Event{}),
		k("", "Service", "services", &corev1.Service{}, declared),
		k("", "Endpoints", "endpoints", &corev1.Endpoints{}, declared),
		k("", "LimitRange", "limitranges", &corev1.LimitRange{}, declared),
		k("", "ResourceQuota", "resourcequotas", &corev1.ResourceQuota{}, declared),
		k("", "PersistentVolume", "persistentvolumes", &corev1.PersistentVolume{}, cluster, declared),
		k("", "PersistentVolumeClaim", "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, declared),
		k("storage.k8s.io", "StorageClass", "storageclasses", &storagev1.StorageClass{}, cluster, declared),
		k("", "ReplicationController", "replicationcontrollers", &corev1.ReplicationController{}, declared),
		k("apps", "ReplicaSet", "replicasets", &appsv1.ReplicaSet{}, declared),
		k("apps", "Deployment", "deployments", &appsv1.Deployment{}, declared),
		k("apps", "StatefulSet", "statefulsets", &appsv1.StatefulSet{}, declared),
		k("apps", "DaemonSet", "daemonsets", &appsv1.DaemonSet{}, declared),
		k("apps", "ControllerRevision", "controllerrevisions", &appsv1.ControllerRevision{}),
		k("batch", "Job", "jobs", &batchv1.Job{}, declared),
		k("batch", "CronJob", "cronjobs", &batchv1.CronJob{}, declared),
		k("discovery.k8s.io", "EndpointSlice", "endpointslices", &discoveryv1.EndpointSlice{}, declared),
		k("policy", "PodDisruptionBudget", "poddisruptionbudgets", &policyv1.PodDisruptionBudget{}, declared),
		k("coordination.k8s.io", "Lease", "leases", &coordinationv1.Lease{}),
		k(Group, "Source", "sources", &Source{}, cluster),
		k(Group, "GitRef", "gitrefs", &GitRef{}, cluster),
		k(Group, "DoneRecord", "donerecords", &DoneRecord{}),
		k(Group, "Receipt", "receipts", &Receipt{}, cluster),
		k(Group, "CommitStatus", "commitstatuses", &CommitStatus{}, cluster),
		k(Group, "Authority", "authorities", &Authority{}, cluster, sealed),
		k(Group, "JoinToken", "jointokens", &JoinToken{}, cluster, sealed),
		k(Group, "Edit", "edits", &Edit{}, cluster),
		k(Group, "DriftRecord", "driftrecords", &DriftRecord{}, cluster),
		k(Group, "SlotRecord", "slotrecords", &SlotRecord{}, cluster),
		k(Group, "Allocation", "allocations", &Allocation{}, cluster),
		k(Group, "NodeFigures", "nodefigures", &NodeFigures{}, cluster),
	}, storedKinds()...)
})

// Kinds lists the kinds that this version knows, always in the same order.
func Kinds() []Kind { return append([]Kind(nil), table()...) }

type index struct {
	byKind     map[schema.GroupVersionKind]Kind
	byResource map[schema.GroupResource]Kind
}

var indexed = sync.OnceValue(func() index {
	ix := index{byKind: map[schema.GroupVersionKind]Kind{}, byResource: map[schema.GroupResource]Kind{}}
	for _, k := range table() {
		ix.byKind[k.GroupVersionKind] = k
		ix.byResource[k.GroupResource()] = k
	}
	return ix
})

// KindFor returns the kind of a group, version and kind.
func KindFor(gvk schema.GroupVersionKind) (Kind, bool) {
	k, ok := indexed().byKind[gvk]
	return k, ok
}

// ResourceKind returns the kind behind a group and plural name.
func ResourceKind(gr schema.GroupResource) (Kind, bool) {
	k, ok := indexed().byResource[gr]
	return k, ok
}

// KindOf returns the kind of a Go object. It looks at the Go type, not at the
// object's TypeMeta, which may be empty.
func KindOf(obj runtime.Object) (Kind, bool) {
	gvks, _, err := Scheme().ObjectKinds(obj)
	if err != nil || len(gvks) == 0 {
		return Kind{}, false
	}
	return KindFor(gvks[0])
}
