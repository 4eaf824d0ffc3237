package accounts

import (
	"context"
	"slices"

	"headway.dev/headway/api"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// Roles says what users may do by the Roles and ClusterRoles of the store.
func Roles(st Store) *rbac.RBACAuthorizer {
	r := rules{st}
	return rbac.New(r, r, r, r)
}

// Rules finds the rules that users have, to hold against what they want to grant.
func Rules(st Store) validation.AuthorizationRuleResolver {
	r := rules{st}
	return validation.NewDefaultRuleResolver(r, r, r, r)
}

// rules reads roles and bindings.
type rules struct{ store Store }

func (r rules) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	return find[*rbacv1.Role](ctx, r.store, api.Roles(), namespace, name)
}

func (r rules) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	return find[*rbacv1.ClusterRole](ctx, r.store, api.ClusterRoles(), "", name)
}

func (r rules) ListRoleBindings(_ context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	return all[*rbacv1.RoleBinding](r.store, api.RoleBindings(), namespace), nil
}

func (r rules) ListClusterRoleBindings(context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	return all[*rbacv1.ClusterRoleBinding](r.store, api.ClusterRoleBindings(), ""), nil
}

func all[T api.Object](st Store, gr schema.GroupResource, namespace string) []T {
	list := st.List(gr, namespace)
	out := make([]T, 0, len(list))
	for _, obj := range list {
		out = append(out, obj.(T))
	}
	return out
}

// Builtin are the ClusterRoles and the ClusterRoleBindings that Kubernetes makes in
// every cluster, but for those of its own components.
func Builtin() []api.Object {
	names := []string{
		"cluster-admin", "admin", "edit", "view", "system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view",
		"system:discovery", "system:basic-user", "system:public-info-viewer", "system:monitoring",
		"system:auth-delegator", "system:service-account-issuer-discovery", "system:persistent-volume-provisioner",
	}
	var out []api.Object
	for _, r := range bootstrappolicy.ClusterRoles() {
		if slices.Contains(names, r.Name) {
			out = append(out, &r)
		}
	}
	for _, b := range bootstrappolicy.ClusterRoleBindings() {
		if slices.Contains(names, b.Name) {
			out = append(out, &b)
		}
	}
	return out
}
