package server

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/controllers/disruption"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubectl "k8s.io/kubectl/pkg/drain"
)

// out is what kubectl prints, from several goroutines.
type out struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *out) Write(p []byte) (int, error) { o.mu.Lock(); defer o.mu.Unlock(); return o.text.Write(p) }
func (o *out) String() string              { o.mu.Lock(); defer o.mu.Unlock(); return o.text.String() }

// TestKubectlDrain drains a node with kubectl's own code: it cordons, evicts, is
// answered 429 while the budget is used up, tries again, and ends with the node
// empty. At no revision are there fewer healthy pods than minAvailable.
func TestKubectlDrain(t *testing.T) {
	f := start(t, 0, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := f.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	must(t, err)
	const all, least = 4, 3
	for i := range all {
		f.runningPod(fmt.Sprintf("p%d", i), true)
	}
	f.budget(least, "")
	f.lookAtBudgets()

	var running sync.WaitGroup
	defer running.Wait()
	work, stop := context.WithCancel(ctx)
	defer stop()
	loop := disruption.New(disruption.Config{Store: f.store, Fence: func() store.Fence { return store.Fence{} }, Now: time.Now})
	watch, err := f.admin.CoreV1().Pods("default").Watch(work, metav1.ListOptions{})
	must(t, err)
	running.Go(func() { // the disruption controller
		for changed := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-work.Done():
				changed.Stop()
				return
			case <-changed.C:
			}
			for _, obj := range f.store.List(api.PodDisruptionBudgets(), "") {
				loop.Wake(store.KeyOf(obj))
			}
			for loop.Step(work) {
			}
		}
	})
	lowest := all
	running.Go(func() { // the node's agent, and the pods' controller
		healthy := map[string]bool{}
		for e := range watch.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			ready := false
			for _, c := range p.Status.Conditions {
				ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}
			was := healthy[p.Name]
			healthy[p.Name] = ready && p.DeletionTimestamp == nil && e.Type != "DELETED"
			n := 0
			for _, is := range healthy {
				if is {
					n++
				}
			}
			if was && !healthy[p.Name] {
				lowest = min(lowest, n)
			}
			if p.DeletionTimestamp != nil && e.Type == "MODIFIED" && p.Spec.NodeName == "n1" {
				now := int64(0)
				if err := f.admin.CoreV1().Pods("default").Delete(work, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
					continue // it is told again
				}
				again := pod("again-"+p.Name, "n2")
				again.Labels = p.Labels
				made, err := f.admin.CoreV1().Pods("default").Create(work, again, metav1.CreateOptions{})
				if err != nil {
					continue // the last deletion is told twice
				}
				made.Status.Phase = corev1.PodRunning
				made.Status.Conditions = append(made.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
				if _, err := f.admin.CoreV1().Pods("default").UpdateStatus(work, made, metav1.UpdateOptions{}); err != nil {
					t.Errorf("%s: %v", made.Name, err)
				}
			}
		}
	})

	printed := &out{}
	helper := &kubectl.Helper{Ctx: ctx, Client: f.admin, Force: true, GracePeriodSeconds: -1, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		Timeout: 50 * time.Second, EvictErrorRetryDelay: 20 * time.Millisecond, Out: printed, ErrOut: printed}
	node, err := f.admin.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	must(t, err)
	must(t, kubectl.RunCordonOrUncordon(helper, node, true))
	if err := kubectl.RunNodeDrain(helper, "n1"); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	stop()
	running.Wait()
	if lowest < least {
		t.Errorf("there were %d healthy pods, minAvailable is %d", lowest, least)
	}
	if !strings.Contains(printed.String(), "Cannot evict pod as it would violate the pod's disruption budget.") {
		t.Errorf("nothing was held back:\n%s", printed)
	}
	pods, err := f.admin.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
	must(t, err)
	if node, err = f.admin.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); err != nil || !node.Spec.Unschedulable || len(pods.Items) != 0 {
		t.Errorf("%d pods are left, unschedulable %v, %v", len(pods.Items), node.Spec.Unschedulable, err)
	}
}
