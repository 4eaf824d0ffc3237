package syncer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// strangers change what no manifest of variants declares; each says afterwards
// whether its change is still there.
func strangers() map[string]struct {
	do   func(*appsv1.Deployment)
	kept func(*appsv1.Deployment) bool
} {
	type s = struct {
		do   func(*appsv1.Deployment)
		kept func(*appsv1.Deployment) bool
	}
	return map[string]s{
		"annotation": {
			func(d *appsv1.Deployment) { d.Annotations["other"] = "x" },
			func(d *appsv1.Deployment) bool { return d.Annotations["other"] == "x" },
		},
		"environment": {
			func(d *appsv1.Deployment) {
				c := &d.Spec.Template.Spec.Containers[0]
				c.Env = append(c.Env, corev1.EnvVar{Name: "Z", Value: "z"})
			},
			func(d *appsv1.Deployment) bool {
				return slices.Contains(d.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "Z", Value: "z"})
			},
		},
		"container": {
			func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "injected", Image: "i"})
			},
			func(d *appsv1.Deployment) bool {
				return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == "injected" && c.Image == "i" })
			},
		},
		"history": {
			func(d *appsv1.Deployment) { n := int32(7); d.Spec.RevisionHistoryLimit = &n },
			func(d *appsv1.Deployment) bool { return *d.Spec.RevisionHistoryLimit == 7 },
		},
		"status": {
			func(d *appsv1.Deployment) { d.Status.Replicas = 5 },
			func(d *appsv1.Deployment) bool { return d.Status.Replicas == 5 },
		},
	}
}

func TestPlanNeverTouchesUndeclaredFields(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := quiet(t, 0)
		w.push(w.repo.add("c1", "", map[string]string{"web.yaml": rapid.SampledFrom(variants()["web.yaml"]).Draw(rt, "before")}))
		all := strangers()
		var done []string
		w.change("deployments", "default", "web", func(o api.Object) {
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if rapid.Bool().Draw(rt, name) {
					all[name].do(o.(*appsv1.Deployment))
					done = append(done, name)
				}
			}
		})
		w.settle()
		w.push(w.repo.add("c2", "c1", map[string]string{"web.yaml": rapid.SampledFrom(variants()["web.yaml"]).Draw(rt, "after")}))
		if st := w.status(); st.Applied != commitID("c2") {
			rt.Fatalf("status %+v", st)
		}
		d := w.get("deployments", "default", "web").(*appsv1.Deployment)
		for _, name := range done {
			if !all[name].kept(d) {
				rt.Errorf("the %s of somebody else is gone: %+v", name, d)
			}
		}
	})
}

// After a plan is done, the plan for the same commit is empty, also when every
// object is compared; and a plan touches no object of others.
func TestPlanConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		live := map[store.Key]api.Object{}
		foreign := manifest(t, configMap("foreign", "1")).Object
		api.SetProvenance(foreign, api.Provenance{Source: "another"})
		owned := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", OwnerReferences: []metav1.OwnerReference{{Controller: new(true)}}}}
		api.SetProvenance(owned, api.Provenance{Source: "main"})
		for _, o := range []api.Object{foreign, owned} {
			live[store.KeyOf(o)] = o
		}
		base := map[store.Key]*api.Manifest{}
		for commit := range 3 {
			var desired []*api.Manifest
			files := drawFiles(rt, fmt.Sprint(commit))
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if strings.HasSuffix(name, ".yaml") {
					desired = append(desired, manifests(t, name, files[name])...)
				}
			}
			o := Observed{Source: "main", Commit: fmt.Sprint(commit), Desired: desired, Live: live, Base: base}
			before := map[store.Key]api.Object{}
			for k, v := range live {
				before[k] = v.DeepCopyObject().(api.Object)
			}
			for round := 0; ; round++ {
				steps, problems := Plan(o, time.Unix(1000, 0))
				if len(problems) > 0 {
					rt.Fatalf("problems %v", problems)
				}
				for k, v := range before {
					if round == 0 && !equalObjects(v, live[k]) {
						rt.Fatalf("the plan changed %s itself", k)
					}
				}
				if len(steps) == 0 {
					break
				}
				if round > 2 {
					rt.Fatalf("does not converge: %+v", steps)
				}
				for _, s := range steps {
					if s.Key == store.KeyOf(foreign) || s.Key == store.KeyOf(owned) {
						rt.Fatalf("step on an object of others: %+v", s)
					}
					switch {
					case s.Verb == Wait:
					case s.Op.Verb == store.Delete || s.Op.Object.GetDeletionTimestamp() != nil:
						delete(live, s.Key) // whoever has to finish it does
					default:
						live[s.Key] = s.Op.Object
					}
				}
				o.Verify = true
			}
			base = map[store.Key]*api.Manifest{}
			for _, m := range desired {
				base[keyOf(m)] = m
			}
			if len(live) != len(desired)+2 {
				rt.Fatalf("%d objects live, %d declared", len(live), len(desired))
			}
		}
	})
}

func TestPlanOrder(t *testing.T) {
	ns := "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns1}\n"
	text := app + "---\n" + configMap("a", "1") + "---\n" + ns + "---\n" + migrate
	desired := manifests(t, "all.yaml", text)
	verbs := func(steps []Step) string {
		var out []string
		for _, s := range steps {
			out = append(out, string(s.Verb)+" "+s.Key.Resource)
		}
		return strings.Join(out, ", ")
	}
	o := Observed{Source: "main", Commit: "c", Desired: desired, Live: map[store.Key]api.Object{}}
	steps, _ := Plan(o, time.Unix(1000, 0))
	if got := verbs(steps); got != "create namespaces, create configmaps, create deployments, create jobs" {
		t.Errorf("order %s", got)
	}
	for _, s := range steps {
		o.Live[s.Key] = s.Op.Object
	}
	o.Desired = manifests(t, "all.yaml", edit(migrate, "migrate:1", "migrate:2"))
	steps, _ = Plan(o, time.Unix(1000, 0))
	if got := verbs(steps); got != "delete jobs, create jobs, delete deployments, delete configmaps, delete namespaces" {
		t.Errorf("order %s", got)
	}
	last := steps[len(steps)-1]
	if n, ok := last.Op.Object.(*corev1.Namespace); !ok || last.Op.Verb != store.Update || n.DeletionTimestamp == nil || n.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("a namespace is deleted by %+v", last.Op)
	}
}

func TestPlanDeletesAPodGracefully(t *testing.T) {
	pod := func(node string, phase corev1.PodPhase) *corev1.Pod {
		g := int64(7)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &g}, Status: corev1.PodStatus{Phase: phase}}
		api.SetProvenance(p, api.Provenance{Source: "main"})
		return p
	}
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		pod  *corev1.Pod
		verb store.Verb
	}{
		{pod("", corev1.PodPending), store.Delete},
		{pod("n", corev1.PodRunning), store.Update},
		{pod("n", corev1.PodSucceeded), store.Delete},
	} {
		steps, _ := Plan(Observed{Source: "main", Live: map[store.Key]api.Object{store.KeyOf(tt.pod): tt.pod}}, now)
		if len(steps) != 1 || steps[0].Verb != Delete || steps[0].Op.Verb != tt.verb {
			t.Errorf("node %q phase %s: %+v", tt.pod.Spec.NodeName, tt.pod.Status.Phase, steps)
			continue
		}
		if d := steps[0].Op.Object.GetDeletionTimestamp(); tt.verb == store.Update && (d == nil || !d.Time.Equal(now.Add(7*time.Second))) {
			t.Errorf("deletion time %v", d)
		}
	}
}

func TestPlanReleasesThePermanentNamespaces(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{"mine": "x"}}}
	api.SetProvenance(ns, api.Provenance{Source: "main"})
	steps, _ := Plan(Observed{Source: "main", Live: map[store.Key]api.Object{store.KeyOf(ns): ns}}, time.Unix(1000, 0))
	if len(steps) != 1 || steps[0].Op.Verb != store.Update || steps[0].Op.Object.GetDeletionTimestamp() != nil || len(steps[0].Op.Object.GetAnnotations()) != 1 {
		t.Errorf("steps %+v", steps)
	}
}

func TestCutKeepsToTheBounds(t *testing.T) {
	var steps []Step
	for i := range 250 {
		steps = append(steps, Step{Verb: Create, Op: store.Op{Verb: store.Create, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Namespace: "x"}, Data: map[string]string{"k": strings.Repeat("x", 20_000)}}}})
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "x"}}
	steps = append(steps, Step{Verb: Delete, Op: store.Op{Verb: store.Delete, Object: job}}, Step{Verb: Create, Op: store.Op{Verb: store.Create, Object: job}})
	batches, _ := cut(steps, store.BulkObjects)
	total := 0
	for _, b := range batches {
		total += len(b)
		bytes, keys := 0, map[store.Key]bool{}
		for _, s := range b {
			bytes += sizeOf(s.Op)
			if keys[store.KeyOf(s.Op.Object)] {
				t.Error("one object twice in a transaction")
			}
			keys[store.KeyOf(s.Op.Object)] = true
		}
		if len(b) >= store.BulkObjects || bytes > store.BulkBytes {
			t.Errorf("%d objects, %d bytes", len(b), bytes)
		}
	}
	if total != 252 {
		t.Errorf("%d steps", total)
	}
}
