package simulate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer"
	"headway.dev/headway/syncer/git"
)

const mainRef = "refs/heads/main"

// user is a team: it pushes commits, and changes things by hand.
type user struct {
	w          *World
	repository *repository
	files      map[string]string // of the head
	head       string            // that was pushed
	older      []map[string]string
	serial     int
	next       time.Time
	pushed     int
	pushedAt   time.Time

	pending string            // a commit whose push has not succeeded yet
	tree    map[string]string // its files
}

func newUser(w *World) *user {
	return &user{w: w, repository: newRepository(w.opts.Commits), files: map[string]string{}, next: time.Now().Add(w.between(time.Second, 10*time.Second))}
}

// act does one thing, and decides when to do the next.
func (u *user) act() {
	w := u.w
	u.next = time.Now().Add(w.between(2*time.Second, time.Minute))
	switch {
	case u.pending != "":
	case !w.chaos && !w.opts.Quiet:
		u.next = time.Now().Add(24 * time.Hour)
		return
	case w.opts.Quiet && u.pushed > 0:
		return
	case w.chaos && w.rand.IntN(6) == 0:
		u.byHand()
		return
	default:
		u.commit(u.change())
	}
	u.push()
}

// commit makes a commit that is to be pushed.
func (u *user) commit(files map[string]string) {
	u.tree = files
	u.pending = u.repository.commit(u.head, files)
}

// push tries to move the ref of the hosted repository.
func (u *user) push() {
	w := u.w
	if u.landed() {
		return
	}
	if ref, ok := w.truth.Get(refKey()).(*api.GitRef); ok && ref.Commit != u.head { // an earlier push came late
		u.head, u.files = ref.Commit, u.repository.trees[ref.Commit]
		u.commit(u.tree)
	}
	s := u.server()
	if s == nil {
		u.next = time.Now().Add(2 * time.Second)
		return
	}
	verdict, err := s.syncer.Judge(s.life, syncer.Candidate{Commit: u.pending})
	if err != nil {
		w.trace.add("user", "push of %s fails: %v", short(u.pending), err)
		u.next = time.Now().Add(2 * time.Second)
		return
	}
	if !verdict.OK() {
		w.trace.add("user", "push of %s is refused: %s %s", short(u.pending), verdict.Summary(), strings.Join(verdict.Lines(), "; "))
		u.pending = ""
		return
	}
	w.actor = actor{s, "push"}
	if err := s.refs.Move(s.life, []git.Update{{Ref: mainRef, Old: u.head, New: u.pending}}, "ada"); err != nil {
		w.trace.add("user", "push of %s fails: %v", short(u.pending), err)
		u.next = time.Now().Add(2 * time.Second)
		return
	}
	u.landed()
}

// landed says whether the pending commit is the head now.
func (u *user) landed() bool {
	ref, _ := u.w.truth.Get(refKey()).(*api.GitRef)
	if ref == nil || ref.Commit != u.pending {
		return false
	}
	u.w.trace.add("user", "pushed %s: %s", short(u.pending), difference(u.files, u.tree))
	u.older = append(u.older, u.files)
	u.head, u.files, u.pending = u.pending, u.tree, ""
	u.pushed++
	u.pushedAt = time.Now()
	return true
}

func refKey() store.Key {
	return store.Key{GroupResource: api.GitRefs(), Name: hex.EncodeToString([]byte(mainRef))}
}

func short(commit string) string { return commit[:min(len(commit), 7)] }

// difference names the files that differ.
func difference(before, after map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		switch old, ok := before[name]; {
		case !ok:
			out = append(out, "+"+name+" "+digest(after[name]))
		case old != after[name]:
			out = append(out, "~"+name+" "+digest(after[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; !ok {
			out = append(out, "-"+name)
		}
	}
	return strings.Join(out, ", ")
}

// digest is what matters of a manifest, in a few words.
func digest(text string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimLeft(line, " -"))
		for _, key := range []string{"replicas:", "image:", "rollingUpdate:", "completions:", "parallelism:", "type:", "minReadySeconds:", "k:", "pods:", "minAvailable:"} {
			if strings.HasPrefix(line, key) {
				out = append(out, strings.ReplaceAll(line, ": ", "="))
			}
		}
	}
	return "(" + strings.Join(out, " ") + ")"
}

// server is one that can be reached; nil when none can.
func (u *user) server() *server {
	var up []*server
	for _, s := range u.w.servers {
		if s.up && s.loaded && !s.halted.After(time.Now()) {
			up = append(up, s)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[u.w.rand.IntN(len(up))]
}

// change is the head's tree with something done to it.
func (u *user) change() map[string]string {
	w := u.w
	files := maps.Clone(u.files)
	if len(u.older) > 1 && w.rand.IntN(8) == 0 {
		return u.older[w.rand.IntN(len(u.older))] // a revert
	}
	for range 1 + w.rand.IntN(2) {
		u.serial++
		switch n := w.rand.IntN(18); {
		case n < 6 || w.opts.Quiet:
			name := fmt.Sprintf("web-%d", w.rand.IntN(3))
			files[name+".yaml"] = u.deployment(name)
		case n < 7:
			files["edge.yaml"] = u.edge()
		case n < 9:
			name := fmt.Sprintf("job-%d", u.serial)
			files[name+".yaml"] = u.job(name)
		case n < 10:
			files["tick.yaml"] = u.cronJob("tick")
		case n < 11:
			files["settings.yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata:\n  k: v%d\n", w.rand.IntN(3))
		case n < 14 && !w.opts.Quiet:
			files["db.yaml"] = u.statefulSet()
		case n < 15:
			files["log.yaml"] = u.daemonSet()
		case n < 16:
			files["bounds.yaml"] = u.bounds()
		case n < 17:
			files["service.yaml"] = u.service()
		case len(files) > 1:
			names := slices.Sorted(maps.Keys(files))
			delete(files, names[w.rand.IntN(len(names))])
		}
	}
	if !w.opts.Quiet {
		// Jobs that have had their day go, so that trees stay small.
		var jobs []string
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if strings.HasPrefix(name, "job-") {
				jobs = append(jobs, name)
			}
		}
		if len(jobs) > 3 {
			delete(files, jobs[w.rand.IntN(len(jobs))])
		}
	}
	return files
}

// byHand changes something that is live, as kubectl does.
func (u *user) byHand() {
	w := u.w
	s := u.server()
	if s == nil {
		return
	}
	w.actor = actor{s, "kubectl"}
	var ops []store.Op
	switch w.rand.IntN(6) {
	case 3:
		u.drain(w.nodes[w.rand.IntN(len(w.nodes))])
		return
	case 4:
		u.evictAll()
		return
	case 5:
		u.force()
		return
	case 0:
		if pods := s.store.List(api.Pods(), "default"); len(pods) > 0 {
			ops = podset.Remove(pods[w.rand.IntN(len(pods))].(*corev1.Pod), s.now())
		}
	case 1:
		if all := s.store.List(api.Deployments(), "default"); len(all) > 0 {
			d := all[w.rand.IntN(len(all))].(*appsv1.Deployment).DeepCopy()
			n := int32(w.rand.IntN(4))
			if d.Spec.Replicas == nil || *d.Spec.Replicas != n {
				d.Spec.Replicas = &n
				d.Generation++
				ops = []store.Op{{Verb: store.Update, Object: d}}
			}
		}
	default:
		if all := s.store.List(one(w, api.Deployments(), api.ReplicaSets()), "default"); len(all) > 0 {
			ops = podset.RemoveAny(all[w.rand.IntN(len(all))], s.now())
		}
	}
	if len(ops) == 0 {
		return
	}
	if _, err := s.store.Commit(s.life, store.Txn{Ops: ops}); err != nil && !errors.Is(err, context.Canceled) {
		w.trace.add("kubectl", "fails: %v", err)
	}
}

// fix is the head's tree with images that work: what comes after the last fault.
func (u *user) fix() map[string]string {
	files := maps.Clone(u.files)
	for name, text := range files {
		files[name] = strings.NewReplacer("crash:1", "app:6", "bad:1", "app:7", "pods: \"6\"", "pods: \"60\"").Replace(text)
	}
	u.serial++
	name := "web-0"
	files[name+".yaml"] = strings.NewReplacer("crash:1", "app:6", "bad:1", "app:7").Replace(u.deployment(name))
	return files
}
