package syncer

import (
	"fmt"
	"strings"
	"testing"

	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podsFor gives a live Deployment a ReplicaSet and so many pods.
func (w *world) podsFor(name string, n int) {
	w.t.Helper()
	d := w.get("deployments", "default", name).(*appsv1.Deployment)
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-1",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}}}
	w.write(store.Create, rs)
	for i := range n {
		w.write(store.Create, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-1-%d", name, i),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}}})
	}
	w.settle()
}

const cron = `apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      parallelism: 3
      template:
        spec:
          restartPolicy: Never
          containers: [{name: c, image: tick:1}]
`

const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: p:1}]\n"

// TestWhatACommitBrings says which pods are asked about, and which ones leave.
func TestWhatACommitBrings(t *testing.T) {
	rolling := func(unavailable, surge string) string {
		return edit(app, "  replicas: 3\n", "  replicas: 3\n  strategy: {rollingUpdate: {maxUnavailable: "+unavailable+", maxSurge: "+surge+"}}\n")
	}
	for name, tt := range map[string]struct {
		before, after string
		pods          int
		want          string
	}{
		"a new Deployment":           {"", app, 0, "web 3"},
		"a new one of none":          {"", edit(app, "replicas: 3", "replicas: 0"), 0, ""},
		"more replicas":              {app, edit(app, "replicas: 3", "replicas: 5"), 3, "web 2"},
		"fewer replicas":             {app, edit(app, "replicas: 3", "replicas: 1"), 3, ""},
		"those that were missing":    {app, edit(app, "replicas: 3", "replicas: 5"), 1, "web 4"},
		"another image":              {app, edit(app, "web:1", "web:2"), 3, "web 3, 3 leave; new 1 first"}, // 25 % of three is none
		"another image while paused": {app, edit(app, "web:1", "web:2", "  replicas: 3\n", "  replicas: 3\n  paused: true\n"), 3, ""},
		"nothing that pods see":      {app, edit(app, "{name: web}\nspec", "{name: web, labels: {a: b}}\nspec"), 3, ""},
		"with a surge only":          {rolling("0", "1"), edit(rolling("0", "1"), "web:1", "web:2"), 3, "web 3, 3 leave; new 1 first"},
		"with a rounded surge":       {rolling("10%", "25%"), edit(rolling("10%", "25%"), "web:1", "web:2"), 3, "web 3, 3 leave; new 1 first"},
		"with one unavailable":       {rolling("1", "1"), edit(rolling("1", "1"), "web:1", "web:2"), 3, "web 3, 3 leave"},
		"a removed one":              {app + "---\n" + edit(app, "name: web}\nspec", "name: other}\nspec"), edit(app, "name: web}\nspec", "name: other}\nspec", "replicas: 3", "replicas: 4"), 3, "other 4, 3 leave"},
		"a Job":                      {"", edit(migrate, "spec:\n  template", "spec:\n  parallelism: 4\n  completions: 2\n  template"), 0, "migrate 2"},
		"a replaced Job":             {migrate, edit(migrate, "migrate:1", "migrate:2"), 0, "migrate 1"},
		"a CronJob":                  {"", cron, 0, "tick 0"},
		"a CronJob's schedule":       {cron, edit(cron, "* * *\"", "* * 1\""), 0, ""},
		"a Pod":                      {"", pod, 0, "p 1"},
		"a Pod with a node":          {"", edit(pod, "spec:\n", "spec:\n  nodeName: n1\n"), 0, ""},
		"a ConfigMap":                {"", configMap("a", "1"), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			w := newWorld(t)
			w.push(w.repo.add("c1", "", map[string]string{"a.yaml": tt.before, "z.yaml": configMap("z", "1")}))
			if tt.pods > 0 {
				w.podsFor("web", tt.pods)
			}
			w.s.cfg.Capacity = func(leaving map[types.UID]bool, asks []Ask) ([]Answer, bool) {
				answers := make([]Answer, len(asks))
				for i, a := range asks {
					name := strings.TrimSuffix(a.Pod.GenerateName, "-")
					if name == "" {
						name = a.Pod.Name
					}
					text := fmt.Sprintf("%s %d", name, a.Count)
					if leaving == nil {
						text = fmt.Sprintf("new %d first", a.Count)
					}
					if len(leaving) > 0 {
						text += fmt.Sprintf(", %d leave", len(leaving))
					}
					if a.Pod.Spec.ServiceAccountName != "default" || len(a.Pod.Spec.Tolerations) != 2 {
						t.Errorf("the pod is not as it is when it is made: %+v", a.Pod.Spec)
					}
					got = append(got, text)
					answers[i].Fit = a.Count
				}
				return answers, true
			}
			v, err := w.s.Judge(t.Context(), Candidate{Commit: w.repo.add("c2", "c1", map[string]string{"a.yaml": tt.after, "z.yaml": configMap("z", "1")})})
			if err != nil || !v.OK() {
				t.Fatalf("%v %v", v.Lines(), err)
			}
			if text := strings.Join(got, "; "); text != tt.want {
				t.Errorf("asked %q, want %q", text, tt.want)
			}
		})
	}
}

func TestARollingUpdateThatCannotBeginIsSaid(t *testing.T) {
	w := newWorld(t)
	text := edit(app, "  replicas: 3\n", "  replicas: 3\n  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}\n")
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": text}))
	w.podsFor("web", 3)
	w.s.cfg.Capacity = func(leaving map[types.UID]bool, asks []Ask) ([]Answer, bool) {
		if len(leaving) == 0 {
			return []Answer{{Why: "0/1 nodes are available: 1 Insufficient cpu."}}, true
		}
		return []Answer{{Fit: asks[0].Count}}, true
	}
	v, err := w.s.Judge(t.Context(), Candidate{Commit: w.repo.add("c2", "c1", map[string]string{"a.yaml": edit(text, "web:1", "web:2")})})
	want := "a.yaml:6:30: spec.strategy.rollingUpdate.maxUnavailable: Deployment default/web: the rolling update cannot begin: it stops no old pod first, and one more fits on no node: 0/1 nodes are available: 1 Insufficient cpu. Add a node, or allow maxUnavailable: 1"
	if err != nil || !v.OK() || len(v.Warnings) != 1 || v.Warnings[0].String() != want {
		t.Errorf("%v %v", v.Warnings, err)
	}
}

// Nobody asks the scheduler about a commit that is refused, nor without a need.
func TestCapacityIsAskedOnlyWhenItMatters(t *testing.T) {
	w := newWorld(t)
	asked := false
	w.s.cfg.Capacity = func(_ map[types.UID]bool, asks []Ask) ([]Answer, bool) {
		asked = true
		return make([]Answer, len(asks)), true
	}
	for _, files := range []map[string]string{
		{"a.yaml": configMap("a", "1")},
		{"a.yaml": app, "b.yaml": edit(configMap("a", "1"), "data", "date")},
	} {
		if _, err := w.s.Judge(t.Context(), Candidate{Commit: w.repo.add(fmt.Sprint("c", len(w.repo.files)), "", files)}); err != nil || asked {
			t.Errorf("%v: asked %v %v", files, asked, err)
		}
	}
}
