package live

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live/splice"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// unit writes the drifts of what one kustomization makes.
func (t *tree) unit(dir string, drifts []*Drift) error {
	u, err := t.open(dir)
	if err != nil {
		return err
	}
	refuse := func(drifts []*Drift, why string) {
		for _, d := range drifts {
			t.problem(d, why)
		}
	}
	if u.broken != "" {
		refuse(drifts, u.broken)
		return nil
	}
	var known []*Drift
	for _, d := range drifts {
		if why := u.knows(d); why != "" {
			t.problem(d, why)
			continue
		}
		known = append(known, d)
	}
	changed, why, err := u.write(known)
	if err != nil {
		return err
	}
	if why != "" && len(known) > 1 {
		// Each that can be written on its own is.
		if len(known) > maxAlone {
			refuse(known, why)
			return nil
		}
		var alone []*Drift
		for _, d := range known {
			_, why, err := u.write([]*Drift{d})
			switch {
			case err != nil:
				return err
			case why != "":
				t.problem(d, why)
			default:
				alone = append(alone, d)
			}
		}
		known = alone
		if changed, why, err = u.write(known); err != nil {
			return err
		}
	}
	if why != "" {
		refuse(known, why)
		return nil
	}
	maps.Copy(t.changed, changed)
	return nil
}

// Bounds of the work for one kustomization.
const (
	maxAlone  = 64  // drifts that are tried one by one
	maxMends  = 3   // builds to mend what other objects lose
	maxLayers = 100 // patch files of adopted live refs
)

// unit is a folder with a kustomization, as the applied commit has it.
type unit struct {
	t        *tree
	dir      string
	file     string         // the kustomization
	data     []byte         // of it
	fields   map[string]any // of it
	document int            // of the file that has them
	patch    string         // name of the patch file to write
	before   build
	broken   string // why it cannot be worked with
}

// build is what kustomize makes.
type build map[id]map[string]any

func idOf(object map[string]any) id {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	return id{apiVersion, kind, metaOf(object, "namespace"), metaOf(object, "name")}
}

func (t *tree) open(dir string) (*unit, error) {
	u := &unit{t: t, dir: dir}
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		data, err := t.files.Read(path.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path.Join(dir, name), err)
		}
		u.file, u.data = path.Join(dir, name), data
		break
	}
	if u.file == "" {
		u.broken = "the applied commit has no kustomization in " + dir
		return u, nil
	}
	texts, err := api.Texts(u.data)
	if err != nil {
		u.broken = err.Error()
		return u, nil
	}
	for i, text := range texts {
		if v, err := text.Value(); err == nil && !text.Blank() {
			u.fields, _ = v.(map[string]any)
			u.document = i
		}
	}
	if u.fields == nil {
		u.broken = u.file + " cannot be read"
		return u, nil
	}
	for i := 1; u.patch == ""; i++ {
		name := "headway-live.yaml"
		if i > 1 { // someone has taken over a live ref, with its patch
			name = fmt.Sprintf("headway-live-%d.yaml", i)
		}
		_, err := t.files.Read(path.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			u.patch = name
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", path.Join(dir, name), err)
		case i == maxLayers:
			u.broken = fmt.Sprintf("%s has %d patches of adopted live refs: fold them into its manifests", dir, maxLayers)
			return u, nil
		}
	}
	u.before, u.broken, err = u.build(nil)
	return u, err
}

// build gives the objects that the kustomization makes.
func (u *unit) build(with map[string][]byte) (_ build, why string, err error) {
	out, why, err := u.t.files.Build(u.dir, with)
	if err != nil {
		return nil, "", fmt.Errorf("build %s: %w", u.dir, err)
	}
	if why != "" {
		return nil, "kustomize: " + why, nil
	}
	texts, err := api.Texts(out)
	if err != nil {
		return nil, "what kustomize makes: " + err.Error(), nil
	}
	objects := build{}
	for _, text := range texts {
		if text.Blank() {
			continue
		}
		v, err := text.Value()
		if err != nil {
			return nil, "what kustomize makes: " + err.Error(), nil
		}
		if m, ok := v.(map[string]any); ok {
			objects[idOf(m)] = m
		}
	}
	return objects, "", nil
}

func (u *unit) knows(d *Drift) string {
	object, ok := u.before[target(d.Manifest)]
	if !ok {
		return "the kustomization of the applied commit does not make it"
	}
	edits, err := d.edits(object)
	if err == nil {
		_, err = splice.Apply(object, edits)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// want is what the build has to make: what it makes, with the live values.
func (u *unit) want(drifts []*Drift) (build, error) {
	want := maps.Clone(u.before)
	for _, d := range drifts {
		at := target(d.Manifest)
		if d.Live == nil {
			delete(want, at)
			continue
		}
		edits, err := d.edits(want[at])
		if err != nil {
			return nil, err
		}
		v, err := splice.Apply(want[at], edits)
		if err != nil {
			return nil, err
		}
		want[at] = v.(map[string]any) // as Apply was given one
	}
	return want, nil
}

// write makes the patch, builds with it, and says why not if the build is not
// exactly what is wanted. It first tries the kustomization's patches, which are
// what people read and write; but these come before its images, replicas, labels,
// name prefix and hashes. Where one of those has the last word, the patch is a
// transformer instead, which comes after them.
func (u *unit) write(drifts []*Drift) (changed map[string][]byte, why string, err error) {
	want, err := u.want(drifts)
	if err != nil {
		return nil, err.Error(), nil
	}
	if len(differing(u.before, want)) == 0 {
		return nil, "", nil
	}
	if changed, why, err = u.early(want); why == "" || err != nil {
		return changed, "", err
	}
	return u.late(want)
}

// early writes strategic merge patches into the kustomization's patches.
func (u *unit) early(want build) (map[string][]byte, string, error) {
	var docs [][]byte
	for _, at := range differing(u.before, want) {
		doc := mergePatch(u.before[at], want[at])
		meta := metaPatch(doc)
		meta["name"] = u.stem(at)
		if delete(meta, "namespace"); at.namespace != "" && u.fields["namespace"] == nil {
			meta["namespace"] = at.namespace
		}
		text, err := splice.YAML(doc)
		if err != nil {
			return nil, err.Error(), nil
		}
		docs = append(docs, text)
	}
	changed, _, why, err := u.try("patches", map[string]any{"path": u.patch}, docs, want)
	return changed, why, err
}

// stem is the name that an object has before the kustomization's prefix and
// suffix.
func (u *unit) stem(at id) string {
	prefix, _ := u.fields["namePrefix"].(string)
	suffix, _ := u.fields["nameSuffix"].(string)
	name, ok := strings.CutPrefix(at.name, prefix)
	if name, ok2 := strings.CutSuffix(name, suffix); ok && ok2 && at.kind != "Namespace" && name != "" {
		return name
	}
	return at.name
}

// late writes transformers that come after all others. What other objects lose by
// them, such as the name of an object that is gone, is mended.
func (u *unit) late(want build) (map[string][]byte, string, error) {
	from := u.before
	var docs [][]byte
	for range maxMends {
		for _, at := range differing(from, want) {
			if from[at] == nil {
				return nil, "kustomize cannot be made to give " + at.kind + " " + at.name, nil
			}
			made, err := transformers(len(docs)+1, at, from[at], want[at])
			if err != nil {
				return nil, err.Error(), nil
			}
			docs = append(docs, made...)
		}
		changed, after, why, err := u.try("transformers", u.patch, docs, want)
		if why == "" || after == nil || err != nil {
			return changed, why, err
		}
		from = after
	}
	return nil, "kustomize does not give the live values, whatever the patch", nil
}

// try builds with a patch file that a list of the kustomization names. It says why
// the build is not what is wanted, and gives it if there is one.
func (u *unit) try(list string, entry any, docs [][]byte, want build) (changed map[string][]byte, after build, why string, err error) {
	old, ok := u.fields[list].([]any)
	if !ok && u.fields[list] != nil {
		return nil, nil, u.file + ": " + list + " is not a list", nil
	}
	kustomization, err := splice.File(u.data, []splice.Edit{{
		Document: u.document, Path: fieldpath.Path{fieldpath.FieldNameElement(list)}, Value: append(slices.Clip(old), entry),
	}})
	if err != nil {
		return nil, nil, u.file + ": " + err.Error(), nil
	}
	patch := append([]byte(header), bytes.Join(docs, []byte("---\n"))...)
	if len(patch) > api.MaxFileBytes {
		return nil, nil, fmt.Sprintf("the patch would have %d bytes; at most %d can be read", len(patch), api.MaxFileBytes), nil
	}
	changed = map[string][]byte{u.file: kustomization, path.Join(u.dir, u.patch): patch}
	if after, why, err = u.build(changed); why != "" || err != nil {
		return nil, nil, why, err
	}
	if wrong := differing(after, want); len(wrong) > 0 {
		return nil, after, fmt.Sprintf("kustomize does not give the live values of %s %s", wrong[0].kind, wrong[0].name), nil
	}
	return changed, after, "", nil
}

const header = "# Written by Headway: what is live and not as it is declared.\n"

// differing names the objects that are not the same in two builds, in order.
func differing(a, b build) (out []id) {
	for at, v := range a {
		if w, ok := b[at]; !ok || !reflect.DeepEqual(solid(v), solid(w)) {
			out = append(out, at)
		}
	}
	for at := range b {
		if _, ok := a[at]; !ok {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, func(x, y id) int {
		return strings.Compare(x.apiVersion+"\x00"+x.kind+"\x00"+x.namespace+"\x00"+x.name, y.apiVersion+"\x00"+y.kind+"\x00"+y.namespace+"\x00"+y.name)
	})
	return out
}

// solid is an object without the empty maps and lists that patches leave behind,
// and without what kustomize notes about a build's own files.
func solid(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, e := range v {
			if name == "config.kubernetes.io/origin" || name == "alpha.config.kubernetes.io/transformations" {
				continue
			}
			if e = solid(e); e != nil {
				out[name] = e
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, solid(e))
		}
		return out
	}
	return v
}
