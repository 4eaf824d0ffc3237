package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// containerNamed finds a container of the pod, init and ephemeral ones included.
func containerNamed(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	if c := debugNamed(pod, name); c != nil {
		return asContainer(c)
	}
	return nil
}

// sidecar says whether an init container runs beside the others.
func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// specHash names the form of a container that a running one was made from. Only
// what Kubernetes lets change in a living pod counts, the image, so that neither
// a new field nor a new version of Headway restarts anything (R8). The version in
// front tells hashes of another algorithm apart.
func specHash(c *corev1.Container) string {
	sum := sha256.Sum256([]byte(c.Name + "\x00" + c.Image))
	return "v1:" + hex.EncodeToString(sum[:12])
}

// outdated says whether a container was made from another image than the pod
// names now. A hash alone never says so: another version may have written it.
func outdated(s ContainerState, c *corev1.Container) bool {
	return s.SpecHash != specHash(c) && s.Image != "" && s.Image != c.Image
}

// restarts says whether a container that ended with code runs again, sidecars
// aside.
func restarts(pod *corev1.Pod, c *corev1.Container, code int32) bool {
	for _, rule := range c.RestartPolicyRules {
		if rule.Action != corev1.ContainerRestartRuleActionRestart || rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, code)
		if in == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return true
		}
	}
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	default:
		return true
	}
}

// initRestarts is restarts for an init container: one that succeeded is done.
func initRestarts(pod *corev1.Pod, c *corev1.Container, code int32) bool {
	if sidecar(c) {
		return true
	}
	return code != 0 && restarts(pod, c, code)
}

// checkUser holds a container that must not run as root against the user it
// would run as.
func checkUser(pod *corev1.Pod, c *corev1.Container, image Image) error {
	var nonRoot *bool
	var user *int64
	if s := pod.Spec.SecurityContext; s != nil {
		nonRoot, user = s.RunAsNonRoot, s.RunAsUser
	}
	if s := c.SecurityContext; s != nil {
		if s.RunAsNonRoot != nil {
			nonRoot = s.RunAsNonRoot
		}
		if s.RunAsUser != nil {
			user = s.RunAsUser
		}
	}
	if nonRoot == nil || !*nonRoot {
		return nil
	}
	if user != nil {
		if *user == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", pod.Name, c.Name)
		}
		return nil
	}
	name := image.User
	for i, r := range name {
		if r == ':' {
			name = name[:i]
			break
		}
	}
	if name == "" {
		return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", pod.Name, c.Name)
	}
	id, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root (pod: %q, container: %s)", name, pod.Name, c.Name)
	}
	if id == 0 {
		return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", pod.Name, c.Name)
	}
	return nil
}

// qosClass is the pod's class of service, for a pod whose creator did not write
// it down.
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	any, guaranteed := false, true
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			r := list[i].Resources
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, requested := r.Requests[name]
				limit, limited := r.Limits[name]
				any = any || requested && !request.IsZero() || limited && !limit.IsZero()
				if !limited || limit.IsZero() || requested && request.Cmp(limit) != 0 {
					guaranteed = false
				}
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}
