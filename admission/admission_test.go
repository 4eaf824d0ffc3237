package admission_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func meta(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta("team", "web"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "hello:1"}}}}
}

func active() admission.Facts {
	return admission.Facts{Namespace: &corev1.Namespace{ObjectMeta: meta("", "team"), Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}}
}

// Who writes the tolerations of a pod anew need not know those that it was given.
func TestTolerationsOfAChangedPod(t *testing.T) {
	old, err := admission.Admit(admission.Request{Verb: admission.Create, Object: pod()}, active())
	if err != nil {
		t.Fatal(err)
	}
	changed := old.DeepCopyObject().(*corev1.Pod)
	changed.Spec.Tolerations = []corev1.Toleration{{Key: "foo", Operator: corev1.TolerationOpExists}}
	got, err := admission.Admit(admission.Request{Verb: admission.Update, Object: changed, Old: old}, admission.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	want := append(changed.Spec.Tolerations[:1:1], old.(*corev1.Pod).Spec.Tolerations...)
	if !reflect.DeepEqual(got.(*corev1.Pod).Spec.Tolerations, want) || len(want) != 3 || len(changed.Spec.Tolerations) != 1 {
		t.Errorf("%+v", got.(*corev1.Pod).Spec.Tolerations)
	}
	if same, err := admission.Admit(admission.Request{Verb: admission.Update, Object: got, Old: old}, admission.Facts{}); err != nil || same != got {
		t.Errorf("one that has them is changed: %v, %v", same, err)
	}
}

func TestNamespaceLifecycle(t *testing.T) {
	ending := active()
	ending.Namespace = ending.Namespace.DeepCopy()
	ending.Namespace.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	config := &corev1.ConfigMap{ObjectMeta: meta("team", "a")}
	for name, c := range map[string]struct {
		request admission.Request
		facts   admission.Facts
		refused func(error) bool
		says    string
	}{
		"create in a living namespace":  {request: admission.Request{Verb: admission.Create, Object: config}, facts: active()},
		"create in a missing namespace": {request: admission.Request{Verb: admission.Create, Object: config}, refused: apierrors.IsNotFound, says: `namespaces "team" not found`},
		"create in an ending namespace": {request: admission.Request{Verb: admission.Create, Object: config}, facts: ending, refused: apierrors.IsForbidden, says: "because it is being terminated"},
		"update in an ending namespace": {request: admission.Request{Verb: admission.Update, Object: config, Old: config}, facts: ending},
		"delete in an ending namespace": {request: admission.Request{Verb: admission.Delete, Object: config, Old: config}, facts: ending},
		"create a node":                 {request: admission.Request{Verb: admission.Create, Object: &corev1.Node{ObjectMeta: meta("", "n")}}},
		"delete a namespace":            {request: admission.Request{Verb: admission.Delete, Object: &corev1.Namespace{ObjectMeta: meta("", "team")}}},
		"delete default":                {request: admission.Request{Verb: admission.Delete, Object: &corev1.Namespace{ObjectMeta: meta("", "default")}}, refused: apierrors.IsForbidden, says: "may not be deleted"},
		"delete kube-system":            {request: admission.Request{Verb: admission.Delete, Object: &corev1.Namespace{ObjectMeta: meta("", "kube-system")}}, refused: apierrors.IsForbidden},
		"delete kube-node-lease":        {request: admission.Request{Verb: admission.Delete, Object: &corev1.Namespace{ObjectMeta: meta("", "kube-node-lease")}}, refused: apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := admission.Admit(c.request, c.facts)
			switch {
			case c.refused == nil && err != nil:
				t.Fatalf("refused: %v", err)
			case c.refused == nil:
				if got != c.request.Object {
					t.Errorf("changed to %v", got)
				}
			case !c.refused(err) || !strings.Contains(err.Error(), c.says):
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNewPodIsCompleted(t *testing.T) {
	in := pod()
	kept := in.DeepCopy()
	got, err := admission.Admit(admission.Request{Verb: admission.Create, Object: in}, active())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, kept) {
		t.Error("the request was changed")
	}
	spec := got.(*corev1.Pod).Spec
	if spec.ServiceAccountName != "default" || spec.DeprecatedServiceAccount != "default" {
		t.Errorf("service account %q, %q", spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	}
	var keys []string
	for _, tol := range spec.Tolerations {
		if tol.Operator != corev1.TolerationOpExists || tol.Effect != corev1.TaintEffectNoExecute || *tol.TolerationSeconds != 300 {
			t.Errorf("toleration %v", tol)
		}
		keys = append(keys, tol.Key)
	}
	if want := []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}; !reflect.DeepEqual(keys, want) {
		t.Errorf("tolerations %v, want %v", keys, want)
	}
	again, err := admission.Admit(admission.Request{Verb: admission.Create, Object: got}, active())
	if err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("admitting twice changes the pod: %v %v", again, err)
	}
}

func TestPodKeepsWhatItSays(t *testing.T) {
	in := pod()
	in.Spec.ServiceAccountName = "robot"
	in.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	facts := active()
	facts.Accounts = []api.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: "robot"}}}
	got, err := admission.Admit(admission.Request{Verb: admission.Create, Object: in}, facts)
	if err != nil {
		t.Fatal(err)
	}
	spec := got.(*corev1.Pod).Spec
	if len(spec.Tolerations) != 1 || spec.ServiceAccountName != "robot" || spec.DeprecatedServiceAccount != "robot" {
		t.Errorf("got %+v", spec)
	}
}

func TestR12_UnsupportedFieldsAreRefused(t *testing.T) {
	in := pod()
	in.Spec.RuntimeClassName = new("gvisor")
	in.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	_, err := admission.Admit(admission.Request{Verb: admission.Create, Object: in}, active())
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.runtimeClassName") || !strings.Contains(err.Error(), "spec.overhead") {
		t.Errorf("got %v", err)
	}
	if _, err := admission.Admit(admission.Request{Verb: admission.Update, Object: in, Old: in, Subresource: "status"}, active()); err != nil {
		t.Errorf("status: %v", err)
	}
	labelled := in.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if _, err := admission.Admit(admission.Request{Verb: admission.Update, Object: labelled, Old: in}, active()); err != nil {
		t.Errorf("a change is blamed for what was there: %v", err)
	}
}
