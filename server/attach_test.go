package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"headway.dev/headway/server/nodes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// Who attaches says and hears what goes in and out of a container's own process, over both
// protocols; what cannot be attached to is refused by name.
func TestAttach(t *testing.T) {
	i := &insides{commands: map[string]func(context.Context, nodes.Command) (int32, error){
		"attached": func(_ context.Context, c nodes.Command) (int32, error) {
			in, err := io.ReadAll(c.Stdin)
			if err != nil || len(c.Args) != 0 || c.TTY {
				return 0, fmt.Errorf("%+v, %w", c, err)
			}
			fmt.Fprintf(c.Stdout, "heard %s", in)
			fmt.Fprint(c.Stderr, "err")
			return 0, nil
		},
	}}
	f, said := within(t, i)
	p := pod("reads", "n1")
	p.Spec.Containers[0].Stdin = true
	made, err := f.admin.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
	must(t, err)
	made.Status.Phase = corev1.PodRunning
	_, err = f.admin.CoreV1().Pods("default").UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	must(t, err)
	config := f.config()
	config.GroupVersion, config.NegotiatedSerializer = &corev1.SchemeGroupVersion, scheme.Codecs
	client, err := rest.RESTClientFor(withPath(config))
	must(t, err)
	// Without a terminal in the container there is none for the client.
	url := client.Post().Resource("pods").Namespace("default").Name("reads").SubResource("attach").
		VersionedParams(&corev1.PodAttachOptions{Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	old, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, url)
	must(t, err)
	webSocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String())
	must(t, err)
	for name, e := range map[string]remotecommand.Executor{"SPDY": old, "WebSocket": webSocket} {
		var out, errs bytes.Buffer
		err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hunter2"), Stdout: &out, Stderr: &errs})
		if err != nil || out.String() != "heard hunter2" || errs.String() != "err" {
			t.Errorf("%s: %v, %q, %q", name, err, out.String(), errs.String())
		}
	}
	if s := said.String(); !strings.Contains(s, `msg="attached to a container" user=admin pod=default/reads container=main`) || strings.Contains(s, "hunter2") {
		t.Errorf("logged: %s", s)
	}
	for query, says := range map[string]string{
		"stdin=true&container=main": "container main of pod web has no input: set stdin: true in its manifest",
		"":                          "you must specify at least 1 of stdin, stdout, stderr",
		"stdout=true&container=no":  "container no is not valid for pod web",
	} {
		resp, err := f.adminHTTP().Post(f.url+"/api/v1/namespaces/default/pods/web/attach?"+query, "", nil)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), says) {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}

// A way into a container lasts as long as somebody uses it.
func TestWaysIntoContainersAreLongRunning(t *testing.T) {
	for _, sub := range []string{"exec", "attach", "portforward", "log", "proxy"} {
		info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "create", Resource: "pods", Subresource: sub}
		if !longRunning(httptest.NewRequest(http.MethodPost, "/", nil), info) {
			t.Errorf("pods/%s is cut off after a minute", sub)
		}
	}
}

// An ephemeral container comes to a pod by its own subresource, if its namespace's level
// and what this version acts on allow it.
func TestEphemeralContainersAreAdmitted(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	_, err := f.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shielded", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}}, metav1.CreateOptions{})
	must(t, err)
	pods := f.admin.CoreV1().Pods("shielded")
	p := pod("web", "n1")
	p.Namespace = "shielded"
	_, err = pods.Create(ctx, p, metav1.CreateOptions{})
	must(t, err)
	add := func(c corev1.EphemeralContainerCommon) error {
		p, err := pods.Get(ctx, "web", metav1.GetOptions{})
		must(t, err)
		c.Name, c.Image = "debug", "tools:1"
		c.TerminationMessagePolicy, c.ImagePullPolicy = corev1.TerminationMessageReadFile, corev1.PullIfNotPresent
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: c, TargetContainerName: "main"}}
		_, err = pods.UpdateEphemeralContainers(ctx, "web", p, metav1.UpdateOptions{})
		return err
	}
	if err := add(corev1.EphemeralContainerCommon{SecurityContext: &corev1.SecurityContext{Privileged: ptr(true)}}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "baseline:latest"`) {
		t.Errorf("a privileged one: %v", err)
	}
	if err := add(corev1.EphemeralContainerCommon{SecurityContext: &corev1.SecurityContext{ProcMount: ptr(corev1.UnmaskedProcMount)}}); err == nil {
		t.Error("one that sees all of /proc was taken")
	}
	must(t, add(corev1.EphemeralContainerCommon{Stdin: true, TTY: true}))
}
