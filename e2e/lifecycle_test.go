package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tell asks a pod of the program healthy for a change.
func (c *cluster) tell(p *corev1.Pod, path string) {
	c.t.Helper()
	resp, err := http.Get("http://" + p.Status.PodIP + ":8080" + path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: %s", path, resp.Status)
	}
}

// pod waits until the pod of a name is as it should be.
func (c *cluster) pod(name, what string, ok func(*corev1.Pod) error) *corev1.Pod {
	c.t.Helper()
	var p *corev1.Pod
	eventually(c.t, what, func() error {
		var err error
		if p, err = c.client().CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		return ok(p)
	})
	return p
}

func beReady(p *corev1.Pod) error {
	if !isReady(p) {
		return fmt.Errorf("it is not ready: %+v", p.Status)
	}
	return nil
}

// probed is a Deployment whose container has a probe of each kind, each asked its way.
func probed(bad string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: probed}
spec:
  selector: {matchLabels: {app: probed}}
  template:
    metadata: {labels: {app: probed}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: main
          image: %s
          args: [healthy]
          env: [{name: BAD, value: %q}]
          ports: [{name: http, containerPort: 8080}]
          startupProbe: {grpc: {port: 9090}, periodSeconds: 1, failureThreshold: 100}
          readinessProbe: {httpGet: {path: /is/ready, port: http}, periodSeconds: 1, failureThreshold: 1}
          livenessProbe: {exec: {command: [/probe, good, "http://127.0.0.1:8080/is/live"]}, periodSeconds: 1, failureThreshold: 2, timeoutSeconds: 10}
`, probeName, bad)
}

// A push waits for the probes, a failing one has the container restarted, and an agent
// that is killed changes nothing of either (R8, R9).
func TestProbes(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.deploy("good", map[string]string{"probed.yaml": probed("")})
	before := c.lives("app=probed", 1)

	c.end(syscall.SIGKILL)
	c.start()
	c.waitReady()
	c.inCharge("after a kill")
	c.same("after a kill", "app=probed", before)

	p := &c.pods("app=probed")[0]
	c.tell(p, "/bad?ready")
	c.pod(p.Name, "the pod not to be ready", func(p *corev1.Pod) error {
		if isReady(p) {
			return errors.New("it is ready")
		}
		return nil
	})
	c.tell(p, "/good?ready")
	c.pod(p.Name, "the pod to be ready again", beReady)
	c.same("after it was not ready", "app=probed", before)

	c.tell(p, "/bad?live")
	c.pod(p.Name, "the container to be restarted", func(p *corev1.Pod) error {
		if p.Status.ContainerStatuses[0].RestartCount != 1 {
			return fmt.Errorf("%+v", p.Status.ContainerStatuses[0])
		}
		return beReady(p)
	})
	contains(t, "the pod's events", c.kubectl("events", "--for", "pod/"+p.Name),
		"Readiness probe failed: HTTP probe failed with statuscode: 503", "Liveness probe failed: probe: 503 Service Unavailable",
		"Container main failed liveness probe, will be restarted")

	// A rollout waits for what is not ready, and says why.
	c.write(map[string]string{"probed.yaml": probed("grpc ready")})
	c.commit("not ready")
	pushed := c.hold()
	says := func(text string) {
		t.Helper()
		eventually(t, "the status to say "+text, func() error {
			out, err := c.headway("status")
			if !strings.Contains(out, text) {
				return fmt.Errorf("%v: %s", err, out)
			}
			return nil
		})
	}
	says("runs, and its startup probe has not succeeded yet")
	var fresh *corev1.Pod
	for _, q := range c.pods("app=probed") {
		if q.Name != p.Name {
			fresh = &q
		}
	}
	if fresh == nil {
		t.Fatal("there is no new pod")
	}
	c.tell(fresh, "/good?grpc")
	says("runs, and its readiness probe has not succeeded")
	if got := c.pods("app=probed"); len(got) != 2 {
		t.Errorf("%d pods: the old one went before the new one was ready", len(got))
	}
	c.tell(fresh, "/good?ready")
	contains(t, "the push", pushed(), "healthy")
}

// staged is a pod with init containers, a sidecar and hooks.
const staged = `apiVersion: v1
kind: Pod
metadata: {name: staged, labels: {app: staged}}
spec:
  terminationGracePeriodSeconds: 20
  initContainers:
    - {name: first, image: IMAGE, args: [env]}
    - name: side
      image: IMAGE
      args: [healthy]
      restartPolicy: Always
      env: [{name: BAD, value: "go started"}]
      startupProbe: {httpGet: {path: /is/started, port: 8080}, periodSeconds: 1, failureThreshold: 100}
      lifecycle: {postStart: {exec: {command: [/probe, await, "http://127.0.0.1:8080/is/any"]}}}
    - {name: second, image: IMAGE, args: [await, "http://127.0.0.1:8080/is/go"]}
  containers:
    - name: main
      image: IMAGE
      args: [sleep]
      lifecycle:
        postStart: {httpGet: {path: "/mark?greeted", port: 8080}}
        preStop: {exec: {command: [/probe, good, "http://127.0.0.1:8080/mark?leaving"]}}
`

// Init containers run in their order, whoever is killed in the middle; hooks are called;
// the sidecar stops last.
func TestInitContainersAndHooks(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.write(map[string]string{"staged.yaml": strings.ReplaceAll(staged, "IMAGE", probeName)})
	c.commit("in stages")
	pushed := c.hold()
	shows := func(text string) *corev1.Pod {
		t.Helper()
		eventually(t, "kubectl to show "+text, func() error {
			out, err := c.tryKubectl("get", "pod", "staged")
			if err == nil && !strings.Contains(out, text) {
				err = errors.New(out)
			}
			return err
		})
		return c.pod("staged", "the pod", func(*corev1.Pod) error { return nil })
	}
	p := c.pod("staged", "the sidecar to run", func(p *corev1.Pod) error {
		if s := p.Status.InitContainerStatuses; len(s) != 3 || s[1].State.Running == nil || s[0].State.Terminated == nil {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if s := p.Status.InitContainerStatuses; *s[1].Started || s[2].State.Waiting == nil {
		t.Errorf("what follows a sidecar that has not started: %+v", s)
	}
	shows("Init:1/3")
	c.tell(p, "/good?started")
	p = shows("Init:2/3")

	c.end(syscall.SIGKILL)
	c.start()
	c.waitReady()
	c.write(map[string]string{"after.yaml": job("after", "", "exit", "0")}) // the agent is in charge again
	c.commit("after a kill")
	if out, err := c.push(); err != nil {
		t.Fatalf("push: %v\n%s", err, out)
	}
	after := c.pod("staged", "the pod", func(*corev1.Pod) error { return nil })
	for i, s := range after.Status.InitContainerStatuses {
		if was := p.Status.InitContainerStatuses[i]; s.RestartCount != 0 || s.ContainerID != was.ContainerID && was.ContainerID != "" {
			t.Errorf("after a kill: %+v, before %+v", s, was)
		}
	}
	c.tell(p, "/good?go")
	p = c.pod("staged", "the pod to be ready", beReady)
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if s.RestartCount != 0 || !s.Ready {
			t.Errorf("%+v", s)
		}
	}
	shows("2/2")
	if out := pushed(); out != "" {
		t.Logf("the push, which a kill cut short, printed:\n%s", out)
	}

	// What the sidecar hears until it ends itself.
	heard := make(chan string, 1)
	go func() {
		out, err := c.tryKubectl("logs", "-f", "staged", "-c", "side")
		heard <- fmt.Sprint(out, err)
	}()
	c.deploy("gone", map[string]string{"staged.yaml": ""})
	contains(t, "the sidecar", <-heard, "mark greeted\nmark leaving\nsignal terminated\n")

	// A Job is complete although its sidecar would run on.
	c.deploy("a job", map[string]string{"job.yaml": strings.Replace(job("aside", "", "await", "http://127.0.0.1:8080/is/any"),
		"      containers:\n", "      initContainers:\n        - {name: side, image: "+probeName+", args: [healthy], restartPolicy: Always}\n      containers:\n", 1)})
	for _, p := range c.pods("batch.kubernetes.io/job-name=aside") {
		if s := p.Status.InitContainerStatuses[0]; p.Status.Phase != corev1.PodSucceeded || s.State.Terminated == nil {
			t.Errorf("%+v", p.Status)
		}
	}
}
