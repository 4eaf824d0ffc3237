package render

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"

	"headway.dev/headway/api"
)

var errPanic = errors.New("kustomize does not survive it")

// problems keeps each problem once, in the order of their coming.
type problems struct {
	list []api.Problem
	seen map[api.Problem]bool
}

func (p *problems) add(one api.Problem) {
	if p.seen[one] || len(p.list) >= MaxNotices {
		return
	}
	if p.seen == nil {
		p.seen = map[api.Problem]bool{}
	}
	p.seen[one] = true
	p.list = append(p.list, one)
}

type expressions struct {
	wrapped, below, noMatch, twice, behaviour, noMerge, malformed, selected, field, variable, repeated, replicas, id *regexp.Regexp
}

var said = sync.OnceValue(func() expressions {
	re := regexp.MustCompile
	return expressions{
		wrapped:   re(`^(accumulating resources|accumulating components|accumulateDirectory|loading generator plugins|merging resources from '[^']*'|accumulation err='.*?'|recursed (accumulation|merging) (of|from) path '[^']*'|accumulating resources from '[^']*'): `),
		below:     re(`recursed (?:accumulation|merging) (?:of|from) path '` + mount + `/?([^']*)'`),
		noMatch:   re(`no resource matches strategic merge patch "([^"]+)"|no matches for Id ([^;]+?); failed to find unique target`),
		twice:     re(`may not add resource with an already registered id: (\S+)`),
		behaviour: re(`id resid\.ResId\{.*?Kind:"(\w+)".*?Name:"([^"]*)".*exists; .*behavior must be merge or replace`),
		noMerge:   re(`id resid\.ResId\{.*?Kind:"(\w+)".*?Name:"([^"]*)".*does not exist; cannot merge or replace`),
		malformed: re(`(?:MalformedYAMLError: |invalid Kustomization: )?yaml: (?:line (\d+): )?(.*?) in File: (\S+)`),
		selected:  re(`nothing selected by (\S+?)(?::(\S+))?$`),
		field:     re(`unable to find field "([^"]+)" in replacement target|fieldPath ` + "`([^`]+)`" + ` is missing for replacement source`),
		variable:  re(`var '\{?([^' ]+)[^']*' cannot be mapped to a field in the set of known resources`),
		repeated:  re("(configmap|secret) (\\S+) illegally repeats the key `([^`]*)`"),
		replicas:  re(`resource with name (\S+) does not match a config`),
		id:        re(`^([A-Za-z]+)\.(\S+?)/(\S+?)\.(\S+)$`),
	}
})

// explain says in our words what kustomize did not like, and where. What it says
// may hold whole objects, so a text that is not known is cut, and left out
// altogether where a Secret is used (R14).
func (u *unit) explain(k *kustomization, err error, instances []*instance) api.Problem {
	raw := err.Error()
	at := k.at("")
	if m := said().below.FindAllStringSubmatch(raw, -1); m != nil {
		if l := u.layers[path.Clean("./"+m[len(m)-1][1])]; l != nil {
			at = l.k.at("")
		}
	}
	if p, ok := u.known(raw, instances); ok {
		if p.Path == "" {
			p = p.At(at)
		}
		return p
	}
	reason := "kustomize cannot build it; what it says may repeat a Secret and is not shown: run `kustomize build " + u.dir + "`"
	if !u.secrets && err != errPanic {
		reason = "kustomize cannot build it: " + brief(raw)
	} else if err == errPanic {
		reason = "kustomize cannot build it: it crashes on it"
	}
	return api.Problem{Reason: reason}.At(at)
}

// brief is the innermost part of an error, without what it dumps.
func brief(text string) string {
	for said().wrapped.MatchString(text) {
		text = said().wrapped.ReplaceAllString(text, "")
	}
	text, _, _ = strings.Cut(text, "\n")
	if i := strings.IndexAny(text, "{`"); i > 20 {
		text = text[:i] + "…"
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, mount+"/", ""), mount, ".")
	if r := []rune(text); len(r) > 300 {
		text = string(r[:300]) + "…"
	}
	return strings.TrimSpace(text)
}

func (u *unit) known(raw string, instances []*instance) (api.Problem, bool) {
	re := said()
	if m := re.noMatch.FindStringSubmatch(raw); m != nil {
		kind, name := identity(m[1] + m[2])
		p := api.Problem{Reason: fmt.Sprintf("the patch is for %s %s, which the kustomization does not have at that point: a patch names the kind, name and namespace that the object has in its own file", kind, name)}
		if at, ok := u.patchFor(kind, name); ok {
			p = p.At(at)
		}
		return p, kind != ""
	}
	if m := re.twice.FindStringSubmatch(raw); m != nil {
		kind, name := identity(m[1])
		var places []api.Place
		for _, in := range instances {
			if in.kind == kind && (in.name == name || in.original == name) {
				places = append(places, in.at)
			}
		}
		p := api.Problem{Field: "metadata.name", Reason: fmt.Sprintf("%s %s is in the kustomization twice: give one of them another name, or remove it", kind, name)}
		if len(places) > 1 {
			p = p.At(places[1])
			p.Reason = fmt.Sprintf("%s %s is in the kustomization already, from %s: give one of them another name, or remove it", kind, name, places[0])
		} else if len(places) == 1 {
			p = p.At(places[0])
		}
		return p, kind != ""
	}
	if m := re.behaviour.FindStringSubmatch(raw); m != nil {
		return u.generator(m[1], m[2], fmt.Sprintf("%s %s is in the kustomization already: write behavior: merge or replace, or another name", m[1], m[2])), true
	}
	if m := re.noMerge.FindStringSubmatch(raw); m != nil {
		return u.generator(m[1], m[2], fmt.Sprintf("there is no %s %s to merge into or replace: leave behavior out, or name one that a base has", m[1], m[2])), true
	}
	if m := re.repeated.FindStringSubmatch(raw); m != nil {
		return u.generator("", m[2], fmt.Sprintf("the key %q is there twice", m[3])), true
	}
	if m := re.replicas.FindStringSubmatch(raw); m != nil {
		for _, dir := range sortedLayers(u.layers) {
			k := u.layers[dir].k
			for i, r := range k.spec.Replicas {
				if field := "replicas" + nth(i) + ".name"; r.Name == m[1] {
					return api.Problem{Field: field, Reason: "no Deployment, ReplicaSet or StatefulSet of the kustomization has this name"}.At(k.at(field)), true
				}
			}
		}
	}
	if strings.Contains(raw, "namespace transformation produces ID conflict") {
		return conflict(instances), true
	}
	if m := re.variable.FindStringSubmatch(raw); m != nil {
		for _, l := range u.layers {
			for i, v := range l.k.spec.Vars {
				if v.Name == m[1] {
					return api.Problem{Field: "vars" + nth(i), Reason: fmt.Sprintf("the variable %s refers to a field that no object has", m[1])}.At(l.k.at("vars" + nth(i))), true
				}
			}
		}
	}
	if strings.Contains(raw, "operation does not apply") || strings.Contains(raw, "error in ") || strings.Contains(raw, "testing value") {
		if p, ok := u.operation(raw); ok {
			return p, true
		}
	}
	if m := re.selected.FindStringSubmatch(raw); m != nil {
		kind, name := identity(m[1])
		return u.replacement("a replacement takes its value from " + strings.TrimSpace(kind+" "+name) + ", which the kustomization does not have"), kind != ""
	}
	if m := re.field.FindStringSubmatch(raw); m != nil {
		return u.replacement(fmt.Sprintf("no object that a replacement names has the field %s", m[1]+m[2])), true
	}
	if m := re.malformed.FindStringSubmatch(raw); m != nil && !u.secrets {
		return api.Problem{Path: path.Clean(m[3]), Reason: "cannot be read by kustomize: " + m[2]}, u.facts[path.Clean(m[3])] != ""
	}
	return api.Problem{}, false
}

// conflict finds the two objects that a namespace makes one.
func conflict(instances []*instance) api.Problem {
	first := map[[3]string]*instance{}
	for _, in := range instances {
		id := [3]string{in.group + "/" + in.kind, in.namespace, in.name}
		if other := first[id]; other != nil {
			return api.Problem{Field: "metadata.namespace", Reason: fmt.Sprintf("with the kustomization's namespace this is the same %s as that from %s: give one of them another name", in.kind, other.at)}.At(in.at)
		}
		first[id] = in
	}
	return api.Problem{Field: "namespace", Reason: "two objects of the same kind and name are in one namespace now: give one of them another name"}
}

// identity reads kustomize's form of an identity: Deployment.v1.apps/web.default.
func identity(id string) (kind, name string) {
	m := said().id.FindStringSubmatch(strings.TrimSpace(id))
	if m == nil {
		return "", ""
	}
	return m[1], m[3]
}

func (u *unit) patchFor(kind, name string) (api.Place, bool) {
	for _, dir := range sortedLayers(u.layers) {
		for _, p := range u.layers[dir].patches {
			if p.merge != nil && p.target == nil && text(p.merge, "kind") == kind && text(p.merge, "metadata", "name") == name {
				return p.place(""), true
			}
		}
	}
	return api.Place{}, false
}

// operation finds the operation of a JSON patch that cannot be done.
func (u *unit) operation(raw string) (api.Problem, bool) {
	for _, dir := range sortedLayers(u.layers) {
		for _, p := range u.layers[dir].patches {
			for _, o := range p.ops {
				pointer := "/" + strings.Join(o.way, "/")
				from := "'" + o.from[strings.LastIndexByte(o.from, '/')+1:] + "'" // of a move, the error names only the last step
				if strings.Contains(raw, o.op) && (strings.Contains(raw, `"`+pointer+`"`) || strings.Contains(raw, "'"+pointer+"'") || strings.Contains(raw, " "+pointer+" ") || o.from != "" && strings.Contains(raw, from)) {
					reason := fmt.Sprintf("the object has nothing at this path, so %s cannot be done: check the path, and the target", o.op)
					if o.op == "test" {
						reason = "the test of the patch fails: the object has another value at this path"
					}
					if o.from != "" {
						pointer = o.from
					}
					return api.Problem{Field: pointer, Reason: reason}.At(p.place(o.field)), true
				}
			}
		}
	}
	return api.Problem{}, false
}

// replacement gives a problem its place where only one kustomization can be meant.
func (u *unit) replacement(reason string) api.Problem {
	var found []api.Place
	for _, dir := range sortedLayers(u.layers) {
		if k := u.layers[dir].k; len(k.spec.Replacements) > 0 {
			found = append(found, k.at("replacements"))
		}
	}
	p := api.Problem{Field: "replacements", Reason: reason}
	if len(found) == 1 {
		return p.At(found[0])
	}
	return p
}

// generator gives a problem the place of a generator; kind "" means either.
func (u *unit) generator(kind, name, reason string) api.Problem {
	for _, dir := range sortedLayers(u.layers) {
		k := u.layers[dir].k
		for i, g := range k.spec.ConfigMapGenerator {
			if field := "configMapGenerator" + nth(i) + ".name"; kind != "Secret" && g.Name == name {
				return api.Problem{Field: field, Reason: reason}.At(k.at(field))
			}
		}
		for i, g := range k.spec.SecretGenerator {
			if field := "secretGenerator" + nth(i) + ".name"; kind != "ConfigMap" && g.Name == name {
				return api.Problem{Field: field, Reason: reason}.At(k.at(field))
			}
		}
	}
	return api.Problem{Reason: reason}
}
