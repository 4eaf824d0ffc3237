package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"headway.dev/headway/runtime/session"
	"headway.dev/headway/server/nodes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	wire "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	utilexec "k8s.io/utils/exec"
)

const (
	idleStreams   = 4 * time.Hour // as in Kubernetes
	streamsToCome = 30 * time.Second
)

// podExec is pods/exec.
type podExec struct{ ways }

var _ rest.Connecter = podExec{}

// New implements rest.Storage.
func (e podExec) New() runtime.Object { return &core.PodExecOptions{} }

// NewConnectOptions implements rest.Connecter.
func (e podExec) NewConnectOptions() (runtime.Object, bool, string) { return e.New(), false, "" }

// ConnectMethods implements rest.Connecter: WebSockets begin with a GET.
func (e podExec) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// Connect implements rest.Connecter.
func (e podExec) Connect(ctx context.Context, name string, options runtime.Object, _ rest.Responder) (http.Handler, error) {
	if err := e.enter(ctx); err != nil {
		return nil, err
	}
	o, ok := options.(*core.PodExecOptions)
	if !ok {
		return nil, errOptions
	}
	pod, err := e.inside(ctx, name, &o.Container, o.Stdin || o.Stdout || o.Stderr)
	if err != nil {
		return nil, err
	}
	if len(o.Command) == 0 {
		return nil, apierrors.NewBadRequest("there is no command to run")
	}
	if o.TTY {
		o.Stderr = false // a terminal has none
	}
	return upgrade(func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		e.told(ctx, "command in a container", pod, "container", o.Container, "command", o.Command[0])
		run := execution{pods: e.server.cfg.Pods, pod: pod}
		streams := &remotecommand.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}
		if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
			err := serveWebSocket(ctx, w, r, streams, func(in io.Reader, out, errs io.WriteCloser, sizes <-chan remotecommand.TerminalSize) error {
				return run.ExecInContainer(ctx, "", "", o.Container, o.Command, in, out, errs, o.TTY, sizes, 0)
			})
			if err != nil {
				e.server.cfg.Log.DebugContext(ctx, "a command's client is not told how it ended", "pod", name, "error", err)
			}
			return
		}
		remotecommand.ServeExec(w, r, run, name, string(pod.UID), o.Container, o.Command, streams, idleStreams, streamsToCome, remotecommand.SupportedStreamingProtocols)
	}), nil
}

// execution runs a command on the pod's node.
type execution struct {
	pods PodReacher
	pod  *corev1.Pod
}

// ExecInContainer implements remotecommand.Executor.
func (e execution) ExecInContainer(ctx context.Context, _, _, container string, command []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return e.join(ctx, nodes.Command{Container: container, Args: command, TTY: tty}, in, out, errs, resize)
}

// join runs a command, or attaches to a container's own process.
func (e execution) join(ctx context.Context, c nodes.Command, in io.Reader, out, errs io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.Stdin = in
	if out != nil { // else Stdout would be an interface that holds nil
		c.Stdout = out
	}
	if errs != nil {
		c.Stderr = errs
	}
	if c.TTY && resize != nil { // the oldest protocols have no sizes
		sizes := make(chan *session.Size)
		c.Sizes = sizes
		go func() {
			defer close(sizes)
			for s := range resize {
				select {
				case sizes <- &session.Size{Width: uint32(s.Width), Height: uint32(s.Height)}:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	code, err := e.pods.Exec(ctx, e.pod, c)
	if ctx.Err() != nil { // a client that has not left, but that the server leaves, must not take it for success
		return errors.New("the connection has ended, and the command with it")
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: int(code)}
	}
	return nil
}

// serveWebSocket speaks version 5 of Kubernetes' protocol, which kubectl tries first:
// unlike the older ones it can say that the input has ended.
func serveWebSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, o *remotecommand.Options, run func(in io.Reader, out, errs io.WriteCloser, sizes <-chan remotecommand.TerminalSize) error) error {
	channels := make([]wsstream.ChannelType, wire.StreamResize+1)
	use := func(n int, wanted bool, as wsstream.ChannelType) {
		if wanted {
			channels[n] = as
		}
	}
	use(wire.StreamStdIn, o.Stdin, wsstream.ReadChannel)
	use(wire.StreamStdOut, o.Stdout, wsstream.WriteChannel)
	use(wire.StreamStdErr, o.Stderr, wsstream.WriteChannel)
	use(wire.StreamErr, true, wsstream.WriteChannel)
	use(wire.StreamResize, true, wsstream.ReadChannel)
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{wire.StreamProtocolV5Name: {Binary: true, Channels: channels}})
	conn.SetIdleTimeout(idleStreams)
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return fmt.Errorf("answer a WebSocket: %w", err)
	}
	defer func() { _ = conn.Close() }()                              // the client has left, or is told by it
	if _, err := streams[wire.StreamStdOut].Write(nil); err != nil { // tells that it can begin
		return err
	}
	sizes := make(chan remotecommand.TerminalSize)
	go func() {
		defer close(sizes)
		for d := json.NewDecoder(streams[wire.StreamResize]); ; {
			var s remotecommand.TerminalSize
			if d.Decode(&s) != nil {
				return // the connection has ended
			}
			select {
			case sizes <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	var in io.Reader
	var out, errs io.WriteCloser
	if o.Stdin {
		in = streams[wire.StreamStdIn]
	}
	if o.Stdout {
		out = streams[wire.StreamStdOut]
	}
	if o.Stderr {
		errs = streams[wire.StreamStdErr]
	}
	err = run(in, out, errs, sizes)
	text, err := json.Marshal(ending(err))
	if err != nil {
		return fmt.Errorf("encode how a command ended: %w", err)
	}
	conn.SetWriteDeadline(10 * time.Second)
	_, err = streams[wire.StreamErr].Write(text)
	return err
}

// ending says how a command ended, in the form that clients look for.
func ending(err error) metav1.Status {
	var exit utilexec.CodeExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: wire.NonZeroExitCodeReason,
			Message: fmt.Sprintf("command terminated with non-zero exit code: %v", err),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: wire.ExitCodeCauseType, Message: strconv.Itoa(exit.Code)}}},
		}
	}
	return apierrors.NewInternalError(fmt.Errorf("error executing command in container: %w", err)).Status()
}
