package containerd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/contrib/apparmor"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// What the kernel of this node has of modules that confine.
const (
	apparmorEnabled  = "/sys/module/apparmor/parameters/enabled"
	apparmorProfiles = "/sys/kernel/security/apparmor/profiles"
	selinuxEnforce   = "/sys/fs/selinux/enforce"

	// defaultAppArmor is the profile that RuntimeDefault stands for: the engine's.
	defaultAppArmor = "headway-default"
)

// confinement is what of these a container is made with.
type confinement struct{ apparmor, selinux string }

// apparmorOf is the profile that a container asks for, itself or by its pod; nil: none.
func apparmorOf(spec agent.ContainerSpec) *corev1.AppArmorProfile {
	if s := spec.Container.SecurityContext; s != nil && s.AppArmorProfile != nil {
		return s.AppArmorProfile
	}
	if s := spec.Pod.Spec.SecurityContext; s != nil {
		return s.AppArmorProfile
	}
	return nil
}

// selinuxOf is the label that a container asks for, each part itself or by its pod; "":
// none.
func selinuxOf(spec agent.ContainerSpec) string {
	var all corev1.SELinuxOptions
	take := func(o *corev1.SELinuxOptions) {
		if o != nil {
			all = corev1.SELinuxOptions{User: cmp.Or(all.User, o.User), Role: cmp.Or(all.Role, o.Role), Type: cmp.Or(all.Type, o.Type), Level: cmp.Or(all.Level, o.Level)}
		}
	}
	if s := spec.Container.SecurityContext; s != nil {
		take(s.SELinuxOptions)
	}
	if s := spec.Pod.Spec.SecurityContext; s != nil {
		take(s.SELinuxOptions)
	}
	if all == (corev1.SELinuxOptions{}) {
		return ""
	}
	return strings.Join([]string{cmp.Or(all.User, "system_u"), cmp.Or(all.Role, "system_r"), cmp.Or(all.Type, "container_t"), cmp.Or(all.Level, "s0")}, ":")
}

// confine says what a container is confined with on this node. A profile that is named
// and cannot be had keeps it from starting; one of the engine's own, and a label, mean
// nothing where the kernel has no such module.
func (r *Runtime) confine(spec agent.ContainerSpec) (out confinement, err error) {
	if s := spec.Container.SecurityContext; s != nil && isTrue(s.Privileged) {
		return out, nil
	}
	if out.apparmor, err = chooseAppArmor(apparmorOf(spec), lookAtAppArmor); err != nil {
		return out, err
	}
	if out.apparmor == defaultAppArmor {
		if err := apparmor.LoadDefaultProfile(defaultAppArmor); err != nil {
			return out, fmt.Errorf("load the default AppArmor profile: %w", err)
		}
	}
	if _, err := os.Stat(selinuxEnforce); err == nil {
		out.selinux = selinuxOf(spec)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("ask whether the node has SELinux: %w", err)
	}
	return out, nil
}

// chooseAppArmor is the profile's name; "": none.
func chooseAppArmor(p *corev1.AppArmorProfile, look func() (enabled bool, profiles []string, err error)) (string, error) {
	if p == nil || p.Type == corev1.AppArmorProfileTypeUnconfined {
		return "", nil
	}
	enabled, profiles, err := look()
	switch {
	case err != nil:
		return "", err
	case p.Type == corev1.AppArmorProfileTypeRuntimeDefault && enabled:
		return defaultAppArmor, nil
	case p.Type == corev1.AppArmorProfileTypeRuntimeDefault:
		return "", nil
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		return "", errors.New("cannot enforce AppArmor: localhostProfile is empty")
	case !enabled:
		return "", fmt.Errorf("cannot enforce AppArmor: it is not enabled on this node, so it has no profile %q", *p.LocalhostProfile)
	case !slices.Contains(profiles, *p.LocalhostProfile):
		return "", fmt.Errorf("cannot enforce AppArmor: profile %q is not loaded on this node: load it with apparmor_parser", *p.LocalhostProfile)
	}
	return *p.LocalhostProfile, nil
}

// lookAtAppArmor says which profiles the kernel has.
func lookAtAppArmor() (enabled bool, profiles []string, err error) {
	word, err := os.ReadFile(apparmorEnabled)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !strings.HasPrefix(string(word), "Y") {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, fmt.Errorf("ask whether the node has AppArmor: %w", err)
	}
	text, err := os.ReadFile(apparmorProfiles)
	if err != nil {
		return true, nil, fmt.Errorf("list the AppArmor profiles: %w", err)
	}
	return true, parseProfiles(string(text)), nil
}

// parseProfiles reads the kernel's list: one name and mode a line, "a b (enforce)".
func parseProfiles(text string) (out []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if at := strings.LastIndex(line, " ("); at > 0 {
			out = append(out, line[:at])
		}
	}
	return out
}
