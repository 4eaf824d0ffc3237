package api

import (
	"maps"
	"slices"
	"strings"
)

// Foreign is an object of a kind that this version does not have. It is in git
// only: nothing of it but its kind is looked at.
type Foreign struct {
	APIVersion, Kind string
	Place            Place  // of the kind
	Reason           string // why it is not supported
}

// identity is the kind that a document names. When there is none, or it may not be
// declared, field and reason say what is wrong.
type identity struct {
	kind    Kind
	field   string
	reason  string
	foreign bool // nothing but the kind is wrong, and git may keep it
}

// identify finds the kind that a document names.
func identify(apiVersion, kind string) identity {
	no := func(field, reason string) identity { return identity{field: field, reason: reason} }
	for _, k := range table() {
		if k.Kind == kind && k.GroupVersion().String() == apiVersion {
			switch {
			case k.Declarable:
				return identity{kind: k}
			case k.Group == Group || kind == "Lease" || kind == "Event" || kind == "Node":
				return no("kind", kind+" is made by the cluster and cannot be declared in a repository")
			}
			return no("kind", kind+" cannot be declared in a repository")
		}
	}
	if apiVersion == Group+"/"+Version && kind == ConfigKind {
		return no("kind", kind+" stands in the file "+ConfigFile+" at the source's root and nowhere else: move it there")
	}
	current, known := kubernetesKinds()[kind]
	rule, ok := kindRule(apiVersion, kind)
	if !ok {
		rule, _ = kindRule(current, kind)
	}
	supported := known && rule.Verdict != Refused
	unsupported := kind + " is not supported by this version of Headway"
	if rule.Why != "" {
		unsupported += ": " + rule.Why
	}
	noMatch := `no matches for kind "` + kind + `" in version "` + apiVersion + `"`
	switch {
	case gone(apiVersion, kind):
		return no("kind", removedReason(apiVersion, kind, ""))
	case ok, known && !supported && sameGroup(apiVersion, current):
		return identity{field: "kind", reason: unsupported, foreign: rule.Allowable}
	case known && removedVersions()[apiVersion]:
		reason := removedReason(apiVersion, kind, current)
		if !supported {
			return no("kind", reason+"; "+unsupported)
		}
		return no("apiVersion", reason)
	case known && kubernetesGroup(apiVersion):
		return no("kind", noMatch+": write apiVersion "+current+otherForm(apiVersion, kind))
	case known && !strings.Contains(groupOf(apiVersion), "."): // no group of somebody else's
		return no("apiVersion", noMatch+": write apiVersion "+current)
	case groupOf(apiVersion) == Group:
		return no("kind", noMatch)
	case !kubernetesGroup(apiVersion):
		reason := kind + " (" + apiVersion + ") is not supported by this version of Headway: it has no custom kinds"
		if known {
			reason += " (Kubernetes' own " + kind + " is written with apiVersion " + current + ")"
		}
		return identity{field: "kind", reason: reason, foreign: true}
	}
	if near := nearest(kind, slices.Sorted(maps.Keys(kubernetesKinds()))); near != "" {
		noMatch += ": did you mean " + near + "?"
	}
	return no("kind", noMatch)
}

// otherForm says how a manifest is written in the version that is read here, where
// more than the version differs.
func otherForm(apiVersion, kind string) string {
	if apiVersion == "autoscaling/v1" && kind == "HorizontalPodAutoscaler" {
		return ", and targetCPUUtilizationPercentage: N as metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: N}}}]"
	}
	return ""
}

// groupOf is the group of an apiVersion; the core group is "".
func groupOf(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return group
}

func sameGroup(a, b string) bool { return groupOf(a) == groupOf(b) && !removedVersions()[a] }

// kubernetesGroup says whether an apiVersion is in one of Kubernetes' own groups.
func kubernetesGroup(apiVersion string) bool {
	if removedVersions()[apiVersion] {
		return true
	}
	group := groupOf(apiVersion)
	return group != Group && slices.ContainsFunc(kindRules(), func(r KindRule) bool { return groupOf(r.APIVersion) == group })
}
