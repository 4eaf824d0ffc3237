package render

import (
	"fmt"
	"strings"

	"headway.dev/headway/api"
)

// plugins checks the configurations of generators, transformers and validators:
// those that kustomize has built in, and nothing that they would fetch.
func (u *unit) plugins(k *kustomization, parts []part, acc []*instance) []*instance {
	for _, p := range parts {
		for _, o := range p.objects() {
			m, ok := o.value.(map[string]any)
			if !ok {
				u.fail(o.place(""), "", "must be a map with apiVersion, kind and metadata")
				continue
			}
			kind := text(m, "kind")
			switch {
			case kind == "" || !present(m, "metadata", "name"):
				u.fail(o.place(""), "", "the configuration of a transformer names its apiVersion, kind and metadata.name")
				continue
			case text(m, "apiVersion") != "builtin":
				u.fail(o.place("kind"), "kind", fmt.Sprintf("%s would run a program: only the transformers that kustomize has built in (apiVersion: builtin) are used", api.Printable(kind)))
				continue
			case kind == "HelmChartInflationGenerator":
				u.fail(o.place("kind"), "kind", "Helm charts are not rendered by this version of Headway: commit what `helm template` prints and name it in resources")
				continue
			case kind == "ConfigMapGenerator" || kind == "SecretGenerator":
				acc = u.instance(acc, &instance{kind: strings.TrimSuffix(kind, "Generator"), name: text(m, "metadata", "name"), at: o.place("metadata.name"), made: true})
			}
			u.pluginPaths(k, o, "", m)
		}
	}
	return acc
}

// pluginPaths checks every path in the configuration of a transformer.
func (u *unit) pluginPaths(k *kustomization, o part, field string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			u.pluginPaths(k, o, join(field, name), v[name])
		}
	case []any:
		for i, e := range v {
			u.pluginPaths(k, o, fmt.Sprintf("%s[%d]", field, i), e)
		}
	case string:
		name := strings.ToLower(field[strings.LastIndexByte(field, '.')+1:])
		name, _, _ = strings.Cut(name, "[")
		switch name {
		case "path", "paths", "files", "env", "envs":
		default:
			return
		}
		if strings.Contains(strings.ToLower(field), "fieldspecs") {
			return // the path of a field
		}
		value := v
		if _, after, ok := strings.Cut(v, "="); ok && name == "files" && !remote(v) {
			value = after
		}
		if inline(value) && !remote(value) {
			return
		}
		if _, _, reason, err := u.r.index.target(k.dir, value, u.touch); err == nil && reason != "" {
			u.fail(o.place(field), field, reason)
		}
	}
}
