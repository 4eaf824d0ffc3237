package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"headway.dev/headway/server/nodes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
)

// PodReacher opens ways into pods over the sessions of their nodes.
type PodReacher interface {
	// Dial connects to a TCP port of a pod, on its address or inside its network.
	Dial(ctx context.Context, pod *corev1.Pod, port uint16, inside bool) (net.Conn, error)
	// Exec runs a command in a container until it ends or ctx does.
	Exec(ctx context.Context, pod *corev1.Pod, c nodes.Command) (code int32, err error)
}

// ways is what the ways into pods share.
type ways struct {
	server *Server
	store  *genericregistry.Store // of pods
	scheme *runtime.Scheme
	may    authorizer.UnconditionalAuthorizer
}

// Destroy implements rest.Storage; the registries own their stores.
func (w ways) Destroy() {}

// pod reads a pod that can be reached.
func (w ways) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	obj, err := w.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := w.scheme.Convert(obj, pod, nil); err != nil {
		return nil, fmt.Errorf("convert pod %s: %w", name, err)
	}
	return pod, w.reachable(pod)
}

// enter refuses whoever may not create what is asked for. A WebSocket begins with a GET,
// and to that who may only read has the right: as in Kubernetes since 1.35, looking is
// not going in.
func (w ways) enter(ctx context.Context) error {
	asked, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return fmt.Errorf("say what is asked for: %w", err)
	}
	if asked.GetVerb() == "create" {
		return nil // it was judged
	}
	decision, reason, err := w.may.Authorize(ctx, creating{asked})
	if err != nil {
		return fmt.Errorf("judge who may enter a pod: %w", err)
	}
	if decision != authorizer.DecisionAllow {
		return apierrors.NewForbidden(corev1.Resource(asked.GetResource()+"/"+asked.GetSubresource()), asked.GetName(), fmt.Errorf("it needs the verb create: %s", reason))
	}
	return nil
}

// creating is a request as one with the verb create.
type creating struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (creating) GetVerb() string { return "create" }

// inside reads a pod one of whose containers somebody wants streams of; the name of the
// container is completed.
func (w ways) inside(ctx context.Context, name string, of *string, streams bool) (*corev1.Pod, error) {
	pod, err := w.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if *of, err = container(pod, *of); err != nil {
		return nil, err
	}
	if !streams {
		return nil, apierrors.NewBadRequest("you must specify at least 1 of stdin, stdout, stderr")
	}
	return pod, nil
}

func (w ways) reachable(pod *corev1.Pod) error {
	switch {
	case pod.Spec.NodeName == "":
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s has no node yet: see kubectl describe pod %s", pod.Name, pod.Name))
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s has ended: it is %s", pod.Name, pod.Status.Phase))
	case w.server.cfg.Pods == nil:
		return apierrors.NewServiceUnavailable("this server has no sessions with nodes, ask another one")
	}
	return nil
}

// told logs who goes into a pod, as one line; never what for, which may be secret (R14).
func (w ways) told(ctx context.Context, what string, pod *corev1.Pod, more ...any) {
	who := ""
	if u, ok := apirequest.UserFrom(ctx); ok {
		who = u.GetName()
	}
	w.server.cfg.Log.InfoContext(ctx, what, append([]any{"user", who, "pod", pod.Namespace + "/" + pod.Name}, more...)...)
}

// upgrade serves a request that turns its connection into something else; serve gets
// a context that ends with the connection. A browser would show its user's certificate
// for any page, so a page of another origin is refused.
func upgrade(serve func(ctx context.Context, w http.ResponseWriter, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page := r.Header.Get("Origin"); page != "" {
			if from, err := url.Parse(page); err != nil || !strings.EqualFold(from.Host, r.Host) {
				http.Error(w, "a page of another origin may not open this", http.StatusForbidden)
				return
			}
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		serve(ctx, leaving{ResponseWriter: w, ctx: ctx, gone: cancel}, r.WithContext(ctx))
	})
}

var errOptions = errors.New("the options are of another kind")
