package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func labelled(pairs ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{}}}
	for i := 0; i < len(pairs); i += 2 {
		ns.Labels["pod-security.kubernetes.io/"+pairs[i]] = pairs[i+1]
	}
	return ns
}

// https://kubernetes.io/docs/concepts/security/pod-security-standards/
func TestPodSecurity(t *testing.T) {
	plain := corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "hello:1"}}}
	host := *plain.DeepCopy()
	host.HostNetwork = true
	good := *plain.DeepCopy()
	good.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	good.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	for _, c := range []struct {
		name             string
		ns               *corev1.Namespace
		spec             corev1.PodSpec
		enforced, warned string // beginnings
	}{
		{"no labels", labelled(), host, "", ""},
		{"privileged", labelled("enforce", "privileged"), host, "", ""},
		{"baseline", labelled("enforce", "baseline"), plain, "", ""},
		{"baseline broken", labelled("enforce", "baseline"), host, `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`, ""},
		{"restricted", labelled("enforce", "restricted", "enforce-version", "v1.30"), good, "", ""},
		{"restricted broken", labelled("enforce", "restricted"), plain,
			`violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "app" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities`, ""},
		{"warned", labelled("enforce", "baseline", "warn", "restricted"), plain, "", `violates PodSecurity "restricted:latest": allow`},
		{"both", labelled("enforce", "baseline", "warn", "restricted"), host, `violates PodSecurity "baseline`, `violates PodSecurity "restricted`},
		{"a level that is none", labelled("enforce", "strict"), plain, `violates PodSecurity "restricted:latest"`, ""},
	} {
		enforced, warned, err := PodSecurity(c.ns, &corev1.PodTemplateSpec{Spec: c.spec})
		if err != nil || !strings.HasPrefix(enforced, c.enforced) || (c.enforced == "") != (enforced == "") || !strings.HasPrefix(warned, c.warned) || (c.warned == "") != (warned == "") {
			t.Errorf("%s: %q, %q, %v", c.name, enforced, warned, err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: c.spec}
		_, err = Admit(Request{Verb: Create, Object: pod}, Facts{Namespace: c.ns})
		if c.enforced == "" && err != nil || c.enforced != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `pods "web" is forbidden: `+c.enforced)) {
			t.Errorf("%s: admitted with %v", c.name, err)
		}
	}
}

func TestPodSecurityLabels(t *testing.T) {
	bad, good := labelled("enforce", "strict", "warn-version", "new"), labelled("enforce", "baseline", "warn-version", "v1.30")
	_, err := Admit(Request{Verb: Create, Object: bad}, Facts{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted") ||
		!strings.Contains(err.Error(), "warn-version") {
		t.Errorf("%v", err)
	}
	if _, err := Admit(Request{Verb: Update, Object: bad, Old: good}, Facts{}); !apierrors.IsInvalid(err) {
		t.Errorf("changed to it: %v", err)
	}
	again := bad.DeepCopy()
	again.Annotations = map[string]string{"a": "b"}
	for _, r := range []Request{{Verb: Create, Object: good}, {Verb: Update, Object: good, Old: bad}, {Verb: Update, Object: again, Old: bad}} {
		if _, err := Admit(r, Facts{}); err != nil {
			t.Errorf("%s: %v", r.Verb, err)
		}
	}
}
