package render

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"headway.dev/headway/api"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// loadSchema makes kustomize read Kubernetes' schema, which it keeps for the
// process, once and before anything uses it: later reads need no lock then. No
// kustomization may bring a schema of its own.
var loadSchema = sync.OnceFunc(func() { openapi.Schema() })

// renderUnit gives what a kustomization declares; from memory when nothing that it
// depends on has changed.
func (r *renderer) renderUnit(dir, namespace string) (entry, error) {
	r.result.Units++
	key := unitKey{dir, namespace}
	if e, ok := r.opts.Cache.unit(key, r.index.fact); ok {
		return e, nil
	}
	r.result.Rendered++
	u := r.newUnit(dir)
	e := entry{}
	k, built, err := u.build()
	if err != nil {
		return e, err
	}
	if built != nil {
		e.manifests = u.decode(k, built, namespace)
	}
	e.problems, e.warnings, e.foreign, e.facts = u.problems.list, u.warnings.list, u.foreign, u.facts
	for _, m := range e.manifests {
		e.bytes += measured(m.Declared).bytes
	}
	for _, f := range e.foreign {
		e.bytes += len(f.Reason) + 128
	}
	for p := range e.facts {
		e.bytes += len(p) + 64
	}
	if !r.index.unnamed {
		r.opts.Cache.put(cacheKey{whole, dir, hashFacts(e.facts), namespace}, e)
	}
	return e, nil
}

func hashFacts(facts map[string]string) string {
	h := sha256.New()
	for _, p := range sortedFacts(facts) {
		fmt.Fprintf(h, "%s\x00%s\x00", p, facts[p])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func sortedFacts(facts map[string]string) []string {
	paths := make([]string, 0, len(facts))
	for p := range facts {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

func (r *renderer) newUnit(dir string) *unit {
	return &unit{r: r, dir: dir, facts: map[string]string{}, layers: map[string]*layer{}}
}

// build checks the unit and runs kustomize. Without a result there are problems, or
// there is no kustomization.
func (u *unit) build() (*kustomization, resmap.ResMap, error) {
	k, err := u.kustomization(u.dir)
	if err != nil || k == nil || !k.readable {
		return nil, nil, err
	}
	u.at = k.at("")
	if u.instances, err = u.gather(k, nil, nil); err != nil || len(u.problems.list) > 0 {
		return nil, nil, err
	}
	files := &filesystem{index: u.r.index, touch: u.touch, served: map[string][]byte{}}
	if !u.custom {
		for _, l := range u.layers {
			if l.k.served != nil {
				files.served[l.k.file] = l.k.served
			}
		}
	}
	built, err := kustomize(files, outer(u.dir))
	if files.failed != nil {
		return nil, nil, files.failed
	}
	if err != nil {
		u.problems.add(u.explain(k, err, u.instances))
		u.judgeKinds(u.instances)
		return nil, nil, nil
	}
	if built.Size() > maxUnitObjects {
		u.refuse(fmt.Sprintf("the kustomization makes more than %d objects: split it", maxUnitObjects))
		return nil, nil, nil
	}
	return k, built, nil
}

// decode makes manifests of what kustomize gave.
func (u *unit) decode(k *kustomization, built resmap.ResMap, namespace string) []api.Manifest {
	t := newTracer(k, u.instances)
	var manifests []api.Manifest
	for _, res := range built.Resources() {
		data, err := res.MarshalJSON()
		if err != nil {
			at := t.places(map[string]any{"kind": res.GetKind(), "metadata": map[string]any{"name": res.GetName(), "namespace": res.GetNamespace()}})("")
			u.problems.add(api.Problem{Reason: "the object cannot be written as JSON: a key that is a number or a boolean must be in quotes"}.At(at))
			continue
		}
		docs, problems := api.Documents(k.file, data)
		if len(problems) > 0 || len(docs) != 1 {
			u.problems.add(api.Problem{Reason: "kustomize gives an object that cannot be read: it is too large or nested too deep"}.At(k.at("")))
			continue
		}
		object, ok := docs[0].Value.(map[string]any)
		if !ok {
			continue
		}
		got, problems := api.DecodeObject(object, t.places(object), api.DecodeOptions{DefaultNamespace: namespace, Foreign: func(f api.Foreign) { u.foreign = append(u.foreign, f) }})
		for i := range got {
			got[i].Unit = u.dir
			problems = append(problems, got[i].Check()...)
		}
		manifests = append(manifests, got...)
		for _, p := range problems {
			if strings.HasPrefix(p.Reason, "must be true or false, not a string") {
				p.Reason += "; kustomize takes yes, no, on and off for text, so write true or false"
			}
			u.problems.add(p)
		}
	}
	return manifests
}

// judgeKinds finds the kinds and versions that would be refused anyway: what
// kustomize failed on may come from them.
func (u *unit) judgeKinds(instances []*instance) {
	for _, in := range instances {
		m, ok := runtime.DeepCopyJSONValue(in.part.value).(map[string]any)
		if !ok {
			continue
		}
		_, problems := api.DecodeObject(m, in.part.place, api.DecodeOptions{Foreign: func(api.Foreign) {}}) // kustomize takes any kind
		for _, p := range problems {
			if p.Field == "kind" || p.Field == "apiVersion" {
				u.problems.add(p)
			}
		}
	}
}

// kustomize builds a folder. It starts no program and opens no connection: every
// path has been checked to be one of the tree.
func kustomize(files *filesystem, dir string) (built resmap.ResMap, err error) {
	loadSchema()
	defer func() {
		if r := recover(); r != nil {
			built, err = nil, errPanic
		}
	}()
	return krusty.MakeKustomizer(&krusty.Options{
		Reorder:          krusty.ReorderOptionUnspecified, // any other makes kustomize print a warning
		LoadRestrictions: types.LoadRestrictionsNone,      // the tree is all there is
		PluginConfig:     types.DisabledPluginConfig(),
	}).Run(files, dir)
}
