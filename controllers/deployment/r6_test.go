package deployment

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// checkR6 judges a transaction of the controller against what the backend holds
// just before it, which the controller's cache may be behind. The verdict counts
// only if the transaction then happens.
func (w *world) checkR6(t store.Txn) (verdict string) {
	ctx := context.Background()
	page, err := w.Store.ListAt(ctx, api.Pods(), "shop", 0, 0, "")
	if err != nil {
		w.Fatalf("list pods: %v", err)
	}
	live, _, err := w.Store.GetAt(ctx, store.Key{GroupResource: api.Deployments(), Namespace: "shop", Name: "web"}, 0)
	if err != nil {
		w.Fatalf("get the deployment: %v", err)
	}
	minAvailable, most := limitsOf(live.(*appsv1.Deployment))
	available, active := map[string]bool{}, map[string]bool{}
	for _, obj := range page.Objects {
		p := obj.(*corev1.Pod)
		if podset.Active(p) {
			active[p.Name] = true
			if ok, _ := podset.Available(p, live.(*appsv1.Deployment).Spec.MinReadySeconds, w.Now); ok {
				available[p.Name] = true
			}
		}
	}
	deletes, creates := 0, 0
	for _, op := range t.Ops {
		p, ok := op.Object.(*corev1.Pod)
		switch {
		case !ok:
		case op.Verb == store.Create:
			creates++
			active[p.Name] = true
		case op.Verb == store.Delete || p.DeletionTimestamp != nil:
			delete(active, p.Name)
			if available[p.Name] {
				deletes++
				delete(available, p.Name)
			}
		}
	}
	if deletes > 0 && len(available) < minAvailable {
		return fmt.Sprintf("%d available pods deleted, %d left, %d must stay", deletes, len(available), minAvailable)
	}
	if creates > 0 && len(active) > most {
		return fmt.Sprintf("%d pods created, now %d not terminating, %d are the most", creates, len(active), most)
	}
	return ""
}

// limitsOf works out what the strategy allows, apart from the code under test:
// surge rounds up, unavailable rounds down, and when both come to nothing one pod
// may be missing.
func limitsOf(d *appsv1.Deployment) (minAvailable, most int) {
	desired := int(*d.Spec.Replicas)
	number := func(v *intstr.IntOrString, plus int) int {
		if percent, ok := strings.CutSuffix(v.StrVal, "%"); ok {
			n, _ := strconv.Atoi(percent)
			return (n*desired + plus) / 100
		}
		return v.IntValue()
	}
	surge, unavailable := number(d.Spec.Strategy.RollingUpdate.MaxSurge, 99), number(d.Spec.Strategy.RollingUpdate.MaxUnavailable, 0)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return desired - unavailable, desired + surge
}

// TestR6_NoStepGoesBeyondTheLimits lets pods get ready, lose it, fail, be deleted
// and bound in any order, changes template, size and limits meanwhile, and keeps
// the controller's cache behind at will. At the end the rollout completes.
func TestR6_NoStepGoesBeyondTheLimits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt)
		limit := rapid.SampledFrom([]string{"0", "1", "2", "25%", "50%", "100%"})
		draw := func(t *rapid.T) (string, string) {
			surge, unavailable := limit.Draw(t, "maxSurge"), limit.Draw(t, "maxUnavailable")
			if surge == "0" && unavailable == "0" {
				surge = "1" // validation refuses both zero
			}
			return surge, unavailable
		}
		surge, unavailable := draw(rt)
		d := web(int32(rapid.IntRange(0, 9).Draw(rt, "replicas")), surge, unavailable)
		d.Spec.MinReadySeconds = rapid.SampledFrom([]int32{0, 0, 10}).Draw(rt, "minReadySeconds")
		w.Create(d)
		w.Judge = w.checkR6
		step := func(*rapid.T) { w.Loop.Step(context.Background()) }
		pod := func(t *rapid.T) *corev1.Pod {
			pods := w.livePods()
			if len(pods) == 0 {
				return nil
			}
			return pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")]
		}
		onPod := func(do func(p *corev1.Pod)) func(*rapid.T) {
			return func(t *rapid.T) {
				if p := pod(t); p != nil {
					do(p)
				}
			}
		}
		onDeployment := func(do func(t *rapid.T, d *appsv1.Deployment)) func(*rapid.T) {
			return func(t *rapid.T) {
				obj, _, err := w.Store.GetAt(context.Background(), store.KeyOf(d), 0)
				if err != nil {
					t.Fatalf("get: %v", err)
				}
				live := obj.(*appsv1.Deployment)
				do(t, live)
				live.Generation++
				w.blind(live)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"controller":       step,
			"controller again": step,
			"cache": func(t *rapid.T) {
				if _, err := w.Store.Step(context.Background()); err != nil {
					t.Fatalf("step: %v", err)
				}
			},
			"cache all": func(*rapid.T) { w.Sync() },
			"ready":     onPod(func(p *corev1.Pod) { w.status(p, true) }),
			"ready too": onPod(func(p *corev1.Pod) { w.status(p, true) }),
			"unready":   onPod(func(p *corev1.Pod) { w.status(p, false) }),
			"fails": onPod(func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodFailed
				w.blind(p)
			}),
			"is deleted": onPod(func(p *corev1.Pod) {
				for _, op := range podset.Remove(p, w.Now) {
					w.try(op)
				}
			}),
			"is gone": onPod(func(p *corev1.Pod) {
				if p.DeletionTimestamp != nil {
					w.try(store.Op{Verb: store.Delete, Object: p})
				}
			}),
			"template": onDeployment(func(t *rapid.T, d *appsv1.Deployment) {
				image(rapid.SampledFrom([]string{"hello:1", "hello:2", "hello:3"}).Draw(t, "image"))(d)
			}),
			"size": onDeployment(func(t *rapid.T, d *appsv1.Deployment) { replicas(int32(rapid.IntRange(0, 9).Draw(t, "replicas")))(d) }),
			"limits": onDeployment(func(t *rapid.T, d *appsv1.Deployment) {
				surge, unavailable := draw(t)
				d.Spec.Strategy = web(1, surge, unavailable).Spec.Strategy
			}),
			// The cache is up to date but for one pod, and the controller decides.
			"surprise": func(t *rapid.T) {
				w.Sync()
				if p := pod(t); p != nil {
					w.status(p, false)
				}
				step(t)
			},
			"all are ready": func(*rapid.T) {
				for _, p := range w.livePods() {
					w.status(p, true)
				}
			},
			"time": func(t *rapid.T) {
				w.Now = w.Now.Add(5 * time.Second)
			},
		})
		// Now let the nodes work, and it comes to an end.
		w.Sync()
		for range 30 {
			w.Now = w.Now.Add(11 * time.Second)
			w.work()
		}
		live := w.deployment()
		st, want := live.Status, *live.Spec.Replicas
		if st.UpdatedReplicas != want || st.AvailableReplicas != want || st.Replicas != want {
			rt.Fatalf("did not converge: want %d, status %+v, sets %s", want, st, w.picture())
		}
	})
}
