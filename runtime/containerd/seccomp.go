package containerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// longestProfile bounds a seccomp profile of the node, in bytes.
const longestProfile = 1 << 20

// seccompOf is the profile that a container asks for, itself or by its pod. With
// none it gets the engine's default, which Kubernetes gives only if told to: no
// program of an image needs more by accident, and one that does says so.
func seccompOf(pod *corev1.Pod, container *corev1.SecurityContext) *corev1.SeccompProfile {
	if container != nil && container.SeccompProfile != nil {
		return container.SeccompProfile
	}
	if s := pod.Spec.SecurityContext; s != nil {
		return s.SeccompProfile
	}
	return nil
}

// seccomp reads the profile that a container asks for by name, from the node's
// folder of them. nil: it asks for none of those.
func (r *Runtime) seccomp(spec agent.ContainerSpec) (*specs.LinuxSeccomp, error) {
	security := spec.Container.SecurityContext
	p := seccompOf(spec.Pod, security)
	if p == nil || p.Type != corev1.SeccompProfileTypeLocalhost || security != nil && isTrue(security.Privileged) {
		return nil, nil
	}
	if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
		return nil, errors.New("seccomp profile: localhostProfile is empty")
	}
	profile, err := readProfile(r.cfg.SeccompDir, *p.LocalhostProfile)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile %s: %w", *p.LocalhostProfile, err)
	}
	return profile, nil
}

// readProfile reads a profile below dir, in the form of the OCI specification and
// of Docker. No link leads out of dir.
func readProfile(dir, name string) (*specs.LinuxSeccomp, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("this node has no folder %s", dir)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // opened for reading: nothing to lose
	f, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("in %s: %w", dir, err)
	}
	defer f.Close() // opened for reading: nothing to lose
	text, err := io.ReadAll(io.LimitReader(f, longestProfile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > longestProfile {
		return nil, fmt.Errorf("longer than %d bytes", longestProfile)
	}
	return decodeProfile(text)
}

func decodeProfile(text []byte) (*specs.LinuxSeccomp, error) {
	var p specs.LinuxSeccomp
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(string(p.DefaultAction), "SCMP_ACT_") {
		return nil, fmt.Errorf("defaultAction %q is no action of seccomp: it begins with SCMP_ACT_", p.DefaultAction)
	}
	return &p, nil
}
