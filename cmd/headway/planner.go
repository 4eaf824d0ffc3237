package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"headway.dev/headway/syncer"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
)

const planPath = "/headway/plan"

// Bounds of one plan. The stream of a folder has, beside its contents, a header of
// at most some kilobytes for each file.
const (
	planTime      = 2 * time.Minute
	maxPlans      = 2 // that are made at the same time
	maxPlanStream = syncer.MaxFolderBytes + syncer.MaxFolderFiles*(8<<10)
	maxTrailers   = 50
)

// planner answers what a commit or a folder would change.
type planner struct {
	syncer     *syncer.Syncer
	repository *git.Repository
	cache      *render.Cache
	newest     func(ctx context.Context) (string, error) // commit of the followed ref
	slots      chan struct{}
}

func newPlanner(s *syncer.Syncer, r *git.Repository, cache *render.Cache, newest func(context.Context) (string, error)) *planner {
	return &planner{syncer: s, repository: r, cache: cache, newest: newest, slots: make(chan struct{}, maxPlans)}
}

// servePlan answers administrators: GET with a ref, POST with a folder.
func (c *cluster) servePlan(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) {
		return
	}
	f, err := c.sources.asked(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	f.planner.ServeHTTP(w, r)
}

func (p *planner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && !method(w, r, http.MethodGet) {
		return
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), planTime, fmt.Errorf("it took longer than %s", planTime))
	defer cancel()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		http.Error(w, "other plans are being made; try again", http.StatusServiceUnavailable)
		return
	}
	verdict, err := p.judge(ctx, w, r)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		answer(w, nil, err)
		return
	}
	writeJSON(w, verdict.Preview())
}

func (p *planner) judge(ctx context.Context, w http.ResponseWriter, r *http.Request) (*syncer.Verdict, error) {
	if r.Method == http.MethodGet {
		commit, err := p.resolve(ctx, r.URL.Query().Get("ref"))
		if err != nil {
			return nil, err
		}
		return p.syncer.Judge(ctx, syncer.Candidate{Commit: commit})
	}
	trial := syncer.Trial{Head: r.URL.Query().Get("head"), Cache: p.cache}
	if trial.Head != "" && !isHash(trial.Head) {
		return nil, &badRequest{http.StatusBadRequest, "head must be a commit of 40 hex digits"}
	}
	lines := r.URL.Query()["trailer"]
	if len(lines) > maxTrailers {
		return nil, &badRequest{http.StatusBadRequest, fmt.Sprintf("%d trailers, at most %d are taken", len(lines), maxTrailers)}
	}
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		trial.Trailers = append(trial.Trailers, syncer.Trailer{Commit: trial.Head, Key: key, Value: value})
	}
	var err error
	if trial.Folder, err = syncer.ReadFolder(http.MaxBytesReader(w, r.Body, maxPlanStream)); err != nil {
		return nil, &badRequest{http.StatusBadRequest, err.Error()}
	}
	return p.syncer.JudgeFolder(ctx, trial)
}

// resolve finds the commit that somebody names: nothing is the newest of the
// followed ref.
func (p *planner) resolve(ctx context.Context, name string) (string, error) {
	if name == "" {
		commit, err := p.newest(ctx)
		if errors.Is(err, git.ErrNotFound) {
			err = &badRequest{http.StatusNotFound, "the followed ref has no commit yet"}
		}
		return commit, err
	}
	commit, err := p.syncer.Find(ctx, p.repository, name)
	if errors.Is(err, syncer.ErrUnknown) {
		err = &badRequest{http.StatusNotFound, fmt.Sprintf("%q is no folder here, and no branch, tag or commit in the repository of the cluster: push it there, or give the folder", name)}
	}
	return commit, err
}

func isHash(s string) bool { return len(s) == 40 && isCommit(s) }
