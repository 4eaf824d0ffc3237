package deployment

import (
	"testing"
	"time"

	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
)

// https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#max-unavailable:
// it is rounded down, and cannot be 0 when maxSurge is.
func TestWithoutSurgeOnePodMayAlwaysBeMissing(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(2, "0", "25%"))
	w.work()
	w.change(image("hello:2"))
	w.Settle()
	w.see("1:1/1/1 2:1/1/0")
	w.work()
	w.see("1:0/0/0 2:2/2/2")
}

// #max-surge: it is rounded up.
func TestAPartOfAPodIsAWholeSurge(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(3, "1%", "0"))
	w.work()
	w.change(image("hello:2"))
	w.Settle()
	w.see("1:3/3/3 2:1/1/0")
}

// #progress-deadline-seconds: "the Deployment controller doesn't check the rollout's
// progress while it is paused", and resuming it gives the whole time again.
func TestAPausedRolloutDoesNotRunOutOfTime(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(2, "1", "0"))
	w.work()
	w.change(image("hello:bad"))
	w.Settle()
	w.change(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	w.Settle()
	w.Now = w.Now.Add(2 * time.Hour)
	w.Loop.Wake(store.KeyOf(w.deployment()))
	w.Settle()
	w.progressing(reasonPaused)
	w.change(func(d *appsv1.Deployment) { d.Spec.Paused = false })
	w.Settle()
	resumed := w.Now
	w.progressing(reasonResumed)
	w.Now = w.Loop.Next()
	w.Settle()
	w.progressing(reasonTimedOut)
	if took := w.Now.Sub(resumed); took < 10*time.Minute || took > 11*time.Minute {
		t.Errorf("timed out %s after it was resumed, the deadline is 10m", took)
	}
}

// #clean-up-policy: with 0 no old ReplicaSet is kept.
func TestNoHistoryIsKeptWhenNoneIsWanted(t *testing.T) {
	w := newWorld(t, t)
	d := web(1, "1", "0")
	d.Spec.RevisionHistoryLimit = new(int32)
	w.Create(d)
	w.work()
	w.change(image("hello:2"))
	w.Settle()
	w.see("1:1/1/1 2:1/1/0")
	w.work()
	w.see("2:1/1/1")
}

// status.observedGeneration follows every change of the spec, also of one that
// starts no rollout.
func TestObservedGenerationFollows(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(1, "1", "0"))
	w.work()
	for n, change := range []func(*appsv1.Deployment){
		replicas(2),
		func(d *appsv1.Deployment) { d.Spec.Paused = true },
		image("hello:2"),
		func(d *appsv1.Deployment) { n := int32(900); d.Spec.ProgressDeadlineSeconds = &n },
	} {
		w.change(change)
		w.Settle()
		if d := w.deployment(); d.Status.ObservedGeneration != int64(n+2) || d.Generation != int64(n+2) {
			t.Errorf("change %d: generation %d, observed %d", n, d.Generation, d.Status.ObservedGeneration)
		}
	}
	w.see("1:2/2/1")
}

// #scaling-a-deployment: a Deployment can be scaled to 0 in mid-rollout, and comes
// back in its newest version only.
func TestScaledToZeroWhileRolling(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(4, "1", "1"))
	w.work()
	w.change(image("hello:2"))
	w.Settle()
	w.change(replicas(0))
	w.work()
	w.see("1:0/0/0 2:0/0/0")
	w.progressing(reasonComplete)
	w.change(replicas(3))
	w.work()
	w.see("1:0/0/0 2:3/3/3")
}
