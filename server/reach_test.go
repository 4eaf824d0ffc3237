package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/server/nodes"
	"headway.dev/headway/store"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
)

// insides are what is in pods: commands by name, and every port of them the one of a
// server here.
type insides struct {
	address  string
	commands map[string]func(context.Context, nodes.Command) (int32, error)

	mu     sync.Mutex
	dialed []string
}

func (i *insides) Dial(ctx context.Context, pod *corev1.Pod, port uint16, inside bool) (net.Conn, error) {
	i.mu.Lock()
	i.dialed = append(i.dialed, fmt.Sprintf("%s:%d %v", pod.Name, port, inside))
	i.mu.Unlock()
	if port == 81 {
		return nil, errors.New("connection refused")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", i.address)
}

func (i *insides) last() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.dialed) == 0 {
		return ""
	}
	return i.dialed[len(i.dialed)-1]
}

func (i *insides) Exec(ctx context.Context, _ *corev1.Pod, c nodes.Command) (int32, error) {
	if c.Attach {
		return i.commands["attached"](ctx, c)
	}
	run := i.commands[c.Args[0]]
	if run == nil {
		return 0, errors.New("no such program")
	}
	return run(ctx, c)
}

// journal keeps what is logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// within starts a server with a pod "web" that can be reached.
func within(t *testing.T, i *insides, change ...func(*Config)) (*fixture, *journal) {
	t.Helper()
	said := &journal{}
	f := start(t, 0, func(c *Config) {
		c.Pods, c.Log = i, slog.New(slog.NewTextHandler(said, nil))
		patient(c)
		for _, more := range change {
			more(c)
		}
	})
	for _, name := range []string{"web", "waiting"} {
		p := pod(name, map[string]string{"web": "n1"}[name])
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
		made, err := f.admin.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		must(t, err)
		if name == "web" {
			made.Status.Phase, made.Status.PodIP, made.Status.PodIPs = corev1.PodRunning, "10.1.0.2", []corev1.PodIP{{IP: "10.1.0.2"}}
			_, err = f.admin.CoreV1().Pods("default").UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
			must(t, err)
		}
	}
	return f, said
}

// executors are kubectl's two ways to speak.
func (f *fixture) executors(pod string, o *corev1.PodExecOptions) map[string]remotecommand.Executor {
	f.t.Helper()
	config := f.config()
	config.GroupVersion, config.NegotiatedSerializer = &corev1.SchemeGroupVersion, scheme.Codecs
	client, err := rest.RESTClientFor(withPath(config))
	must(f.t, err)
	url := client.Post().Resource("pods").Namespace("default").Name(pod).SubResource("exec").VersionedParams(o, scheme.ParameterCodec).URL()
	old, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, url)
	must(f.t, err)
	new, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String())
	must(f.t, err)
	return map[string]remotecommand.Executor{"SPDY": old, "WebSocket": new}
}

func withPath(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.APIPath = "/api"
	return c
}

// A WebSocket begins with a GET, but who may only get does not come in by one.
func TestLookingIsNotGoingIn(t *testing.T) {
	f, _ := within(t, &insides{}, withTokens(t))
	ways := []string{"pods/exec", "pods/attach", "pods/portforward"}
	f.account("reader")
	f.grant("reader", readPods, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: ways, Verbs: []string{"get"}})
	f.account("operator")
	f.grant("operator", readPods, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: ways, Verbs: []string{"get", "create"}})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(f.ca.PEM())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	ask := func(account, way string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/api/v1/namespaces/default/pods/web/"+way+"?command=x&stdout=true", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+f.token(account, authenticationv1.TokenRequestSpec{}))
		resp, err := client.Do(req)
		must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(body)
	}
	for _, way := range ways {
		_, name, _ := strings.Cut(way, "/")
		if code, said := ask("reader", name); code != http.StatusForbidden || !strings.Contains(said, "verb create") {
			t.Errorf("%s by who may get: %d %s", way, code, said)
		}
		if code, said := ask("operator", name); code == http.StatusForbidden {
			t.Errorf("%s by who may create: %d %s", way, code, said)
		}
	}
}

func TestExecSpeaksBothProtocols(t *testing.T) {
	ended := make(chan error, 1)
	started := make(chan struct{}, 1)
	i := &insides{commands: map[string]func(context.Context, nodes.Command) (int32, error){
		"both": func(_ context.Context, c nodes.Command) (int32, error) {
			in, err := io.ReadAll(c.Stdin)
			if err != nil {
				return 0, err
			}
			fmt.Fprintf(c.Stdout, "out %d", len(in))
			fmt.Fprint(c.Stderr, "err")
			return 7, nil
		},
		"well": func(_ context.Context, c nodes.Command) (int32, error) { return 0, nil },
		"size": func(_ context.Context, c nodes.Command) (int32, error) {
			s := <-c.Sizes
			fmt.Fprintf(c.Stdout, "%dx%d", s.Width, s.Height)
			return 0, nil
		},
		"wait": func(ctx context.Context, _ nodes.Command) (int32, error) {
			started <- struct{}{}
			<-ctx.Done()
			ended <- ctx.Err()
			return 0, ctx.Err()
		},
	}}
	f, said := within(t, i)
	each := func(name string, o *corev1.PodExecOptions, check func(t *testing.T, e remotecommand.Executor)) {
		for protocol, e := range f.executors("web", o) {
			t.Run(name+" over "+protocol, func(t *testing.T) { check(t, e) })
		}
	}
	each("streams", &corev1.PodExecOptions{Command: []string{"both", "hunter2"}, Stdin: true, Stdout: true, Stderr: true}, func(t *testing.T, e remotecommand.Executor) {
		var out, errs bytes.Buffer
		err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(strings.Repeat("x", 1<<20)), Stdout: &out, Stderr: &errs})
		var exit utilexec.CodeExitError
		if !errors.As(err, &exit) || exit.Code != 7 || out.String() != "out 1048576" || errs.String() != "err" {
			t.Errorf("%v, %q, %q", err, out.String(), errs.String())
		}
	})
	each("success", &corev1.PodExecOptions{Command: []string{"well"}, Stdout: true}, func(t *testing.T, e remotecommand.Executor) {
		if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); err != nil {
			t.Error(err)
		}
	})
	each("failure", &corev1.PodExecOptions{Command: []string{"absent"}, Stdout: true}, func(t *testing.T, e remotecommand.Executor) {
		if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); err == nil || !strings.Contains(err.Error(), "no such program") {
			t.Error(err)
		}
	})
	each("terminal", &corev1.PodExecOptions{Command: []string{"size"}, Stdin: true, Stdout: true, TTY: true}, func(t *testing.T, e remotecommand.Executor) {
		var out bytes.Buffer
		sizes := make(queue, 1)
		sizes <- remotecommand.TerminalSize{Width: 80, Height: 24}
		in, typing := io.Pipe()
		defer typing.Close()
		if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: sizes}); err != nil || out.String() != "80x24" {
			t.Errorf("%v, %q", err, out.String())
		}
		close(sizes)
	})
	each("a client that leaves", &corev1.PodExecOptions{Command: []string{"wait"}, Stdout: true}, func(t *testing.T, e remotecommand.Executor) {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard}) }()
		<-started
		leave()
		if err := <-done; err == nil {
			t.Error("it ended well")
		}
		<-ended
	})
	if s := said.String(); !strings.Contains(s, `msg="command in a container" user=admin pod=default/web container=main command=both`) || strings.Contains(s, "hunter2") {
		t.Errorf("logged: %s", s)
	}
	for name, c := range map[string]struct {
		o    *corev1.PodExecOptions
		says string
	}{
		"waiting": {&corev1.PodExecOptions{Command: []string{"well"}, Stdout: true}, "has no node yet"},
		"absent":  {&corev1.PodExecOptions{Command: []string{"well"}, Stdout: true}, "not found"},
		"web":     {&corev1.PodExecOptions{Command: []string{"well"}, Stdout: true, Container: "other"}, "container other is not valid"},
	} {
		err := f.executors(name, c.o)["SPDY"].StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	// The server stops: nothing holds it up.
	e := f.executors("web", &corev1.PodExecOptions{Command: []string{"wait"}, Stdout: true})["WebSocket"]
	done := make(chan error, 1)
	go func() { done <- e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}) }()
	<-started
	f.stopsAtOnce()
	<-ended
	if err := <-done; err == nil {
		t.Error("a command ended well when the server stopped")
	}
}

type queue chan remotecommand.TerminalSize

func (q queue) Next() *remotecommand.TerminalSize {
	s, more := <-q
	if !more {
		return nil
	}
	return &s
}

// echo is what listens in the pods of the tests.
func echo(t *testing.T, i *insides) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/teapot" {
			w.WriteHeader(http.StatusTeapot)
		}
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL, body, r.Header.Get("X-Forwarded-Uri"))
	}))
	t.Cleanup(s.Close)
	i.address = s.Listener.Addr().String()
}

func TestProxy(t *testing.T) {
	i := &insides{}
	echo(t, i)
	f, _ := within(t, i)
	ready, tcp, port, name := true, corev1.ProtocolTCP, int32(8443), "http"
	ops := []store.Op{
		{Verb: store.Create, Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 90}}}}},
		{Verb: store.Create, Object: &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &tcp}},
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.1.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"},
			}},
		}},
		{Verb: store.Create, Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "empty", Namespace: "default"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 90}}}}},
	}
	_, err := f.store.Commit(t.Context(), store.Txn{Ops: ops})
	must(t, err)
	must(t, f.store.WaitRevision(t.Context(), mustCurrent(t, f)))
	for _, c := range []struct {
		method, path, body string
		code               int
		says, dialed       string
	}{
		{"GET", "pods/web:80/proxy/a/b?c=d", "", 200, "GET /a/b?c=d", "web:80 false"},
		{"POST", "pods/web/proxy/", "hello", 200, "POST / hello /api/v1/namespaces/default/pods/web/proxy/", "web:8080 false"},
		{"GET", "pods/http:web:99/proxy/teapot", "", 418, "GET /teapot", "web:99 false"},
		{"GET", "pods/web:81/proxy/", "", 503, "error trying to reach service: connection refused", "web:81 false"},
		{"GET", "pods/web:0/proxy/", "", 400, "is no port number", ""},
		{"GET", "pods/waiting/proxy/", "", 400, "has no node yet", ""},
		{"GET", "pods/absent/proxy/", "", 404, "not found", ""},
		{"GET", "services/web/proxy/x", "", 200, "GET /x", "web:8443 false"},
		{"GET", "services/web:90/proxy/x", "", 200, "GET /x", "web:8443 false"},
		{"GET", "services/web:http/proxy/x", "", 200, "GET /x", "web:8443 false"},
		{"GET", "services/web:91/proxy/x", "", 503, "no service port 91 found", ""},
		{"GET", "services/web:other/proxy/x", "", 503, "no endpoints available", ""},
		{"GET", "services/empty/proxy/x", "", 503, "no endpoints available", ""},
		{"GET", "services/absent/proxy/x", "", 404, "not found", ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			i.dialed = nil
			req, err := http.NewRequest(c.method, f.url+"/api/v1/namespaces/default/"+c.path, strings.NewReader(c.body))
			must(t, err)
			resp, err := f.adminHTTP().Do(req)
			must(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			must(t, err)
			if resp.StatusCode != c.code || !strings.Contains(string(body), c.says) || i.last() != c.dialed {
				t.Errorf("%d %s, dialed %q", resp.StatusCode, body, i.last())
			}
		})
	}
	// Nobody but administrators.
	pair, err := f.ca.Node("n1", f.server.cfg.Now())
	must(t, err)
	for _, path := range []string{"pods/web/proxy/", "services/web/proxy/", "pods/web/exec?command=x&stdout=1", "pods/web/portforward"} {
		resp, err := f.client(pair).Get(f.url + "/api/v1/namespaces/default/" + path)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("a node on %s: %d", path, resp.StatusCode)
		}
	}
}

func mustCurrent(t *testing.T, f *fixture) int64 {
	t.Helper()
	r, err := f.store.Current(t.Context())
	must(t, err)
	return r
}

func TestTargets(t *testing.T) {
	yes, no, udp, n80, n81 := true, false, corev1.ProtocolUDP, int32(80), int32(81)
	a, b, none := "a", "b", ""
	at := func(name, address string, ready *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ready}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name}}
	}
	slice := func(ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Ports: ports, Endpoints: endpoints}
	}
	two := []discoveryv1.EndpointPort{{Name: &a, Port: &n80}, {Name: &b, Port: &n81}}
	for name, c := range map[string]struct {
		slices []*discoveryv1.EndpointSlice
		port   string
		want   string
	}{
		"sorted, once":      {[]*discoveryv1.EndpointSlice{slice(two, at("y", "2", &yes), at("x", "1", nil)), slice(two, at("x", "1", &yes))}, "a", "[{x 1 80} {y 2 80}]"},
		"the second port":   {[]*discoveryv1.EndpointSlice{slice(two, at("x", "1", &yes))}, "b", "[{x 1 81}]"},
		"which of two":      {[]*discoveryv1.EndpointSlice{slice(two, at("x", "1", &yes))}, "", "[]"},
		"the only one":      {[]*discoveryv1.EndpointSlice{slice(two[:1], at("x", "1", &yes))}, "", "[{x 1 80}]"},
		"without a name":    {[]*discoveryv1.EndpointSlice{slice([]discoveryv1.EndpointPort{{Name: &none, Port: &n81}, two[0]}, at("x", "1", &yes))}, "", "[{x 1 81}]"},
		"not ready":         {[]*discoveryv1.EndpointSlice{slice(two, at("x", "1", &no))}, "a", "[]"},
		"UDP":               {[]*discoveryv1.EndpointSlice{slice([]discoveryv1.EndpointPort{{Name: &a, Port: &n80, Protocol: &udp}}, at("x", "1", &yes))}, "a", "[]"},
		"not a pod":         {[]*discoveryv1.EndpointSlice{slice(two, discoveryv1.Endpoint{Addresses: []string{"1"}})}, "a", "[]"},
		"no such port name": {[]*discoveryv1.EndpointSlice{slice(two, at("x", "1", &yes))}, "c", "[]"},
	} {
		if got := fmt.Sprint(targets(c.slices, c.port)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestPortForwardSpeaksBothProtocols(t *testing.T) {
	i := &insides{}
	echo(t, i)
	f, said := within(t, i)
	where, err := url.Parse(f.url + "/api/v1/namespaces/default/pods/web/portforward")
	must(t, err)
	transport, upgrader, err := spdy.RoundTripperFor(f.config())
	must(t, err)
	webSocket, err := portforward.NewSPDYOverWebsocketDialer(where, f.config())
	must(t, err)
	for protocol, dialer := range map[string]httpstream.Dialer{
		"SPDY":      spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, where),
		"WebSocket": webSocket,
	} {
		t.Run(protocol, func(t *testing.T) {
			ready, stop := make(chan struct{}), make(chan struct{})
			var errs journal
			forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:80"}, stop, ready, io.Discard, &errs)
			must(t, err)
			done := make(chan error, 1)
			go func() { done <- forwarder.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-done:
				t.Fatal(err)
			}
			ports, err := forwarder.GetPorts()
			must(t, err)
			client := &http.Client{Transport: &http.Transport{}}
			for range 3 {
				resp, err := client.Get("http://127.0.0.1:" + strconv.Itoa(int(ports[0].Local)) + "/hello")
				must(t, err)
				body, err := io.ReadAll(resp.Body)
				must(t, err)
				resp.Body.Close()
				if !strings.HasPrefix(string(body), "GET /hello") || i.last() != "web:80 true" {
					t.Errorf("%s, dialed %q", body, i.last())
				}
				client.CloseIdleConnections()
			}
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	// A port that nobody listens on: kubectl is told, and ends.
	var errs journal
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(webSocket, []string{"127.0.0.1"}, []string{"0:81"}, make(chan struct{}), ready, io.Discard, &errs)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- forwarder.ForwardPorts() }()
	<-ready
	ports, err := forwarder.GetPorts()
	must(t, err)
	// client-go ends when it is told, but not when that comes before it has made its second
	// stream: the next connection is told again.
	for ended := false; !ended; {
		if resp, err := http.Get("http://127.0.0.1:" + strconv.Itoa(int(ports[0].Local))); err == nil {
			t.Errorf("a port that nobody listens on answers %d", resp.StatusCode)
			resp.Body.Close()
		}
		select {
		case err := <-done:
			if ended = true; err == nil || i.last() != "web:81 true" {
				t.Errorf("%v, dialed %q", err, i.last())
			}
		case <-time.After(time.Second):
		}
	}
	if s := said.String(); !strings.Contains(s, `msg="ports of a pod forwarded" user=admin pod=default/web`) {
		t.Errorf("logged: %s", s)
	}
	f.stopsAtOnce()
}

// A browser shows its user's certificate for any page: one of another origin is not
// let in.
func TestPagesOfOtherOriginsOpenNothing(t *testing.T) {
	for page, want := range map[string]int{"": http.StatusOK, "https://api.example:6443": http.StatusOK, "https://evil.example": http.StatusForbidden, "https://api.example": http.StatusForbidden, "null": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "https://api.example:6443/api/v1/namespaces/default/pods/web/exec", nil)
		if page != "" {
			r.Header.Set("Origin", page)
		}
		w := httptest.NewRecorder()
		upgrade(func(context.Context, http.ResponseWriter, *http.Request) {}).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("a page of %q: %d, want %d", page, w.Code, want)
		}
	}
}
