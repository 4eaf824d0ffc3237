package podautoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Kubernetes' own defaults: how long a pod's cpu is judged by whether it is Ready, and
// until when a pod that is not counts as one that never was; how far a ratio may be
// from one without a change.
const (
	cpuInitialization = 5 * time.Minute
	readinessDelay    = 30 * time.Second
	defaultTolerance  = 0.1
)

// proposal is what one metric asks for.
type proposal struct {
	replicas int32
	name     string
	status   autoscalingv2.MetricStatus
}

// failure is why a metric asks for nothing.
type failure struct {
	reason string // of the condition and the Event
	what   string // was done
	err    error
}

// metric works out one metric.
func (p *planner) metric(spec *autoscalingv2.MetricSpec, current int32) (proposal, *failure) {
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType:
		r := spec.Resource
		out, value, err := p.usage(r.Name, "", r.Target, current)
		if err != nil {
			return out, &failure{"FailedGetResourceMetric", fmt.Sprintf("failed to get %s resource metric value", r.Name), err}
		}
		out.status = autoscalingv2.MetricStatus{Type: spec.Type, Resource: &autoscalingv2.ResourceMetricStatus{Name: r.Name, Current: value}}
		return out, nil
	case autoscalingv2.ContainerResourceMetricSourceType:
		r := spec.ContainerResource
		out, value, err := p.usage(r.Name, r.Container, r.Target, current)
		if err != nil {
			return out, &failure{"FailedGetContainerResourceMetric", fmt.Sprintf("failed to get %s container metric value", r.Container), err}
		}
		out.status = autoscalingv2.MetricStatus{Type: spec.Type, ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: r.Name, Container: r.Container, Current: value}}
		return out, nil
	}
	return proposal{}, &failure{fmt.Sprintf("FailedGet%sMetric", spec.Type), fmt.Sprintf("failed to get metrics of type %s", spec.Type),
		errors.New("there is no source of such metrics: only of the cpu and memory of pods")}
}

// usage works out a metric of cpu or memory, of whole pods or of one container each.
func (p *planner) usage(name corev1.ResourceName, container string, target autoscalingv2.MetricTarget, current int32) (proposal, autoscalingv2.MetricValueStatus, error) {
	out := proposal{name: fmt.Sprintf("%s resource", name)}
	var value autoscalingv2.MetricValueStatus
	perUtilization := target.AverageValue == nil
	what := "usage"
	if perUtilization {
		what = "utilization"
		out.name = fmt.Sprintf("%s resource utilization (percentage of request)", name)
		if container != "" {
			out.name = fmt.Sprintf("%s container resource utilization (percentage of request)", name)
		}
		if target.AverageUtilization == nil {
			return out, value, errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")
		}
	}
	fail := func(err error) (proposal, autoscalingv2.MetricValueStatus, error) {
		return out, value, fmt.Errorf("failed to get %s %s: %w", name, what, err)
	}
	samples := p.samples(name, container)
	switch {
	case len(p.pods) == 0:
		return fail(errors.New("no pods returned by selector while calculating replica count"))
	case len(samples) == 0:
		return fail(fmt.Errorf("unable to get metrics for resource %s: no node has told of the pods yet", name))
	}
	g := group(p.pods, samples, name, p.now)
	if len(g.used) == 0 {
		return fail(errors.New("did not receive metrics for targeted pods (pods might be unready)"))
	}
	var m measure
	if perUtilization {
		requests, err := requestsOf(p.pods, container, name)
		if err != nil {
			return fail(err)
		}
		m = measure{requests: requests, target: int64(*target.AverageUtilization)}
	} else {
		m = measure{target: target.AverageValue.MilliValue()}
	}
	ratio, shown, average := m.ratio(g.used)
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return fail(errors.New("no metrics returned matched known pods"))
	}
	format := resource.DecimalSI
	if name == corev1.ResourceMemory {
		format = resource.BinarySI
	}
	value.AverageValue = resource.NewMilliQuantity(average, format)
	if perUtilization {
		value.AverageUtilization = &shown
	}
	out.replicas = g.replicas(m, ratio, current, p.tolerance())
	return out, value, nil
}

// sample is what a pod uses of one resource, in thousandths.
type sample struct {
	at     time.Time
	window time.Duration
	value  int64
}

// samples are those of the pods of whose every container, or of whose one, the use is
// known.
func (p *planner) samples(name corev1.ResourceName, container string) map[types.UID]sample {
	out := map[types.UID]sample{}
	for uid, r := range p.figures {
		s := sample{at: r.at, window: r.pod.Window()}
		known := 0
		for _, c := range r.pod.Containers {
			if container != "" && c.Name != container {
				continue
			}
			if name == corev1.ResourceMemory {
				if c.Memory < 0 {
					known = 0
					break
				}
				s.value += c.Memory * 1000
			} else {
				const milli = 1_000_000
				s.value += (c.CPU + milli - 1) / milli
			}
			known++
		}
		if known > 0 {
			out[uid] = s
		}
	}
	return out
}

// grouped are pods by what is known of their use.
type grouped struct {
	ready            int
	unready, missing []types.UID
	used             map[types.UID]int64 // of the ready ones
}

// group sorts pods as Kubernetes does: those that go away or failed do not count, those
// that have not started are not ready, of cpu neither are those whose figures are of
// their start.
func group(pods []*corev1.Pod, samples map[types.UID]sample, name corev1.ResourceName, now time.Time) grouped {
	g := grouped{used: map[types.UID]int64{}}
	for _, pod := range pods {
		s, known := samples[pod.UID]
		switch {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
		case pod.Status.Phase == corev1.PodPending:
			g.unready = append(g.unready, pod.UID)
		case !known:
			g.missing = append(g.missing, pod.UID)
		case name == corev1.ResourceCPU && starting(pod, s, now):
			g.unready = append(g.unready, pod.UID)
		default:
			g.ready++
			g.used[pod.UID] = s.value
		}
	}
	return g
}

// starting says whether a pod's use of cpu is that of its start.
func starting(pod *corev1.Pod, s sample, now time.Time) bool {
	var ready *corev1.PodCondition
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			ready = &pod.Status.Conditions[i]
		}
	}
	began := pod.Status.StartTime
	if ready == nil || began == nil {
		return true
	}
	changed := ready.LastTransitionTime.Time
	if began.Add(cpuInitialization).After(now) {
		return ready.Status == corev1.ConditionFalse || s.at.Before(changed.Add(s.window))
	}
	return ready.Status == corev1.ConditionFalse && began.Add(readinessDelay).After(changed)
}

// measure compares what pods use with what is wanted: on average so many thousandths,
// or with requests so many percent of them.
type measure struct {
	requests map[types.UID]int64
	target   int64
}

// ratio is use / target, with the percentage that is shown and the average in
// thousandths.
func (m measure) ratio(used map[types.UID]int64) (ratio float64, percent int32, average int64) {
	var total, requested int64
	for uid, n := range used {
		total += n
		requested += m.requests[uid]
	}
	average = total / int64(len(used))
	if m.requests == nil {
		return float64(average) / float64(m.target), 0, average
	}
	if requested == 0 {
		return math.NaN(), 0, average
	}
	percent = int32(total * 100 / requested)
	return float64(percent) / float64(m.target), percent, average
}

// full is what a pod is taken to use of which nothing is known, when others use less
// than is wanted.
func (m measure) full(uid types.UID) int64 {
	if m.requests == nil {
		return m.target
	}
	return m.requests[uid] * max(100, m.target) / 100
}

// replicas is how many pods would bring the ratio to one.
func (g grouped) replicas(m measure, ratio float64, current int32, t tolerance) int32 {
	up := ratio > 1
	if len(g.missing) == 0 && !(up && len(g.unready) > 0) {
		if t.within(ratio) {
			return current
		}
		return times(ratio, g.ready)
	}
	used := make(map[types.UID]int64, len(g.used)+len(g.missing)+len(g.unready))
	for uid, n := range g.used {
		used[uid] = n
	}
	for _, uid := range g.missing {
		switch {
		case up:
			used[uid] = 0
		case ratio < 1:
			used[uid] = m.full(uid)
		}
	}
	if up {
		for _, uid := range g.unready {
			used[uid] = 0
		}
	}
	again, _, _ := m.ratio(used)
	if t.within(again) || ratio < 1 && again > 1 || up && again < 1 {
		return current
	}
	n := times(again, len(used))
	if again < 1 && n > current || again > 1 && n < current {
		return current
	}
	return n
}

func times(ratio float64, pods int) int32 {
	return int32(min(math.Ceil(ratio*float64(pods)), math.MaxInt32))
}

// tolerance is how far a ratio may be from one without a change.
type tolerance struct{ down, up float64 }

func (t tolerance) within(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

func (p *planner) tolerance() tolerance {
	t := tolerance{defaultTolerance, defaultTolerance}
	if b := p.autoscaler.Spec.Behavior; b != nil {
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			t.down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			t.up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
	}
	return t
}

// requestsOf are the requests of every pod, in thousandths: of one container, or of all
// with the init containers that run beside them. Each must have one.
func requestsOf(pods []*corev1.Pod, container string, name corev1.ResourceName) (map[types.UID]int64, error) {
	out := map[types.UID]int64{}
	for _, pod := range pods {
		found := container == ""
		for _, c := range lasting(pod) {
			if container != "" && c.Name != container {
				continue
			}
			request, ok := c.Resources.Requests[name]
			if !ok {
				return nil, fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, pod.Name)
			}
			out[pod.UID] += request.MilliValue()
			found = true
		}
		if !found {
			return nil, fmt.Errorf("container %s not found in Pod %s", container, pod.Name)
		}
	}
	return out, nil
}

// lasting are the containers that run as long as the pod does.
func lasting(pod *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return out
}
