package podautoscaler

import (
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"pgregory.net/rapid"

	"headway.dev/headway/api"
)

func policy(t autoscalingv2.HPAScalingPolicyType, value, period int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: t, Value: value, PeriodSeconds: period}
}

func pods(value, period int32) autoscalingv2.HPAScalingPolicy {
	return policy(autoscalingv2.PodsScalingPolicy, value, period)
}

func percent(value, period int32) autoscalingv2.HPAScalingPolicy {
	return policy(autoscalingv2.PercentScalingPolicy, value, period)
}

func rules(pick autoscalingv2.ScalingPolicySelect, window int32, list ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{SelectPolicy: &pick, StabilizationWindowSeconds: &window, Policies: list}
}

const (
	biggest  = autoscalingv2.MaxChangePolicySelect
	smallest = autoscalingv2.MinChangePolicySelect
	never    = autoscalingv2.DisabledPolicySelect
)

// https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#scaling-policies
func TestPolicies(t *testing.T) {
	ago := func(seconds int, by int32) rescale {
		return rescale{noon.Add(-time.Duration(seconds) * time.Second), by}
	}
	for _, c := range []struct {
		rule      string
		rules     *autoscalingv2.HPAScalingRules
		direction int32
		made      []rescale
		current   int32
		want      int32
	}{
		{"80 pods, at most 4 or 10 % a minute: 8, the larger", rules(biggest, 0, pods(4, 60), percent(10, 60)), -1, nil, 80, 72},
		{"72: 10 % is 7.2, rounded up to 8", rules(biggest, 0, pods(4, 60), percent(10, 60)), -1, nil, 72, 64},
		{"40: 4 pods are as much", rules(biggest, 0, pods(4, 60), percent(10, 60)), -1, nil, 40, 36},
		{"36: 4 pods are more", rules(biggest, 0, pods(4, 60), percent(10, 60)), -1, nil, 36, 32},
		{"selectPolicy Min: the smaller change", rules(smallest, 0, pods(4, 60), percent(10, 60)), -1, nil, 80, 76},
		{"selectPolicy Min up", rules(smallest, 0, pods(4, 60), percent(100, 60)), 1, nil, 10, 14},
		{"selectPolicy Max up", rules(biggest, 0, pods(4, 15), percent(100, 15)), 1, nil, 10, 20},
		{"selectPolicy Disabled", rules(never, 0, pods(4, 60)), 1, nil, 10, 10},
		{"what was added within the period counts", rules(biggest, 0, pods(4, 60)), 1, []rescale{ago(30, 3)}, 10, 11},
		{"… what was taken away gives room", rules(biggest, 0, pods(4, 60)), 1, []rescale{ago(30, -3)}, 10, 17},
		{"… and what is older does not count", rules(biggest, 0, pods(4, 60)), 1, []rescale{ago(60, 3), ago(61, 4)}, 10, 14},
		{"each policy has its own period", rules(smallest, 0, pods(4, 60), pods(6, 600)), 1, []rescale{ago(300, 5)}, 10, 11},
		{"percent are of where the period began", rules(biggest, 0, percent(50, 60)), 1, []rescale{ago(30, 4)}, 12, 12},
		{"a percent of few is still one", rules(biggest, 0, percent(1, 60)), 1, nil, 3, 4},
		{"100 % down may be all", rules(biggest, 0, percent(100, 15)), -1, nil, 7, 0},
		{"no policies of a direction", nil, 1, nil, 7, 7},
	} {
		if got := farthest(c.rules, c.direction, c.made, c.current, noon); got != c.want {
			t.Errorf("%s: %d, want %d", c.rule, got, c.want)
		}
	}
}

// https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#stabilization-window
func TestStabilization(t *testing.T) {
	ago := func(seconds int, n int32) recommendation {
		return recommendation{n, noon.Add(-time.Duration(seconds) * time.Second)}
	}
	for _, c := range []struct {
		rule              string
		up, down          *autoscalingv2.HPAScalingRules // both nil: no behavior
		recent            []recommendation
		current, proposed int32
		want              int32
		reason            string // "": not stabilized
	}{
		{"without behavior the highest of 300 s", nil, nil, []recommendation{ago(299, 7), ago(10, 4)}, 8, 3, 7, "ScaleDownStabilized"},
		{"… and no older", nil, nil, []recommendation{ago(301, 7), ago(10, 4)}, 8, 3, 4, "ScaleDownStabilized"},
		{"… and none up", nil, nil, []recommendation{ago(10, 4)}, 4, 9, 9, ""},
		{"the window down", rules(biggest, 0, pods(9, 60)), rules(biggest, 60, pods(9, 60)), []recommendation{ago(59, 6), ago(61, 8)}, 8, 3, 6, "ScaleDownStabilized"},
		{"the window up", rules(biggest, 60, pods(9, 60)), rules(biggest, 0, pods(9, 60)), []recommendation{ago(30, 5)}, 4, 9, 5, "ScaleUpStabilized"},
		{"… keeps what there is", rules(biggest, 60, pods(9, 60)), rules(biggest, 0, pods(9, 60)), []recommendation{ago(30, 2)}, 4, 9, 4, "ScaleUpStabilized"},
		{"a window of 0 follows at once", rules(biggest, 0, pods(9, 60)), rules(biggest, 0, pods(9, 60)), []recommendation{ago(1, 9)}, 8, 3, 3, ""},
		{"a window down that is not given is 300 s", rules(biggest, 0, pods(9, 60)), &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{pods(9, 60)}}, []recommendation{ago(299, 7)}, 8, 3, 7, "ScaleDownStabilized"},
	} {
		var l limits
		if c.up == nil && c.down == nil {
			l = plainLimits(c.recent, c.current, c.proposed, noon)
		} else {
			l = limitsOf(&autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: c.up, ScaleDown: c.down}, c.recent, nil, c.current, c.proposed, noon)
		}
		if l.stable != c.want || c.reason != "" && l.reason != c.reason {
			t.Errorf("%s: %d %s, want %d %s", c.rule, l.stable, l.reason, c.want, c.reason)
		}
		if last := l.recent[len(l.recent)-1]; last != (recommendation{c.proposed, noon}) {
			t.Errorf("%s: what was proposed is not kept: %v", c.rule, l.recent)
		}
	}
}

// The defaults of spec.behavior: up at once by 100 % or 4 pods each 15 s, down after
// 300 s to the minimum.
func TestDefaultBehavior(t *testing.T) {
	a := want(50, 1, 100)
	a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{}
	for _, c := range []struct {
		replicas int32
		use      int64
		want     int32
	}{{1, 900, 5}, {8, 900, 16}} {
		d := plan(scale(a, c.replicas).running(int(c.replicas), c.use).observed, noon)
		if d.replicas == nil || *d.replicas != c.want {
			t.Errorf("%d: %v", c.replicas, d.replicas)
		}
	}
	s := scale(a, 10).running(10, 1)
	if d := plan(s.observed, noon); d.replicas != nil {
		t.Errorf("down at once to %d", *d.replicas)
	}
	s.recent = []recommendation{{1, noon.Add(-301 * time.Second)}, {1, noon.Add(-time.Second)}}
	if d := plan(s.observed, noon); d.replicas == nil || *d.replicas != 1 {
		t.Errorf("not down after the window: %v", d.replicas)
	}
}

// What the policies count survives its leader: the next one reads it from the
// autoscaler.
func TestRescalesAreKept(t *testing.T) {
	a := want(50, 1, 100)
	a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(biggest, 0, pods(3, 60)), ScaleDown: rules(biggest, 0, pods(1, 60))}
	d := plan(scale(a, 2).running(2, 900).observed, noon)
	if d.replicas == nil || *d.replicas != 5 {
		t.Fatalf("first step %v", d.replicas)
	}
	a.Annotations = map[string]string{api.AnnotationRescales: d.rescales}
	if next := plan(scale(a, 5).running(5, 900).observed, noon.Add(30*time.Second)); next.replicas != nil {
		t.Errorf("%d within the period", *next.replicas)
	}
	next := plan(scale(a, 5).running(5, 900).observed, noon.Add(61*time.Second))
	if next.replicas == nil || *next.replicas != 8 {
		t.Errorf("after the period %v", next.replicas)
	}
	if kept := readRescales(next.rescales); len(kept) != 2 || kept[0].By != 3 || !kept[0].At.Equal(noon) {
		t.Errorf("kept %+v", kept)
	}
	if kept := readRescales(writeRescales(readRescales(next.rescales), rescale{noon.Add(time.Hour), -1}, noon.Add(time.Hour))); len(kept) != 1 || kept[0].By != -1 {
		t.Errorf("after an hour %+v", kept)
	}
	a.Annotations[api.AnnotationRescales] = "what somebody wrote"
	if d := plan(scale(a, 2).running(2, 900).observed, noon); d.replicas == nil || *d.replicas != 5 {
		t.Errorf("an unreadable annotation: %v", d.replicas)
	}
}

func drawBehavior(t *rapid.T) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	draw := func(label string) *autoscalingv2.HPAScalingRules {
		r := rules(rapid.SampledFrom([]autoscalingv2.ScalingPolicySelect{biggest, smallest, never}).Draw(t, label), rapid.Int32Range(0, 3600).Draw(t, label))
		for range rapid.IntRange(1, 3).Draw(t, label) {
			r.Policies = append(r.Policies, policy(rapid.SampledFrom([]autoscalingv2.HPAScalingPolicyType{autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy}).Draw(t, label),
				rapid.Int32Range(1, 200).Draw(t, label), rapid.Int32Range(1, 1800).Draw(t, label)))
		}
		return r
	}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: draw("up"), ScaleDown: draw("down")}
}

// However long it goes on, no period of a policy sees more than the policy allows, be
// the leader another at any time.
func TestNoPeriodSeesMoreThanItsPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value, period := rapid.Int32Range(1, 10).Draw(t, "value"), rapid.Int32Range(1, 300).Draw(t, "period")
		a := want(50, 1, 1000)
		a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(biggest, 0, pods(value, period)), ScaleDown: rules(never, 0, pods(1, 1))}
		replicas := int32(1)
		at := noon
		var made []rescale
		for range 40 {
			at = at.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "later")) * time.Second)
			s := scale(a, replicas).running(1, 900*int64(replicas))
			d := plan(s.observed, at)
			if d.replicas == nil {
				continue
			}
			made = append(made, rescale{at, *d.replicas - replicas})
			replicas = *d.replicas
			a.Annotations = map[string]string{api.AnnotationRescales: d.rescales}
			var sum int32
			for _, m := range made {
				if m.At.After(at.Add(-time.Duration(period) * time.Second)) {
					sum += m.By
				}
			}
			if sum > value {
				t.Fatalf("%d pods more within %d seconds, at most %d", sum, period, value)
			}
		}
		if len(made) == 0 {
			t.Fatal("never scaled")
		}
	})
}
