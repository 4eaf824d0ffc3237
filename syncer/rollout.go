package syncer

import (
	"cmp"
	"math"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// rollout watches what the applied commit has changed until all of it is healthy.
type rollout struct {
	s       *Syncer
	commit  string
	attempt int64
	start   time.Time

	waiting []store.Key               // not healthy yet, or gone not yet
	gone    map[store.Key]bool        // of waiting: what the commit deletes
	healthy map[store.Key]api.Rollout // what runs pods and has become healthy
	others  map[store.Key]api.Rollout // what runs pods and is not
}

// newRollout finds out what there is to watch: what the receipt names and what
// reads a ConfigMap or a Secret among that (D13), or, when the receipt does not
// name all, everything that is declared.
func (s *Syncer) newRollout(r *api.Receipt) *rollout {
	ro := &rollout{s: s, commit: r.Commit, attempt: r.Attempt, start: r.Started, gone: map[store.Key]bool{}, healthy: map[store.Key]api.Rollout{}}
	var changed []store.Key
	for _, c := range r.Changes {
		key, ok := keyNamed(c.Object)
		switch {
		case !ok:
		case c.Verb == string(Delete):
			ro.gone[key] = true
			ro.waiting = append(ro.waiting, key)
		default:
			changed = append(changed, key)
		}
	}
	if r.Created+r.Updated+r.Deleted > len(r.Changes) {
		changed = changed[:0]
		for key := range s.owned() {
			if !ro.gone[key] {
				changed = append(changed, key)
			}
		}
	} else {
		changed = append(changed, s.readersOf(changed)...)
	}
	ro.waiting = append(ro.waiting, changed...)
	slices.SortFunc(ro.waiting, compareKeys)
	return ro
}

// readersOf are the declared workloads that read one of the changed ConfigMaps or
// Secrets, and so roll although their manifests did not change.
func (s *Syncer) readersOf(changed []store.Key) []store.Key {
	content := map[string]bool{}
	for _, key := range changed {
		if key.GroupResource == api.ConfigMaps() || key.GroupResource == api.Secrets() {
			content[key.Namespace+"/"+podset.RefName(key)] = true
		}
	}
	if len(content) == 0 {
		return nil
	}
	var out []store.Key
	for key, obj := range s.owned() {
		if !rolls(obj) || slices.Contains(changed, key) {
			continue
		}
		t, _ := template(obj)
		if slices.ContainsFunc(podset.RefNames(&t.Spec), func(name string) bool { return content[key.Namespace+"/"+name] }) {
			out = append(out, key)
		}
	}
	return out
}

// rolls says whether an object's controller replaces its pods when what they read
// changes.
func rolls(obj api.Object) bool {
	switch obj.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet:
		return true
	}
	return false
}

// look says how the rollout is doing: RollingOut, Healthy or Failed, and what is
// waited for or has failed first.
func (ro *rollout) look(now time.Time) (api.Result, string) {
	var failed, pending string
	ro.others = map[store.Key]api.Rollout{}
	left := ro.waiting[:0]
	for _, key := range ro.waiting {
		live := ro.s.cfg.Store.Get(key)
		if ro.gone[key] {
			if live != nil {
				left = append(left, key)
				pending = cmp.Or(pending, titleOf(key)+": is being deleted")
			}
			continue
		}
		state, message := ro.s.health(key, live, ro.s.done(key))
		line := api.Rollout{Object: titleOf(key), State: string(state), Message: clip(message, maxMessage), Images: images(podsNow(live, ro.s.cfg.Store))}
		if state == Healthy {
			if message != "" && !storedOnly(key) {
				line.Seconds = secondsOf(instant(now).Sub(ro.start))
				ro.healthy[key] = line
			}
			continue
		}
		left = append(left, key)
		ro.others[key] = line
		if why := line.Object + ": " + line.Message; state == Failed {
			failed = cmp.Or(failed, why)
		} else {
			pending = cmp.Or(pending, why)
		}
	}
	ro.waiting = left
	switch {
	case pending != "":
		return api.ResultRollingOut, pending
	case failed != "":
		return api.ResultFailed, failed
	}
	return api.ResultHealthy, ""
}

// lines are the objects that run pods, what is not healthy first, and how many are
// left out.
func (ro *rollout) lines() (out []api.Rollout, more int) {
	size := 0
	for _, group := range []map[store.Key]api.Rollout{ro.others, ro.healthy} {
		keys := make([]store.Key, 0, len(group))
		for key := range group {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, compareKeys)
		for _, key := range keys {
			line := group[key]
			size += 2*len(line.Object+line.Message) + 80
			for _, i := range line.Images {
				size += len(i.Container+i.Image+i.Digest) + 50
			}
			if len(out) == maxListed || size > maxRollout {
				more++
				continue
			}
			out = append(out, line)
		}
	}
	return out, more
}

// secondsOf is d in seconds, to the millisecond.
func secondsOf(d time.Duration) float64 {
	return math.Max(0, math.Round(d.Seconds()*1000)/1000)
}

// podsNow are the pods that an object runs now; those of the newest version, for a
// Deployment.
func podsNow(obj api.Object, r store.Reader) []*corev1.Pod {
	switch o := obj.(type) {
	case nil:
		return nil
	case *corev1.Pod:
		return []*corev1.Pod{o}
	case *appsv1.Deployment:
		return deploymentPods(o, r)
	case *appsv1.StatefulSet, *appsv1.DaemonSet:
		return updatedPods(o, r)
	}
	return pods(r.Owned(obj.GetUID()))
}

// images lists what the containers of pods really run, each image once.
func images(list []*corev1.Pod) []api.Ran {
	seen := map[api.Ran]bool{}
	var out []api.Ran
	for _, p := range list {
		declared := map[string]string{}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			declared[c.Name] = c.Image
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			ran := api.Ran{Container: c.Name, Image: clip(declared[c.Name], maxMessage), Digest: clip(c.ImageID, maxMessage)}
			if c.ImageID != "" && !seen[ran] && len(out) < maxImages {
				seen[ran] = true
				out = append(out, ran)
			}
		}
	}
	slices.SortFunc(out, func(a, b api.Ran) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Image, b.Image), cmp.Compare(a.Digest, b.Digest))
	})
	return out
}

// doneJobs are the outcomes that are on record, the newest first where not all fit.
func (s *Syncer) doneJobs() (out []api.DoneJob, more int) {
	for _, d := range s.doneRecords() {
		out = append(out, api.DoneJob{Kind: "Job", Namespace: d.Namespace, Name: d.Name, Hash: d.Hash, Outcome: d.Outcome, FinishedAt: d.FinishedAt.UTC()})
	}
	byName := func(a, b api.DoneJob) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(out, func(a, b api.DoneJob) int { return cmp.Or(b.FinishedAt.Compare(a.FinishedAt), byName(a, b)) })
	size := 0
	for i, d := range out {
		if size += len(d.Namespace+d.Name+d.Hash) + 140; size > maxDone {
			out, more = out[:i], len(out)-i
			break
		}
	}
	slices.SortFunc(out, byName)
	return out, more
}
