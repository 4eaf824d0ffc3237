package containerd

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/volume"
)

// withVolumes adds a container's volumes to the mounts that every container has. A
// volume takes the place of one of those at its path. What is mounted in another
// mount comes after it.
func withVolumes(mounts []specs.Mount, volumes []volume.Mount) []specs.Mount {
	taken := map[string]bool{}
	for _, v := range volumes {
		taken[path.Clean(v.Destination)] = true
	}
	out := slices.DeleteFunc(slices.Clone(mounts), func(m specs.Mount) bool { return taken[path.Clean(m.Destination)] })
	for _, v := range volumes {
		how := "rw"
		if v.ReadOnly {
			how = "ro"
		}
		out = append(out, specs.Mount{
			Destination: path.Clean(v.Destination), Type: "bind", Source: v.Source, Options: []string{"rbind", string(v.Propagation), how},
		})
	}
	slices.SortStableFunc(out, func(a, b specs.Mount) int { return cmp.Compare(depth(a.Destination), depth(b.Destination)) })
	return out
}

// depth of a path: the root's is 0.
func depth(p string) int {
	if p = path.Clean(p); p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}

// propagation of the container's root: mounts go no further than it lets them.
func propagation(volumes []volume.Mount) string {
	out := ""
	for _, v := range volumes {
		switch {
		case v.Propagation == volume.Shared:
			return "rshared"
		case v.Propagation == volume.Slave:
			out = "rslave"
		}
	}
	return out
}

// withGroups adds the groups that a pod asks for to the image's, or has them alone:
// supplementalGroups, and the group of its volumes.
func withGroups(user specs.User, pod *corev1.PodSecurityContext) specs.User {
	if pod == nil {
		return user
	}
	groups := slices.Clone(user.AdditionalGids)
	if p := pod.SupplementalGroupsPolicy; p != nil && *p == corev1.SupplementalGroupsPolicyStrict {
		groups = []uint32{user.GID}
	}
	add := func(g int64) {
		if !slices.Contains(groups, uint32(g)) {
			groups = append(groups, uint32(g))
		}
	}
	for _, g := range pod.SupplementalGroups {
		add(g)
	}
	if pod.FSGroup != nil {
		add(*pod.FSGroup)
	}
	user.AdditionalGids = groups
	return user
}
