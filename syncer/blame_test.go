package syncer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	"headway.dev/headway/syncer/git"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// annals blames line n on the commit with n in its name.
type annals struct{ w *world }

func (a annals) Find(_ context.Context, name string) (string, error) { return a.w.repo.find(name) }

// find knows the start of a commit's name, and ~ for each parent.
func (h *history) find(name string) (string, error) {
	base, steps := git.CutSteps(name)
	for id := range h.files {
		if !strings.HasPrefix(id, base) {
			continue
		}
		for range steps {
			id = h.parents[id]
		}
		if id != "" {
			return id, nil
		}
	}
	return "", git.ErrNotFound
}

func (a annals) Blame(_ context.Context, commit, path string, lines ...int) ([]git.Blamed, error) {
	var out []git.Blamed
	for _, n := range lines {
		out = append(out, git.Blamed{Commit: fmt.Sprintf("%040d", n), Author: "Line <" + path + ">", Authored: a.w.now, Path: path, Line: n})
	}
	return out, nil
}

func blameWorld(t *testing.T) *world {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app, "s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: value}\n"}))
	return w
}

func TestBlame(t *testing.T) {
	w := blameWorld(t)
	show := func(object, field string) string {
		b, err := w.s.Blame(t.Context(), annals{w}, object, field)
		if err != nil {
			return err.Error()
		}
		out := []string{b.Title()}
		for _, f := range b.Fields {
			out = append(out, fmt.Sprintf("%s=%s %s:%d %s %s", f.Field, f.Value, f.Path, f.Line, strings.TrimLeft(f.Commit, "0"), f.Author))
		}
		return strings.Join(out, "\n")
	}
	all := show("deployment/web", "")
	contain(t, all, "Deployment default/web\napiVersion=\"apps/v1\" web.yaml:1 1 Line <web.yaml>\n",
		"spec.replicas=3 web.yaml:5 5", "spec.template.spec.containers[web].image=\"web:1\" web.yaml:12 12")
	for field, want := range map[string]string{
		"spec.replicas": "Deployment default/web\nspec.replicas=3 web.yaml:5 5 Line <web.yaml>",
		"spec.template.spec.containers[web].image": "Deployment default/web\nspec.template.spec.containers[web].image=\"web:1\" web.yaml:12 12 Line <web.yaml>",
		"spec.template.spec.containers[0].image":   "Deployment default/web\nspec.template.spec.containers[web].image=\"web:1\" web.yaml:12 12 Line <web.yaml>",
	} {
		if got := show("Deployments/default/web", field); got != want {
			t.Errorf("%s\n%s\nwant\n%s", field, got, want)
		}
	}
	for _, object := range []string{"deploy/web", "Deployment.apps/web", "deployments.apps/default/web"} {
		if got := show(object, "spec.replicas"); got != "Deployment default/web\nspec.replicas=3 web.yaml:5 5 Line <web.yaml>" {
			t.Errorf("%s: %s", object, got)
		}
	}
	for object, want := range map[string]string{
		"deployment.batch/web": `kind "deployment.batch" is not known`,
		"deployment/other":     "Deployment default/other is not declared",
		"deployment/x/web":     "Deployment x/web is not declared in commit c10000000000, nor was it made from an object that is; one of this name is in the namespace default (-n)",
		"thing/web":            `kind "thing" is not known`,
		"web":                  "name the object as KIND/NAME",
		"a/b/c/d":              "name the object as KIND/NAME",
		"deployment//web":      "name the object as KIND/NAME",
		"namespace/a/b":        "a Namespace is in no namespace",
	} {
		if _, err := w.s.Blame(t.Context(), annals{w}, object, ""); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", object, err)
		}
	}
	if _, err := w.s.Blame(t.Context(), annals{w}, "deployment/web", "spec.paused"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), `declares no field "spec.paused"`) {
		t.Error(err)
	}
	if text := show("secret/s", ""); strings.Contains(text, "value") || strings.Contains(text, "dmFsdWU") || !strings.Contains(text, "data.k= s.yaml:4") || !strings.Contains(text, `metadata.name="s" s.yaml:3`) || !strings.Contains(text, `kind="Secret"`) {
		t.Errorf("a Secret:\n%s", text)
	}
}

// owned is an object that a controller made.
func owned[T api.Object](obj T, by api.Object, name string, labels map[string]string) T {
	kind, _ := api.KindOf(by)
	obj.SetNamespace("default")
	obj.SetName(name)
	obj.SetLabels(labels)
	obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(by, kind.GroupVersionKind)})
	return obj
}

// addPods makes what a Deployment's controllers would.
func (w *world) addPods(status map[string]corev1.PodStatus) {
	d := w.get("deployments", "default", "web")
	rs := owned(&appsv1.ReplicaSet{}, d, "web-1", nil)
	w.write(store.Create, rs)
	for name, st := range status {
		p := owned(&corev1.Pod{}, w.get("replicasets", "default", "web-1"), name, nil)
		p.Spec.NodeName, p.Status = "n1", st
		w.write(store.Create, p)
	}
	w.settle()
}

func TestBlameOfAPodIsThatOfItsWorkload(t *testing.T) {
	w := blameWorld(t)
	w.addPods(map[string]corev1.PodStatus{"web-1-x": {}})
	b, err := w.s.Blame(t.Context(), annals{w}, "pod/web-1-x", "spec.replicas")
	if err != nil || b.Asked != "Pod default/web-1-x" || b.Title() != "Deployment default/web" || len(b.Fields) != 1 {
		t.Errorf("%+v %v", b, err)
	}
}

func TestCompare(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"report/web.yaml": app, "a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")}))
	c2 := w.repo.add("c2", "c1", map[string]string{"report/web.yaml": edit(app, "web:1", "web:2"), "moved/a.yaml": configMap("a", "1"), "c.yaml": configMap("c", "1")})
	show := func(a, b string) string {
		c, err := w.s.Compare(t.Context(), annals{w}, a, b)
		if err != nil {
			return err.Error()
		}
		var out []string
		for _, ch := range c.Changes {
			out = append(out, ch.String())
		}
		return strings.Join(out, "\n")
	}
	if got := show("applied", "live"); got != "" {
		t.Errorf("in sync:\n%s", got)
	}
	want := "- delete ConfigMap default/b\n+ create ConfigMap default/c (c.yaml:1)\n~ update Deployment default/web (report/web.yaml:1): spec.template.spec.containers[web].image web:1 → web:2"
	if got := show("c1", "c2"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	w.by("ann", "deployments", "default", "web", scale(5))
	w.settle()
	if got, want := show("applied", "live"), "~ update Deployment default/web (report/web.yaml:1): spec.replicas 3 → 5"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := show("live", "c1"), "~ update Deployment default/web (report/web.yaml:1): spec.replicas 5 → 3"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// What the applied commit declares and the other does not is no part of it.
	contain(t, show(c2, "live"), "spec.template.spec.containers[web].image web:2 → web:1", "spec.replicas 3 → 5", "+ create ConfigMap default/b", "- delete ConfigMap default/c")
	if _, err := w.s.Compare(t.Context(), annals{w}, "nothing", "live"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestRuntimeDrift(t *testing.T) {
	w := blameWorld(t)
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(w.now.Add(-ago)) }
	running := func(digest string, last *corev1.ContainerStateTerminated) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", Image: "web:1", ImageID: "docker.io/library/web@sha256:" + digest, RestartCount: 1,
			State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: last},
		}}}
	}
	rw := NewRuntimeWatch(w.s, nil)
	w.st.OnEvents(rw.Handle)
	rw.Step(t.Context())
	w.addPods(map[string]corev1.PodStatus{
		"web-1-a": running("aaa", nil),
		"web-1-b": running("bbb", &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", FinishedAt: at(time.Minute)}),
		"web-1-c": running("bbb", &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: at(time.Minute)}),
		"web-1-d": running("bbb", &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: at(time.Minute)}),
		"web-1-e": running("bbb", &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", FinishedAt: at(2 * time.Hour)}),
	})
	got := w.s.Drift().Runtime
	if len(got) != 2 || got[0].What != "digest" || got[0].Object != "Deployment default/web" || got[1].What != "killed" || got[1].Object != "Pod default/web-1-b" || got[1].Node != "n1" {
		t.Fatalf("%+v", got)
	}
	contain(t, got[0].Message, "web:1 means 2 images: sha256:aaa in web-1-a; sha256:bbb in web-1-b, web-1-c, web-1-d and 1 more; name the image by its digest to run one")
	contain(t, got[1].Message, "ended by signal 9, which Headway did not send")
	look := func() string {
		storetest.Settle(t, w.st)
		for rw.Step(t.Context()) {
		}
		return w.happened()
	}
	contain(t, look(), "ContainerKilled Pod/web-1-b: Container web ended by signal 9, which Headway did not send", "ImageDiffers Deployment/web: web:1 means 2 images")
	if text := look(); strings.Count(text, "ContainerKilled") != 1 {
		t.Errorf("events\n%s", text)
	}
}

// A node that has foreign containers is in the report for as long as it says so.
func TestForeignContainersAreDrift(t *testing.T) {
	w := blameWorld(t)
	node := func(name string, status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-" + types.UID(name)}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "ready"},
			{Type: api.ForeignContainers, Status: status, Message: "container toy belongs to no pod", LastTransitionTime: metav1.NewTime(w.now.Add(-48 * time.Hour))},
		}}}
	}
	ops := []store.Op{{Verb: store.Create, Object: node("f1", corev1.ConditionTrue)}, {Verb: store.Create, Object: node("f2", corev1.ConditionFalse)}}
	if _, err := w.st.Commit(t.Context(), store.Txn{Ops: ops}); err != nil {
		t.Fatal(err)
	}
	storetest.Settle(t, w.st)
	got := w.s.Drift().Runtime
	if len(got) != 1 || got[0].What != "foreign" || got[0].Object != "Node f1" || got[0].Node != "f1" || got[0].Message != "container toy belongs to no pod" || w.now.Sub(got[0].Time) < 47*time.Hour {
		t.Errorf("%+v", got)
	}
}
