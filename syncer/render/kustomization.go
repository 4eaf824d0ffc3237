package render

import (
	"fmt"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"headway.dev/headway/api"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// kustomization is one kustomization file, read strictly.
type kustomization struct {
	dir      string // its folder, "." for the root
	file     string // where its text stands
	spec     types.Kustomization
	doc      api.Document
	refs     []ref
	problems []api.Problem
	text     []byte
	measure  measure
	readable bool   // doc and spec are what the text says
	served   []byte // what kustomize gets to read in place of its text; nil: the text
}

// want is what a kustomization expects at a path that it names.
type want int

const (
	wantResource  want = iota // a file of objects, or a folder with a kustomization
	wantComponent             // a folder with a component
	wantPlugin                // a file that configures a transformer, or that text itself
	wantPatch                 // a file of a patch
	wantDocuments             // another YAML or JSON file
	wantData                  // any file
	wantVariables             // a file of KEY=value lines
)

// ref is a path in a kustomization.
type ref struct {
	want  want
	field string // "resources[2]"
	value string
	at    api.Place
}

func kustomizationName(name string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), name)
}

// newKustomization reads what a kustomization file says and finds everything that
// this version refuses.
func newKustomization(dir string, s *source) *kustomization {
	k := &kustomization{dir: dir, file: s.path, text: s.text, measure: s.measure, problems: slices.Clone(s.problems)}
	switch {
	case len(k.problems) > 0:
		return k
	case len(s.docs) == 0:
		k.problems = append(k.problems, api.Problem{Path: s.path, Line: 1, Reason: "the kustomization says nothing: name resources in it, or remove it"})
		return k
	case len(s.docs) > 1:
		k.problems = append(k.problems, api.Problem{Reason: "a kustomization is one document; kustomize does not read this one"}.At(s.docs[1].First))
		return k
	}
	k.doc = s.docs[0]
	problems, read := k.doc.Into(&k.spec)
	k.problems, k.readable = append(k.problems, problems...), read
	if !read {
		return k
	}
	if reflect.DeepEqual(k.spec, types.Kustomization{TypeMeta: k.spec.TypeMeta}) && len(k.problems) == 0 {
		k.problem("", "the kustomization says nothing: name resources in it, or remove it")
	}
	k.refuse()
	k.refer()
	k.modernise()
	return k
}

func (k *kustomization) at(field string) api.Place {
	at, _ := k.doc.Place(field)
	return at
}

func (k *kustomization) problem(field, reason string) {
	k.problems = append(k.problems, api.Problem{Field: field, Reason: reason}.At(k.at(field)))
}

func (k *kustomization) component() bool { return k.spec.Kind == types.ComponentKind }

// refuse names what would run a program, reach the network or change kustomize
// for every other kustomization.
func (k *kustomization) refuse() {
	version := types.KustomizationVersion
	if k.component() {
		version = types.ComponentVersion
	}
	switch {
	case k.spec.Kind != "" && k.spec.Kind != types.KustomizationKind && !k.component():
		k.problem("kind", "must be Kustomization or Component in a file of this name")
	case k.spec.APIVersion != "" && k.spec.APIVersion != version:
		k.problem("apiVersion", "must be "+version)
	}
	const helm = "Helm charts are not rendered by this version of Headway: commit what `helm template` prints and name it in resources"
	if len(k.spec.HelmCharts) > 0 {
		k.problem("helmCharts", helm)
	}
	if len(k.spec.HelmChartInflationGenerator) > 0 {
		k.problem("helmChartInflationGenerator", helm)
	}
	for i, m := range k.spec.BuildMetadata {
		switch m {
		case types.OriginAnnotations, types.TransformerAnnotations:
		case types.ManagedByLabelOption:
			k.problem("buildMetadata"+nth(i), "managedByLabel is not supported by this version of Headway: the label would change with every version; write it in labels")
		default:
			k.problem("buildMetadata"+nth(i), "must be originAnnotations or transformerAnnotations")
		}
	}
	if len(k.spec.OpenAPI) > 0 {
		k.problem("openapi", "a schema of its own is not supported by this version of Headway, which has no custom kinds: remove it")
	}
}

// refer lists the paths that the kustomization names.
func (k *kustomization) refer() {
	add := func(w want, field, value string) {
		k.refs = append(k.refs, ref{want: w, field: field, value: value, at: k.at(field)})
	}
	each := func(w want, field string, values []string) {
		for i, v := range values {
			add(w, fmt.Sprintf("%s[%d]", field, i), v)
		}
	}
	s := &k.spec
	each(wantResource, "resources", s.Resources)
	each(wantResource, "bases", s.Bases)
	each(wantComponent, "components", s.Components)
	each(wantDocuments, "crds", s.Crds)
	each(wantDocuments, "configurations", s.Configurations)
	each(wantPlugin, "generators", s.Generators)
	each(wantPlugin, "transformers", s.Transformers)
	each(wantPlugin, "validators", s.Validators)
	for i, p := range s.PatchesStrategicMerge {
		if !inline(string(p)) {
			add(wantPatch, fmt.Sprintf("patchesStrategicMerge[%d]", i), string(p))
		} else if remote(string(p)) {
			k.problem(fmt.Sprintf("patchesStrategicMerge[%d]", i), remoteReason)
		}
	}
	k.referPatches("patches", s.Patches, add)
	k.referPatches("patchesJson6902", s.PatchesJson6902, add)
	for i, r := range s.Replacements {
		if r.Path != "" {
			add(wantDocuments, fmt.Sprintf("replacements[%d].path", i), r.Path)
		}
	}
	generator := func(field string, kv types.KvPairSources) {
		for i, f := range kv.FileSources {
			if key, value, ok := strings.Cut(f, "="); ok && !remote(f) {
				if key == "" || value == "" {
					k.problem(fmt.Sprintf("%s.files[%d]", field, i), `must be a path, or key=path`)
					continue
				}
				f = value
			}
			add(wantData, fmt.Sprintf("%s.files[%d]", field, i), f)
		}
		keys := map[string]bool{}
		for i, l := range kv.LiteralSources {
			key, _, ok := strings.Cut(l, "=")
			if at := fmt.Sprintf("%s.literals[%d]", field, i); !ok {
				k.problem(at, "must be key=value")
			} else if keys[key] {
				k.problem(at, fmt.Sprintf("the key %q is there already", key))
			}
			keys[key] = true
		}
		each(wantVariables, field+".envs", kv.EnvSources)
		if kv.EnvSource != "" {
			add(wantVariables, field+".env", kv.EnvSource)
		}
	}
	behaves := func(field, behavior string) {
		if !slices.Contains([]string{"", "create", "merge", "replace"}, behavior) {
			k.problem(field+".behavior", "must be create, merge or replace")
		}
	}
	for i, g := range s.ConfigMapGenerator {
		behaves(fmt.Sprintf("configMapGenerator[%d]", i), g.Behavior)
		generator(fmt.Sprintf("configMapGenerator[%d]", i), g.KvPairSources)
	}
	for i, g := range s.SecretGenerator {
		behaves(fmt.Sprintf("secretGenerator[%d]", i), g.Behavior)
		generator(fmt.Sprintf("secretGenerator[%d]", i), g.KvPairSources)
	}
	slices.SortStableFunc(k.refs, func(a, b ref) int {
		if a.at.Line != b.at.Line {
			return a.at.Line - b.at.Line
		}
		return a.at.Column - b.at.Column
	})
}

func (k *kustomization) referPatches(field string, patches []types.Patch, add func(want, string, string)) {
	for i, p := range patches {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch text := strings.TrimSpace(p.Patch); {
		case p.Path == "" && text == "":
			k.problem(at, "needs a patch, or the path of one")
		case p.Path != "" && text != "":
			k.problem(at, "has both a patch and the path of one: keep one of them")
		case p.Path != "":
			add(wantPatch, at+".path", p.Path)
		}
	}
}

// modernise writes the deprecated fields as those that replaced them where they
// mean the same: kustomize prints a warning to the process's standard error for
// each. They do not when configurations bring labels of their own, or when the
// transformers leave their names in annotations; see unit.custom.
func (k *kustomization) modernise() {
	s := k.spec
	if s.Bases == nil && s.ImageTags == nil && s.PatchesStrategicMerge == nil && (s.CommonLabels == nil || len(s.Configurations) > 0) {
		return
	}
	s.Resources, s.Bases = append(slices.Clone(s.Resources), s.Bases...), nil
	s.Images, s.ImageTags = append(slices.Clone(s.Images), s.ImageTags...), nil
	if s.CommonLabels != nil && len(s.Configurations) == 0 {
		s.Labels = append(slices.Clone(s.Labels), types.Label{Pairs: s.CommonLabels, IncludeSelectors: true})
		s.CommonLabels = nil
	}
	var patches []types.Patch
	for _, p := range s.PatchesStrategicMerge {
		if inline(string(p)) {
			patches = append(patches, types.Patch{Patch: string(p)})
		} else {
			patches = append(patches, types.Patch{Path: string(p)})
		}
	}
	s.Patches, s.PatchesStrategicMerge = append(patches, s.Patches...), nil
	if text, err := yaml.Marshal(s); err == nil { // else kustomize warns, and that is all
		k.served = text
	}
}

// inline says whether a text that may be a path is the thing itself.
func inline(text string) bool {
	if strings.Contains(text, "\n") {
		return true
	}
	if !strings.ContainsAny(text, ":{[") {
		return false
	}
	docs, problems := api.Documents("", []byte(text))
	if len(problems) > 0 || len(docs) == 0 {
		return false
	}
	_, isText := docs[0].Value.(string)
	return !isText
}

const remoteReason = "is not in this repository: a build reaches no network, so copy it here and name its path"

var userAt = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]*@[^/:]*[/:]`) })

// remote says whether kustomize might fetch what a path names, instead of
// reading it from the tree. It says yes more often than kustomize does.
func remote(value string) bool {
	v := strings.ToLower(value)
	for strings.HasPrefix(v, "git::") {
		v = v[len("git::"):]
	}
	for _, prefix := range []string{"ssh://", "git://", "file://", "http:", "https:", "s3::", "gcs::", "hg::", "github.com/", "github.com:"} {
		if strings.HasPrefix(v, prefix) {
			return true
		}
	}
	if u, err := url.Parse(value); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		return true
	}
	return userAt().MatchString(v)
}

// shown is a path as a message may show it: without the credentials of a URL.
func shown(value string) string {
	if remote(value) {
		value = withoutCredentials(value)
	}
	if len(value) > 200 {
		value = value[:200] + "…"
	}
	return fmt.Sprintf("%q", value)
}

// target finds what a path in a kustomization leads to. A reason says why that
// cannot be used.
func (ix *index) target(dir, value string, touch func(string)) (real string, k kind, reason string, err error) {
	switch {
	case value == "":
		return "", nothing, "an empty path", nil
	case remote(value):
		return "", nothing, shown(value) + " " + remoteReason, nil
	case path.IsAbs(value):
		return "", nothing, fmt.Sprintf("%s is a place on somebody's machine: write the path from the kustomization's folder", shown(value)), nil
	}
	real, k, err = ix.resolve(path.Join(dir, value), touch)
	switch {
	case err == errOutside:
		return "", nothing, shown(value) + " leaves the repository: copy it here and name its path", nil
	case err == errLoop:
		return "", nothing, shown(value) + " leads in a circle of symbolic links", nil
	case err != nil:
		return "", nothing, "", err
	case k == submodule:
		if touch != nil {
			touch(".gitmodules")
		}
		return real, k, fmt.Sprintf("%s is in %s", shown(value), strings.TrimPrefix(ix.submoduleReason(real), "a ")), nil
	case k == nothing && strings.ContainsAny(value, "*?"):
		return real, k, shown(value) + " is no file of the commit: kustomize does not know patterns, so name each file", nil
	case k == nothing:
		return real, k, shown(value) + " is no file or folder of the commit", nil
	}
	return real, k, "", nil
}
