package containerd

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

func TestAppArmor(t *testing.T) {
	has := func(enabled bool, profiles ...string) func() (bool, []string, error) {
		return func() (bool, []string, error) { return enabled, profiles, nil }
	}
	name := "mine"
	local := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	runtime := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	for _, tc := range []struct {
		profile *corev1.AppArmorProfile
		look    func() (bool, []string, error)
		want    string
		says    string
	}{
		{nil, has(true), "", ""},
		{&corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}, has(true), "", ""},
		{runtime, has(true), defaultAppArmor, ""},
		{runtime, has(false), "", ""},
		{local, has(true, "other", "mine"), "mine", ""},
		{local, has(true, "other"), "", `profile "mine" is not loaded on this node`},
		{local, has(false), "", "it is not enabled on this node"},
		{&corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost}, has(true), "", "localhostProfile is empty"},
	} {
		got, err := chooseAppArmor(tc.profile, tc.look)
		if got != tc.want || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %q, %v", tc.profile, got, err)
		}
	}
	if got := parseProfiles("/usr/bin/man (enforce)\na b (complain)\n\nodd\n"); !slices.Equal(got, []string{"/usr/bin/man", "a b"}) {
		t.Errorf("%q", got)
	}
}

func TestSELinuxLabel(t *testing.T) {
	spec := agent.ContainerSpec{Pod: &corev1.Pod{}, Container: &corev1.Container{}}
	if got := selinuxOf(spec); got != "" {
		t.Errorf("%q", got)
	}
	spec.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2", Type: "pod_t"}}
	spec.Container.SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}}
	if got := selinuxOf(spec); got != "system_u:system_r:spc_t:s0:c1,c2" {
		t.Errorf("%q", got)
	}
	oci, err := blueprint{spec: agent.ContainerSpec{Pod: spec.Pod, Container: spec.Container, Command: []string{"x"}}, confined: confinement{"profile", "label"}}.build()
	if err != nil || oci.Process.ApparmorProfile != "profile" || oci.Process.SelinuxLabel != "label" {
		t.Errorf("%+v, %v", oci, err)
	}
}
