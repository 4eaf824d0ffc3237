package syncer

import (
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// Report is how far the cluster has come with its source, and how every declared
// object is doing. Its JSON is what `headway status -o json` prints: names in it
// do not change.
type Report struct {
	Source      string         `json:"source"`
	URL         string         `json:"url,omitempty"` // empty: hosted
	Ref         string         `json:"ref"`
	Path        string         `json:"path,omitempty"`
	Namespaces  []string       `json:"namespaces,omitempty"` // that it may write to; none: all
	State       State          `json:"state"`                // of everything: Healthy only when the newest commit is applied
	Reason      string         `json:"reason,omitempty"`
	Head        string         `json:"head,omitempty"`
	Applied     string         `json:"applied,omitempty"`
	AppliedTime *time.Time     `json:"appliedTime,omitempty"`
	Applying    string         `json:"applying,omitempty"`
	Refused     string         `json:"refused,omitempty"`
	Problems    []string       `json:"problems,omitempty"`
	Allowed     *api.Allowance `json:"allowed,omitempty"` // that an operator has given and no commit has used
	Used        *api.Allowance `json:"used,omitempty"`    // that the applied commit has used
	Pause       *api.Pause     `json:"pause,omitempty"`
	// Pauses are the last ones that are over, newest last.
	Pauses  []api.EndedPause `json:"pauses,omitempty"`
	Synced  string           `json:"synced,omitempty"` // the last request of headway sync that was answered
	Objects []ObjectReport   `json:"objects"`

	// Why something of ours does not reach the forge; empty when it does.
	WriteBack    string `json:"writeBack,omitempty"` // the live ref and the notes
	CommitStatus string `json:"commitStatus,omitempty"`
}

// ObjectReport is one declared object.
type ObjectReport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Path       string `json:"path"`
	Line       int    `json:"line"`
	Commit     string `json:"commit"` // that last changed it
	State      State  `json:"state"`
	Message    string `json:"message,omitempty"`
}

// Title is how messages name an object: Deployment default/web.
func (o ObjectReport) Title() string { return title(o.Kind, o.Namespace, o.Name) }

func title(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

// Status reports from the cache. Any server may be asked.
func (s *Syncer) Status() Report {
	src := s.source()
	if src == nil {
		src = &api.Source{Spec: s.cfg.Spec}
	}
	st := src.Status
	r := Report{
		Source: s.cfg.Source, URL: src.Spec.URL, Ref: refOf(src), Path: src.Spec.Path, Namespaces: slices.Clone(src.Spec.Namespaces),
		Head: st.Head, Applied: st.Applied, Applying: st.Applying, Refused: st.Refused, Problems: slices.Clone(st.Problems),
		Allowed: src.Orders.Allow, Used: st.Used, Pause: paused(src, s.cfg.Now()), Pauses: slices.Clone(st.Pauses), Synced: st.Synced,
		WriteBack: st.WriteBack, CommitStatus: st.CommitStatus,
		Objects: s.objects(st.Applied),
	}
	if s.cfg.Fetch == nil {
		if head := s.hosted(src); head != "" && head != r.Head {
			r.Head, r.Refused, r.Problems = head, "", nil // the syncer has not come to it yet
		}
	}
	if !st.AppliedTime.IsZero() {
		t := st.AppliedTime.UTC()
		r.AppliedTime = &t
	}
	r.State, r.Reason = r.overall(st.Message)
	return r
}

func (r *Report) overall(message string) (State, string) {
	switch {
	case r.Refused != "":
		return Failed, join("commit "+short(r.Refused)+" is refused", message)
	case r.Head == "" && r.Applied == "" && message != "":
		return Failed, message
	case r.Head == "" && r.Applied == "":
		return Progressing, "waiting for the first commit on " + r.Ref
	case r.Head != r.Applied && r.Pause != nil:
		return Progressing, "commit " + short(r.Head) + " waits: the cluster is " + PauseText(r.Pause)
	case r.Head != r.Applied:
		return Progressing, join("commit "+short(r.Head)+" is not applied yet", message)
	}
	for _, state := range []State{Failed, Missing, Progressing} {
		for _, o := range r.Objects {
			if o.State != state {
				continue
			}
			if state == Missing {
				state = Progressing
			}
			return state, join(o.Title(), o.Message)
		}
	}
	if message != "" {
		// The source cannot be read now: the applied commit is well, but nobody knows
		// whether it is the newest.
		return Progressing, message
	}
	return Healthy, ""
}

// objects lists the declared objects in the order in which they are applied.
func (s *Syncer) objects(applied string) []ObjectReport {
	s.mu.Lock()
	d := s.known
	s.mu.Unlock()
	live, done := map[store.Key]api.Object{}, s.doneRecords()
	var keys []store.Key
	for key, obj := range s.owned() {
		live[key] = obj
		keys = append(keys, key)
	}
	for key := range done {
		if live[key] == nil {
			keys = append(keys, key)
		}
	}
	if d != nil && d.commit == applied {
		for _, key := range d.keys() {
			if live[key] == nil && done[key] == nil {
				keys = append(keys, key)
			}
		}
	}
	slices.SortFunc(keys, compareKeys)
	out := make([]ObjectReport, 0, len(keys))
	for _, key := range keys {
		kind, _ := api.ResourceKind(key.GroupResource)
		o := ObjectReport{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: key.Namespace, Name: key.Name}
		if m := d.manifest(key); m != nil {
			o.Path, o.Line = m.Path, m.Line
		}
		if obj := live[key]; obj != nil {
			from, _ := api.ProvenanceOf(obj)
			o.Path, o.Line, o.Commit = from.Path, from.Line, from.Commit
		}
		o.State, o.Message = s.health(key, live[key], done[key])
		out = append(out, o)
	}
	return out
}

// health is Health, and for a Job that is gone what its done record says.
func (s *Syncer) health(key store.Key, live api.Object, done *api.DoneRecord) (State, string) {
	if live != nil || done == nil {
		return Health(live, s.cfg.Store)
	}
	at := done.FinishedAt.UTC().Format("2006-01-02 15:04:05 UTC")
	if done.Outcome == "Complete" {
		return Healthy, "complete since " + at
	}
	return Failed, "failed at " + at
}
