package containerd

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// startPods starts so many pods of one container each at once.
func (n *node) startPods(count int) []*corev1.Pod {
	n.t.Helper()
	pods := make([]*corev1.Pod, count)
	errs := make([]error, count)
	specs := make([]agent.ContainerSpec, count)
	for i := range pods {
		pods[i] = testPod("sleep")
		specs[i] = n.specOf(pods[i], 0, 0)
	}
	var wg sync.WaitGroup
	for i, pod := range pods {
		wg.Go(func() {
			if _, errs[i] = n.EnsureSandbox(context.Background(), agent.SandboxSpec{Pod: pod}); errs[i] == nil {
				_, errs[i] = n.StartContainer(context.Background(), specs[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		n.t.Fatal(err)
	}
	return pods
}

func (n *node) removePods(pods []*corev1.Pod) {
	n.t.Helper()
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, pod := range pods {
		wg.Go(func() { errs[i] = n.RemoveSandbox(context.Background(), pod.UID) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		n.t.Fatal(err)
	}
}

func BenchmarkSandbox(b *testing.B) {
	n := newNode(b)
	for b.Loop() {
		pod := testPod("sleep")
		if _, err := n.EnsureSandbox(b.Context(), agent.SandboxSpec{Pod: pod}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		n.removePods([]*corev1.Pod{pod})
		b.StartTimer()
	}
}

func benchmarkStart(b *testing.B, count int) {
	n := newNode(b)
	for b.Loop() {
		pods := n.startPods(count)
		b.StopTimer()
		n.removePods(pods)
		b.StartTimer()
	}
}

func BenchmarkStart1(b *testing.B)  { benchmarkStart(b, 1) }
func BenchmarkStart50(b *testing.B) { benchmarkStart(b, 50) }

func BenchmarkRemove50(b *testing.B) {
	n := newNode(b)
	for b.Loop() {
		b.StopTimer()
		pods := n.startPods(50)
		b.StartTimer()
		n.removePods(pods)
	}
}

// BenchmarkUsage100 is what measuring the pods of a full node costs, once a period.
func BenchmarkUsage100(b *testing.B) {
	n := newNode(b)
	pods := n.startPods(100)
	defer n.removePods(pods)
	uids := make([]types.UID, len(pods))
	for i, p := range pods {
		uids[i] = p.UID
	}
	for b.Loop() {
		list, err := n.Usage(b.Context(), uids...)
		if err != nil || len(list) != len(pods) {
			b.Fatalf("%d of %d, %v", len(list), len(pods), err)
		}
	}
}

// BenchmarkWritten100 is what measuring the disk of the pods of a full node costs, once a
// period, if all of them are limited.
func BenchmarkWritten100(b *testing.B) {
	n := newNode(b)
	pods := n.startPods(100)
	defer n.removePods(pods)
	uids := make([]types.UID, len(pods))
	for i, p := range pods {
		uids[i] = p.UID
	}
	for b.Loop() {
		list, err := n.Written(b.Context(), uids...)
		if err != nil || len(list) != len(pods) {
			b.Fatalf("%d of %d, %v", len(list), len(pods), err)
		}
	}
}
