package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	mostRedirects = 10
	// mostHead is what a container's answer may have before its body, in bytes. Go's own
	// bound, 10 MiB, is a lot when many are asked at one time.
	mostHead = 256 << 10
)

// web asks by HTTP: 200 to 399 is success. A redirect to another host is not
// followed, and succeeds with a warning.
func web(ctx context.Context, req Request) Answer {
	resp, err := Get(ctx, req.Handler.HTTPGet, req.IP, req.Container, req.Timeout)
	var bad *badRequest
	switch {
	case errors.As(err, &bad):
		return Answer{Message: err.Error()}
	case err != nil:
		return interrupted(ctx, failed("%s", err))
	case resp.StatusCode < 200 || resp.StatusCode >= 400:
		return failed("HTTP probe failed with statuscode: %d", resp.StatusCode)
	case resp.StatusCode >= 300:
		return Answer{Result: Success, Warning: fmt.Sprintf("Probe terminated redirects, Response body: %s", strings.ToValidUTF8(resp.Body, "\uFFFD"))}
	}
	return Answer{Result: Success}
}

// Response is what a container answered.
type Response struct {
	StatusCode int
	Body       string // its first bytes
}

// badRequest is a request that cannot be made from the manifest.
type badRequest struct{ error }

func (e *badRequest) Unwrap() error { return e.error }

// Get asks a container by HTTP as Kubernetes does: over a new connection, without
// verifying a certificate, with no proxy. timeout 0: that of ctx.
func Get(ctx context.Context, get *corev1.HTTPGetAction, ip string, c *corev1.Container, timeout time.Duration) (Response, error) {
	port, err := Port(get.Port, c)
	if err != nil {
		return Response{}, &badRequest{err}
	}
	host, scheme := get.Host, strings.ToLower(string(get.Scheme))
	if host == "" {
		host = ip
	}
	if scheme == "" {
		scheme = "http"
	}
	to, err := url.Parse(get.Path)
	if err != nil { // a path that is no URL is taken as it is
		to = &url.URL{Path: get.Path}
	}
	to.Scheme, to.Host = scheme, net.JoinHostPort(host, strconv.Itoa(port))
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return Response{}, &badRequest{err}
	}
	headers(req, get.HTTPHeaders)
	client := http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // as in Kubernetes: a pod's certificate is rarely for its address
			DisableKeepAlives: true, DisableCompression: true, DialContext: dialer().DialContext, MaxResponseHeaderBytes: mostHead,
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			switch {
			case next.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse
			case len(via) >= mostRedirects:
				return fmt.Errorf("stopped after %d redirects", mostRedirects)
			}
			return nil
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close() // the connection goes with it
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return Response{}, err
	}
	return Response{StatusCode: resp.StatusCode, Body: string(body)}, nil
}

// headers sets what a manifest asks for, and who asks.
func headers(req *http.Request, wanted []corev1.HTTPHeader) {
	for _, h := range wanted {
		req.Header.Add(h.Name, h.Value)
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			req.Host = h.Value
		}
	}
	for name, value := range map[string]string{"User-Agent": agentName, "Accept": "*/*"} {
		if said, ok := req.Header[name]; !ok {
			req.Header.Set(name, value)
		} else if len(said) == 1 && said[0] == "" {
			req.Header.Del(name)
			if name == "User-Agent" {
				req.Header[name] = []string{""} // else Go says who it is
			}
		}
	}
}
