package server

import (
	"context"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"headway.dev/headway/server/nodes"
)

// podAttach is pods/attach.
type podAttach struct{ ways }

var _ rest.Connecter = podAttach{}

// New implements rest.Storage.
func (e podAttach) New() runtime.Object { return &core.PodAttachOptions{} }

// NewConnectOptions implements rest.Connecter.
func (e podAttach) NewConnectOptions() (runtime.Object, bool, string) { return e.New(), false, "" }

// ConnectMethods implements rest.Connecter: WebSockets begin with a GET.
func (e podAttach) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// Connect implements rest.Connecter.
func (e podAttach) Connect(ctx context.Context, name string, options runtime.Object, _ rest.Responder) (http.Handler, error) {
	if err := e.enter(ctx); err != nil {
		return nil, err
	}
	o, ok := options.(*core.PodAttachOptions)
	if !ok {
		return nil, errOptions
	}
	pod, err := e.inside(ctx, name, &o.Container, o.Stdin || o.Stdout || o.Stderr)
	if err != nil {
		return nil, err
	}
	stdin, tty := inputs(pod, o.Container)
	if o.Stdin && !stdin {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("container %s of pod %s has no input: set stdin: true in its manifest", o.Container, name))
	}
	if o.TTY = o.TTY && tty; o.TTY {
		o.Stderr = false // a terminal has none
	}
	return upgrade(func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		e.told(ctx, "attached to a container", pod, "container", o.Container)
		run := attachment{execution{pods: e.server.cfg.Pods, pod: pod}}
		streams := &remotecommand.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}
		if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
			err := serveWebSocket(ctx, w, r, streams, func(in io.Reader, out, errs io.WriteCloser, sizes <-chan remotecommand.TerminalSize) error {
				return run.join(ctx, nodes.Command{Container: o.Container, Attach: true, TTY: o.TTY}, in, out, errs, sizes)
			})
			if err != nil {
				e.server.cfg.Log.DebugContext(ctx, "who was attached to a container is not told how that ended", "pod", name, "error", err)
			}
			return
		}
		remotecommand.ServeAttach(w, r, run, name, string(pod.UID), o.Container, streams, idleStreams, streamsToCome, remotecommand.SupportedStreamingProtocols)
	}), nil
}

// inputs says what a container has to be attached to.
func inputs(pod *corev1.Pod, name string) (stdin, tty bool) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].Stdin, list[i].TTY
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return c.Stdin, c.TTY
		}
	}
	return false, false
}

// attachment attaches to a container on the pod's node.
type attachment struct{ execution }

// AttachContainer implements remotecommand.Attacher.
func (a attachment) AttachContainer(ctx context.Context, _, _, container string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return a.join(ctx, nodes.Command{Container: container, Attach: true, TTY: tty}, in, out, errs, resize)
}
