package disruption

import (
	"testing"
	"time"

	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod is marked as a DisruptionTarget when it "is about to be terminated due to a
// disruption". "A Pod disruption might be interrupted. … when a Pod's disruption …
// does not happen, the condition … might be removed" after two minutes.
// https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
func TestStaleDisruptionTarget(t *testing.T) {
	mark := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: metav1.NewTime(noon)})
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		after  time.Duration
		clears bool
		waits  time.Duration
	}{
		"not yet":               {after: 2*time.Minute - time.Second, waits: time.Second},
		"stale":                 {after: 2 * time.Minute, clears: true},
		"long stale":            {after: time.Hour, clears: true},
		"a clock set back":      {after: -time.Minute, waits: 3 * time.Minute},
		"it is going":           {change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }, after: time.Hour},
		"it has ended":          {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, after: time.Hour},
		"its agent ends it":     {change: func(p *corev1.Pod) { p.Status.Conditions[1].Reason = "TerminationByKubelet" }, after: time.Hour},
		"it is not any more":    {change: func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }, after: time.Hour},
		"nobody has marked it":  {change: func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[:1] }, after: time.Hour},
		"marked for preemption": {change: func(p *corev1.Pod) { p.Status.Conditions[1].Reason = "PreemptionByScheduler" }, after: time.Hour, clears: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, t)
			p := pods("r")[0]
			mark(p)
			if c.change != nil {
				c.change(p)
			}
			w.now = noon.Add(c.after)
			w.commit(store.Create, p)
			before := w.st.Get(store.KeyOf(p)).(*corev1.Pod)
			w.settle()
			after := w.st.Get(store.KeyOf(p)).(*corev1.Pod)
			if !c.clears {
				if after.ResourceVersion != before.ResourceVersion {
					t.Errorf("written: %+v", after.Status.Conditions)
				}
				if wait := w.loop.Next().Sub(w.now); c.waits > 0 && wait != c.waits {
					t.Errorf("looked at again in %s, want %s", wait, c.waits)
				}
				return
			}
			got := after.Status.Conditions[1]
			if len(after.Status.Conditions) != 2 || got.Type != corev1.DisruptionTarget || got.Status != corev1.ConditionFalse || got.Reason != "" || got.Message != "" ||
				!got.LastTransitionTime.Time.Equal(w.now) || after.Status.Conditions[0].Type != corev1.PodReady {
				t.Errorf("the conditions are %+v", after.Status.Conditions)
			}
			w.settle()
			if again := w.st.Get(store.KeyOf(p)); again.GetResourceVersion() != after.ResourceVersion {
				t.Error("written twice")
			}
		})
	}
}

// The mark is looked for at start, too: whoever set it may have died with the leader.
func TestStaleDisruptionTargetAtStart(t *testing.T) {
	w := newWorld(t, t)
	p := pods("r")[0]
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)})
	w.commit(store.Create, p)
	loop := New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return noon.Add(3 * time.Minute) }})
	for loop.Step(t.Context()) {
	}
	w.sync()
	if got := w.st.Get(store.KeyOf(p)).(*corev1.Pod).Status.Conditions[1]; got.Status != corev1.ConditionFalse {
		t.Errorf("the condition is %+v", got)
	}
}
