package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const patience = time.Minute

// at is where a test server listens.
func at(t *testing.T, base string) (ip string, port intstr.IntOrString) {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname(), intstr.FromInt(n)
}

func webServer(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/code/", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/code/"))
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/code/500", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/said", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "name.example" || r.Header.Get("X-Key") != "value" || r.Header.Get("User-Agent") != agentName || r.Header.Get("Accept") != "*/*" || r.URL.RawQuery != "a=b" {
			http.Error(w, fmt.Sprint(r.Host, r.Header), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("/head", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Long", strings.Repeat("x", 300<<10)) })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestHTTP(t *testing.T) {
	ip, port := at(t, webServer(t).URL)
	c := &corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port.IntVal}}}
	for _, test := range []struct {
		path    string
		change  func(*corev1.HTTPGetAction)
		timeout time.Duration
		want    Answer
	}{
		{path: "/code/200", want: Answer{Result: Success}},
		{path: "code/204", want: Answer{Result: Success}}, // Kubernetes puts the slash before it
		{path: "/code/399", want: Answer{Result: Success, Warning: "Probe terminated redirects, Response body: "}},
		{path: "/code/400", want: Answer{Result: Failure, Message: "HTTP probe failed with statuscode: 400"}},
		{path: "/code/500", want: Answer{Result: Failure, Message: "HTTP probe failed with statuscode: 500"}},
		{path: "/here", want: Answer{Result: Failure, Message: "HTTP probe failed with statuscode: 500"}},
		{path: "/away", want: Answer{Result: Success, Warning: "Probe terminated redirects, Response body: <a href=\"http://elsewhere.invalid/\">Found</a>.\n\n"}},
		{path: "/round", want: Answer{Result: Failure, Message: "stopped after 10 redirects"}},
		{path: "/said?a=b", change: func(g *corev1.HTTPGetAction) {
			g.HTTPHeaders = []corev1.HTTPHeader{{Name: "Host", Value: "name.example"}, {Name: "X-Key", Value: "value"}}
		}, want: Answer{Result: Success}},
		{path: "/code/200", change: func(g *corev1.HTTPGetAction) { g.Port = intstr.FromString("http") }, want: Answer{Result: Success}},
		{path: "/code/200", change: func(g *corev1.HTTPGetAction) { g.Port = intstr.FromString("other") }, want: Answer{Message: `container c has no port named "other"`}},
		{path: "/code/200", change: func(g *corev1.HTTPGetAction) { g.Host = ip }, want: Answer{Result: Success}},
		{path: "/code/200", change: func(g *corev1.HTTPGetAction) { g.Scheme = "HTTPS" }, want: Answer{Result: Failure, Message: "server gave HTTP response to HTTPS client"}},
		{path: "/head", want: Answer{Result: Failure, Message: "server response headers exceeded 262144 bytes; aborted"}},
		{path: "/slow", timeout: 50 * time.Millisecond, want: Answer{Result: Failure, Message: "context deadline exceeded"}},
	} {
		get := &corev1.HTTPGetAction{Path: test.path, Port: port}
		if test.change != nil {
			test.change(get)
		}
		if test.timeout == 0 {
			test.timeout = patience
		}
		got := Check(t.Context(), Request{Handler: corev1.ProbeHandler{HTTPGet: get}, Timeout: test.timeout, IP: ip, Container: c}, nil)
		if got.Result != test.want.Result || got.Warning != test.want.Warning || !strings.HasSuffix(got.Message, test.want.Message) || (got.Message == "") != (test.want.Message == "") {
			t.Errorf("%s: %+v, want %+v", test.path, got, test.want)
		}
	}
}

// A certificate is not looked at.
func TestHTTPS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	ip, port := at(t, s.URL)
	get := &corev1.HTTPGetAction{Path: "/", Port: port, Scheme: corev1.URISchemeHTTPS}
	if got := Check(t.Context(), Request{Handler: corev1.ProbeHandler{HTTPGet: get}, Timeout: patience, IP: ip, Container: &corev1.Container{}}, nil); got.Result != Success {
		t.Fatalf("%+v", got)
	}
}

func TestTCP(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ip, port := at(t, "tcp://"+lis.Addr().String())
	ask := func() Answer {
		return Check(t.Context(), Request{Handler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}, Timeout: patience, IP: ip, Container: &corev1.Container{}}, nil)
	}
	if got := ask(); got.Result != Success {
		t.Fatalf("listens: %+v", got)
	}
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got.Result != Failure || !strings.Contains(got.Message, "connection refused") {
		t.Fatalf("nobody listens: %+v", got)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	got := Check(gone, Request{Handler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}, Timeout: patience, IP: ip, Container: &corev1.Container{}}, nil)
	if got.Result != Unknown {
		t.Fatalf("a check that was given up counts: %+v", got)
	}
}

func TestGRPC(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, h := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(g, h)
	h.SetServingStatus("slow", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	go func() {
		if err := g.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	t.Cleanup(g.Stop)
	ip, port := at(t, "tcp://"+lis.Addr().String())
	ask := func(service *string, port int32) Answer {
		return Check(t.Context(), Request{Handler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port, Service: service}}, Timeout: patience, IP: ip, Container: &corev1.Container{}}, nil)
	}
	slow, other := "slow", "other"
	if got := ask(nil, port.IntVal); got.Result != Success {
		t.Errorf("%+v", got)
	}
	if got := ask(&slow, port.IntVal); got.Result != Failure || got.Message != `service unhealthy (responded with "NOT_SERVING")` {
		t.Errorf("%+v", got)
	}
	if got := ask(&other, port.IntVal); got.Result != Failure || !strings.Contains(got.Message, "NotFound") {
		t.Errorf("%+v", got)
	}
	plain := grpc.NewServer()
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := plain.Serve(bare); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	t.Cleanup(plain.Stop)
	_, without := at(t, "tcp://"+bare.Addr().String())
	if got := ask(nil, without.IntVal); got.Result != Failure || !strings.HasPrefix(got.Message, "error: this server does not implement the grpc health protocol") {
		t.Errorf("%+v", got)
	}
	plain.Stop()
	if got := ask(nil, without.IntVal); got.Result != Failure {
		t.Errorf("nobody listens: %+v", got)
	}
}

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		code   int32
		killed bool
		err    error
		want   Answer
	}{
		{want: Answer{Result: Success}},
		{code: 1, want: Answer{Result: Failure, Message: strings.Repeat("x", most)}},
		{killed: true, err: errors.New("killed"), want: Answer{Result: Failure, Message: `command timed out: "sh -c x" timed out after 1s`}},
		{err: errors.New("no such program"), want: Answer{Message: "no such program"}},
	} {
		exec := func(_ context.Context, id string, command []string, timeout time.Duration, out io.Writer) (int32, bool, error) {
			if id != "id" || len(command) != 3 || timeout != time.Second {
				t.Errorf("asked for %s %v %s", id, command, timeout)
			}
			if _, err := io.WriteString(out, strings.Repeat("x", most+1)); err != nil {
				t.Error(err)
			}
			return c.code, c.killed, c.err
		}
		req := Request{Handler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "x"}}}, Timeout: time.Second, ID: "id"}
		if got := Check(t.Context(), req, exec); got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}
