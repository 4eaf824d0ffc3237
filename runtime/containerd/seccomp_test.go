package containerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// A container has the profile that it names, else its pod's, else the engine's
// default; a privileged one has none.
func TestSeccomp(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	n.Runtime.cfg.SeccompDir = dir
	allow := `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["sethostname"],"action":"SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(filepath.Join(dir, "allow.json"), []byte(allow), 0o600); err != nil {
		t.Fatal(err)
	}
	unconfined := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	own := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("allow.json")}
	for _, c := range []struct {
		name           string
		pod, container *corev1.SeccompProfile
		privileged     bool
		seccomp        string
	}{
		{"default", nil, nil, false, "2"},
		{"unconfined pod", unconfined, nil, false, "0"},
		{"the container's counts", unconfined, &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, false, "2"},
		{"of the node", nil, own, false, "2"},
		{"privileged", own, nil, true, "0"},
	} {
		pod := testPod("cat", "/proc/self/status")
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: c.pod}
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SeccompProfile: c.container, Privileged: &c.privileged}
		n.exit(pod.UID, n.start(pod).ID)
		if out := n.logs(all(pod)); !strings.Contains(out, "Seccomp:\t"+c.seccomp+"\n") {
			t.Errorf("%s: want %s:\n%s", c.name, c.seccomp, out)
		}
	}
	pod := testPod("sleep")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("none.json")}}
	if _, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod}); err != nil {
		t.Fatal(err)
	}
	_, err := n.StartContainer(t.Context(), n.specOf(pod, 0, 0))
	if err == nil || !strings.Contains(err.Error(), "seccomp profile none.json: in "+dir) {
		t.Errorf("a profile that is not there: %v", err)
	}
}

func TestProfilesStayInTheirFolder(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "profiles")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(top, "secret.json")
	if err := os.WriteFile(secret, []byte(`{"defaultAction":"SCMP_ACT_ALLOW"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "long.json"), make([]byte, longestProfile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"link.json": "escapes", "../secret.json": "escapes", "long.json": "longer than 1048576 bytes", "none.json": "no such file",
	} {
		if _, err := readProfile(dir, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func FuzzDecodeProfile(f *testing.F) {
	f.Add([]byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["a"],"action":"SCMP_ACT_ERRNO","args":[{"index":0}]}]}`))
	f.Add([]byte(`{"defaultAction":"ALLOW"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := decodeProfile(text); err == nil && !strings.HasPrefix(string(p.DefaultAction), "SCMP_ACT_") {
			t.Errorf("%q is taken: %+v", text, p)
		}
	})
}
