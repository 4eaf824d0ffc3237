package nodes_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/session"
)

func joinToken(id, secret string, life time.Duration) *api.JoinToken {
	sum := sha256.Sum256([]byte(secret))
	return &api.JoinToken{ObjectMeta: metav1.ObjectMeta{Name: id}, SecretHash: sum[:], Expires: metav1.NewTime(time.Now().Add(life))}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		c.create(joinToken("t1", "secret", time.Hour), joinToken("t2", "secret", time.Hour), joinToken("old", "secret", time.Minute))
		synctest.Wait()
		time.Sleep(2 * time.Minute) // the bubble's clock
		conn := c.dial("")
		defer conn.Close()
		join := func(token, node string) error {
			_, _, err := agent.Join(context.Background(), conn, token, node, newKey(t))
			return err
		}
		for _, token := range []string{"", "t1", "t1.", "t1.wrong", "nobody.secret", "old.secret", ".", "a/b.secret", strings.Repeat("x", 600) + ".y"} {
			err := join(token, "n1")
			if err == nil || !strings.Contains(err.Error(), "unknown, used or expired") {
				t.Fatalf("token %q: %v", token, err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Fatal("R14: the answer holds the token")
			}
		}
		if err := join("t1.secret", "Not A Name"); err == nil {
			t.Fatal("joined under a bad name")
		}
		key := newKey(t)
		pemCert, authority, err := agent.Join(context.Background(), conn, "t1.secret", "n1", key)
		if err != nil {
			t.Fatal(err)
		}
		if string(authority) != string(c.ca.PEM()) {
			t.Fatal("another authority")
		}
		block, _ := pem.Decode(pemCert)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if node, err := session.NodeOf(cert); err != nil || node != "n1" {
			t.Fatal(node, err)
		}
		if !cert.PublicKey.(*ecdsa.PublicKey).Equal(key.Public()) {
			t.Fatal("the certificate is of another key")
		}
		if err := join("t1.secret", "n3"); err == nil {
			t.Fatal("a token was used twice")
		}

		s := c.session("n2")
		s.settle()
		if err := join("t2.secret", "n2"); err == nil || !strings.Contains(err.Error(), "alive") {
			t.Fatalf("joined under the name of a live node: %v", err)
		}
		if err := join("t2.secret", "n4"); err != nil {
			t.Fatalf("a refusal used the token up: %v", err)
		}
		if _, _, err := agent.Join(context.Background(), s.conn, "", "n2", newKey(t)); err != nil {
			t.Fatalf("renew: %v", err)
		}
		if _, _, err := agent.Join(context.Background(), s.conn, "", "n1", newKey(t)); err == nil {
			t.Fatal("a node got another node's certificate")
		}
	})
}

func FuzzJoin(f *testing.F) {
	f.Add("t1.secret", "n1", []byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"))
	f.Add("", "", []byte(nil))
	c := open(f)
	c.create(joinToken("t1", "other", time.Hour))
	f.Fuzz(func(t *testing.T, token, node string, request []byte) {
		r, err := c.nodes.Join(context.Background(), &session.JoinRequest{Token: token, Node: node, Request: request})
		if err == nil {
			t.Fatalf("joined: %v", r)
		}
	})
}
