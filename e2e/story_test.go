package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/internal/loopback"
)

// web is a Deployment of the probe that answers with a word.
func web(answer string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: %d
  selector:
    matchLabels: {app: web}
  strategy:
    rollingUpdate: {maxSurge: 1, maxUnavailable: 1}
  template:
    metadata:
      labels: {app: web}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: web
          image: %s
          args: [serve]
          env:
            - {name: ANSWER, value: %q}
`, replicas, probeName, answer)
}

// The whole story: a push runs, the next commit changes it, git revert rolls it
// back, and it is gone when its file is gone.
func TestPushChangeRevertRemove(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.addProbe()
	c.start()
	c.waitReady()

	first, printed := c.deploy("web: first", map[string]string{"web.yaml": web("one", 2)})
	for _, want := range []string{"1 object to create", "default/web", "healthy"} {
		if !strings.Contains(printed, want) {
			t.Errorf("the push did not print %q:\n%s", want, printed)
		}
	}
	c.answers("one", 2)
	d := get[appsv1.Deployment](c, "deployment", "web")
	for key, want := range map[string]string{
		"headway.dev/commit": first, "headway.dev/path": "web.yaml", "headway.dev/line": "1", "headway.dev/author": "Ada <ada@example.org>",
	} {
		if got := d.Annotations[key]; got != want {
			t.Errorf("provenance %s is %q, want %q", key, got, want)
		}
	}

	c.deploy("web: second", map[string]string{"web.yaml": web("two", 2)})
	c.answers("two", 2)

	c.git("revert", "--no-edit", "HEAD")
	if out, err := c.push(); err != nil {
		t.Fatalf("push the revert: %v\n%s", err, out)
	}
	if out, err := c.headway("status", "--wait", "--timeout", patience.String()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.answers("one", 2)

	c.deploy("web: gone", map[string]string{"web.yaml": ""})
	eventually(t, "everything to be gone", func() error {
		out, err := c.tryKubectl("get", "deployments,replicasets,pods", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("still there: %s", out)
		}
		return err
	})
}

// answers waits until n pods are Ready and each answers with the word.
func (c *cluster) answers(word string, n int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d pods to answer %q", n, word), func() error {
		pods := get[corev1.PodList](c, "pods", "-l", "app=web")
		if len(pods.Items) != n {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		for _, p := range pods.Items {
			if !isReady(&p) {
				return fmt.Errorf("pod %s is not Ready", p.Name)
			}
			if got, err := ask(p.Status.PodIP); err != nil || got != word {
				return fmt.Errorf("pod %s answers %q: %v", p.Name, got, err)
			}
		}
		return nil
	})
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// ask sends one request to a pod.
func ask(ip string) (string, error) { return fetch("http://" + ip + ":8080/") }

func fetch(url string) (string, error) {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// A push with mistakes is refused whole, each with its place, and changes
// nothing.
func TestBadPushIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.addProbe()
	c.start()
	c.waitReady()
	good, _ := c.deploy("web", map[string]string{"web.yaml": web("one", 1)})
	before := get[appsv1.Deployment](c, "deployment", "web").ResourceVersion

	c.write(map[string]string{
		"web.yaml":   strings.Replace(web("two", 1), "replicas:", "replica:", 1),
		"other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: Bad_Name\n",
	})
	c.commit("two mistakes")
	out, err := c.push()
	if err == nil {
		t.Fatalf("the push was accepted:\n%s", out)
	}
	for _, want := range []string{"web.yaml:6:3: spec.replica:", "other.yaml:4:3: metadata.name:"} {
		if !strings.Contains(out, want) {
			t.Errorf("the refusal does not say %q:\n%s", want, out)
		}
	}
	if got := c.git("ls-remote", c.remote(), "refs/heads/main"); !strings.HasPrefix(got, good) {
		t.Errorf("the branch moved: %s", got)
	}
	if after := get[appsv1.Deployment](c, "deployment", "web").ResourceVersion; after != before {
		t.Errorf("the Deployment changed: resourceVersion %s, was %s", after, before)
	}

	// And the way out works.
	c.git("reset", "--quiet", "--hard", good)
	c.deploy("web: mended", map[string]string{"web.yaml": web("three", 1)})
	c.answers("three", 1)
}

// What headway init writes runs as it is.
func TestTemplateRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	if out, err := c.headway("init", c.work); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The host port 8080 belongs to whoever runs make up on this machine.
	_, port, err := net.SplitHostPort(loopback.Reserve(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	c.git("rm", "--quiet", "jobs/tick.yaml")
	manifest := c.git("show", "HEAD:web/deployment.yaml")
	c.write(map[string]string{"web/deployment.yaml": strings.Replace(manifest, "hostPort: 8080", "hostPort: "+port, 1) + "\n"})
	c.commit("another host port")
	if out, err := c.run(c.work, "git", "push"); err != nil {
		t.Fatalf("a plain git push: %v\n%s", err, out)
	}
	if out, err := c.headway("status", "--wait", "--timeout", patience.String()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if job := get[batchv1.Job](c, "job", "migrate", "-n", "demo"); job.Status.Succeeded != 1 {
		t.Errorf("the job: %+v", job.Status)
	}
	if out := c.kubectl("logs", "-n", "demo", "job/migrate"); !strings.Contains(out, "migration done") {
		t.Errorf("its log: %s", out)
	}
	eventually(t, "the page on the machine's own port", func() error {
		resp, err := http.Get("http://127.0.0.1:" + port + "/")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if page, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(page), "Hello from Headway") {
			return fmt.Errorf("the page is %q: %v", page, err)
		}
		return nil
	})
}

// A commit that changes only settings is not called healthy before the pods run
// with them.
func TestSettingsRollAndThePushWaits(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.addProbe()
	c.start()
	c.waitReady()
	settings := func(answer string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  ANSWER: " + answer + "\n"
	}
	inline := "env:\n            - {name: ANSWER, value: \"one\"}\n"
	manifest := strings.Replace(web("one", 1), inline, "envFrom:\n            - configMapRef: {name: settings}\n", 1)
	c.deploy("web", map[string]string{"web.yaml": manifest, "settings.yaml": settings("one")})
	c.answers("one", 1)

	c.write(map[string]string{"settings.yaml": settings("two")})
	c.commit("other settings")
	printed, err := c.push()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	if !strings.Contains(printed, "Deployment default/web  healthy") {
		t.Errorf("the push did not wait for the rollout:\n%s", printed)
	}
	c.answers("two", 1)
}
