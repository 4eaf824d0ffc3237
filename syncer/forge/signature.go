package forge

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
)

// signing begins a GitLab signing token: the rest is the key, in base64.
const signing = "whsec_"

// unsigned is a delivery that does not prove where it comes from. It says why, and
// nothing about the secret.
type unsigned struct{ why string }

func (e unsigned) Error() string { return e.why }

// admit checks what can be checked before the body is read: that there is proof,
// and GitLab's token, which does not depend on the body.
func admit(k Kind, h http.Header, secrets []string) error {
	if k == GitLab && h.Get("Webhook-Signature") == "" {
		return checkToken(h.Get("X-Gitlab-Token"), secrets)
	}
	if k != GitLab && signatureOf(k, h) == "" {
		if h.Get("X-Hub-Signature") != "" {
			return unsigned{"only the old SHA-1 signature, X-Hub-Signature, is there; X-Hub-Signature-256 is needed"}
		}
		return unsigned{"the delivery has no signature: give the webhook on the forge a secret, the one in the file of webhook secrets"}
	}
	return nil
}

// verify checks the signature over the body, and over the payload where that is
// another: GitHub signs a form as it is sent, Gitea the payload inside it. It is the
// only check of what admit lets through, except for GitLab's token.
func verify(k Kind, h http.Header, secrets []string, body, payload []byte) error {
	if k == GitLab {
		if h.Get("Webhook-Signature") == "" {
			return nil // admitted by its token
		}
		return checkSigned(h, secrets, body)
	}
	given, err := hex.DecodeString(signatureOf(k, h))
	if err != nil || len(given) != sha256.Size {
		return unsigned{"the signature is not a SHA-256 in hexadecimal"}
	}
	good := 0
	for _, secret := range secrets {
		good |= subtle.ConstantTimeCompare(given, sign([]byte(secret), body))
		good |= subtle.ConstantTimeCompare(given, sign([]byte(secret), payload))
	}
	if good == 0 {
		return unsigned{"the signature does not fit: the secret of the webhook on the forge is not in the file of webhook secrets"}
	}
	return nil
}

// signatureOf is the SHA-256 in hexadecimal that a forge sends. Gitea and Forgejo
// send their own headers, and GitHub's too.
func signatureOf(k Kind, h http.Header) string {
	if k == Gitea {
		for _, name := range []string{"X-Forgejo-Signature", "X-Gitea-Signature"} {
			if v := h.Get(name); v != "" {
				return v
			}
		}
	}
	v, ok := strings.CutPrefix(h.Get("X-Hub-Signature-256"), "sha256=")
	if !ok {
		return ""
	}
	return v
}

// checkToken compares GitLab's token in constant time, whatever its length.
func checkToken(given string, secrets []string) error {
	if given == "" {
		return unsigned{"the delivery has no X-Gitlab-Token: give the webhook on GitLab a secret token, the one in the file of webhook secrets"}
	}
	sum, good := sha256.Sum256([]byte(given)), 0
	for _, secret := range secrets {
		want := sha256.Sum256([]byte(secret))
		good |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	if good == 0 {
		return unsigned{"X-Gitlab-Token does not fit: the secret token of the webhook on GitLab is not in the file of webhook secrets"}
	}
	return nil
}

// checkSigned checks the signature that GitLab makes with a signing token, in the
// form of standardwebhooks.com. How old it is does not matter: a replay is harmless.
func checkSigned(h http.Header, secrets []string, body []byte) error {
	keys, err := signingKeys(secrets)
	if err != nil {
		return err
	}
	signed := append([]byte(h.Get("Webhook-Id")+"."+h.Get("Webhook-Timestamp")+"."), body...)
	good := 0
	for given := range strings.FieldsSeq(h.Get("Webhook-Signature")) {
		coded, ok := strings.CutPrefix(given, "v1,")
		if !ok {
			continue
		}
		sum, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			continue
		}
		for _, key := range keys {
			good |= subtle.ConstantTimeCompare(sum, sign(key, signed))
		}
	}
	if good == 0 {
		return unsigned{"webhook-signature does not fit: the signing token of the webhook on GitLab is not in the file of webhook secrets"}
	}
	return nil
}

func signingKeys(secrets []string) ([][]byte, error) {
	var keys [][]byte
	for _, s := range secrets {
		coded, ok := strings.CutPrefix(s, signing)
		if !ok {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(coded)
		if err != nil || len(key) == 0 {
			return nil, errors.New("a signing token in the file of webhook secrets is not whsec_ and base64")
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, unsigned{"the delivery is signed with a signing token of GitLab, but no line of the file of webhook secrets is one (whsec_…)"}
	}
	return keys, nil
}

func sign(key, content []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(content)
	return mac.Sum(nil)
}
