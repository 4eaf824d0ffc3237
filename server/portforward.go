package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	wire "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/apiserver/pkg/registry/rest"
	tunnel "k8s.io/client-go/tools/portforward"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// podPortForward is pods/portforward.
type podPortForward struct{ ways }

var _ rest.Connecter = podPortForward{}

// New implements rest.Storage.
func (f podPortForward) New() runtime.Object { return &core.PodPortForwardOptions{} }

// NewConnectOptions implements rest.Connecter.
func (f podPortForward) NewConnectOptions() (runtime.Object, bool, string) {
	return f.New(), false, ""
}

// ConnectMethods implements rest.Connecter.
func (f podPortForward) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// Connect implements rest.Connecter.
func (f podPortForward) Connect(ctx context.Context, name string, options runtime.Object, _ rest.Responder) (http.Handler, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	o, ok := options.(*core.PodPortForwardOptions)
	if !ok {
		return nil, errOptions
	}
	pod, err := f.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not run: it is %s", name, pod.Status.Phase))
	}
	return upgrade(func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
			if w, r, ok = tunneled(w, r); !ok {
				return
			}
		}
		f.told(ctx, "ports of a pod forwarded", pod)
		forwarder := forwarder{ctx: ctx, pods: f.server.cfg.Pods, pod: pod}
		ports := &portforward.V4Options{Ports: o.Ports}
		portforward.ServePortForward(w, r, forwarder, name, string(pod.UID), ports, idleStreams, streamsToCome, []string{portforward.ProtocolV1Name})
	}), nil
}

// forwarder connects streams of a client with ports of a pod, until ctx ends: the
// library gives each of them a context that does not end with the client.
type forwarder struct {
	ctx  context.Context
	pods PodReacher
	pod  *corev1.Pod
}

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := f.pods.Dial(f.ctx, f.pod, uint16(port), true)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(f.ctx, func() { _ = conn.Close() }) // whoever reads it hears that
	defer func() {
		stop()
		_ = conn.Close() // both sides have heard
	}()
	go func() { // not waited for: it reads until the stream is closed
		_, err := io.Copy(conn, stream)
		if c, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
			err = c.CloseWrite()
		}
		if err != nil {
			_ = conn.Close() // the pod's side hears that
		}
	}()
	if _, err = io.Copy(stream, conn); errors.Is(err, net.ErrClosed) {
		return nil // the client left
	}
	return err
}

// tunneled answers a WebSocket that carries SPDY, which is what kubectl tries first,
// and returns the request as if it had come without the WebSocket.
func tunneled(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request, bool) {
	upgrader := websocket.Upgrader{
		Subprotocols: []string{wire.WebsocketsSPDYTunnelingPortForwardV1},
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, nil, false // the upgrader has answered
	}
	inner := r.Clone(r.Context())
	for name := range inner.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") {
			inner.Header.Del(name)
		}
	}
	inner.Method = http.MethodPost
	inner.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	inner.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	inner.Header.Set(httpstream.HeaderProtocolVersion, portforward.ProtocolV1Name)
	return &innerResponse{conn: tunnel.NewTunnelingConnection("server", conn), header: http.Header{}}, inner, true
}

// innerResponse is the response to a request inside a tunnel: the connection. Its
// head, and what would be its body if it were refused, is for nobody.
type innerResponse struct {
	conn   net.Conn
	header http.Header
}

// Header implements http.ResponseWriter.
func (r *innerResponse) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *innerResponse) WriteHeader(code int) {
	if code != http.StatusSwitchingProtocols {
		_ = r.conn.Close() // the client hears that
	}
}

// Write implements http.ResponseWriter.
func (r *innerResponse) Write(p []byte) (int, error) { return len(p), nil }

// Hijack implements http.Hijacker.
func (r *innerResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return r.conn, bufio.NewReadWriter(bufio.NewReader(r.conn), bufio.NewWriter(r.conn)), nil
}
