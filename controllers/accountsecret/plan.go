package accountsecret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// plan is a Secret as it should be, nil when it is so, and whether a token is to be
// signed for it. Without its account it stays as it is.
func plan(secret *corev1.Secret, account *corev1.ServiceAccount, authority []byte, now time.Time) (next *corev1.Secret, sign bool) {
	if account == nil || account.DeletionTimestamp != nil || secret.DeletionTimestamp != nil {
		return nil, false
	}
	next = secret.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	sign = next.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) || old(next.Data[corev1.ServiceAccountTokenKey], now)
	next.Annotations[corev1.ServiceAccountUIDKey] = string(account.UID)
	if !bytes.Equal(next.Data[corev1.ServiceAccountRootCAKey], authority) {
		next.Data[corev1.ServiceAccountRootCAKey] = bytes.Clone(authority)
	}
	if string(next.Data[corev1.ServiceAccountNamespaceKey]) != secret.Namespace {
		next.Data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if !sign && equality.Semantic.DeepEqual(next, secret) {
		return nil, false
	}
	return next, sign
}

// old says whether a token has to be replaced: half of its life is over, or there is
// none. What somebody wrote there that is no token stays.
func old(token []byte, now time.Time) bool {
	if len(token) == 0 {
		return true
	}
	_, rest, _ := strings.Cut(string(token), ".")
	body, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return false
	}
	var claims struct {
		Issued  int64 `json:"iat"`
		Expires int64 `json:"exp"`
	}
	if json.Unmarshal(raw, &claims) != nil || claims.Expires <= claims.Issued {
		return false
	}
	return now.Unix() > claims.Issued+(claims.Expires-claims.Issued)/2
}
