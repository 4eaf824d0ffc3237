package podautoscaler

import (
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
)

// observed is what a plan is made from.
type observed struct {
	autoscaler *autoscalingv2.HorizontalPodAutoscaler
	target     api.Object // nil: missing says why
	missing    string
	scale      api.Scale
	unselected string                // why the pods of the target cannot be told
	rival      string                // another autoscaler that has some of the pods
	pods       []*corev1.Pod         // that the target's selector selects
	figures    map[types.UID]reading // of those that are known of
	recent     []recommendation      // of this leadership, oldest first
}

// reading is what a pod uses, and when that was measured.
type reading struct {
	at  time.Time
	pod *api.PodFigures
}

// decision is what is to be done.
type decision struct {
	status   autoscalingv2.HorizontalPodAutoscalerStatus
	replicas *int32 // that the target is to have; nil: those that it has
	notices  []notice
	recent   []recommendation
	rescales string // the annotation
}

// notice is an Event.
type notice struct{ kind, reason, message string }

// planner makes one decision.
type planner struct {
	observed
	now time.Time
	d   decision
}

// plan decides about one autoscaler.
func plan(o observed, now time.Time) decision {
	p := &planner{observed: o, now: now}
	p.d.status = *o.autoscaler.Status.DeepCopy()
	p.d.recent, p.d.rescales = o.recent, o.autoscaler.Annotations[api.AnnotationRescales]
	if o.target == nil {
		p.warn("FailedGetScale", o.missing)
		p.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale", "the HPA controller was unable to get the target's current scale: "+o.missing)
		return p.d
	}
	p.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	current := o.scale.Replicas
	if len(p.d.recent) == 0 {
		p.d.recent = []recommendation{{current, now}}
	}
	spec := &o.autoscaler.Spec
	least := int32(1)
	if spec.MinReplicas != nil {
		least = *spec.MinReplicas
	}
	switch {
	case current == 0:
		p.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
		p.report(0, 0, nil, false)
	case current > spec.MaxReplicas:
		p.rescale(current, spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas", nil)
	case current < least:
		p.rescale(current, least, "Current number of replicas below Spec.MinReplicas", nil)
	default:
		p.byMetrics(current, least)
	}
	return p.d
}

// byMetrics scales by what the pods use.
func (p *planner) byMetrics(current, least int32) {
	proposed, name, metrics, err := p.propose(current)
	if err != nil {
		p.warn("FailedComputeMetricsReplicas", err.Error())
		p.report(current, p.d.status.DesiredReplicas, metrics, false)
		return
	}
	reason := ""
	switch {
	case proposed > current:
		reason = name + " above target"
	case proposed < current:
		reason = "All metrics below target"
	}
	desired := p.limit(current, proposed, least)
	if desired == current {
		p.report(current, current, metrics, false)
		return
	}
	p.rescale(current, desired, reason, metrics)
}

// propose is the largest number of replicas that a metric asks for. One that cannot be
// told keeps the others from scaling down, since it may be the one that asks for more.
func (p *planner) propose(current int32) (most int32, name string, statuses []autoscalingv2.MetricStatus, err error) {
	if reason, why := p.unselectable(); reason != "" {
		p.warn(reason, why)
		p.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, reason, why)
		return 0, "", nil, errors.New(why)
	}
	specs := p.autoscaler.Spec.Metrics
	statuses = make([]autoscalingv2.MetricStatus, len(specs))
	var first *failure
	failed := 0
	for i := range specs {
		proposal, f := p.metric(&specs[i], current)
		if f != nil {
			p.warn(f.reason, f.err.Error())
			if failed++; first == nil {
				first = f
			}
			continue
		}
		statuses[i] = proposal.status
		if most == 0 || proposal.replicas > most {
			most, name = proposal.replicas, proposal.name
		}
	}
	if first != nil && (failed == len(specs) || most < current) {
		p.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, first.reason, fmt.Sprintf("the HPA was unable to compute the replica count: %v", first.err))
		return 0, "", statuses, fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %s: %w", failed, len(specs), first.what, first.err)
	}
	p.set(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+name)
	return most, name, statuses, nil
}

// unselectable says why the pods of the target cannot be told, or are another
// autoscaler's, too.
func (p *planner) unselectable() (reason, why string) {
	switch {
	case p.unselected != "":
		return "InvalidSelector", p.unselected
	case p.scale.Selector.String() == "":
		return "InvalidSelector", "the HPA target's scale is missing a selector"
	case p.rival != "":
		return "AmbiguousSelector", fmt.Sprintf("pods by selector %s are controlled by more than one HPA: by %s and by %s", p.scale.Selector, p.autoscaler.Name, p.rival)
	}
	return "", ""
}

// limit brings what the metrics propose within the windows, the policies and the bounds.
func (p *planner) limit(current, proposed, least int32) int32 {
	spec := &p.autoscaler.Spec
	var l limits
	if spec.Behavior == nil {
		l = plainLimits(p.d.recent, current, proposed, p.now)
	} else {
		l = limitsOf(spec.Behavior, p.d.recent, readRescales(p.d.rescales), current, proposed, p.now)
	}
	p.d.recent = l.recent
	if l.stable == proposed {
		p.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "ReadyForNewScale", "recommended size matches current size")
	} else {
		p.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, l.reason, l.message)
	}
	n, reason, message := l.bound(current, least, spec.MaxReplicas)
	limited := corev1.ConditionFalse
	if n != l.stable {
		limited = corev1.ConditionTrue
	}
	p.set(autoscalingv2.ScalingLimited, limited, reason, message)
	return n
}

func (p *planner) rescale(current, desired int32, reason string, metrics []autoscalingv2.MetricStatus) {
	p.d.replicas = &desired
	p.d.notices = append(p.d.notices, notice{corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", desired, reason)})
	p.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", desired))
	p.set(autoscalingv2.ScaledToZero, corev1.ConditionFalse, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
	p.d.rescales = ""
	if p.autoscaler.Spec.Behavior != nil {
		p.d.rescales = writeRescales(readRescales(p.autoscaler.Annotations[api.AnnotationRescales]), rescale{At: p.now, By: desired - current}, p.now)
	}
	p.report(current, desired, metrics, true)
}

func (p *planner) report(current, desired int32, metrics []autoscalingv2.MetricStatus, scaled bool) {
	s := &p.d.status
	s.CurrentReplicas, s.DesiredReplicas, s.CurrentMetrics = current, desired, metrics
	generation := p.autoscaler.Generation
	s.ObservedGeneration = &generation
	if scaled {
		at := metav1.NewTime(p.now)
		s.LastScaleTime = &at
	}
}

func (p *planner) warn(reason, message string) {
	p.d.notices = append(p.d.notices, notice{corev1.EventTypeWarning, reason, message})
}

// set sets a condition; its time moves when its status does.
func (p *planner) set(t autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, message string) {
	c := condition(p.d.status.Conditions, t)
	if c == nil {
		p.d.status.Conditions = append(p.d.status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{Type: t})
		c = &p.d.status.Conditions[len(p.d.status.Conditions)-1]
	}
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(p.now)
	}
	c.Status, c.Reason, c.Message = status, reason, message
}

func condition(list []autoscalingv2.HorizontalPodAutoscalerCondition, t autoscalingv2.HorizontalPodAutoscalerConditionType) *autoscalingv2.HorizontalPodAutoscalerCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}
