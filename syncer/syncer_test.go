package syncer

import (
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestPushAppliesPrunesAndReverts(t *testing.T) {
	w := newWorld(t)
	c1 := w.repo.add("c1", "", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "1")})
	c2 := w.repo.add("c2", "c1", map[string]string{"web.yaml": edit(app, "web:1", "web:2")})
	c3 := w.repo.add("c3", "c2", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "1")})
	w.push(c1)
	d := w.get("deployments", "default", "web").(*appsv1.Deployment)
	p, ok := api.ProvenanceOf(d)
	if !ok || p.Commit != c1 || p.Path != "web.yaml" || p.Line != 1 || p.Author != "Ada <ada@example.org>" || p.Source != "main" {
		t.Errorf("provenance %+v", p)
	}
	if st := w.status(); st.Applied != c1 || st.Head != c1 || st.Objects != 2 || st.Applying != "" || st.Message != "" {
		t.Errorf("status %+v", st)
	}
	w.push(c2)
	d = w.get("deployments", "default", "web").(*appsv1.Deployment)
	if d.Spec.Template.Spec.Containers[0].Image != "web:2" || d.Generation != 2 {
		t.Errorf("image %s generation %d", d.Spec.Template.Spec.Containers[0].Image, d.Generation)
	}
	if w.get("configmaps", "default", "a") != nil {
		t.Error("the removed manifest's object is still there")
	}
	w.push(c3)
	d = w.get("deployments", "default", "web").(*appsv1.Deployment)
	if d.Spec.Template.Spec.Containers[0].Image != "web:1" || w.get("configmaps", "default", "a") == nil {
		t.Error("the revert did not bring back what was")
	}
	if got := strings.Join(w.repo.kept, " "); got != c3 {
		t.Errorf("kept %s", got)
	}
}

func TestProvenanceMovesOnlyWithItsManifest(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")}))
	before := w.get("configmaps", "default", "a").GetResourceVersion()
	w.push(w.repo.add("c2", "c1", map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "2")}))
	if after := w.get("configmaps", "default", "a").GetResourceVersion(); after != before {
		t.Error("an object whose manifest did not change was written")
	}
	if p, _ := api.ProvenanceOf(w.get("configmaps", "default", "b")); p.Commit != commitID("c2") {
		t.Errorf("commit %s", p.Commit)
	}
	if got := strings.Join(w.repo.kept, " "); got != commitID("c1")+" "+commitID("c2") {
		t.Errorf("kept %s", got)
	}
}

func TestR1_RewrittenHistoryIsRefused(t *testing.T) {
	w := newWorld(t)
	c1 := w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1")})
	other := w.repo.add("d1", "", map[string]string{"a.yaml": configMap("a", "2")})
	w.push(c1)
	w.push(other)
	st := w.status()
	if st.Applied != c1 || st.Refused != other || !strings.Contains(st.Message, c1) || !strings.Contains(st.Message, other) || !strings.Contains(st.Message, "headway sync --allow-rewind "+other) {
		t.Errorf("status %+v", st)
	}
	if v := w.get("configmaps", "default", "a").(*corev1.ConfigMap).Data["k"]; v != "1" {
		t.Errorf("value %s", v)
	}
	w.order(func(o *api.SourceOrders) {
		o.Allow = &api.Allowance{Commit: other, Rewind: true, By: "ada", Why: "the branch was cleaned"}
	})
	w.settle()
	if st := w.status(); st.Applied != other || st.Refused != "" || st.Message != "" {
		t.Errorf("status %+v", st)
	}
	if src := w.s.source(); src.Orders.Allow != nil || src.Status.Used == nil || src.Status.Used.By != "ada" || src.Status.Used.Why != "the branch was cleaned" {
		t.Errorf("the permission was for one move and is recorded: %+v %+v", src.Orders, src.Status.Used)
	}
	r, ok := w.st.Get(receiptKey("main", other)).(*api.Receipt)
	if !ok || r.Allowed == nil || !r.Allowed.Rewind || r.Allowed.Unsigned || r.Allowed.By != "ada" || r.Allowed.Why != "the branch was cleaned" {
		t.Errorf("the receipt does not say who allowed what and why: %+v", r)
	}
	w.push(c1)
	if st := w.status(); st.Applied != other || st.Refused != c1 {
		t.Errorf("status %+v", st)
	}
}

func TestR2_ACommitIsRefusedWholeWithEveryProblem(t *testing.T) {
	w := newWorld(t)
	c1 := w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "web.yaml": app})
	w.push(c1)
	bad := w.repo.add("c2", "c1", map[string]string{
		"a.yaml":   configMap("a", "2"),
		"b.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\nnope: 1\n",
		"c.yaml":   configMap("a", "3"),
		"d.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d, namespace: nowhere}\n",
		"e.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: e-}\n",
		"web.yaml": edit(app, "matchLabels: {app: web}", "matchLabels: {app: web2}", "labels: {app: web}", "labels: {app: web2}"),
	})
	w.push(bad)
	st := w.status()
	if st.Applied != c1 || st.Refused != bad {
		t.Errorf("status %+v", st)
	}
	text := strings.Join(st.Problems, "\n")
	for _, want := range []string{"b.yaml:4:1: nope", "c.yaml:", "already declared in a.yaml:1", `d.yaml:3:21: metadata.namespace: namespace "nowhere" does not exist`, "e.yaml:3:12: metadata.generateName", "web.yaml:6:3: spec.selector"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if v := w.get("configmaps", "default", "a").(*corev1.ConfigMap).Data["k"]; v != "1" {
		t.Errorf("a refused commit changed something: %s", v)
	}
	// The next good one is applied.
	c3 := w.repo.add("c3", "c2", map[string]string{"a.yaml": configMap("a", "3"), "web.yaml": app})
	w.push(c3)
	if st := w.status(); st.Applied != c3 || st.Refused != "" || len(st.Problems) > 0 {
		t.Errorf("status %+v", st)
	}
}

func TestR3_WhatCannotBeReadDeletesNothing(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Spec.Path = "deploy" })
	c1 := w.repo.add("c1", "", map[string]string{"deploy/a.yaml": configMap("a", "1")})
	w.push(c1)
	if w.get("configmaps", "default", "a") == nil {
		t.Fatal("not applied")
	}
	// The folder is gone.
	w.push(w.repo.add("c2", "c1", map[string]string{"README.md": "x"}))
	if w.get("configmaps", "default", "a") == nil || w.status().Refused != commitID("c2") {
		t.Errorf("a missing folder pruned: %+v", w.status())
	}
	// The folder is there and its manifest is gone: that is a removal.
	w.push(w.repo.add("c3", "c2", map[string]string{"deploy/README.md": "x"}))
	if w.get("configmaps", "default", "a") != nil || w.status().Applied != commitID("c3") {
		t.Errorf("a removed manifest did not prune: %+v", w.status())
	}
}

func TestR3_AnotherPathThatDeclaresNothingIsRefused(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "docs/x.md": ""}))
	w.cfg.Spec.Path = "docs"
	w.open()
	w.push(w.repo.add("c2", "c1", map[string]string{"a.yaml": configMap("a", "2"), "docs/x.md": ""}))
	if w.get("configmaps", "default", "a") == nil || w.status().Refused != commitID("c2") {
		t.Errorf("status %+v", w.status())
	}
}

func TestHealsDriftAndDeletion(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "web.yaml": app}))
	w.change("configmaps", "default", "a", func(o api.Object) {
		o.(*corev1.ConfigMap).Data = map[string]string{"k": "drifted", "other": "x"}
	})
	w.settle()
	if d := w.get("configmaps", "default", "a").(*corev1.ConfigMap).Data; d["k"] != "1" || d["other"] != "x" {
		t.Errorf("data %v", d)
	}
	w.change("deployments", "default", "web", func(o api.Object) { n := int32(9); o.(*appsv1.Deployment).Spec.Replicas = &n })
	w.settle()
	if n := *w.get("deployments", "default", "web").(*appsv1.Deployment).Spec.Replicas; n != 3 {
		t.Errorf("replicas %d", n)
	}
	w.remove("deployments", "default", "web")
	w.settle()
	d := w.get("deployments", "default", "web")
	if d == nil {
		t.Fatal("a deleted declared object was not made again")
	}
	// A status is no drift and is not looked at.
	v := d.GetResourceVersion()
	w.change("deployments", "default", "web", func(o api.Object) { o.(*appsv1.Deployment).Status.Replicas = 3 })
	w.settle()
	if got := w.get("deployments", "default", "web"); got.GetResourceVersion() == v || got.(*appsv1.Deployment).Status.Replicas != 3 {
		t.Error("the status was changed back")
	}
}

func TestHealsADeletedNamespace(t *testing.T) {
	w := newWorld(t)
	files := map[string]string{"ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns1}\n---\n" + edit(configMap("x", "1"), "name: x", "name: x, namespace: ns1")}
	w.push(w.repo.add("c1", "", files))
	w.change("namespaces", "", "ns1", func(o api.Object) { markDeleted(o, w.now, 0) })
	w.settle()
	w.remove("configmaps", "ns1", "x") // as the namespace controller does
	w.settle()
	if w.get("configmaps", "ns1", "x") != nil {
		t.Fatal("made in a namespace that goes away")
	}
	w.finish()
	if ns := w.get("namespaces", "", "ns1"); ns == nil || ns.GetDeletionTimestamp() != nil || w.get("configmaps", "ns1", "x") == nil {
		t.Errorf("not healed: %v", ns)
	}
}

func TestARefusalAfterAHalfAppliedCommitGoesBack(t *testing.T) {
	w := newWorld(t)
	w.bulk = 3
	w.open()
	files := func(v string) map[string]string {
		out := map[string]string{}
		for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
			out[n+".yaml"] = configMap(n, v)
		}
		return out
	}
	w.push(w.repo.add("c1", "", files("1")))
	c2 := w.repo.add("c2", "c1", files("2"))
	bad := w.repo.add("c3", "c2", map[string]string{"a.yaml": "nonsense"})
	first := w.commits
	w.around = func(n int, commit func() (int64, error)) (int64, error) {
		rev, err := commit()
		if n == first+2 {
			w.setRef("refs/heads/main", bad)
			storetest.Settle(t, w.st)
		}
		return rev, err
	}
	w.push(c2)
	if st := w.status(); st.Applied != commitID("c1") || st.Refused != bad || st.Applying != "" {
		t.Errorf("status %+v", st)
	}
	for n := range files("") {
		if v := w.get("configmaps", "default", n[:1]).(*corev1.ConfigMap).Data["k"]; v != "1" {
			t.Errorf("%s is %s", n, v)
		}
	}
}

func TestAdoptsAndNeverTouchesOthers(t *testing.T) {
	w := newWorld(t)
	w.write(store.Create, &corev1.ConfigMap{ObjectMeta: metaOf("default", "a", map[string]string{"mine": "x"}), Data: map[string]string{"other": "x"}})
	w.write(store.Create, &corev1.ConfigMap{ObjectMeta: metaOf("default", "hand", nil)})
	foreign := &corev1.ConfigMap{ObjectMeta: metaOf("default", "foreign", nil)}
	api.SetProvenance(foreign, api.Provenance{Source: "another", Hash: "h"})
	w.write(store.Create, foreign)
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1")}))
	a := w.get("configmaps", "default", "a").(*corev1.ConfigMap)
	if a.Data["k"] != "1" || a.Data["other"] != "x" || a.Annotations["mine"] != "x" {
		t.Errorf("adopted %+v", a)
	}
	if w.get("configmaps", "default", "hand") == nil || w.get("configmaps", "default", "foreign") == nil {
		t.Error("pruned what is not ours")
	}
}
