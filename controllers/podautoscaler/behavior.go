package podautoscaler

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// Kubernetes' own defaults: how long scaling down waits for a higher recommendation,
// and how far one step up goes where spec.behavior says nothing.
const (
	downWindow   = 300 * time.Second
	upFactor     = 2
	upLeast      = 4
	longestAllow = 1800 * time.Second // periodSeconds of a policy at the most
	maxRescales  = 240                // one per Period in twice that time
)

// recommendation is what the metrics proposed once.
type recommendation struct {
	replicas int32
	at       time.Time
}

// rescale is one change of replicas that was made. Its JSON is in the annotation.
type rescale struct {
	At time.Time `json:"at"`
	By int32     `json:"by"` // negative: down
}

// limits are what the windows and policies make of a proposal.
type limits struct {
	stable          int32 // within the windows
	reason, message string
	recent          []recommendation // with this one
	up, down        int32            // how far the policies let it go now
}

const (
	fewerLately = "recent recommendations were lower than current one, applying the lowest recent recommendation"
	moreLately  = "recent recommendations were higher than current one, applying the highest recent recommendation"
)

// plainLimits are those without spec.behavior.
func plainLimits(recent []recommendation, current, proposed int32, now time.Time) limits {
	l := limits{stable: proposed, reason: "ScaleDownStabilized", message: moreLately, down: math.MinInt32}
	l.recent = slices.DeleteFunc(slices.Clone(recent), func(r recommendation) bool { return r.at.Before(now.Add(-downWindow)) })
	for _, r := range l.recent {
		l.stable = max(l.stable, r.replicas)
	}
	l.recent = append(l.recent, recommendation{proposed, now})
	l.up = max(saturated(float64(current)*upFactor), upLeast)
	return l
}

// limitsOf are those of a spec.behavior, which has been defaulted: only the window down
// may be missing.
func limitsOf(b *autoscalingv2.HorizontalPodAutoscalerBehavior, recent []recommendation, made []rescale, current, proposed int32, now time.Time) limits {
	upFrom, downFrom := now.Add(-window(b.ScaleUp, 0)), now.Add(-window(b.ScaleDown, downWindow))
	lowest, highest := proposed, proposed
	var l limits
	for _, r := range recent {
		inUp, inDown := r.at.After(upFrom), r.at.After(downFrom)
		if inUp {
			lowest = min(lowest, r.replicas)
		}
		if inDown {
			highest = max(highest, r.replicas)
		}
		if inUp || inDown {
			l.recent = append(l.recent, r)
		}
	}
	l.recent = append(l.recent, recommendation{proposed, now})
	l.stable = min(max(current, lowest), highest)
	l.reason, l.message = "ScaleDownStabilized", moreLately
	if proposed >= current {
		l.reason, l.message = "ScaleUpStabilized", fewerLately
	}
	l.up = max(farthest(b.ScaleUp, 1, made, current, now), current)
	l.down = min(farthest(b.ScaleDown, -1, made, current, now), current)
	return l
}

func window(r *autoscalingv2.HPAScalingRules, otherwise time.Duration) time.Duration {
	if r == nil || r.StabilizationWindowSeconds == nil {
		return otherwise
	}
	return time.Duration(*r.StabilizationWindowSeconds) * time.Second
}

// farthest is where the policies let the replicas go now, up (1) or down (-1): each
// allows so many pods, or so many percent, from where its period began.
func farthest(r *autoscalingv2.HPAScalingRules, direction int32, made []rescale, current int32, now time.Time) int32 {
	if r == nil || len(r.Policies) == 0 || r.SelectPolicy != nil && *r.SelectPolicy == autoscalingv2.DisabledPolicySelect {
		return current
	}
	least := r.SelectPolicy != nil && *r.SelectPolicy == autoscalingv2.MinChangePolicySelect
	var out int32
	for i, policy := range r.Policies {
		began := float64(current)
		from := now.Add(-time.Duration(policy.PeriodSeconds) * time.Second)
		for _, m := range made {
			if m.At.After(from) {
				began -= float64(m.By)
			}
		}
		change := float64(policy.Value)
		if policy.Type == autoscalingv2.PercentScalingPolicy {
			change = began * float64(policy.Value) / 100
		}
		// A part of a pod counts as one: a few would never be more, or less.
		to := saturated(began + float64(direction)*whole(change))
		switch {
		case i == 0:
			out = to
		case (direction > 0) == least:
			out = min(out, to)
		default:
			out = max(out, to)
		}
	}
	return out
}

// whole rounds up. What is within a millionth of a whole number is taken as that one.
func whole(n float64) float64 { return math.Ceil(math.Round(n*1e6) / 1e6) }

func saturated(n float64) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }

// bound brings the stable number within the policies and the spec's bounds, and says
// what limited it.
func (l limits) bound(current, least, most int32) (n int32, reason, message string) {
	switch {
	case l.stable > l.up && l.up < most:
		return l.up, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"
	case l.stable > most:
		return most, "TooManyReplicas", "the desired replica count is more than the maximum replica count"
	case l.stable < current && l.stable < l.down && l.down > least:
		return l.down, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"
	case l.stable < least:
		return least, "TooFewReplicas", "the desired replica count is less than the minimum replica count"
	}
	return l.stable, "DesiredWithinRange", "the desired count is within the acceptable range"
}

// readRescales reads the annotation. What somebody else has written there counts as
// nothing.
func readRescales(text string) []rescale {
	var out []rescale
	if json.Unmarshal([]byte(text), &out) != nil {
		return nil
	}
	return out
}

// writeRescales is the annotation with another change, without what no policy counts.
func writeRescales(made []rescale, another rescale, now time.Time) string {
	another.At = another.At.UTC().Truncate(time.Millisecond)
	made = slices.DeleteFunc(slices.Clone(made), func(r rescale) bool { return !r.At.After(now.Add(-longestAllow)) })
	made = append(made, another)
	made = made[max(0, len(made)-maxRescales):]
	text, err := json.Marshal(made)
	if err != nil {
		return "" // times of a year beyond 9999
	}
	return string(text)
}
