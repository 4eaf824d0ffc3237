package accounts

import (
	"context"
	"crypto/rsa"
	"fmt"
	"net/http"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// Issuer is who signs, and the audience of tokens for the API.
const Issuer = "https://kubernetes.default.svc.cluster.local"

const (
	// Longest is how long a token that a client asks for may live.
	Longest = 365 * 24 * time.Hour
	// extended is how long a pod's token for the API is good beyond the hour after which
	// its file is renewed, for programs that read it once. It ends with its pod.
	extended = serviceaccount.ExpirationExtensionSeconds
	standard = serviceaccount.WarnOnlyBoundTokenExpirationSeconds
	least    = 600 // seconds, Kubernetes' own bound
)

// Audiences are those of the API.
func Audiences() authenticator.Audiences { return authenticator.Audiences{Issuer} }

// Store is what accounts and what their tokens are bound to are read from;
// *store.Store is one.
type Store interface {
	Get(key store.Key) api.Object
	List(gr schema.GroupResource, namespace string) []api.Object
	GetAt(ctx context.Context, key store.Key, revision int64) (api.Object, int64, error)
}

// Tokens signs and recognizes tokens.
type Tokens struct {
	store     Store
	generator serviceaccount.TokenGenerator
	keys      serviceaccount.PublicKeysGetter
	requests  authenticator.Request
}

// New returns the Tokens of a key.
func New(key *rsa.PrivateKey, st Store) (*Tokens, error) {
	t := &Tokens{store: st}
	var err error
	if t.generator, err = serviceaccount.JWTTokenGenerator(Issuer, key); err != nil {
		return nil, fmt.Errorf("use the key of ServiceAccounts' tokens: %w", err)
	}
	if t.keys, err = serviceaccount.StaticPublicKeysGetter([]any{&key.PublicKey}); err != nil {
		return nil, fmt.Errorf("use the key of ServiceAccounts' tokens: %w", err)
	}
	validator := serviceaccount.NewValidator(lookup{st})
	t.requests = group.NewAuthenticatedGroupAdder(bearertoken.New(serviceaccount.JWTTokenAuthenticator([]string{Issuer}, t.keys, Audiences(), validator)))
	return t, nil
}

// Generator signs what the caller has checked.
func (t *Tokens) Generator() serviceaccount.TokenGenerator { return t.generator }

// AuthenticateRequest says whose token a request bears.
func (t *Tokens) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	return t.requests.AuthenticateRequest(r)
}

// ForPod signs a token of a pod's account that is bound to the pod, for an audience ("":
// the API) and for so many seconds. It returns how long the token's file is good: the
// token itself may be good for longer. That the pod asks for such a token is the
// caller's to check.
func (t *Tokens) ForPod(ctx context.Context, pod *corev1.Pod, audience string, seconds int64) (token string, life time.Duration, err error) {
	account, err := lookup{t.store}.GetServiceAccount(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return "", 0, err
	}
	if pod.Spec.ServiceAccountName == "" || seconds < least || seconds > 1<<32 {
		return "", 0, fmt.Errorf("a token of account %q for %d seconds cannot be asked for", pod.Spec.ServiceAccountName, seconds)
	}
	audiences := []string{audience}
	if audience == "" {
		audiences = Audiences()
	}
	seconds = min(seconds, int64(Longest/time.Second))
	good, warn := seconds, int64(0)
	if seconds == standard && slices.Equal(audiences, Audiences()) {
		good, warn = extended, seconds
	}
	node := &core.Node{}
	node.Name = pod.Spec.NodeName
	if known, ok := t.store.Get(store.Key{GroupResource: api.Nodes(), Name: node.Name}).(*corev1.Node); ok {
		node.UID = known.UID
	}
	public, private, err := serviceaccount.Claims(core.ServiceAccount{ObjectMeta: account.ObjectMeta}, &core.Pod{ObjectMeta: pod.ObjectMeta}, nil, node, nil, nil, good, warn, audiences, nil)
	if err != nil {
		return "", 0, fmt.Errorf("token of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if token, err = t.generator.GenerateToken(ctx, public, private); err != nil {
		return "", 0, fmt.Errorf("sign the token of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return token, time.Duration(seconds) * time.Second, nil
}

// ForSecret signs the token that a Secret of the type service-account-token holds: of an
// account, for the API, bound to the Secret.
func (t *Tokens) ForSecret(ctx context.Context, account *corev1.ServiceAccount, secret *corev1.Secret, life time.Duration) (string, error) {
	public, private, err := serviceaccount.Claims(core.ServiceAccount{ObjectMeta: account.ObjectMeta}, nil, &core.Secret{ObjectMeta: secret.ObjectMeta}, nil, nil, nil, int64(life/time.Second), 0, Audiences(), nil)
	if err != nil {
		return "", fmt.Errorf("token of secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	token, err := t.generator.GenerateToken(ctx, public, private)
	if err != nil {
		return "", fmt.Errorf("sign the token of secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return token, nil
}

// Discovery are the documents by which others verify tokens. The keys are where the
// issuer is: who has read its document reaches them, too, whatever this server listens at.
func (t *Tokens) Discovery() (serviceaccount.OpenIDMetadataProvider, error) {
	return serviceaccount.NewOpenIDMetadataProvider(Issuer, Issuer+serviceaccount.JWKSPath, "", t.keys)
}
