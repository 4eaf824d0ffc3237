package e2e

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

const autoscaler = `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 3
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}
  behavior:
    scaleDown:
      stabilizationWindowSeconds: 15
`

// A Deployment under load gets more pods by the figures of real cgroups, and fewer when
// the load is over; Headway leaves the replicas alone meanwhile (D6).
func TestAutoscaling(t *testing.T) {
	t.Parallel()
	c := probing(t)
	loaded := strings.Replace(web("one", 1), "          args: [serve]\n", "          args: [serve]\n          resources: {requests: {cpu: 100m, memory: 16Mi}}\n", 1)
	_, printed := c.deploy("web", map[string]string{"web.yaml": loaded, "hpa.yaml": autoscaler, "still.yaml": other("still", 1)})
	contains(t, "the push", printed, "warning: web.yaml:6:3: spec.replicas: HorizontalPodAutoscaler default/web (hpa.yaml:1) sets the replicas")
	if strings.Contains(printed, "stored, not enforced") {
		t.Errorf("the push takes it for one that nothing acts on:\n%s", printed)
	}
	contains(t, "kubectl autoscale", c.kubectl("autoscale", "deployment", "still", "--cpu=70%", "--min=1", "--max=2"), "autoscaled")
	pod := c.pods("app=web")[0]
	burn := func(percent int) {
		t.Helper()
		if got, err := demand(pod.Status.PodIP, fmt.Sprintf("/burn?percent=%d", percent)); err != nil || got != "burning" {
			t.Fatalf("%q: %v", got, err)
		}
	}
	shows := func(what string, wanted ...string) {
		t.Helper()
		eventually(t, what, func() error {
			out := c.kubectl("get", "hpa", "web", "--no-headers")
			for _, w := range wanted {
				if !strings.Contains(out, w) {
					return fmt.Errorf("no %q in %s", w, out)
				}
			}
			return nil
		})
	}
	ready := func(n int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d ready pods", n), func() error {
			d := get[appsv1.Deployment](c, "deployment", "web")
			if *d.Spec.Replicas != n || d.Status.ReadyReplicas != n || d.Status.Replicas != n {
				return fmt.Errorf("%d wanted, %d ready, %d there: %s", *d.Spec.Replicas, d.Status.ReadyReplicas, d.Status.Replicas, c.kubectl("describe", "hpa", "web"))
			}
			return nil
		})
	}
	shows("the first figures", "Deployment/web", "%/50%")
	burn(40)
	ready(3)
	shows("the load", "Deployment/web", "%/50%", " 1 ", " 3 ")
	contains(t, "describe", c.kubectl("describe", "hpa", "web"), "resource cpu on pods", "SuccessfulRescale", "cpu resource utilization (percentage of request) above target", "ScalingActive", "ValidMetricFound")
	if out, err := c.headway("drift"); err != nil || strings.Contains(out, "Deployment default/web") {
		t.Errorf("the replicas are taken for drift: %v\n%s", err, out)
	}
	// A commit about something else leaves them.
	c.deploy("label", map[string]string{"web.yaml": strings.Replace(loaded, "  name: web\n", "  name: web\n  labels: {a: b}\n", 1)})
	if d := get[appsv1.Deployment](c, "deployment", "web"); d.Labels["a"] != "b" || *d.Spec.Replicas != 3 {
		t.Errorf("after a commit about its labels: %v, %d replicas", d.Labels, *d.Spec.Replicas)
	}
	burn(0)
	ready(1)
	contains(t, "events", c.kubectl("get", "events", "--field-selector", "involvedObject.kind=HorizontalPodAutoscaler"), "SuccessfulRescale", "All metrics below target")

	still := get[autoscalingv2.HorizontalPodAutoscaler](c, "hpa", "still")
	if cond := still.Status.Conditions; len(cond) < 2 || cond[1].Status != corev1.ConditionFalse || !strings.Contains(cond[1].Message, "missing request for cpu in container") {
		t.Errorf("an autoscaler of pods without requests: %+v", cond)
	}
}
