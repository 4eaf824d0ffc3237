package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
)

// podProxy is pods/proxy: HTTP to a pod, by [scheme:]pod[:port].
type podProxy struct{ ways }

// serviceProxy is services/proxy: HTTP to one of a Service's pods, by
// [scheme:]service[:port].
type serviceProxy struct{ ways }

var (
	_ rest.Connecter = podProxy{}
	_ rest.Connecter = serviceProxy{}
)

// New implements rest.Storage.
func (p podProxy) New() runtime.Object { return &core.PodProxyOptions{} }

// New implements rest.Storage.
func (p serviceProxy) New() runtime.Object { return &core.ServiceProxyOptions{} }

// NewConnectOptions implements rest.Connecter.
func (p podProxy) NewConnectOptions() (runtime.Object, bool, string) { return p.New(), true, "path" }

// NewConnectOptions implements rest.Connecter.
func (p serviceProxy) NewConnectOptions() (runtime.Object, bool, string) {
	return p.New(), true, "path"
}

// ConnectMethods implements rest.Connecter.
func (p podProxy) ConnectMethods() []string { return proxied() }

// ConnectMethods implements rest.Connecter.
func (p serviceProxy) ConnectMethods() []string { return proxied() }

func proxied() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}
}

// Connect implements rest.Connecter.
func (p podProxy) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	o, ok := options.(*core.PodProxyOptions)
	if !ok {
		return nil, errOptions
	}
	scheme, name, portText, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", id))
	}
	pod, err := p.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	port, err := podPort(pod, portText, scheme)
	if err != nil {
		return nil, err
	}
	return p.proxy(pod, scheme, port, o.Path, responder)
}

// podPort is a port by number, or the first one that the pod names, or the scheme's.
func podPort(pod *corev1.Pod, text, scheme string) (uint16, error) {
	if text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return 0, apierrors.NewBadRequest(fmt.Sprintf("%q is no port number", text))
		}
		return uint16(n), nil
	}
	for _, c := range pod.Spec.Containers {
		if len(c.Ports) > 0 {
			return uint16(c.Ports[0].ContainerPort), nil
		}
	}
	if scheme == "https" {
		return 443, nil
	}
	return 80, nil
}

// Connect implements rest.Connecter.
func (p serviceProxy) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	o, ok := options.(*core.ServiceProxyOptions)
	if !ok {
		return nil, errOptions
	}
	scheme, name, portText, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", id))
	}
	namespace := apirequest.NamespaceValue(ctx)
	svc, ok := p.server.cfg.Store.Get(store.Key{GroupResource: api.Services(), Namespace: namespace, Name: name}).(*corev1.Service)
	if !ok || svc == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("services"), name)
	}
	portName, err := servicePort(svc, portText)
	if err != nil {
		return nil, err
	}
	var all []*discoveryv1.EndpointSlice
	for _, obj := range p.server.cfg.Store.List(api.EndpointSlices(), namespace) {
		if s := obj.(*discoveryv1.EndpointSlice); s.Labels[discoveryv1.LabelServiceName] == name {
			all = append(all, s)
		}
	}
	found := targets(all, portName)
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	for _, t := range found {
		pod, err := p.pod(ctx, t.pod)
		if err == nil && slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == t.address }) {
			return p.proxy(pod, scheme, t.port, o.Path, responder)
		}
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
}

// servicePort is the name of a Service's port, which may be given by its number.
func servicePort(svc *corev1.Service, text string) (string, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return text, nil
	}
	for _, p := range svc.Spec.Ports {
		if int64(p.Port) == n {
			return p.Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", n, svc.Name))
}

// target is a pod behind a Service.
type target struct {
	pod, address string
	port         uint16
}

// targets are the ready pods of a Service, sorted. No name of a port means the only
// one, or the one without a name.
func targets(all []*discoveryv1.EndpointSlice, portName string) []target {
	var out []target
	for _, s := range all {
		for _, p := range s.Ports {
			name := ""
			if p.Name != nil {
				name = *p.Name
			}
			if p.Port == nil || name != portName && (portName != "" || len(s.Ports) != 1) || p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
				continue
			}
			for _, e := range s.Endpoints {
				ready := e.Conditions.Ready == nil || *e.Conditions.Ready
				if ready && e.TargetRef != nil && e.TargetRef.Kind == "Pod" && e.TargetRef.Namespace == s.Namespace && len(e.Addresses) > 0 {
					out = append(out, target{e.TargetRef.Name, e.Addresses[0], uint16(*p.Port)})
				}
			}
			break
		}
	}
	slices.SortFunc(out, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(a.address, b.address), cmp.Compare(a.port, b.port))
	})
	return slices.Compact(out)
}

// proxy hands a request on to a pod. As in Kubernetes nobody checks the certificate of
// one that speaks TLS: it has no name that an authority could vouch for.
func (w ways) proxy(pod *corev1.Pod, scheme string, port uint16, path string, responder rest.Responder) (http.Handler, error) {
	if pod.Status.PodIP == "" {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("pod %s has no address yet", pod.Name))
	}
	location := &url.URL{Scheme: cmp.Or(scheme, "http"), Host: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port)))}
	location.Path = utilnet.JoinPreservingTrailingSlash(location.Path, path)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.server.cfg.Pods.Dial(ctx, pod, port, false)
		},
		DisableKeepAlives:  true, // a connection is a stream of the node, of which there are few
		DisableCompression: true, // what the pod sends is for the client
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
	}
	handler := proxy.NewUpgradeAwareHandler(location, transport, true, false, proxy.NewErrorResponder(responder))
	return upgrade(func(_ context.Context, w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }), nil
}
