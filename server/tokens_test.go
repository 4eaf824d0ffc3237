package server

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/server/accounts"
	"headway.dev/headway/server/certs"
	"headway.dev/headway/store"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var signingKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// withTokens lets ServiceAccounts sign in, and makes the built-in roles.
func withTokens(t *testing.T) func(*Config) {
	return func(c *Config) {
		key, err := signingKey()
		must(t, err)
		c.Tokens, err = accounts.New(key, c.Store)
		must(t, err)
		for _, obj := range accounts.Builtin() {
			obj = obj.DeepCopyObject().(api.Object)
			store.Stamp(obj, time.Now())
			_, err := c.Store.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: obj}}})
			must(t, err)
		}
	}
}

func (f *fixture) account(name string) *corev1.ServiceAccount {
	f.t.Helper()
	out, err := f.admin.CoreV1().ServiceAccounts("default").Create(f.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(f.t, err)
	return out
}

// grant binds rules to an account in the namespace default.
func (f *fixture) grant(account string, rules ...rbacv1.PolicyRule) {
	f.t.Helper()
	_, err := f.admin.RbacV1().Roles("default").Create(f.t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: rules}, metav1.CreateOptions{})
	must(f.t, err)
	_, err = f.admin.RbacV1().RoleBindings("default").Create(f.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: "default"}},
	}, metav1.CreateOptions{})
	must(f.t, err)
}

func (f *fixture) token(account string, spec authenticationv1.TokenRequestSpec) string {
	f.t.Helper()
	out, err := f.admin.CoreV1().ServiceAccounts("default").CreateToken(f.t.Context(), account, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	must(f.t, err)
	return out.Status.Token
}

// bearer is a client that shows a token.
func (f *fixture) bearer(token string) *kubernetes.Clientset {
	f.t.Helper()
	out, err := kubernetes.NewForConfig(&rest.Config{Host: f.url, QPS: -1, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: f.ca.PEM()}})
	must(f.t, err)
	return out
}

var readPods = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}

func TestAnAccountMayDoWhatItsRolesSay(t *testing.T) {
	f := start(t, 0, withTokens(t))
	ctx := t.Context()
	f.account("reader")
	f.grant("reader", readPods)
	c := f.bearer(f.token("reader", authenticationv1.TokenRequestSpec{}))
	_, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	must(t, err)
	_, err = c.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "system:serviceaccount:default:reader" cannot list resource "secrets"`) || !strings.Contains(err.Error(), "no Role or ClusterRole") {
		t.Errorf("secrets: %v", err)
	}
	if _, err = c.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("pods of another namespace: %v", err)
	}
	if err = c.CoreV1().Pods("default").Delete(ctx, "any", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deletes: %v", err)
	}
	me, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, err)
	if u := me.Status.UserInfo; u.Username != "system:serviceaccount:default:reader" || strings.Join(u.Groups, " ") != "system:serviceaccounts system:serviceaccounts:default system:authenticated" {
		t.Errorf("whoami: %+v", u)
	}
	for resource, want := range map[string]bool{"pods": true, "secrets": false} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "list", Resource: resource}}}
		out, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		must(t, err)
		if out.Status.Allowed != want {
			t.Errorf("can-i list %s: %+v", resource, out.Status)
		}
	}
	rules, err := c.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
	must(t, err)
	if !strings.Contains(rules.String(), "Resources:[pods]") {
		t.Errorf("can-i --list: %+v", rules.Status)
	}
	must(t, f.admin.RbacV1().RoleBindings("default").Delete(ctx, "reader", metav1.DeleteOptions{}))
	eventually(t, func() bool {
		_, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return apierrors.IsForbidden(err)
	})
}

// eventually waits for a cache.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

func TestWhichTokensAreGood(t *testing.T) {
	f := start(t, 0, withTokens(t))
	ctx := t.Context()
	f.account("reader")
	f.grant("reader", readPods)
	list := func(token string) error {
		_, err := f.bearer(token).CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err
	}
	refused := func(what, token string) {
		t.Helper()
		if err := list(token); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	good := f.token("reader", authenticationv1.TokenRequestSpec{})
	must(t, list(good))
	refused("one of no form", "abc")
	head, rest, _ := strings.Cut(good, ".")
	body, sign, _ := strings.Cut(rest, ".")
	refused("without a signature", head+"."+body+".")
	flipped := []byte(sign)
	flipped[0] ^= 1
	refused("with a forged signature", head+"."+body+"."+string(flipped))
	refused("for another audience", f.token("reader", authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}))
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	stranger, err := accounts.New(other, f.store)
	must(t, err)
	bound, err := f.admin.CoreV1().Pods("default").Create(ctx, func() *corev1.Pod { p := pod("web", "n1"); p.Spec.ServiceAccountName = "reader"; return p }(), metav1.CreateOptions{})
	must(t, err)
	foreign, _, err := stranger.ForPod(ctx, bound, "", 3607)
	must(t, err)
	refused("of another cluster's key", foreign)

	ofPod, life, err := f.server.cfg.Tokens.ForPod(ctx, bound, "", 3607)
	must(t, err)
	if life != 3607*time.Second {
		t.Errorf("life %s", life)
	}
	must(t, list(ofPod))
	review, err := f.admin.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: ofPod}}, metav1.CreateOptions{})
	must(t, err)
	if u := review.Status.User; !review.Status.Authenticated || u.Extra["authentication.kubernetes.io/pod-name"][0] != "web" || u.Extra["authentication.kubernetes.io/node-name"][0] != "n1" {
		t.Errorf("review: %+v", review.Status)
	}
	zero := int64(0)
	must(t, f.admin.CoreV1().Pods("default").Delete(ctx, "web", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	eventually(t, func() bool { return apierrors.IsUnauthorized(list(ofPod)) })
	must(t, list(good))
	must(t, f.admin.CoreV1().ServiceAccounts("default").Delete(ctx, "reader", metav1.DeleteOptions{}))
	eventually(t, func() bool { return apierrors.IsUnauthorized(list(good)) })
	f.account("reader") // of the same name is another
	refused("of an account that was made again", good)
	review, err = f.admin.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: good}}, metav1.CreateOptions{})
	must(t, err)
	if review.Status.Authenticated || strings.Contains(review.Status.Error, good) {
		t.Errorf("review: %+v", review.Status)
	}
}

func TestTokenRequestsHaveBounds(t *testing.T) {
	f := start(t, 0, withTokens(t))
	f.account("reader")
	ask := func(spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
		return f.admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "reader", &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	}
	short, long := int64(60), int64(10*365*24*3600)
	if _, err := ask(authenticationv1.TokenRequestSpec{ExpirationSeconds: &short}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "may not specify a duration less than 10 minutes") {
		t.Errorf("a minute: %v", err)
	}
	out, err := ask(authenticationv1.TokenRequestSpec{ExpirationSeconds: &long})
	must(t, err)
	if got := time.Until(out.Status.ExpirationTimestamp.Time); got > accounts.Longest {
		t.Errorf("ten years became %s", got)
	}
	for _, ref := range []authenticationv1.BoundObjectReference{{Kind: "Pod", APIVersion: "v1", Name: "none"}, {Kind: "Secret", APIVersion: "v1", Name: "none"}} {
		if _, err := ask(authenticationv1.TokenRequestSpec{BoundObjectRef: &ref}); !apierrors.IsNotFound(err) {
			t.Errorf("bound to a %s that is not there: %v", ref.Kind, err)
		}
	}
}

// Nobody grants what he has not himself.
func TestNobodyGrantsWhatHeHasNot(t *testing.T) {
	f := start(t, 0, withTokens(t))
	ctx := t.Context()
	f.account("granter")
	f.grant("granter", readPods, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}, Verbs: []string{"create", "update"}})
	c := f.bearer(f.token("granter", authenticationv1.TokenRequestSpec{}))
	role := func(name string, rule rbacv1.PolicyRule) error {
		_, err := c.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		return err
	}
	must(t, role("pods", readPods))
	err := role("secrets", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is attempting to grant RBAC permissions not currently held") {
		t.Errorf("a role with more: %v", err)
	}
	_, err = c.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "granter", Namespace: "default"}}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a binding to cluster-admin: %v", err)
	}
}

func TestKeysAreShown(t *testing.T) {
	f := start(t, 0, withTokens(t))
	f.account("reader")
	token := f.token("reader", authenticationv1.TokenRequestSpec{})
	read := func(path, token string, into any) int {
		req, err := http.NewRequest(http.MethodGet, f.url+path, nil)
		must(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := f.client(certs.Pair{}).Do(req)
		must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		if resp.StatusCode == http.StatusOK {
			must(t, json.Unmarshal(body, into))
		}
		return resp.StatusCode
	}
	var config struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	var keys struct {
		Keys []map[string]string `json:"keys"`
	}
	if code := read("/.well-known/openid-configuration", token, &config); code != http.StatusOK || config.Issuer != accounts.Issuer || config.Keys != accounts.Issuer+"/openid/v1/jwks" {
		t.Errorf("%d %+v", code, config)
	}
	if code := read("/openid/v1/jwks", token, &keys); code != http.StatusOK || len(keys.Keys) != 1 || keys.Keys[0]["alg"] != "RS256" || keys.Keys[0]["d"] != "" {
		t.Errorf("%d %+v", code, keys)
	}
	if code := read("/openid/v1/jwks", "", &keys); code != http.StatusUnauthorized {
		t.Errorf("nobody: %d", code)
	}
	if code := read("/version", token, &struct{}{}); code != http.StatusOK {
		t.Errorf("/version: %d", code)
	}
	if code := read("/metrics", token, &struct{}{}); code != http.StatusForbidden {
		t.Errorf("/metrics: %d", code)
	}
}

func TestAPodOfAnUnknownAccountIsRefused(t *testing.T) {
	f := start(t, 0, withTokens(t))
	p := pod("web", "")
	p.Spec.ServiceAccountName = "robot"
	_, err := f.admin.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `error looking up service account default/robot: serviceaccount "robot" not found`) {
		t.Fatalf("%v", err)
	}
	f.account("robot") // which no cache has to know yet
	made, err := f.admin.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
	must(t, err)
	if m := made.Spec.Containers[0].VolumeMounts; len(m) != 1 || m[0].MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" || !m[0].ReadOnly || len(made.Spec.Volumes) != 1 || made.Spec.Volumes[0].Name != m[0].Name {
		t.Errorf("%+v %+v", made.Spec.Volumes, m)
	}
}
