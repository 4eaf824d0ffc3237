package podautoscaler

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"headway.dev/headway/api"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// want is an autoscaler of a Deployment web by cpu utilization.
func want(utilization, least, most int32) *autoscalingv2.HorizontalPodAutoscaler {
	a := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "hpa", Generation: 3},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    &least, MaxReplicas: most,
			Metrics: []autoscalingv2.MetricSpec{cpuAt(utilization)},
		},
	}
	return a
}

func cpuAt(utilization int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &utilization}}}
}

func average(name corev1.ResourceName, value string) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr(resource.MustParse(value))}}}
}

// scene is what a plan is made from, grown a pod at a time.
type scene struct{ observed }

func scale(a *autoscalingv2.HorizontalPodAutoscaler, replicas int32) *scene {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	s := &scene{observed{autoscaler: a, target: d, figures: map[types.UID]reading{}}}
	s.observed.scale, _ = api.ScaleOf(d)
	api.Scheme().Default(a)
	return s
}

const mib = 1 << 20

// pod adds a Ready pod that has run for an hour, requests 100m and 100Mi, and uses so
// many millicores and as many MiB; a negative use is not known.
func (s *scene) pod(millis int64, change ...func(*corev1.Pod)) *scene {
	began := noon.Add(-time.Hour)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", len(s.pods)), UID: types.UID(fmt.Sprintf("pod-%d", len(s.pods))), Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("100Mi")}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr(metav1.NewTime(began)),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(began.Add(time.Minute))}}},
	}
	for _, c := range change {
		c(p)
	}
	s.pods = append(s.pods, p)
	if millis >= 0 {
		s.figures[p.UID] = reading{at: noon.Add(-5 * time.Second), pod: &api.PodFigures{UID: p.UID, Millis: 15000, Containers: []api.ContainerFigures{
			{Name: "main", CPU: millis * 1_000_000, Memory: millis * mib}}}}
	}
	return s
}

func (s *scene) running(n int, millis int64) *scene {
	for range n {
		s.pod(millis)
	}
	return s
}

func notReady(began, changed time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.StartTime = ptr(metav1.NewTime(noon.Add(-began)))
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-changed))
	}
}

func readySince(began, changed time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		notReady(began, changed)(p)
		p.Status.Conditions[0].Status = corev1.ConditionTrue
	}
}

func pending(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
func failed(p *corev1.Pod)  { p.Status.Phase = corev1.PodFailed }
func leaving(p *corev1.Pod) { p.DeletionTimestamp = ptr(metav1.NewTime(noon)) }

// proposed is what the metrics alone ask for, 0 for an error.
func (s *scene) proposed(t *testing.T) int32 {
	t.Helper()
	p := &planner{observed: s.observed, now: noon}
	n, _, _, err := p.propose(s.observed.scale.Replicas)
	if err != nil {
		return 0
	}
	return n
}

// The rules are those of
// https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#algorithm-details
func TestProposals(t *testing.T) {
	wide := func(a *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
		a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: &autoscalingv2.HPAScalingRules{Tolerance: ptr(resource.MustParse("0.5"))}}
		return a
	}
	by := func(specs ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
		a := want(50, 1, 100)
		a.Spec.Metrics = specs
		return a
	}
	container := autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: corev1.ResourceCPU, Container: "main", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr(int32(50))}}}
	sidecar := func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "log"})
	}
	for _, c := range []struct {
		rule  string
		scene *scene
		want  int32
	}{
		{"desired = ceil(current × usage / target): doubled", scale(want(50, 1, 100), 2).running(2, 100), 4},
		{"… halved", scale(want(50, 1, 100), 4).running(4, 25), 2},
		{"… rounded up", scale(want(50, 1, 100), 3).running(3, 60), 4},
		{"within the tolerance of 0.1 nothing is done", scale(want(50, 1, 100), 10).running(10, 55), 10},
		{"… below, too", scale(want(50, 1, 100), 10).running(10, 45), 10},
		{"… and beyond it something", scale(want(50, 1, 100), 10).running(10, 56), 12},
		{"behavior.scaleUp.tolerance takes its place", scale(wide(want(50, 1, 100)), 10).running(10, 74), 10},
		{"… and leaves the other direction", scale(wide(want(50, 1, 100)), 10).running(10, 44), 9},
		{"pods that go away and failed ones do not count", scale(want(50, 1, 100), 2).running(2, 100).pod(900, leaving).pod(900, failed), 4},
		{"missing pods use all on the way down", scale(want(50, 1, 100), 4).running(3, 10).pod(-1), 3},
		{"… the target, when that is more", scale(want(200, 1, 100), 4).running(3, 100).pod(-1), 3},
		{"… nothing on the way up", scale(want(50, 1, 100), 4).running(3, 100).pod(-1), 6},
		{"a change of direction by that is none", scale(want(50, 1, 100), 2).pod(40).pod(-1), 2},
		{"unready pods use nothing on the way up", scale(want(50, 1, 100), 3).running(2, 100).pod(0, pending), 4},
		{"… and are left out on the way down", scale(want(50, 1, 100), 3).running(2, 20).pod(0, pending), 1},
		{"a pod that never was Ready within 30s of its start is not ready", scale(want(50, 1, 100), 2).pod(100).pod(100, notReady(time.Hour, time.Hour-20*time.Second)), 2},
		{"… one that was, and is not any more, counts", scale(want(50, 1, 100), 2).pod(100).pod(100, notReady(time.Hour, time.Minute)), 4},
		{"in its first five minutes a pod counts when Ready for a whole window", scale(want(50, 1, 100), 2).pod(100).pod(100, readySince(time.Minute, 30*time.Second)), 4},
		{"… not of a window that began before", scale(want(50, 1, 100), 2).pod(100).pod(100, readySince(time.Minute, 12*time.Second)), 2},
		{"of memory none of that is asked", scale(by(average(corev1.ResourceMemory, "50Mi")), 2).running(1, 100).pod(100, notReady(time.Minute, 50*time.Second)), 4},
		{"an average value needs no requests", scale(by(average(corev1.ResourceCPU, "50m")), 2).running(2, 100).pod(100, failed), 4},
		{"… missing pods use the target on the way down", scale(by(average(corev1.ResourceCPU, "100m")), 4).running(3, 20).pod(-1), 2},
		{"the largest of several metrics", scale(by(average(corev1.ResourceCPU, "90m"), average(corev1.ResourceMemory, "25Mi")), 2).running(2, 100), 8},
		{"a container's own metric leaves the others out", scale(by(container), 2).pod(100, sidecar).pod(100, sidecar), 4},
		{"a container without a request cannot be compared", scale(by(cpuAt(50)), 2).pod(100, sidecar), 0},
		{"no pods", scale(want(50, 1, 100), 2), 0},
		{"no figures", scale(want(50, 1, 100), 2).running(2, -1), 0},
		{"only unready pods", scale(want(50, 1, 100), 2).pod(100, pending), 0},
	} {
		if got := c.scene.proposed(t); got != c.want {
			t.Errorf("%s: %d, want %d", c.rule, got, c.want)
		}
	}
}

// "If any of these metrics cannot be converted into a desired replica count … and a
// scale down is suggested by the metrics which can be fetched, scaling is skipped. This
// means that the HPA is still capable of scaling up."
func TestPartlyUnknownMetrics(t *testing.T) {
	none := autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "queue"}}}
	for use, wantReplicas := range map[int64]int32{100: 4, 10: 0} {
		a := want(50, 1, 100)
		a.Spec.Metrics = append(a.Spec.Metrics, none)
		d := plan(scale(a, 2).running(2, use).observed, noon)
		active := condition(d.status.Conditions, autoscalingv2.ScalingActive)
		if wantReplicas == 0 {
			if d.replicas != nil || active.Status != corev1.ConditionFalse || active.Reason != "FailedGetExternalMetric" || len(d.notices) != 2 || d.notices[1].reason != "FailedComputeMetricsReplicas" {
				t.Errorf("use %d: %+v %v", use, active, d.notices)
			}
			continue
		}
		if d.replicas == nil || *d.replicas != wantReplicas || active.Status != corev1.ConditionTrue || d.notices[0].reason != "FailedGetExternalMetric" {
			t.Errorf("use %d: %v %+v %v", use, d.replicas, active, d.notices)
		}
	}
}

// The conditions and Events by their names in Kubernetes
// (https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale-walkthrough/#appendix-horizontal-pod-autoscaler-status-conditions).
func TestConditions(t *testing.T) {
	no := func(s *scene, change func(*observed)) observed {
		change(&s.observed)
		return s.observed
	}
	for _, c := range []struct {
		name     string
		o        observed
		replicas int32 // 0: left
		says     string
		events   string
	}{
		{"scaled", scale(want(50, 1, 100), 2).running(2, 100).observed, 4,
			"AbleToScale=True SucceededRescale, ScalingActive=True ValidMetricFound, ScalingLimited=False DesiredWithinRange, ScaledToZero=False NotScaledToZero",
			"SuccessfulRescale New size: 4; reason: cpu resource utilization (percentage of request) above target"},
		{"in rest", scale(want(50, 1, 100), 2).running(2, 50).observed, 0,
			"AbleToScale=True ReadyForNewScale, ScalingActive=True ValidMetricFound, ScalingLimited=False DesiredWithinRange", ""},
		{"more than the maximum", scale(want(50, 1, 3), 2).running(2, 200).observed, 3,
			"AbleToScale=True SucceededRescale, ScalingActive=True ValidMetricFound, ScalingLimited=True TooManyReplicas, ScaledToZero=False NotScaledToZero",
			"SuccessfulRescale New size: 3; reason: cpu resource utilization (percentage of request) above target"},
		{"less than the minimum", scale(want(50, 2, 3), 2).running(2, 1).observed, 0,
			"AbleToScale=True ScaleDownStabilized, ScalingActive=True ValidMetricFound, ScalingLimited=False DesiredWithinRange", ""},
		{"faster than twice in one step", scale(want(50, 1, 100), 3).running(3, 900).observed, 6,
			"AbleToScale=True SucceededRescale, ScalingActive=True ValidMetricFound, ScalingLimited=True ScaleUpLimit, ScaledToZero=False NotScaledToZero",
			"SuccessfulRescale New size: 6; reason: cpu resource utilization (percentage of request) above target"},
		{"above the maximum by hand", scale(want(50, 1, 3), 7).observed, 3,
			"AbleToScale=True SucceededRescale, ScaledToZero=False NotScaledToZero", "SuccessfulRescale New size: 3; reason: Current number of replicas above Spec.MaxReplicas"},
		{"below the minimum by hand", scale(want(50, 4, 9), 2).observed, 4,
			"AbleToScale=True SucceededRescale, ScaledToZero=False NotScaledToZero", "SuccessfulRescale New size: 4; reason: Current number of replicas below Spec.MinReplicas"},
		{"switched off with replicas 0", scale(want(50, 1, 3), 0).observed, 0,
			"AbleToScale=True SucceededGetScale, ScalingActive=False ScalingDisabled", ""},
		{"no target", no(scale(want(50, 1, 3), 2), func(o *observed) { o.target, o.missing = nil, `deployments.apps "web" not found` }), 0,
			"AbleToScale=False FailedGetScale", `FailedGetScale deployments.apps "web" not found`},
		{"no figures", scale(want(50, 1, 3), 2).running(2, -1).observed, 0,
			"AbleToScale=True SucceededGetScale, ScalingActive=False FailedGetResourceMetric",
			"FailedGetResourceMetric failed to get cpu utilization: unable to get metrics for resource cpu: no node has told of the pods yet; FailedComputeMetricsReplicas invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to get cpu utilization: unable to get metrics for resource cpu: no node has told of the pods yet"},
		{"two autoscalers", no(scale(want(50, 1, 3), 2).running(2, 50), func(o *observed) { o.rival = "web2" }), 0,
			"AbleToScale=True SucceededGetScale, ScalingActive=False AmbiguousSelector",
			"AmbiguousSelector pods by selector app=web are controlled by more than one HPA: by web and by web2; FailedComputeMetricsReplicas pods by selector app=web are controlled by more than one HPA: by web and by web2"},
	} {
		d := plan(c.o, noon)
		var says, events []string
		for _, k := range d.status.Conditions {
			says = append(says, fmt.Sprintf("%s=%s %s", k.Type, k.Status, k.Reason))
		}
		for _, n := range d.notices {
			events = append(events, n.reason+" "+n.message)
		}
		var got int32
		if d.replicas != nil {
			got = *d.replicas
		}
		if got != c.replicas || strings.Join(says, ", ") != c.says || strings.Join(events, "; ") != c.events {
			t.Errorf("%s: %d\n%s\n%s", c.name, got, strings.Join(says, ", "), strings.Join(events, "; "))
		}
		if c.o.target == nil {
			continue
		}
		if s := d.status; s.CurrentReplicas != c.o.scale.Replicas || *s.ObservedGeneration != 3 || (s.LastScaleTime != nil) != (d.replicas != nil) {
			t.Errorf("%s: status %+v", c.name, s)
		}
	}
}

// What kubectl shows: the percentage of Utilization with the average that it comes
// from, each metric in its place.
func TestCurrentMetrics(t *testing.T) {
	a := want(50, 1, 100)
	a.Spec.Metrics = append(a.Spec.Metrics, average(corev1.ResourceMemory, "1Gi"))
	d := plan(scale(a, 2).pod(60).pod(40).observed, noon)
	cpu, memory := d.status.CurrentMetrics[0].Resource, d.status.CurrentMetrics[1].Resource
	if cpu.Name != "cpu" || *cpu.Current.AverageUtilization != 50 || cpu.Current.AverageValue.String() != "50m" {
		t.Errorf("cpu %+v", cpu)
	}
	if memory.Name != "memory" || memory.Current.AverageUtilization != nil || memory.Current.AverageValue.Value() != 50*mib {
		t.Errorf("memory %+v", memory)
	}
}

// Whatever is observed, the replicas are within the bounds afterwards, but for 0, which
// stays.
func TestReplicasStayWithinTheBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.Int32Range(1, 10).Draw(t, "min")
		most := rapid.Int32Range(least, 40).Draw(t, "max")
		a := want(rapid.Int32Range(1, 300).Draw(t, "target"), least, most)
		if rapid.Bool().Draw(t, "behavior") {
			a.Spec.Behavior = drawBehavior(t)
		}
		current := rapid.Int32Range(0, 60).Draw(t, "replicas")
		s := scale(a, current)
		for range rapid.IntRange(0, 20).Draw(t, "pods") {
			change := rapid.SampledFrom([]func(*corev1.Pod){func(*corev1.Pod) {}, pending, failed, leaving, notReady(time.Minute, time.Second), readySince(time.Minute, time.Second)}).Draw(t, "pod")
			s.pod(rapid.Int64Range(-5, math.MaxInt32).Draw(t, "use"), change)
		}
		d := plan(s.observed, noon)
		after := current
		if d.replicas != nil {
			after = *d.replicas
		}
		switch {
		case current == 0 && after != 0:
			t.Fatalf("%d replicas out of none", after)
		case current > 0 && (after < least || after > most):
			t.Fatalf("%d replicas, not within %d and %d", after, least, most)
		}
		if again := plan(s.observed, noon); again.rescales != d.rescales || (again.replicas == nil) != (d.replicas == nil) {
			t.Fatal("another plan from the same")
		}
	})
}
