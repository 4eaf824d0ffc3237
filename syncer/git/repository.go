package git

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Repository is a bare repository that only this process and the git programs
// it starts write to. Its embedded Objects read it.
type Repository struct {
	*Objects
	cluster string
	log     *slog.Logger

	packing sync.Mutex          // one gc at a time; nobody who writes waits for it
	writing sync.Mutex          // one writer of hosted and keep refs at a time
	kept    map[string]struct{} // what Keep did last; nil when not known; under writing
}

func newRepository(p program, cluster string, log *slog.Logger) *Repository {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Repository{Objects: newObjects(p, newTreeCache()), cluster: cluster, log: log}
}

// Resolve returns the commit that a full ref name (refs/heads/main) points to.
// The error is ErrNotFound when there is no such ref.
func (r *Repository) Resolve(ctx context.Context, ref string) (string, error) {
	if err := checkRef(ref); err != nil {
		return "", err
	}
	var commit string
	err := r.info(ctx, []string{ref + "^{commit}"}, func(_ int, h header) error {
		if h.kind != "commit" {
			return fmt.Errorf("ref %s: %w", ref, ErrNotFound)
		}
		commit = h.hash
		return nil
	})
	return commit, err
}

// checkRef says whether ref is a full ref name that git accepts.
func checkRef(ref string) error {
	bad := !strings.HasPrefix(ref, "refs/") || len(ref) > 500 || strings.HasSuffix(ref, "/") || strings.HasSuffix(ref, ".") ||
		strings.Contains(ref, "..") || strings.Contains(ref, "//") || strings.Contains(ref, "@{") || strings.ContainsAny(ref, " ~^:?*[\\\x7f")
	for part := range strings.SplitSeq(ref, "/") {
		bad = bad || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	bad = bad || strings.ContainsFunc(ref, func(c rune) bool { return c < ' ' })
	if bad {
		return fmt.Errorf("ref %.100q: not a full ref name such as refs/heads/main", ref)
	}
	return nil
}

// IsAncestor says whether commit b is a or one of its descendants (R1).
func (o *Objects) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	if a == b {
		return true, nil
	}
	c, err := o.Commit(ctx, b)
	if err != nil {
		return false, err
	}
	if slices.Contains(c.Parents, a) {
		return true, nil
	}
	if _, err := o.Commit(ctx, a); err != nil {
		return false, err
	}
	_, err = o.program.run(ctx, nil, "merge-base", "--is-ancestor", a, b)
	if exitCode(err) == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("compare commits %s and %s: %w", a, b, err)
	}
	return true, nil
}

// owned says whether ref belongs to Headway: nobody may push to it.
func owned(ref string) bool {
	for _, prefix := range []string{"refs/heads/headway", "refs/notes/headway", "refs/headway"} {
		if ref == prefix || strings.HasPrefix(ref, prefix+"/") {
			return true
		}
	}
	return false
}

// Keep makes the given commits, and no others, safe from gc (D6). The caller
// names every commit that a provenance still names.
func (r *Repository) Keep(ctx context.Context, commits []string) error {
	want := map[string]struct{}{}
	for _, c := range commits {
		if !isHash(c) {
			return fmt.Errorf("keep commit %.60q: not a full commit hash", c)
		}
		want[c] = struct{}{}
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.kept != nil && maps.Equal(r.kept, want) {
		return nil
	}
	r.kept = nil
	prefix := "refs/headway/" + r.cluster + "/keep/"
	have, err := r.refs(ctx, prefix)
	if err != nil {
		return fmt.Errorf("keep commits: %w", err)
	}
	var edits []edit
	for ref, commit := range have {
		if _, ok := want[strings.TrimPrefix(ref, prefix)]; !ok {
			edits = append(edits, edit{ref: ref, old: commit})
		}
	}
	for commit := range want {
		if have[prefix+commit] != commit {
			edits = append(edits, edit{ref: prefix + commit, old: have[prefix+commit], new: commit})
		}
	}
	if err := r.edit(ctx, edits); err != nil {
		return fmt.Errorf("keep commits: %w", err)
	}
	r.kept = want
	return nil
}

// refs lists the refs below prefix with the object that each names.
func (r *Repository) refs(ctx context.Context, prefix string) (map[string]string, error) {
	out, err := r.program.run(ctx, nil, "for-each-ref", "--format=%(objectname) %(refname)", prefix)
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		hash, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || !isHash(hash) {
			return nil, fmt.Errorf("git for-each-ref answered %.100q", line)
		}
		refs[ref] = hash
	}
	return refs, nil
}

// edit moves one ref from old to new; an empty hash means that it is absent.
type edit struct{ ref, old, new string }

const noHash = "0000000000000000000000000000000000000000"

// edit moves refs in one transaction of git, each from its old value (R4).
func (r *Repository) edit(ctx context.Context, edits []edit) error {
	if len(edits) == 0 {
		return nil
	}
	slices.SortFunc(edits, func(a, b edit) int { return strings.Compare(a.ref, b.ref) })
	var in bytes.Buffer
	for _, e := range edits {
		switch {
		case e.new == "":
			fmt.Fprintf(&in, "delete %s %s\n", e.ref, e.old)
		case e.old == "":
			fmt.Fprintf(&in, "create %s %s\n", e.ref, e.new)
		default:
			fmt.Fprintf(&in, "update %s %s %s\n", e.ref, e.new, e.old)
		}
	}
	// A ref that is half moved when the caller is cancelled would leave a lock.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_, err := r.program.run(ctx, &in, "update-ref", "--stdin")
	return err
}

// Bounds above which GC finds something to do.
const (
	manyPacks = 40
	manyLoose = 2000
)

// GC packs the repository when it has become untidy. Objects that nothing names
// stay for two weeks, so writing may go on beside it: what is written is newer than
// that, and git's own locks, which it waits for, are held for moments. It runs for
// at most ten minutes.
func (r *Repository) GC(ctx context.Context) error {
	untidy, err := r.untidy()
	if err != nil || !untidy {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	r.packing.Lock()
	defer r.packing.Unlock()
	began := time.Now()
	if _, err := r.program.run(ctx, nil, "-c", "gc.auto=0", "-c", "pack.windowMemory=64m",
		"gc", "--quiet", "--prune=2.weeks.ago"); err != nil {
		return fmt.Errorf("gc of %s: %w", r.program.dir, err)
	}
	r.log.Info("git repository packed", "dir", r.program.dir, "took", time.Since(began))
	return nil
}

// untidy counts packs, and loose objects in one folder of 256 as git does.
func (r *Repository) untidy() (bool, error) {
	objects := filepath.Join(r.program.dir, "objects")
	packs, err := filepath.Glob(filepath.Join(objects, "pack", "*.pack"))
	if err != nil {
		return false, fmt.Errorf("gc of %s: %w", r.program.dir, err)
	}
	loose, err := os.ReadDir(filepath.Join(objects, "17"))
	if err != nil && !os.IsNotExist(err) {
		return false, fmt.Errorf("gc of %s: %w", r.program.dir, err)
	}
	return len(packs) > manyPacks || len(loose)*256 > manyLoose, nil
}
