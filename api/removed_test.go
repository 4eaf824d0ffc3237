package api

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// lifecycle is what k8s.io/api says of a version of a kind.
type lifecycle interface {
	APILifecycleRemoved() (major, minor int)
}

// TestRemovalsAreThoseOfKubernetes compares the table with the life cycles that
// Kubernetes publishes with its types, as of the release that we build with.
func TestRemovalsAreThoseOfKubernetes(t *testing.T) {
	const current = 37
	compared := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		obj, err := scheme.Scheme.New(gvk)
		if err != nil || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		life, ok := obj.(lifecycle)
		if !ok || kubernetesKinds()[gvk.Kind] == "" {
			continue
		}
		major, minor := life.APILifecycleRemoved()
		apiVersion := gvk.GroupVersion().String()
		r, listed := removedKinds().kinds[[2]string{apiVersion, gvk.Kind}]
		switch {
		case minor > current && listed:
			t.Errorf("%s %s is listed as removed; Kubernetes removes it in %d.%d", apiVersion, gvk.Kind, major, minor)
		case minor <= current && !listed && !strings.Contains(gvk.Version, "alpha"):
			t.Errorf("%s %s was removed in %d.%d and is not listed", apiVersion, gvk.Kind, major, minor)
		case minor <= current && listed:
			compared++
			if r.release != fmt.Sprintf("%d.%d", major, minor) {
				t.Errorf("%s %s: removed in %s, Kubernetes says %d.%d", apiVersion, gvk.Kind, r.release, major, minor)
			}
			if with, ok := obj.(interface {
				APILifecycleReplacement() schema.GroupVersionKind
			}); ok {
				if to := with.APILifecycleReplacement(); !strings.Contains(to.Version, "beta") && to.GroupVersion().String() != r.replacement {
					t.Errorf("%s %s: replaced by %s, Kubernetes says %s", apiVersion, gvk.Kind, r.replacement, to.GroupVersion())
				}
			}
		}
	}
	if compared < 35 {
		t.Errorf("only %d removals were compared", compared)
	}
}

func TestEveryReplacementIsCurrent(t *testing.T) {
	for _, r := range removals() {
		for kind := range strings.FieldsSeq(r.kinds) {
			if now := kubernetesKinds()[kind]; r.replacement != "" && now != r.replacement {
				t.Errorf("%s %s: replaced by %s, but the kind is written %s today", r.apiVersion, kind, r.replacement, now)
			}
		}
	}
}
