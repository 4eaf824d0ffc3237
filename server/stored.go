package server

import (
	"errors"
	"fmt"

	"headway.dev/headway/api"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	autoscalinginstall "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	networkinginstall "k8s.io/kubernetes/pkg/apis/networking/install"
	policyinstall "k8s.io/kubernetes/pkg/apis/policy/install"
	rbacinstall "k8s.io/kubernetes/pkg/apis/rbac/install"
	schedulinginstall "k8s.io/kubernetes/pkg/apis/scheduling/install"
	storageinstall "k8s.io/kubernetes/pkg/apis/storage/install"
	autoscalerstorage "k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler/storage"
	limitrangestorage "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	resourcequotastorage "k8s.io/kubernetes/pkg/registry/core/resourcequota/storage"
	ingressstorage "k8s.io/kubernetes/pkg/registry/networking/ingress/storage"
	ingressclassstorage "k8s.io/kubernetes/pkg/registry/networking/ingressclass/storage"
	networkpolicystorage "k8s.io/kubernetes/pkg/registry/networking/networkpolicy/storage"
	disruptionbudgetstorage "k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget/storage"
	clusterrolestorage "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/storage"
	clusterrolebindingstorage "k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding/storage"
	rolestorage "k8s.io/kubernetes/pkg/registry/rbac/role/storage"
	rolebindingstorage "k8s.io/kubernetes/pkg/registry/rbac/rolebinding/storage"
	priorityclassstorage "k8s.io/kubernetes/pkg/registry/scheduling/priorityclass/storage"
)

// installStored adds the groups of the stored kinds.
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

// versionOf is the version in which a group is served.
func versionOf(group string) string {
	for _, k := range api.Kinds() {
		if k.Group == group {
			return k.Version
		}
	}
	return "v1"
}

// storedResources are the registries of the stored kinds, by group. Roles are kept
// without the question whether their author has what they grant: only
// administrators write here.
func storedResources(options generic.RESTOptionsGetter, scheme *runtime.Scheme) (map[string]resources, error) {
	var wrong error
	must := func(what string, err error) {
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", what, err))
		}
	}
	limits, err := limitrangestorage.NewREST(options)
	must("limitranges", err)
	quotas, quotaStatus, err := resourcequotastorage.NewREST(options)
	must("resourcequotas", err)
	definitions, err := customresourcedefinition.NewREST(scheme, options)
	must("customresourcedefinitions", err)
	autoscalers, autoscalerStatus, err := autoscalerstorage.NewREST(options)
	must("horizontalpodautoscalers", err)
	ingresses, ingressStatus, err := ingressstorage.NewREST(options)
	must("ingresses", err)
	ingressClasses, err := ingressclassstorage.NewREST(options)
	must("ingressclasses", err)
	policies, err := networkpolicystorage.NewREST(options)
	must("networkpolicies", err)
	budgets, budgetStatus, err := disruptionbudgetstorage.NewREST(options)
	must("poddisruptionbudgets", err)
	clusterRoles, err := clusterrolestorage.NewREST(options)
	must("clusterroles", err)
	clusterRoleBindings, err := clusterrolebindingstorage.NewREST(options)
	must("clusterrolebindings", err)
	roles, err := rolestorage.NewREST(options)
	must("roles", err)
	roleBindings, err := rolebindingstorage.NewREST(options)
	must("rolebindings", err)
	priorities, err := priorityclassstorage.NewREST(options)
	must("priorityclasses", err)
	if wrong != nil {
		return nil, wrong
	}
	return map[string]resources{
		"": {
			"limitranges":    limits,
			"resourcequotas": quotas, "resourcequotas/status": quotaStatus,
		},
		"apiextensions.k8s.io": {"customresourcedefinitions": definitionStorage{definitions.Store}},
		"autoscaling":          {"horizontalpodautoscalers": autoscalers, "horizontalpodautoscalers/status": autoscalerStatus},
		"networking.k8s.io": {
			"ingresses": ingresses, "ingresses/status": ingressStatus,
			"ingressclasses": ingressClasses, "networkpolicies": policies,
		},
		"policy": {"poddisruptionbudgets": budgets, "poddisruptionbudgets/status": budgetStatus},
		"rbac.authorization.k8s.io": {
			"clusterroles": clusterRoles, "clusterrolebindings": clusterRoleBindings,
			"roles": roles, "rolebindings": roleBindings,
		},
		"scheduling.k8s.io": {"priorityclasses": priorities},
	}, nil
}

// definitionStorage keeps CustomResourceDefinitions. Kubernetes' own registry holds
// back a deletion until the objects of the kind are gone; here are none.
type definitionStorage struct{ *genericregistry.Store }

// ShortNames implements rest.ShortNamesProvider.
func (definitionStorage) ShortNames() []string { return []string{"crd", "crds"} }

// Categories implements rest.CategoriesProvider.
func (definitionStorage) Categories() []string { return []string{"api-extensions"} }
