package containerd

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// The text of a start that fails shows the manifest's words, not what they stand for.
func TestR14_AFailedStartHoldsNoSecret(t *testing.T) {
	spec := agent.ContainerSpec{
		Container: &corev1.Container{
			Name: "c", Command: []string{"/bin/$(TOKEN)", "plain"}, Args: []string{"--with=$(TOKEN)"},
			Env: []corev1.EnvVar{
				{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "t"}}},
				{Name: "URL", Value: "https://$(TOKEN)@x"}, {Name: "PLAIN", Value: "plain"},
			},
			EnvFrom: []corev1.EnvFromSource{{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{}}},
		},
		Command: []string{"/bin/hunter2\n", "plain"}, Args: []string{"--with=hunter2\n"},
		Env: []string{"TOKEN=hunter2\n", "URL=https://hunter2\n@x", "PLAIN=plain", "S_KEY=correct horse", "S_SHORT=no"},
	}
	cause := errors.New(`exec: "/bin/hunter2\n": stat /bin/hunter2` + "\n" + `: no such file; --with=hunter2\n plain https://hunter2\n@x "correct horse" no`)
	err := scrubbed(cause, spec)
	want := `exec: "/bin/$(TOKEN)": stat /bin/$(TOKEN): no such file; --with=$(TOKEN) plain $(URL) "$(S_KEY)" no`
	if err.Error() != want || !errors.Is(err, cause) {
		t.Errorf("%s", err)
	}
	if plain := errors.New("no space left"); scrubbed(plain, spec) != plain {
		t.Error("an error without a secret is another one")
	}
}

func TestR14_AProgramNamedByASecret(t *testing.T) {
	n := newNode(t)
	pod := testPod()
	pod.Spec.Containers[0].Command = []string{"/$(TOKEN)"}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "t"}}}}
	if _, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod}); err != nil {
		t.Fatal(err)
	}
	spec := n.specOf(pod, 0, 0)
	spec.Command, spec.Env = []string{"/hunter2"}, []string{"TOKEN=hunter2"}
	c, err := n.StartContainer(t.Context(), spec)
	if c.Reason != "StartError" || strings.Contains(c.Message, "hunter2") || err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%+v, %v", c, err)
	}
	contains(t, c.Message, "/$(TOKEN)")
}
