package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"

	"headway.dev/headway/server/certs"
	"headway.dev/headway/syncer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// maxAnswer bounds what a client verb reads of a server's answer, in bytes.
const maxAnswer = 64 << 20

// endpoint is a server's, for its administrator.
type endpoint struct {
	client *http.Client
	base   string
}

// callServer asks the server of a data dir, as the administrator that its
// kubeconfig names, and decodes the JSON answer.
func callServer(ctx context.Context, dir dataDir, method, path string, into any) error {
	e, err := serverOf(dir)
	if err != nil {
		return err
	}
	return e.call(ctx, method, path, nil, into)
}

// call sends a question, with a body of type application/x-tar or none.
func (e endpoint) call(ctx context.Context, method, path string, tar io.Reader, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, tar)
	if err != nil {
		return err
	}
	if tar != nil {
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the server: %w: does headway run?", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server says: %s", strings.TrimSpace(string(body)))
	}
	return json.Unmarshal(body, into)
}

// serverOf is the server of a data dir, by the certificate in its kubeconfig.
func serverOf(dir dataDir) (endpoint, error) {
	data, err := os.ReadFile(dir.kubeconfig())
	if errors.Is(err, fs.ErrNotExist) {
		return endpoint{}, fmt.Errorf("%s is not there: headway up has not run with this data dir; name it with --data-dir", dir.kubeconfig())
	}
	if err != nil {
		return endpoint{}, err
	}
	var config clientcmd.Config
	if err := yaml.Unmarshal(data, &config); err != nil {
		return endpoint{}, fmt.Errorf("read %s: %w", dir.kubeconfig(), err)
	}
	if len(config.Clusters) != 1 || len(config.AuthInfos) != 1 {
		return endpoint{}, fmt.Errorf("%s does not name one cluster and one user", dir.kubeconfig())
	}
	pair, err := tls.X509KeyPair(config.AuthInfos[0].AuthInfo.ClientCertificateData, config.AuthInfos[0].AuthInfo.ClientKeyData)
	if err != nil {
		return endpoint{}, fmt.Errorf("read %s: %w", dir.kubeconfig(), err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.Clusters[0].Cluster.CertificateAuthorityData) {
		return endpoint{}, fmt.Errorf("%s holds no certificate authority", dir.kubeconfig())
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: roots}}
	return endpoint{&http.Client{Transport: transport}, config.Clusters[0].Cluster.Server}, nil
}

// administrator lets only holders of an administrator's certificate pass.
func administrator(w http.ResponseWriter, r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && slices.Contains(r.TLS.VerifiedChains[0][0].Subject.Organization, certs.AdminGroup) {
		return true
	}
	http.Error(w, "an administrator's client certificate is needed", http.StatusUnauthorized)
	return false
}

func method(w http.ResponseWriter, r *http.Request, want string) bool {
	if r.Method == want {
		return true
	}
	w.Header().Set("Allow", want)
	http.Error(w, "use "+want, http.StatusMethodNotAllowed)
	return false
}

// answer writes what was asked for, or why there is no answer.
func answer(w http.ResponseWriter, v any, err error) {
	var bad *badRequest
	var known apierrors.APIStatus
	switch {
	case err == nil:
		writeJSON(w, v)
	case errors.As(err, &bad):
		http.Error(w, bad.Error(), bad.code)
	case errors.Is(err, syncer.ErrUnknown):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.As(err, &known):
		http.Error(w, err.Error(), int(known.Status().Code))
	case errors.Is(err, syncer.ErrNoSource):
		http.Error(w, "nothing is followed yet: "+err.Error(), http.StatusConflict)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// badRequest is an error that the one who asks can mend.
type badRequest struct {
	code int
	why  string
}

func (e *badRequest) Error() string { return e.why }

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// An error here is a client that left.
	_ = json.NewEncoder(w).Encode(v)
}
