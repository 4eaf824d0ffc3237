package syncer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/git"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Commits is where commits are read from: a repository and the rendering of its
// trees.
type Commits interface {
	// Author of a commit: "Name <mail>".
	Author(ctx context.Context, commit string) (string, error)
	// IsAncestor says whether commit has ancestor in its history, or is it.
	IsAncestor(ctx context.Context, ancestor, commit string) (bool, error)
	// Origins says for every file that changed after the commit from, up to the
	// commit to, which commit changed it last. An empty from means as far back as
	// is worth it; a file that is left out counts as changed by to.
	Origins(ctx context.Context, from, to string) (map[string]Origin, error)
	// Render reads what a folder of a commit's tree declares. An error means
	// that it could not be read now; what is wrong with the commit is in Rendered.
	Render(ctx context.Context, commit, path string) (Rendered, error)
	// Trailers lists the trailers of the commits after from up to the commit to,
	// following first parents: what a merge brings is spoken for by the merge. An
	// empty from means to alone.
	Trailers(ctx context.Context, from, to string) ([]Trailer, error)
	// Unsigned lists the commits that come with the commit to and that nobody has
	// signed who was allowed to by the commit from, whose source had its root in the
	// folder root. An empty from means nothing is applied: to speaks for itself. An
	// error means that they must not be applied.
	Unsigned(ctx context.Context, from, root, to string, now time.Time) ([]git.Unsigned, error)
	// Keep makes the repository keep these commits, and no longer those that were
	// kept before.
	Keep(ctx context.Context, commits []string) error
}

// Rendered is what a commit declares.
type Rendered struct {
	Manifests []*api.Manifest
	Problems  []api.Problem // a path that is not in the tree is one of them (R3)
	Warnings  []api.Problem
	Skipped   []api.Problem // files that are no manifests though they look like some, and why
	Config    *api.Config   // nil: the defaults
	Read      int           // files that had to be decoded anew
	Built     int           // kustomizations that had to be rendered anew
}

// Candidate is a commit to be judged. Commits reads it; nil means the Syncer's
// own. (A push under judgement is not in the repository yet.)
type Candidate struct {
	Commit  string
	Commits Commits
}

// Verdict says whether a commit may be applied, whole, and what that would do.
type Verdict struct {
	Commit   string
	Refusal  string        // why the commit as a whole is refused; empty when it is not
	Problems []api.Problem // every one, sorted by place
	Warnings []api.Problem
	Skipped  []api.Problem // files that are no manifests though they look like some
	Objects  int           // that the commit declares
	Create   int           // objects that applying it would create now, and so on
	Update   int
	Delete   int

	beside  int // objects that are changed and neither declared nor deleted
	steps   []Step
	desired *desired
	names   []string               // of what the Refusal is about
	classes []api.Object           // the PriorityClasses there will be
	along   map[store.Key][]string // what goes with a deleted Namespace and is in no manifest
}

// OK says whether the commit may be applied.
func (v *Verdict) OK() bool { return v.Refusal == "" && len(v.Problems) == 0 }

// Summary is one line for a person.
func (v *Verdict) Summary() string {
	switch {
	case v.Refusal != "":
		return v.Refusal
	case len(v.Problems) > 0:
		return plural(len(v.Problems), "problem")
	}
	return fmt.Sprintf("%s of %s change", thousands(v.Create+v.Update+v.Delete), plural(v.Objects+v.Delete+v.beside, "object"))
}

// Plan is one line that says what applying does.
func (v *Verdict) Plan() string {
	return fmt.Sprintf("plan: %s to create, %s to update, %s to delete", plural(v.Create, "object"), thousands(v.Update), thousands(v.Delete))
}

// Lines lists every reason of a refusal. One of them may be a block of lines.
func (v *Verdict) Lines() []string {
	var out []string
	if v.Refusal != "" {
		out = append(out, strings.Join(append([]string{v.Refusal}, v.names...), "\n  "))
	}
	for _, p := range v.Problems {
		out = append(out, p.String())
	}
	return out
}

// reasons are the lines of a refusal that the Source's status keeps.
func (v *Verdict) reasons() []string {
	const most = 100
	out := slices.Clone(v.names)
	for _, p := range v.Problems {
		out = append(out, p.String())
	}
	if more := len(out) - most; more > 0 {
		out = append(out[:most-1], fmt.Sprintf("… and %s more", thousands(more+1)))
	}
	return out
}

// Judge decides whether a commit may be applied to the cluster as it is now. It
// changes nothing and may be called on every server at any time. The error says
// that it could not decide.
func (s *Syncer) Judge(ctx context.Context, c Candidate) (*Verdict, error) {
	commits := c.Commits
	if commits == nil {
		commits = s.cfg.Commits
	}
	src := s.source()
	if src == nil {
		src = &api.Source{ObjectMeta: metav1.ObjectMeta{Name: s.cfg.Source}, Spec: s.cfg.Spec}
	}
	v, err := s.judge(ctx, src, c.Commit, commits)
	if err != nil {
		return nil, err
	}
	s.room(v)
	if v.OK() {
		s.plans.put(v)
	}
	return v, nil
}

func (s *Syncer) judge(ctx context.Context, src *api.Source, commit string, commits Commits) (*Verdict, error) {
	v := &Verdict{Commit: commit}
	if refusal, err := s.rewound(ctx, src, commit, commits); err != nil || refusal != "" {
		v.Refusal = refusal
		return v, err
	}
	unsigned, unsignedNames, err := s.unsigned(ctx, src, commit, commits)
	if err != nil {
		return nil, err
	}
	d, err := s.render(ctx, commits, commit, src.Spec.Path)
	if err != nil {
		return nil, err
	}
	v.desired, v.Objects, v.Skipped = d, len(d.list), d.skipped
	if len(d.list) == 0 && len(d.problems)+len(d.outside) == 0 && src.Status.Objects > 0 && src.Status.Path != src.Spec.Path {
		v.Refusal = fmt.Sprintf("folder %q of %s declares nothing, and the cluster has followed folder %q until now: nothing is changed", src.Spec.Path, called(commit), src.Status.Path)
		return v, nil
	}
	trailers, err := commits.Trailers(ctx, src.Status.Applied, commit)
	if err != nil {
		return nil, fmt.Errorf("trailers up to commit %s: %w", short(commit), err)
	}
	a := readTrailers(trailers)
	o, err := s.observe(ctx, src, d, commits)
	if err != nil {
		return nil, err
	}
	o.Replaces, o.Report = a.replaces, d.reports
	s.borders(&o, d)
	if len(d.problems) == 0 { // or who knows what the configuration means to say
		s.lead(&o, d, a.prunes)
	}
	if src.Status.Applied == "" && s.cfg.Receipts != nil {
		done, err := s.cfg.Receipts(ctx, commit)
		if err != nil {
			return nil, fmt.Errorf("receipts up to commit %s: %w", short(commit), err)
		}
		o.Told = DoneFromReceipt(o.Source, done)
	}
	steps, problems := Plan(o, s.cfg.Now())
	v.steps = steps
	f := findings{problems: slices.Concat(d.problems, d.outside, d.unsaid(problems)), warnings: slices.Clone(d.warnings)}
	for _, p := range slices.Concat(a.misread(), a.idle(o.Leaves)) {
		f.add(ruleTrailer, p)
	}
	if err := s.beyond(ctx, src, o, a, v, commits, &f); err != nil {
		return nil, err
	}
	if unsigned != "" {
		v.Refusal, v.names = join(unsigned, v.Refusal), slices.Concat(unsignedNames, v.names)
	}
	v.Problems, v.Warnings = inOrder(f.problems), inOrder(f.warnings)
	v.count()
	return v, nil
}

func inOrder(list []api.Problem) []api.Problem {
	slices.SortStableFunc(list, compareProblems)
	return slices.Compact(list)
}

// count counts objects, not writes: one that is deleted and made again is
// updated.
func (v *Verdict) count() {
	v.Create, v.Update, v.Delete, v.beside = 0, 0, 0, 0
	for _, sh := range shifts(v.steps) {
		if sh.verb != Delete && v.desired.manifest(sh.step.Key) == nil {
			v.beside++
		}
		switch sh.verb {
		case Create:
			v.Create++
		case Delete:
			v.Delete++
		default:
			v.Update++
		}
	}
}

// rewound refuses a commit that is not a descendant of the applied one (R1).
func (s *Syncer) rewound(ctx context.Context, src *api.Source, commit string, commits Commits) (string, error) {
	applied := src.Status.Applied
	if applied == "" || applied == commit || allowance(src, commit).Rewind {
		return "", nil
	}
	ok, err := commits.IsAncestor(ctx, applied, commit)
	if err != nil {
		return "", fmt.Errorf("compare commit %s with the applied commit %s: %w", short(commit), short(applied), err)
	}
	if ok {
		return "", nil
	}
	return fmt.Sprintf("commit %s is not a descendant of the applied commit %s: the history of %s was rewritten, and nothing is changed. "+
		"Bring the branch back to a descendant of %s (git revert undoes a commit without rewriting), or allow this one move: headway sync%s --allow-rewind %s --why …",
		commit, applied, refOf(src), applied, s.flag(), commit), nil
}

// flag is what a command line needs to mean this source.
func (s *Syncer) flag() string {
	if s.cfg.Source == api.MainSource {
		return ""
	}
	return " --source " + s.cfg.Source
}

func compareProblems(a, b api.Problem) int {
	if c := strings.Compare(a.Path, b.Path); c != 0 {
		return c
	}
	if a.Line != b.Line {
		return a.Line - b.Line
	}
	if a.Column != b.Column {
		return a.Column - b.Column
	}
	return strings.Compare(a.Field+a.Reason, b.Field+b.Reason)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

// thousands writes 1200 as 1,200.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
