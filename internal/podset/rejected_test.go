package podset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRejectionWait(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	made := func(ago time.Duration, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-ago))}, Spec: corev1.PodSpec{NodeName: "n1"},
			Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"}}
		if change != nil {
			change(p)
		}
		return p
	}
	many := func(n int, ago time.Duration) (out []*corev1.Pod) {
		for range n {
			out = append(out, made(ago, nil))
		}
		return out
	}
	ran := func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{}} }
	crashed := func(p *corev1.Pod) { p.Status.Reason = "" }
	for _, c := range []struct {
		name string
		dead []*corev1.Pod
		want int
		wait time.Duration
	}{
		{"none", nil, 1, 0},
		{"one that ran and was evicted", []*corev1.Pod{made(0, ran)}, 1, 0},
		{"one that only failed", []*corev1.Pod{made(0, crashed)}, 1, 0},
		{"one", many(1, 0), 1, time.Second},
		{"one, a while ago", many(1, 400*time.Millisecond), 1, 600 * time.Millisecond},
		{"one, long ago", many(1, time.Minute), 1, 0},
		{"three of three, once", many(3, 0), 3, time.Second},
		{"three of three, twice", many(6, 0), 3, 2 * time.Second},
		{"five in a row", many(5, 0), 1, 16 * time.Second},
		{"a thousand", many(1000, 0), 1, 5 * time.Minute},
		{"a clock that was set back", many(1, -time.Hour), 1, time.Second},
	} {
		if got := RejectionWait(c.dead, c.want, now); got != c.wait {
			t.Errorf("%s: %s, want %s", c.name, got, c.wait)
		}
	}
}
