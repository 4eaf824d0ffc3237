package e2e

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func statefulSet(answer string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: peers}
spec:
  clusterIP: None
  selector: {app: db}
  ports: [{name: http, port: 8080}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: peers
  selector:
    matchLabels: {app: db}
  template:
    metadata:
      labels: {app: db}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: db
        image: %s
        args: [serve]
        env: [{name: ANSWER, value: %q}]
`, probeName, answer)
}

func daemonSet(answer string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: web
        image: %s
        args: [serve]
        env: [{name: ANSWER, value: %q}]
`, probeName, answer)
}

// A StatefulSet and a DaemonSet come from a push, keep their identities through a
// rolling update by the next one, and a revision that never gets ready is replaced by
// its revert without hands (kubernetes/kubernetes#67250).
func TestSets(t *testing.T) {
	t.Parallel()
	c := probing(t)
	_, printed := c.deploy("one", map[string]string{"db.yaml": statefulSet("one"), "web.yaml": daemonSet("one")})
	contains(t, "the push", printed, "StatefulSet default/db  healthy", "DaemonSet default/web  healthy")
	c.answers("one", 1)
	identity := func(word string) map[string]string {
		t.Helper()
		uids := map[string]string{}
		for _, p := range get[corev1.PodList](c, "pods", "-l", "app=db").Items {
			uids[p.Name] = string(p.UID)
			if got, err := ask(p.Status.PodIP); err != nil || got != word {
				t.Errorf("%s answers %q: %v", p.Name, got, err)
			}
			if host, err := demand(p.Status.PodIP, "/host"); err != nil || host != p.Name || "db-"+p.Labels["apps.kubernetes.io/pod-index"] != p.Name {
				t.Errorf("%s is called %q: %v, labels %v", p.Name, host, err, p.Labels)
			}
			becomes(t, "the name of "+p.Name, p.Status.PodIP, func() (string, error) { return c.inside("web", "/resolve?name="+p.Name+".peers") })
		}
		if len(uids) != 2 || uids["db-0"] == "" || uids["db-1"] == "" {
			t.Errorf("the pods are %v", uids)
		}
		return uids
	}
	before := identity("one")
	contains(t, "kubectl get", c.kubectl("get", "statefulset,daemonset,controllerrevision"), "statefulset.apps/db   2/2", "daemonset.apps/web   1", "controllerrevision.apps/db-", "statefulset.apps/db", "controllerrevision.apps/web-")

	c.deploy("two", map[string]string{"db.yaml": statefulSet("two"), "web.yaml": daemonSet("two")})
	c.answers("two", 1)
	after := identity("two")
	if before["db-0"] == after["db-0"] || before["db-1"] == after["db-1"] {
		t.Errorf("before %v, after %v", before, after)
	}
	contains(t, "kubectl rollout history", c.kubectl("rollout", "history", "statefulset/db"), "REVISION", "1", "2")
	contains(t, "kubectl rollout status", c.kubectl("rollout", "status", "daemonset/web"), "successfully rolled out")

	// A revision that never gets ready, and its revert.
	c.write(map[string]string{"db.yaml": strings.Replace(statefulSet("three"), "args: [serve]", "args: [serve]\n        readinessProbe: {tcpSocket: {port: 1}}", 1)})
	c.commit("three")
	held := c.hold() // it follows the rollout until the next commit
	eventually(t, "db-1 to be stuck", func() error {
		s, p := get[appsv1.StatefulSet](c, "statefulset", "db"), get[corev1.Pod](c, "pod", "db-1")
		if s.Status.UpdatedReplicas != 1 || s.Status.ReadyReplicas != 1 || p.Labels["controller-revision-hash"] != s.Status.UpdateRevision || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
			return fmt.Errorf("status %+v, pod %+v", s.Status, p.Status)
		}
		return nil
	})
	c.git("revert", "--no-edit", "HEAD")
	out, err := c.push()
	if err != nil {
		t.Fatalf("push: %v\n%s", err, out)
	}
	contains(t, "the push of what got stuck", held(), "superseded by commit")
	c.healthy(strings.TrimSpace(c.git("rev-parse", "HEAD")))
	again := identity("two")
	if again["db-0"] != after["db-0"] || again["db-1"] == after["db-1"] {
		t.Errorf("db-0 had no reason to go, and db-1 had: %v, then %v", after, again)
	}
}
