package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
)

// allowName is how allowStored names a kind: alone, or with its group where
// Kubernetes has another kind of that name.
func allowName(apiVersion, kind string) string {
	if _, taken := kubernetesKinds()[kind]; taken && !kubernetesGroup(apiVersion) {
		return kind + "." + groupOf(apiVersion)
	}
	return kind
}

// allows says whether a list as in allowStored names a kind.
func allows(list []string, apiVersion, kind string) bool {
	name := allowName(apiVersion, kind)
	return slices.Contains(list, name) || name == kind && slices.Contains(list, kind+"."+groupOf(apiVersion))
}

// JudgeStored looks at what a source declares and nothing acts on: the manifests of
// stored kinds, and what is in git only. What has a risk or no kind here, and is not
// in allowed, is a problem; of the rest each kind is told once, at its first place.
// file is where allowed stands.
func JudgeStored(manifests []*Manifest, foreign []Foreign, allowed []string, file string) (problems, warnings []Problem) {
	j := storedJudge{allowed: allowed, file: file, kinds: map[[2]string]*judgedKind{}}
	for _, m := range manifests {
		if !m.Kind.Told {
			continue
		}
		k := j.kind(m.Kind.GroupVersion().String(), m.Kind.Kind)
		if m.Kind.Risk != "" && !k.allowed {
			j.refuse(m.Place("kind"), k, m.Kind.Unenforced(), "stored and not enforced")
		} else if k.count++; k.count == 1 {
			j.tell(m.Place("kind"), k, m.Kind.Unenforced())
		}
	}
	for _, f := range foreign {
		k := j.kind(f.APIVersion, f.Kind)
		if !k.allowed {
			j.refuse(f.Place, k, f.Reason, "in git only")
		} else if k.count++; k.count == 1 {
			j.tell(f.Place, k, f.Reason+"; it is kept in git only")
		}
	}
	for _, k := range j.kinds {
		if k.count > 1 {
			j.warnings[k.told].Reason += fmt.Sprintf(" (%d objects, of which this is the first)", k.count)
		}
	}
	return j.problems, j.warnings
}

type storedJudge struct {
	allowed            []string
	file               string
	problems, warnings []Problem
	kinds              map[[2]string]*judgedKind // by apiVersion and kind
}

type judgedKind struct {
	name    string // as allowStored has it
	allowed bool
	count   int // objects that are accepted
	told    int // the place in warnings, when there are any
}

func (j *storedJudge) kind(apiVersion, kind string) *judgedKind {
	id := [2]string{apiVersion, kind}
	k := j.kinds[id]
	if k == nil {
		k = &judgedKind{name: allowName(apiVersion, kind), allowed: allows(j.allowed, apiVersion, kind)}
		j.kinds[id] = k
	}
	return k
}

func (j *storedJudge) refuse(at Place, k *judgedKind, reason, kept string) {
	way := "add `allowStored: [" + k.name + "]` to " + j.file
	if len(j.allowed) > 0 {
		way = "add " + k.name + " to allowStored in " + j.file
	}
	j.problems = append(j.problems, Problem{Field: "kind", Reason: reason + ": " + way + " to keep it " + kept}.At(at))
}

func (j *storedJudge) tell(at Place, k *judgedKind, reason string) {
	k.told = len(j.warnings)
	j.warnings = append(j.warnings, Problem{Field: "kind", Reason: reason}.At(at))
}

// Unenforced is what whoever writes an object of a stored kind is told.
func (k Kind) Unenforced() string {
	out := k.Kind + " is stored, not enforced by this version of Headway: " + k.Inert
	if k.Risk != "" {
		out += ", and " + k.Risk
	}
	return out
}

var kindWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`) })

// allowStored checks the names of kinds. A kind that is acted on may stay: a later
// version acts on more, and must not refuse a commit for that.
func (d *configDecoder) allowStored(field string, list []string) {
	if !d.count(field, len(list)) {
		return
	}
	for i, name := range list {
		at := field + nth(i)
		kind, group, qualified := strings.Cut(name, ".")
		current, known := kubernetesKinds()[kind]
		rule, _ := kindRule(current, kind)
		switch {
		case !kindWord().MatchString(kind) || qualified && len(validation.IsDNS1123Subdomain(group)) > 0:
			d.add(at, "must be a kind such as NetworkPolicy, or one with its group such as Certificate.cert-manager.io")
		case slices.Index(list, name) < i:
			d.add(at, "is named already by %s[%d]", field, slices.Index(list, name))
		case qualified:
		case known && rule.Verdict == Refused && !rule.Allowable:
			d.add(at, "%s cannot be kept: %s", kind, rule.Why)
		case known:
		default:
			if near := nearest(kind, allowableKinds()); near != "" {
				d.add(at, "is no kind of Kubernetes: did you mean %s? A custom kind with a name so near is written with its group, as in Certificate.cert-manager.io", near)
			}
		}
	}
}

// allowableKinds are those of Kubernetes that allowStored has an effect on.
func allowableKinds() (out []string) {
	for _, r := range kindRules() {
		if r.Allowable {
			out = append(out, r.Kind)
		}
	}
	return out
}
