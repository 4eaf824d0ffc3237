package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// full is a node with as many pods as it takes, each with a readiness and a liveness
// probe by HTTP every ten seconds.
type full struct {
	Pods    int             `json:"pods"`             // that came to those that ran already
	Started float64         `json:"startedPerSecond"` // of the middle eight tenths of them
	Deleted float64         `json:"deletedPerSecond"`
	Idle    map[string]idle `json:"idle"`
}

// graceful is how long a pod takes from its delete until it is gone, in seconds, beyond
// what its own hook is told to take.
type graceful struct {
	AtOnce float64 `json:"endsAtOnce"`
	Sleep  float64 `json:"preStopSleep"`
	Exec   float64 `json:"preStopExec"`
}

// probed are the lines of a container that is asked twice in ten seconds.
var probed = []string{
	"readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 10}",
	"livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 10}",
}

// room is what a node takes by default.
const room = 250

func (b *bench) hundred(ctx context.Context, r *report) error {
	begin, end, err := b.deploy(ctx, "hundred", 100, "1")
	if err != nil {
		return err
	}
	r.Hundred = seconds(end.Sub(begin))
	_, _, err = b.withdraw(ctx, "hundred")
	return err
}

// full fills the node, lets it rest and empties it.
func (b *bench) full(ctx context.Context, r *report) error {
	b.seen.mu.Lock()
	r.Full.Pods = room - len(b.seen.pods)
	b.seen.mu.Unlock()
	if _, _, err := b.deploy(ctx, "full", r.Full.Pods, "1", probed...); err != nil {
		return err
	}
	var started []time.Time
	b.seen.mu.Lock()
	for _, p := range b.seen.of("full") {
		started = append(started, p.ready)
	}
	b.seen.mu.Unlock()
	r.Full.Started = pace(started)
	var err error
	if r.Full.Idle, err = b.usage(ctx); err != nil {
		return err
	}
	if _, _, err := b.withdraw(ctx, "full"); err != nil {
		return err
	}
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	r.Full.Deleted = pace(b.seen.gone["full"])
	return nil
}

// pace is how many there were per second, without the first and the last tenth: what
// comes before and after the work is not in it.
func pace(times []time.Time) float64 {
	slices.SortFunc(times, time.Time.Compare)
	first, last := len(times)/10, len(times)-1-len(times)/10
	if last <= first {
		return 0
	}
	return float64(last-first) / times[last].Sub(times[first]).Seconds()
}

// old is how long a pod has run before it is stopped: of a younger one it is first
// found out whether it handles its signal already.
const old = 3 * time.Second

// graceful deletes pods through the API, one after the other: the demo's server ends as
// soon as it is told to.
func (b *bench) graceful(ctx context.Context, r *report) error {
	kinds := []struct {
		name string
		hook *corev1.LifecycleHandler
		own  time.Duration // what the hook takes
		to   *float64
	}{
		{name: "at-once", to: &r.Graceful.AtOnce},
		{name: "sleep", hook: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}, own: time.Second, to: &r.Graceful.Sleep},
		{name: "exec", hook: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "tick"}}}, to: &r.Graceful.Exec},
	}
	for _, kind := range kinds {
		for i := range b.runs {
			if err := b.begin(ctx, fmt.Sprintf("stop-%s-%d", kind.name, i), kind.hook); err != nil {
				return fmt.Errorf("start a pod of kind %s: %w", kind.name, err)
			}
		}
	}
	select {
	case <-time.After(old):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, kind := range kinds {
		var runs []time.Duration
		for i := range b.runs {
			took, err := b.stop(ctx, fmt.Sprintf("stop-%s-%d", kind.name, i))
			if err != nil {
				return fmt.Errorf("stop a pod of kind %s: %w", kind.name, err)
			}
			runs = append(runs, took-kind.own)
		}
		*kind.to = seconds(median(runs))
	}
	return nil
}

// begin starts one pod and waits until its server answers.
func (b *bench) begin(ctx context.Context, name string, hook *corev1.LifecycleHandler) error {
	pods := b.cluster.client.CoreV1().Pods("default")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "headway.local/hello:1"}}},
	}
	if hook != nil {
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: hook}
	}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := b.seen.await(ctx, name, func() bool { return b.seen.ready(name) == 1 }); err != nil {
		return err
	}
	return b.listens(ctx, name)
}

// stop deletes one pod and measures how long after that it is gone.
func (b *bench) stop(ctx context.Context, name string) (time.Duration, error) {
	begin := time.Now()
	if err := b.cluster.client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	end, err := b.seen.await(ctx, name+" to be gone", func() bool { return len(b.seen.of(name)) == 0 })
	return end.Sub(begin), err
}

// listens waits until the server of a pod answers.
func (b *bench) listens(ctx context.Context, name string) error {
	pod, err := b.cluster.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	answered := make(chan time.Time, 1)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	go ask(asking, "http://"+pod.Status.PodIP+":8080/healthz", answered)
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
