package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"headway.dev/headway/server/accounts"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/registry/authentication/selfsubjectreview"
	"k8s.io/kubernetes/pkg/registry/authentication/tokenreview"
	serviceaccountstorage "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"
	clusterrolepolicy "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/policybased"
	clusterrolestorage "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/storage"
	clusterrolebindingpolicy "k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding/policybased"
	clusterrolebindingstorage "k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding/storage"
	rolepolicy "k8s.io/kubernetes/pkg/registry/rbac/role/policybased"
	rolestorage "k8s.io/kubernetes/pkg/registry/rbac/role/storage"
	rolebindingpolicy "k8s.io/kubernetes/pkg/registry/rbac/rolebinding/policybased"
	rolebindingstorage "k8s.io/kubernetes/pkg/registry/rbac/rolebinding/storage"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// roleResources are the registries of roles. Nobody grants by them what he has not
// himself, as in Kubernetes; what git grants is the syncer's to write.
func (s *Server) roleResources(options generic.RESTOptionsGetter, may authorizer.Authorizer) (resources, error) {
	clusterRoles, err := clusterrolestorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("clusterroles: %w", err)
	}
	clusterRoleBindings, err := clusterrolebindingstorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("clusterrolebindings: %w", err)
	}
	roles, err := rolestorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("roles: %w", err)
	}
	roleBindings, err := rolebindingstorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("rolebindings: %w", err)
	}
	rules := accounts.Rules(s.cfg.Store)
	return resources{
		"clusterroles":        clusterrolepolicy.NewStorage(clusterRoles, may, rules),
		"clusterrolebindings": clusterrolebindingpolicy.NewStorage(clusterRoleBindings, may, rules),
		"roles":               rolepolicy.NewStorage(roles, may, rules),
		"rolebindings":        rolebindingpolicy.NewStorage(roleBindings, may, rules),
	}, nil
}

// accountResources are the registry of ServiceAccounts and of their tokens.
func (s *Server) accountResources(options generic.RESTOptionsGetter, may authorizer.Authorizer, pods, secrets, nodes rest.Getter) (resources, error) {
	var sign serviceaccount.TokenGenerator
	if s.cfg.Tokens != nil {
		sign = s.cfg.Tokens.Generator()
	}
	kept, err := serviceaccountstorage.NewREST(options, sign, accounts.Audiences(), may, accounts.Longest, pods, secrets, nodes,
		nil, nil, true, serviceaccount.ExpirationExtensionSeconds*time.Second)
	if err != nil {
		return nil, fmt.Errorf("serviceaccounts: %w", err)
	}
	out := resources{"serviceaccounts": kept}
	if kept.Token != nil {
		out["serviceaccounts/token"] = kept.Token
	}
	return out, nil
}

// identityResources say who somebody is.
func (s *Server) identityResources() resources {
	out := resources{"selfsubjectreviews": selfsubjectreview.NewREST()}
	if s.cfg.Tokens != nil {
		out["tokenreviews"] = tokenreview.NewREST(authenticator.RequestFunc(s.cfg.Tokens.AuthenticateRequest), accounts.Audiences())
	}
	return out
}

// everything says of an administrator that he may do all, which no role does.
type everything struct{ roles authorizer.RuleResolver }

func (e everything) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return e.roles.RulesFor(ctx, u, namespace)
	}
	any := []string{"*"}
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: any, APIGroups: any, Resources: any}},
		[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: any, NonResourceURLs: any}}, false, nil
}

// serveKeys serves what others verify the tokens of ServiceAccounts by, as OpenID
// Connect says it. Access to it is the API's.
func (s *Server) serveKeys(api *genericserver.GenericAPIServer) error {
	if s.cfg.Tokens == nil {
		return nil
	}
	documents, err := s.cfg.Tokens.Discovery()
	if err != nil {
		return fmt.Errorf("describe the issuer of tokens: %w", err)
	}
	serve := func(path, content string, read func() ([]byte, int)) {
		api.Handler.NonGoRestfulMux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			body, age := read()
			w.Header().Set("Content-Type", content)
			w.Header().Set("Cache-Control", "public, max-age="+strconv.Itoa(age))
			_, _ = w.Write(body) // who has left hears nothing
		})
	}
	serve(serviceaccount.OpenIDConfigPath, "application/json", documents.GetConfigJSON)
	serve(serviceaccount.JWKSPath, "application/jwk-set+json", documents.GetKeysetJSON)
	return nil
}
