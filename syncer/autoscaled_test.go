package syncer

import (
	"context"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

const autoscaler = `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 10
`

// scaled sets the replicas as the autoscaler's controller does: not through the API.
func (w *world) scaled(n int32) {
	w.t.Helper()
	w.change("deployments", "default", "web", scale(n))
	w.settle()
}

// D6: the replicas that an autoscaler sets are no drift, are not put back, and no
// commit resets them. What else differs is drift as ever, and the live ref says nothing
// of the replicas.
func TestD6_AutoscaledReplicasAreNoDrift(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"app.yaml": app, "hpa.yaml": autoscaler}))
	if w.replicas() != 3 {
		t.Fatalf("it is made with %d replicas, not as declared", w.replicas())
	}
	w.scaled(7)
	if w.replicas() != 7 || w.record("deployments", "default", "web") != nil {
		t.Fatalf("%d replicas, drift %+v", w.replicas(), w.record("deployments", "default", "web"))
	}
	for _, change := range []struct{ commit, name, manifest string }{
		{"c2", "a commit that changes another field", edit(app, "web:1", "web:2")},
		{"c3", "a commit that changes the replicas", edit(app, "web:1", "web:2", "replicas: 3", "replicas: 4")},
		{"c4", "a commit that leaves them out", edit(app, "web:1", "web:2", "  replicas: 3\n", "")},
		{"c5", "a commit that declares them again", edit(app, "web:1", "web:3")},
	} {
		w.push(w.repo.add(change.commit, w.status().Applied, map[string]string{"app.yaml": change.manifest, "hpa.yaml": autoscaler}))
		if st := w.status(); w.replicas() != 7 || st.Refused != "" || st.Applying != "" {
			t.Fatalf("%s: %d replicas, %+v", change.name, w.replicas(), st)
		}
	}
	w.by("eve", "deployments", "default", "web", func(o api.Object) {
		d := o.(*appsv1.Deployment)
		d.Spec.Template.Spec.Containers[0].Image = "evil:1"
		d.Spec.Replicas = new(int32(9))
	})
	w.settle()
	r := w.record("deployments", "default", "web")
	if r == nil || len(r.Fields) != 1 || r.Fields[0].Path != "spec.template.spec.containers[web].image" {
		t.Fatalf("drift %+v", r)
	}
	if !strings.Contains(string(r.Live), `"replicas":3`) || !strings.Contains(string(r.Live), "evil:1") {
		t.Errorf("what the live ref is made of: %s", r.Live)
	}
	if d := w.get("deployments", "default", "web").(*appsv1.Deployment); d.Spec.Template.Spec.Containers[0].Image != "web:3" || *d.Spec.Replicas != 9 {
		t.Errorf("healed to %s with %d replicas", d.Spec.Template.Spec.Containers[0].Image, *d.Spec.Replicas)
	}
	if c := w.s.besideLive(w.s.desired); len(c) != 0 {
		t.Errorf("headway diff shows %+v", c)
	}
}

// Zero replicas switch an autoscaler off, and it sets them never: a hand that does is
// drift, and a commit that does is applied, as is the one that takes it back.
func TestD6_ZeroIsNoAutoscalersDoing(t *testing.T) {
	w := newWorld(t)
	files := func(manifest string) map[string]string {
		return map[string]string{"app.yaml": manifest, "hpa.yaml": autoscaler}
	}
	w.push(w.repo.add("c1", "", files(app)))
	w.scaled(7)
	w.by("eve", "deployments", "default", "web", func(o api.Object) { o.(*appsv1.Deployment).Spec.Replicas = new(int32) })
	w.settle()
	if r := w.record("deployments", "default", "web"); w.replicas() != 3 || r == nil || r.Fields[0].Path != "spec.replicas" {
		t.Fatalf("%d replicas, drift %+v", w.replicas(), r)
	}
	w.scaled(7)
	w.push(w.repo.add("c2", w.status().Applied, files(edit(app, "replicas: 3", "replicas: 0"))))
	if w.replicas() != 0 {
		t.Fatalf("%d replicas after a commit that says none", w.replicas())
	}
	w.push(w.repo.add("c3", w.status().Applied, files(app)))
	if w.replicas() != 3 {
		t.Fatalf("%d replicas after a commit that says three again", w.replicas())
	}
}

// What the controller keeps on an autoscaler is no drift, and outlives a commit that
// changes its spec.
func TestD6_WhatItsControllerKeepsOnAnAutoscaler(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"app.yaml": app, "hpa.yaml": autoscaler}))
	w.change("horizontalpodautoscalers", "default", "web", func(o api.Object) {
		a := o.(*autoscalingv2.HorizontalPodAutoscaler)
		a.Annotations[api.AnnotationRescales] = "[]"
		a.Status.CurrentReplicas = 4
	})
	w.settle()
	w.push(w.repo.add("c2", "c1", map[string]string{"app.yaml": app, "hpa.yaml": strings.Replace(autoscaler, "10", "11", 1)}))
	a := w.get("horizontalpodautoscalers", "default", "web").(*autoscalingv2.HorizontalPodAutoscaler)
	if a.Annotations[api.AnnotationRescales] != "[]" || a.Status.CurrentReplicas != 4 || a.Spec.MaxReplicas != 11 || a.Generation != 2 {
		t.Errorf("after a commit %+v", a)
	}
	if r := w.record("horizontalpodautoscalers", "default", "web"); r != nil {
		t.Errorf("drift %+v", r)
	}
}

// An autoscaler that is declared no longer leaves the replicas to the manifest again,
// in one commit and by hand; one that nobody declared counts as well.
func TestReplicasAreDeclaredAgainWithoutTheirAutoscaler(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"app.yaml": app, "hpa.yaml": autoscaler}))
	w.scaled(7)
	w.push(w.repo.add("c2", "c1", map[string]string{"app.yaml": app}))
	if w.get("horizontalpodautoscalers", "default", "web") != nil || w.replicas() != 3 {
		t.Fatalf("%d replicas after the autoscaler went", w.replicas())
	}
	byHand := manifests(t, "x.yaml", autoscaler)[0].Object
	w.write(store.Create, byHand)
	w.settle()
	w.scaled(8)
	if w.replicas() != 8 {
		t.Fatalf("%d replicas of an autoscaler that is not declared", w.replicas())
	}
	w.remove("horizontalpodautoscalers", "default", "web")
	w.settle()
	if w.replicas() != 3 {
		t.Errorf("%d replicas after it was deleted", w.replicas())
	}
	w.push(w.repo.add("c3", "c2", map[string]string{"app.yaml": app, "hpa.yaml": strings.Replace(autoscaler, "name: web}", "name: other}", -1)}))
	w.scaled(5)
	if w.replicas() != 3 {
		t.Errorf("%d replicas: another workload's autoscaler frees these", w.replicas())
	}
}

// A manifest that declares what an autoscaler sets is told so, once it or the
// autoscaler changes, with the lines of both.
func TestDeclaredReplicasBesideAnAutoscaler(t *testing.T) {
	w := newWorld(t)
	c1 := w.repo.add("c1", "", map[string]string{"a/app.yaml": app, "b/hpa.yaml": autoscaler})
	warned := func(commit string) string {
		t.Helper()
		v, err := w.s.Judge(context.Background(), Candidate{Commit: commit})
		if err != nil || !v.OK() {
			t.Fatalf("%v %+v", err, v)
		}
		var out []string
		for _, p := range v.Warnings {
			out = append(out, p.String())
		}
		return strings.Join(out, "\n")
	}
	const want = "a/app.yaml:5:3: spec.replicas: HorizontalPodAutoscaler default/web (b/hpa.yaml:1) sets the replicas: these count only when the object is made, and a later change of them does nothing; leave them out"
	if got := warned(c1); got != want {
		t.Errorf("warned\n%s\nwant\n%s", got, want)
	}
	w.push(c1)
	if got := warned(w.repo.add("c2", "c1", map[string]string{"a/app.yaml": app, "b/hpa.yaml": autoscaler, "c.yaml": configMap("a", "1")})); got != "" {
		t.Errorf("neither changes, and it says %s", got)
	}
	if got := warned(w.repo.add("c3", "c1", map[string]string{"a/app.yaml": app, "b/hpa.yaml": strings.Replace(autoscaler, "10", "11", 1)})); got != want {
		t.Errorf("the autoscaler changes: %s", got)
	}
	if got := warned(w.repo.add("c4", "c1", map[string]string{"a/app.yaml": edit(app, "  replicas: 3\n", ""), "b/hpa.yaml": autoscaler})); got != "" {
		t.Errorf("none are declared, and it says %s", got)
	}
	if got := warned(w.repo.add("c5", "c1", map[string]string{"a/app.yaml": edit(app, "replicas: 3", "replicas: 4")})); got != "" {
		t.Errorf("the autoscaler goes, and it says %s", got)
	}
}

// What has no source of figures is refused by name (R12).
func TestR12_AutoscalerMetrics(t *testing.T) {
	w := newWorld(t)
	for text, want := range map[string]string{
		"metrics: [{type: External, external: {metric: {name: q}, target: {type: Value, value: 3}}}]":                                                                    "spec.metrics[0].external: Forbidden: not supported by this version of Headway: there is no source of such metrics: only of the cpu and memory of pods",
		"metrics: [{type: Pods, pods: {metric: {name: q}, target: {type: AverageValue, averageValue: 3}}}]":                                                              "spec.metrics[0].pods: Forbidden: not supported",
		"metrics: [{type: Object, object: {metric: {name: q}, describedObject: {apiVersion: v1, kind: Service, name: a}, target: {type: Value, value: 3}}}]":             "spec.metrics[0].object: Forbidden: not supported",
		"metrics: [{type: Resource, resource: {name: ephemeral-storage, target: {type: AverageValue, averageValue: 3}}}]":                                                "spec.metrics[0].resource.name: Forbidden: only cpu or memory is supported by this version of Headway: only cpu and memory are measured",
		"behavior: {scaleDown: {stabilizationWindowSeconds: 10, policies: [{type: Pods, value: 1, periodSeconds: 15}], selectPolicy: Min, tolerance: 50m}, scaleUp: {}}": "",
	} {
		v, err := w.s.Judge(context.Background(), Candidate{Commit: w.repo.add("c"+string(rune('0'+len(w.repo.files))), "", map[string]string{"hpa.yaml": autoscaler + "  " + text + "\n"})})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(v.Lines(), "\n"); (want == "") != v.OK() || !strings.Contains(got, want) {
			t.Errorf("%s\n%s\nwant %s", text, got, want)
		}
	}
}
