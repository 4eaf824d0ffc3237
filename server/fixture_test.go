package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/server/certs"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestMain keeps what Kubernetes' libraries log out of a failed test's output.
func TestMain(m *testing.M) {
	RouteKlog(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	os.Exit(m.Run())
}

// fixture is a server on a loopback port over a store in memory.
type fixture struct {
	t      *testing.T
	store  *store.Store
	kv     *memory.KV
	ca     *certs.Authority
	url    string
	server *Server
	stop   func() error // ends Run and returns what it did
	admin  *kubernetes.Clientset
}

// start runs a server; change may adapt its Config, and window bounds what a watch
// can resume from (0: the default).
func start(t *testing.T, window int, change func(*Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, kv: memory.New()}
	services, err := admission.NewServices(admission.DefaultServiceCIDR)
	must(t, err)
	f.store = store.New(f.kv, store.Options{Seal: []byte(strings.Repeat("s", store.SealKeyBytes)), Window: window, Allocate: services.Allocate, Bounds: store.Bounds{Limit: admission.Limit, Charge: admission.Charge}})
	ctx, cancel := context.WithCancel(context.Background())
	must(t, f.store.Load(ctx))
	followed := make(chan error, 1)
	go func() { followed <- f.store.Run(ctx) }()

	ca, err := certs.Ensure(ctx, f.store, time.Now())
	must(t, err)
	f.ca = ca
	serving, err := ca.NewServing(nil, time.Now)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	cfg := Config{Store: f.store, Listener: l, Certificate: serving.Get, CA: ca.Pool(), Log: slog.New(slog.DiscardHandler), Version: "0.1.0"}
	if change != nil {
		change(&cfg)
	}
	f.server, err = New(cfg)
	must(t, err)
	f.url = "https://" + l.Addr().String()

	serveCtx, stopServing := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- f.server.Run(serveCtx) }()
	stopped := false
	f.stop = func() error {
		stopped = true
		stopServing()
		return <-served
	}
	t.Cleanup(func() {
		if !stopped {
			must(t, f.stop())
		}
		cancel()
		must(t, <-followed)
	})

	f.admin, err = kubernetes.NewForConfig(f.config())
	must(t, err)
	for _, name := range []string{"default", "kube-system", "kube-node-lease"} {
		_, err := f.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
	}
	return f
}

// patient lets requests take as long as they like when the server stops.
func patient(c *Config) { c.drain = time.Hour }

// stopsAtOnce ends a patient server, whose requests have to end by themselves.
func (f *fixture) stopsAtOnce() {
	f.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- f.stop() }()
	select {
	case err := <-ended:
		must(f.t, err)
	case <-time.After(2 * time.Minute):
		f.t.Fatal("a request keeps the server from stopping")
	}
}

// config is the administrator's.
func (f *fixture) config() *rest.Config {
	f.t.Helper()
	pair, err := f.ca.Admin("admin", time.Now())
	must(f.t, err)
	return &rest.Config{
		Host:            f.url,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: f.ca.PEM(), CertData: pair.Certificate, KeyData: pair.Key},
	}
}

// client is a plain HTTP client; pair may be empty.
func (f *fixture) client(pair certs.Pair) *http.Client {
	f.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(f.ca.PEM())
	conf := &tls.Config{RootCAs: pool}
	if pair.Certificate != nil {
		cert, err := pair.TLS()
		must(f.t, err)
		conf.Certificates = []tls.Certificate{cert}
	}
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 2 * time.Minute}
}

// adminHTTP is a plain HTTP client of an administrator.
func (f *fixture) adminHTTP() *http.Client {
	f.t.Helper()
	pair, err := f.ca.Admin("admin", time.Now())
	must(f.t, err)
	return f.client(pair)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "headway.local/hello:1"}}}
}

func pod(name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: podSpec()}
	p.Spec.NodeName = node
	return p
}
