package api

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	autoscalinginstall "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	networkinginstall "k8s.io/kubernetes/pkg/apis/networking/install"
	policyinstall "k8s.io/kubernetes/pkg/apis/policy/install"
	rbacinstall "k8s.io/kubernetes/pkg/apis/rbac/install"
	schedulinginstall "k8s.io/kubernetes/pkg/apis/scheduling/install"
	storageinstall "k8s.io/kubernetes/pkg/apis/storage/install"
)

// storedKinds are the kinds of Kubernetes that are served, validated and kept, and
// on which nothing acts yet, but for those that are marked. A commit that has one is warned by name.
//
// One whose absence is safe is accepted: what it grants is not granted, what it
// would hold back does not happen, or it matters only to a kind that is asked for.
// One with a risk is refused until .headway.yaml allows it: a guard that is believed
// to hold, a way in that is believed open, a workload that is believed to run, data
// that is believed to have a place.
func storedKinds() []Kind {
	k := func(gv, kind, resource string, proto runtime.Object, why, risk string) Kind {
		parsed, err := schema.ParseGroupVersion(gv)
		utilruntime.Must(err)
		return Kind{GroupVersionKind: parsed.WithKind(kind), Resource: resource, Namespaced: true, Prototype: proto, Declarable: true, Inert: why, Told: true, Risk: risk}
	}
	cluster := func(k Kind) Kind { k.Namespaced = false; return k }
	actedOn := func(k Kind) Kind { k.Told = false; return k }
	const (
		rbac     = "rbac.authorization.k8s.io/v1"
		noGrants = "it grants nothing: an administrator's certificate may do all, and nobody else anything"
	)
	return []Kind{
		cluster(k("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", &apiextensionsv1.CustomResourceDefinition{}, "objects of the kind that it defines are not served, and a commit that has one is judged for it", "")),
		actedOn(k("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &autoscalingv2.HorizontalPodAutoscaler{}, "", "")),
		k("networking.k8s.io/v1", "Ingress", "ingresses", &networkingv1.Ingress{}, "requests are not routed by their host and path", "nobody reaches what it opens (a Service of type LoadBalancer or NodePort is reached)"),
		cluster(k("networking.k8s.io/v1", "IngressClass", "ingressclasses", &networkingv1.IngressClass{}, "it only says who serves an Ingress, which is not served", "")),
		k("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", &networkingv1.NetworkPolicy{}, "traffic between pods is not filtered", "what it forbids passes"),
		cluster(k(rbac, "ClusterRole", "clusterroles", &rbacv1.ClusterRole{}, noGrants, "")),
		cluster(k(rbac, "ClusterRoleBinding", "clusterrolebindings", &rbacv1.ClusterRoleBinding{}, noGrants, "")),
		k(rbac, "Role", "roles", &rbacv1.Role{}, noGrants, ""),
		k(rbac, "RoleBinding", "rolebindings", &rbacv1.RoleBinding{}, noGrants, ""),
		actedOn(cluster(k("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", &schedulingv1.PriorityClass{}, "", ""))),
	}
}

// installStored adds the groups that only stored kinds need.
func installStored(s *runtime.Scheme) {
	autoscalinginstall.Install(s)
	networkinginstall.Install(s)
	policyinstall.Install(s)
	rbacinstall.Install(s)
	schedulinginstall.Install(s)
	storageinstall.Install(s)
	utilruntime.Must(apiextensions.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
}
