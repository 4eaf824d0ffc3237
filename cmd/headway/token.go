package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// A join token is id.secret.hash: the public id, the secret half, and the SHA-256
// of the authority's certificate, by which a new node knows the server before it
// trusts anything.

const tokenPath = "/headway/token"

func tokenCommand() *cobra.Command {
	var data string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token with which one machine may join, once",
		Long: `Prints a token that lets one machine become a node, once, until it expires.
On the new machine:

  headway agent --server https://ADDRESS:PORT --token TOKEN`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var token string
			if err := callServer(cmd.Context(), dataDir(data), http.MethodPost, tokenPath+"?ttl="+ttl.String(), &token); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	dataDirFlag(cmd, &data)
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token is good for")
	return cmd
}

// serveToken makes a token, for administrators.
func (c *cluster) serveToken(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) || !method(w, r, http.MethodPost) {
		return
	}
	ttl, err := time.ParseDuration(r.URL.Query().Get("ttl"))
	if err != nil || ttl < time.Minute || ttl > 7*24*time.Hour {
		http.Error(w, "ttl must be between 1m and 168h", http.StatusBadRequest)
		return
	}
	id, secretHalf := strings.ToLower(rand.Text()[:10]), rand.Text()
	sum := sha256.Sum256([]byte(secretHalf))
	token := &api.JoinToken{ObjectMeta: metav1.ObjectMeta{Name: id}, SecretHash: sum[:], Expires: metav1.NewTime(time.Now().Add(ttl))}
	store.Stamp(token, time.Now())
	if _, err := c.store.Commit(r.Context(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: token}}}); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	hash, err := authorityHash(c.authority.PEM())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, id+"."+secretHalf+"."+hash)
}

func authorityHash(authority []byte) (string, error) {
	block, _ := pem.Decode(authority)
	if block == nil {
		return "", errors.New("the authority's certificate is not PEM")
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:]), nil
}
