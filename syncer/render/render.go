package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"headway.dev/headway/api"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Notice names a file that was left out and says why.
type Notice struct{ Path, Why string }

// Result is what a tree declares.
type Result struct {
	// Manifests are in the order of path and place. Each has passed
	// Manifest.Check, unless there are problems. They are shared with other renders
	// and must not be changed.
	Manifests []*api.Manifest
	Skipped   []Notice
	Warnings  []api.Problem // what the manifests say and the cluster ignores; at most MaxNotices
	Read      int           // files that had to be decoded, the cache having none of it
	Units     int           // kustomizations that are rendered by themselves
	Rendered  int           // of these, those that had to be rendered
}

// Render renders the tree.
func Render(tree Tree, opts Options) (Result, []api.Problem, error) {
	l, err := look(tree, opts.Cache)
	if err != nil {
		return Result{}, nil, err
	}
	return l.render(opts)
}

func comparePlaces(a, b api.Problem) int {
	if c := strings.Compare(a.Path, b.Path); c != 0 {
		return c
	}
	if a.Line != b.Line {
		return a.Line - b.Line
	}
	return a.Column - b.Column
}

type renderer struct {
	opts      Options
	settings  settings
	index     *index
	root      string // the cleaned Path, "" for all
	files     []candidate
	late      []late               // submodules, which matter only outside of units
	units     map[string]found     // folders with a kustomization
	described map[string]described // by folder
	sources   map[string]*source   // files that kustomizations use
	consumed  map[string]bool      // files that a rendered kustomization depends on
	charts    map[string]bool      // folders that are Helm charts
	followed  int                  // links to folders
	bytes     int                  // of what the tree declares, about
	objects   map[identified]*api.Manifest
	foreign   []api.Foreign // objects that stay in git
	warnings  []api.Problem // of the kustomizations
	result    Result
	problems  problems
}

type late struct{ path, reason string }

func newRenderer(ix *index, opts Options) *renderer {
	return &renderer{
		opts: opts, index: ix, settings: newSettings(opts), root: strings.TrimSuffix(path.Clean("/" + opts.Path)[1:], "/"),
		units: map[string]found{}, described: map[string]described{}, sources: map[string]*source{},
		consumed: map[string]bool{}, charts: map[string]bool{},
	}
}

func (r *renderer) problem(p api.Problem) { r.problems.add(p) }

func (r *renderer) skip(path, why string) {
	r.result.Skipped = append(r.result.Skipped, Notice{path, why})
}

func (r *renderer) render() error {
	if err := r.candidates(); err != nil {
		return err
	}
	if r.settings.ignore.exhausted() {
		r.problem(api.Problem{Path: path.Join(r.root, api.ConfigFile), Field: "ignore", Reason: "the patterns cost too much on so many files: write fewer with stars, or ignore a folder as a whole"})
		return nil
	}
	entries, err := r.kustomizations()
	if err != nil {
		return err
	}
	for _, c := range r.files {
		if path.Base(c.path) == "Chart.yaml" && !c.left && r.owner(c) == "" {
			r.charts[path.Dir(c.at)] = true
			r.problem(api.Problem{Path: c.path, Line: 1, Reason: "Helm charts are not rendered by this version of Headway: commit what `helm template` prints, leave the chart out with an ignore pattern, or point the source's path at plain manifests"})
		}
	}
	var all []*api.Manifest
	for _, f := range entries {
		if r.inChart(f.dir) {
			continue
		}
		e, err := r.renderUnit(f.dir, r.settings.defaultNamespace(r.inSource(f.path)))
		if err != nil {
			return err
		}
		for p := range e.facts {
			r.consumed[p] = true
		}
		for _, p := range e.problems {
			r.problem(p)
		}
		r.warnings = append(r.warnings, e.warnings[:min(len(e.warnings), MaxNotices-len(r.warnings))]...)
		r.foreign = append(r.foreign, e.foreign...)
		all = each(all, e.manifests)
		if r.tooMuch(len(all)+len(r.foreign), e.bytes) {
			break
		}
	}
	if err := r.circles(); err != nil {
		return err
	}
	if all, err = r.plainFiles(all); err != nil {
		return err
	}
	r.declare(all)
	told := r.judgeStored(r.result.Manifests)
	r.result.Warnings = warnings(told, r.warnings, r.result.Manifests)
	slices.SortStableFunc(r.result.Skipped, func(a, b Notice) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// tooMuch says whether to go on makes no sense: the tree declares more than the
// bounds, or has more problems than anybody reads.
func (r *renderer) tooMuch(objects, bytes int) bool {
	if r.bytes += bytes; r.bytes > maxDeclared {
		r.problem(api.Problem{Path: r.opts.Path, Reason: fmt.Sprintf("the source declares more than %d bytes: split it into several", maxDeclared)})
		return true
	}
	return objects > MaxObjects || len(r.problems.list) >= MaxNotices
}

// inChart says whether a file belongs to a chart, which has been refused; saying
// more about it would only be noise.
func (r *renderer) inChart(dir string) bool {
	if len(r.charts) == 0 {
		return false
	}
	for ; ; dir = path.Dir(dir) {
		if r.charts[dir] {
			return true
		}
		if dir == "." || dir == "/" {
			return false
		}
	}
}

// owner is the folder of the kustomization that a file is in or below; "" when
// there is none.
func (r *renderer) owner(c candidate) string {
	if len(r.units) == 0 {
		return ""
	}
	for dir := path.Dir(c.at); ; dir = path.Dir(dir) {
		if f, ok := r.units[dir]; ok && !f.left {
			return dir
		}
		if dir == "." || dir == "/" || dir == r.root {
			return ""
		}
	}
}

// plainFiles decodes the files that are manifests by themselves, and adds what
// they declare.
func (r *renderer) plainFiles(all []*api.Manifest) ([]*api.Manifest, error) {
	all = slices.Grow(all, min(len(r.files), MaxObjects))
	read := map[string]string{} // real path → its name in the source, for links
	unused := map[string]bool{}
	for _, f := range r.units {
		if f.k != nil && f.k.component() && !f.left && !r.consumed[f.k.file] {
			unused[f.dir] = true
		}
	}
	for _, l := range r.late {
		if r.owner(candidate{at: l.path}) == "" {
			r.problem(api.Problem{Path: l.path, Reason: l.reason})
		}
	}
	for _, c := range r.files {
		if !manifestName(c.path) || c.left || r.consumed[c.real] || r.consumed[c.at] || r.inChart(path.Dir(c.at)) {
			continue
		}
		if owner := r.owner(c); owner != "" {
			switch base := path.Base(c.path); {
			case kustomizationName(base) && unused[owner]:
				r.skip(c.path, "a component that no kustomization uses")
			case kustomizationName(base):
			default:
				r.skip(c.path, fmt.Sprintf("not named by the kustomization of the folder %s, so it is no manifest", owner))
			}
			continue
		}
		if r.index.links {
			if as, ok := read[c.real]; ok {
				r.skip(c.path, fmt.Sprintf("symbolic link to %s, which is read already as %s", c.real, as))
				continue
			}
			read[c.real] = c.path
		}
		manifests, err := r.content(c)
		if err != nil {
			return nil, err
		}
		all = each(all, manifests)
		if f, _ := r.index.file(c.real); r.tooMuch(len(all)+len(r.foreign), int(f.Size)) {
			break
		}
	}
	return all, nil
}

// each adds pointers to the manifests of an entry.
func each(all []*api.Manifest, manifests []api.Manifest) []*api.Manifest {
	for i := range manifests {
		all = append(all, &manifests[i])
	}
	return all
}

func manifestName(p string) bool {
	switch path.Ext(p) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// content decodes one file.
func (r *renderer) content(c candidate) ([]api.Manifest, error) {
	f, _ := r.index.file(c.real)
	if f.Size > api.MaxFileBytes {
		r.problem(tooLarge(c.real, int(f.Size)))
		return nil, nil
	}
	namespace := r.settings.defaultNamespace(r.inSource(c.path))
	key := cacheKey{plain, c.real, f.Hash, namespace}
	e, ok := r.opts.Cache.get(key)
	if !ok {
		data, err := r.index.tree.Read(c.real)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.real, err)
		}
		e = decode(c.real, data, namespace)
		r.opts.Cache.put(key, e)
		r.result.Read++
	}
	if e.skipped != "" {
		r.skip(c.path, e.skipped)
	}
	for _, p := range e.problems {
		r.problem(p)
	}
	r.foreign = append(r.foreign, e.foreign...)
	return e.manifests, nil
}

// decode is what one file gives, whatever else is in the tree.
func decode(p string, data []byte, namespace string) entry {
	e := entry{bytes: len(data)}
	if why := foreign(data); why != "" {
		e.problems = []api.Problem{{Path: p, Line: 1, Reason: why + ": leave it out with an ignore pattern"}}
		return e
	}
	if !api.Declares(data) {
		e.skipped = "no manifest: no document has an apiVersion or a kind"
		switch problems := api.Unparsed(p, data); {
		case len(problems) == 0:
		case path.Ext(p) == ".json": // other programs' may have comments
			e.skipped = "no manifest: it cannot be read, and no line has an apiVersion or a kind"
		default: // who knows what it was before it was broken
			e.skipped, e.problems = "", unparsed(problems)
		}
		return e
	}
	e.manifests, e.problems = api.DecodeFile(p, data, api.DecodeOptions{DefaultNamespace: namespace, Foreign: func(f api.Foreign) { e.foreign = append(e.foreign, f) }})
	for _, m := range e.manifests {
		e.problems = append(e.problems, m.Check()...)
	}
	slices.SortStableFunc(e.problems, comparePlaces)
	return e
}

// unparsed says what can be done about a file that is no YAML.
func unparsed(problems []api.Problem) []api.Problem {
	for i, p := range problems {
		if !strings.Contains(p.Reason, "ignore pattern") {
			problems[i].Reason += ": mend it, or leave the file out with an ignore pattern"
		}
	}
	return problems
}

// identified is what tells objects apart.
type identified struct {
	schema.GroupKind
	namespace, name string
}

func identify(m *api.Manifest) identified {
	return identified{GroupKind: m.Kind.GroupKind(), namespace: m.Object.GetNamespace(), name: m.Object.GetName()}
}

func compareManifests(a, b *api.Manifest) int {
	if c := strings.Compare(a.Path, b.Path); c != 0 {
		return c
	}
	if a.Line != b.Line {
		return a.Line - b.Line
	}
	return strings.Compare(a.Unit, b.Unit)
}

// declare puts the manifests in order and finds those that stand twice.
func (r *renderer) declare(all []*api.Manifest) {
	if !slices.IsSortedFunc(all, compareManifests) {
		slices.SortStableFunc(all, compareManifests)
	}
	r.objects = make(map[identified]*api.Manifest, len(all))
	r.result.Manifests = make([]*api.Manifest, 0, min(len(all), MaxObjects))
	for _, m := range all {
		id := identify(m)
		if id.name != "" {
			if first, ok := r.objects[id]; ok {
				r.problem(api.Problem{Path: m.Path, Line: m.Line, Column: m.Column, Field: "metadata.name", Reason: fmt.Sprintf("%s %s%s is declared already at %s%s: an object may stand in one place only",
					m.Kind.Kind, objectName(id), by(m), api.Place{Path: first.Path, Line: first.Line, Column: first.Column}, by(first))})
				continue
			}
			r.objects[id] = m
		}
		if len(r.result.Manifests) >= MaxObjects {
			r.problem(api.Problem{Path: m.Path, Line: m.Line, Column: m.Column, Reason: fmt.Sprintf("the source declares more than %d objects", MaxObjects)})
			return
		}
		r.result.Manifests = append(r.result.Manifests, m)
	}
}

// by says which kustomization gave a manifest.
func by(m *api.Manifest) string {
	if m.Unit == "" {
		return ""
	}
	return " (from the kustomization " + m.Unit + ")"
}

func objectName(id identified) string {
	if id.namespace == "" {
		return id.name
	}
	return id.namespace + "/" + id.name
}
