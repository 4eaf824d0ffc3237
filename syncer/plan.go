package syncer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verb is what a Step does.
type Verb string

const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
	Wait   Verb = "wait" // the object is going away and is made again when it is gone
	Record Verb = "record"
	Stuck  Verb = "stuck" // it drifted and cannot be put back in place
)

// Step is one change: what, to which object, and why.
type Step struct {
	Verb     Verb
	Key      store.Key  // the object that a person thinks of; Op may write another (a done record)
	Op       store.Op   // empty for Wait; for Stuck, not to be done: the object as it should be
	Also     []store.Op // done in the same transaction: what is recorded about the step
	Reason   string
	Manifest *api.Manifest // nil when the object is not declared
	Live     api.Object    // as observed; nil when there is none
}

// Origin is a commit and who wrote it.
type Origin struct{ Commit, Author string }

// Observed is everything that a plan is made from.
type Observed struct {
	Source  string // name of the source
	Commit  string // whose manifests Desired are
	Author  string // of Commit
	Desired []*api.Manifest
	Live    map[store.Key]api.Object      // the declared ones, and those whose provenance names the source
	Base    map[store.Key]*api.Manifest   // the manifest at the commit of the provenance, where it differs
	Origins map[string]Origin             // by path: the commit that last changed the file, where it is not Commit
	Spaces  map[string]*corev1.Namespace  // live namespaces
	Classes []api.Object                  // PriorityClasses, those that the commit declares before the live ones
	Storage []api.Object                  // StorageClasses, likewise
	Done    map[store.Key]*api.DoneRecord // by the key of the Job
	Ended   map[store.Key]*batchv1.Job    // Jobs that are gone and had finished
	Told    map[store.Key]*api.DoneRecord // what receipts say of Jobs that have no record here (DoneFromReceipt)
	// Replaces says that an object may be deleted and made again when it cannot be
	// changed in place (TrailerReplace); nil: none may.
	Replaces func(store.Key) bool
	// Report says of which files the drift is only told (D6): a commit writes no field
	// whose declared value it does not change. nil: of none.
	Report func(path string) bool
	// Left are the objects whose deletion is only told, by the hash of the manifest.
	Left map[store.Key]string
	// Theirs says of another source whether it is followed: what it declares is not
	// ours to write. nil: there are no others.
	Theirs func(source string) bool
	// Claims are objects that are not there and that another source declares all the
	// same.
	Claims map[store.Key]api.Provenance
	// Allows says whether the source may write to a namespace; what it has made in
	// others is let go. nil: everywhere.
	Allows func(namespace string) bool
	// Autoscaled are the objects whose replicas an autoscaler sets, by their keys; the
	// other key is its own.
	Autoscaled map[store.Key]store.Key
	// Follows are the further sources that the commit names; Sources are those that
	// there are, and Leaves is what those among them have made that are followed no
	// longer. Prunes says whether that is deleted (TrailerAllowDelete). All are empty
	// when Source is itself a further one.
	Follows []api.SourceConfig
	Sources map[string]*api.Source
	Leaves  map[string][]api.Object
	Prunes  func(source string) bool
	// Verify compares also the objects whose manifest has not changed, to heal
	// them. Without it a plan costs what has changed, not what there is.
	Verify bool
}

// Plan decides what has to be done so that the live objects are what the commit
// declares: namespaces first, then what pods refer to, then workloads, and
// deletions last, in the reverse order. It is a function of its arguments only.
// The objects in the steps are new; nothing observed is changed. With problems
// the commit cannot be applied and the steps are not to be done.
func Plan(o Observed, now time.Time) ([]Step, []api.Problem) {
	p := planner{Observed: o, now: now, declared: make(map[store.Key]*api.Manifest, len(o.Desired))}
	for _, m := range o.Desired {
		p.declared[keyOf(m)] = m
	}
	for _, m := range o.Desired { // in an order that does not change: what is new is given its uid here
		if key := keyOf(m); p.declared[key] == m {
			p.object(m, key)
		}
	}
	// By key, and the steps of one object in their order.
	slices.SortStableFunc(p.steps, func(a, b Step) int { return compareKeys(a.Key, b.Key) })
	slices.SortFunc(p.problems, compareProblems)
	p.prune()
	p.further()
	return p.steps, p.problems
}

type planner struct {
	Observed
	now      time.Time
	declared map[store.Key]*api.Manifest
	steps    []Step
	problems []api.Problem
}

func (p *planner) step(verb Verb, key store.Key, op store.Op, m *api.Manifest, reason string) {
	if m != nil && op.Object != nil {
		if n := stored(op.Object); n > maxStored {
			verb = Stuck // what the store would refuse holds up nothing else
			p.problems = append(p.problems, problem(m, "", fmt.Sprintf("the object has %s bytes with what the cluster keeps about it, and the store takes at most %s: split it", thousands(n), thousands(maxStored))))
		}
	}
	p.steps = append(p.steps, Step{Verb: verb, Key: key, Op: op, Manifest: m, Reason: reason, Live: p.Live[key]})
}

// object plans one declared object.
func (p *planner) object(m *api.Manifest, key store.Key) {
	live := p.Live[key]
	if claim, theirs := p.claimed(key, live); theirs {
		p.problems = append(p.problems, problem(m, "metadata.name", fmt.Sprintf("%s is declared by source %s already, in its %s: an object may stand in one source only",
			titleOf(key), claim.Source, claimPlace(claim))))
		return
	}
	if job, ok := live.(*batchv1.Job); ok {
		p.record(key, job)
	} else if job := p.Ended[key]; job != nil && live == nil {
		p.record(key, job)
	}
	switch {
	case live == nil && p.done(m, key):
		// R3: it has run.
	case live == nil && p.told(m, key):
		// R3: it has run, in an earlier life of this cluster.
		record := p.Told[key].DeepCopyObject().(*api.DoneRecord)
		store.Stamp(record, p.now)
		p.step(Record, key, store.Op{Verb: store.Create, Object: record}, nil, "the Job has finished already, a receipt says")
	case live == nil && p.Left[key] == m.Hash:
		// Its deletion is drift that is only told, until its manifest changes.
	case live == nil:
		p.create(m, key, "declared in "+place(m))
	case live.GetDeletionTimestamp() != nil && p.done(m, key):
		// R3: it has run, and goes away.
	case live.GetDeletionTimestamp() != nil:
		p.step(Wait, key, store.Op{}, m, "is being deleted, and made again when it is gone")
	default:
		p.update(m, key, live)
	}
}

// done says whether the Job of m has run already, in the form of this manifest.
func (p *planner) done(m *api.Manifest, key store.Key) bool {
	if d := p.Done[key]; d != nil && d.Source == p.Source && d.Hash == m.Hash {
		return true
	}
	if job := p.Ended[key]; job != nil {
		from, _ := api.ProvenanceOf(job)
		return from.Source == p.Source && from.Hash == m.Hash
	}
	return false
}

// told says whether a receipt says so.
func (p *planner) told(m *api.Manifest, key store.Key) bool {
	d := p.Told[key]
	return d != nil && p.Done[key] == nil && d.Source == p.Source && d.Hash == m.Hash
}

// create plans a new object, as it is first written.
func (p *planner) create(m *api.Manifest, key store.Key, reason string) {
	// One that is not there is declared too, or the cluster makes it: Judge has seen to that.
	if ns := p.Spaces[key.Namespace]; m.Kind.Namespaced && ns != nil && ns.DeletionTimestamp != nil {
		p.step(Wait, key, store.Op{}, m, "is made when its namespace, which is being deleted, is there again")
		return
	}
	obj := m.Object.DeepCopyObject().(api.Object)
	clearAssigned(obj)
	api.SetProvenance(obj, p.provenance(m))
	store.Stamp(obj, p.now)
	prepare(obj)
	// Pod Security goes by the labels that the commit declares: checkSecurity judges it.
	unlabelled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}}
	obj, err := admission.Admit(admission.Request{Verb: admission.Create, Object: obj}, admission.Facts{Namespace: unlabelled, PriorityClasses: p.Classes, StorageClasses: p.Storage})
	if err != nil {
		p.problems = append(p.problems, problem(m, "", err.Error()))
		return
	}
	p.step(Create, key, store.Op{Verb: store.Create, Object: obj}, m, reason)
}

func (p *planner) provenance(m *api.Manifest) api.Provenance {
	from, ok := p.Origins[m.Path]
	if !ok {
		from = Origin{Commit: p.Commit, Author: p.Author}
	}
	return api.Provenance{Source: p.Source, Commit: from.Commit, Path: m.Path, Line: m.Line, Author: from.Author, Hash: m.Hash}
}

func (p *planner) update(m *api.Manifest, key store.Key, live api.Object) {
	from, owned := api.ProvenanceOf(live)
	same := owned && from.Source == p.Source && from.Hash == m.Hash
	if same && !p.Verify {
		return
	}
	base := p.Base[key]
	if same {
		base = m
	}
	if job, ok := live.(*batchv1.Job); ok && !same && owned && outcome(job) != "" {
		p.replace(m, key, live, "its manifest changed after it had run: it runs again")
		return
	}
	want := m
	if _, scaled := p.Autoscaled[key]; scaled {
		want = withoutReplicas(m, live)
	}
	keep := !same && p.Report != nil && p.Report(m.Path)
	out, changed, err := mergeKeeping(base, want, live, keep)
	if err != nil {
		p.problems = append(p.problems, problem(m, "", mergeReason(m, err)))
		return
	}
	if same && len(changed) == 0 {
		return
	}
	if !same {
		api.SetProvenance(out, p.provenance(m))
	}
	if wrong := slices.Concat(checkUpdate(m, out, live), keepsHeadless(base, m, live), resizes(m, out, live, p.Storage)); len(wrong) > 0 {
		if key.GroupResource == api.Jobs() {
			p.replace(m, key, live, "its template changed, which a Job cannot take in place: it runs again")
			return
		}
		if !same && p.Replaces != nil && p.Replaces(key) {
			p.replace(m, key, live, "cannot be changed in place: deleted and made again, as the trailer says")
			return
		}
		if !same {
			p.problems = append(p.problems, immutable(m, key, live, wrong)...)
			return
		}
		// Someone changed in place what cannot be changed back in place.
		wrong := fmt.Sprintf("drifted in %s and cannot be put back in place: delete it, and it is made again", fields(changed))
		p.step(Stuck, key, store.Op{Object: out}, m, wrong)
		p.problems = append(p.problems, problem(m, "", wrong))
		return
	}
	bumpGeneration(out, live)
	p.step(Update, key, store.Op{Verb: store.Update, Object: out}, m, reason(owned, same, base, from, changed))
}

// immutable adds the way out to what forbids a change in place of a manifest that
// is good for a new object.
func immutable(m *api.Manifest, key store.Key, live api.Object, wrong []api.Problem) []api.Problem {
	if key.GroupResource == api.Namespaces() || len(api.Validate(m.Object)) > 0 {
		return wrong
	}
	if key.GroupResource == api.PersistentVolumeClaims() {
		for i := range wrong {
			wrong[i].Reason += fmt.Sprintf("; to have it deleted with its data and made again, say so in the last paragraph of the commit message: %[1]s: %[3]s and %[2]s: %[3]s", TrailerReplace, TrailerAllowDelete, targetOf(key))
		}
		return wrong
	}
	for i := range wrong {
		if changesClaims(m.Object, live) {
			wrong[i].Reason += "; the claims that were made of volumeClaimTemplates keep their size and class also then: change or replace those themselves"
		}
		wrong[i].Reason += fmt.Sprintf("; to have it deleted and made again, say so in the last paragraph of the commit message: %s: %s", TrailerReplace, targetOf(key))
	}
	return wrong
}

// reason says why an object is written.
func reason(owned, same bool, base *api.Manifest, from api.Provenance, changed []string) string {
	switch {
	case same:
		return "healed: " + fields(changed)
	case !owned:
		return "adopted: it existed and was not declared before"
	case base == nil:
		return "changed; the manifest at commit " + short(from.Commit) + " cannot be read, so what it declared more than this one stays"
	case len(changed) == 0:
		return "changed in form only"
	}
	return "changed: " + fields(changed)
}

// fields lists a few of the changed paths.
func fields(changed []string) string {
	const most = 5
	if len(changed) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(changed[:most], ", "), len(changed)-most)
	}
	return strings.Join(changed, ", ")
}

// replace deletes an object and makes it anew.
func (p *planner) replace(m *api.Manifest, key store.Key, live api.Object, why string) {
	if p.remove(key, live, m, why) {
		p.create(m, key, why)
		return
	}
	p.step(Wait, key, store.Op{}, m, "is being replaced, and made again when it is gone")
}

// prune deletes what the source declared once and the commit does not, and the
// done records of Jobs that it does not declare.
func (p *planner) prune() {
	var gone []store.Key
	for key, obj := range p.Live {
		if from, ok := api.ProvenanceOf(obj); ok && from.Source == p.Source && p.declared[key] == nil && metav1.GetControllerOfNoCopy(obj) == nil {
			gone = append(gone, key)
		}
	}
	slices.SortFunc(gone, func(a, b store.Key) int { return compareKeys(b, a) })
	for _, key := range gone {
		live := p.Live[key]
		switch from, _ := api.ProvenanceOf(live); {
		case p.Allows != nil && !p.Allows(key.Namespace):
			p.release(key, live, "source "+p.Source+" may not write to "+spaceName(key.Namespace)+" any more; it stays, and no source declares it")
		case key.GroupResource == api.Namespaces() && admission.Permanent(key.Name):
			p.release(key, live, "no longer declared; the cluster needs it, so it stays")
		case live.GetDeletionTimestamp() == nil:
			p.remove(key, live, nil, "no longer declared: its manifest was "+from.Path+" in commit "+short(from.Commit))
		}
	}
	var records []store.Key
	for key, d := range p.Done {
		if d.Source == p.Source && p.declared[key] == nil {
			records = append(records, key)
		}
	}
	slices.SortFunc(records, compareKeys)
	for _, key := range records {
		p.step(Record, key, store.Op{Verb: store.Delete, Object: p.Done[key]}, nil, "the Job is no longer declared")
	}
}

// remove plans the deletion of an object as the API would do it, and says whether
// it is gone at once. Who else has to do something first (the kubelet's stop of a
// bound pod, the namespace's content, a finalizer) is told by the deletion time;
// what the object owns is the garbage controller's.
func (p *planner) remove(key store.Key, live api.Object, m *api.Manifest, why string) bool {
	grace, wait := graceOf(live)
	if !wait {
		p.step(Delete, key, store.Op{Verb: store.Delete, Object: live}, m, why)
		return true
	}
	out := live.DeepCopyObject().(api.Object)
	markDeleted(out, p.now, grace)
	p.step(Delete, key, store.Op{Verb: store.Update, Object: out}, m, why)
	return false
}

// record plans the done record of a Job that has finished (R3).
func (p *planner) record(key store.Key, job *batchv1.Job) {
	from, ok := api.ProvenanceOf(job)
	if !ok || from.Source != p.Source {
		return
	}
	op, ok := doneOp(job, p.Done[key], from, p.now)
	if ok {
		p.step(Record, key, op, nil, "the Job has finished")
	}
}

func keyOf(m *api.Manifest) store.Key {
	return store.Key{GroupResource: m.Kind.GroupResource(), Namespace: m.Object.GetNamespace(), Name: m.Object.GetName()}
}

func place(m *api.Manifest) string { return fmt.Sprintf("%s:%d", m.Path, m.Line) }

func short(commit string) string {
	if len(commit) > 12 {
		return commit[:12]
	}
	return commit
}

// phase orders the kinds: what others need comes first.
func phase(k store.Key) int {
	switch k.GroupResource {
	case api.Namespaces():
		return 0
	case api.PriorityClasses(), api.StorageClasses(), api.PersistentVolumes(), api.ServiceAccounts(), api.ConfigMaps(), api.Secrets(), api.Services(), api.Endpoints(), api.EndpointSlices():
		return 1
	}
	return 2
}

func compareKeys(a, b store.Key) int {
	return cmp.Or(cmp.Compare(phase(a), phase(b)), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func problem(m *api.Manifest, field, reason string) api.Problem {
	at := api.Place{Path: m.Path, Line: m.Line, Column: m.Column}
	if field != "" {
		at = m.Place(field)
	}
	return api.Problem{Field: field, Reason: reason}.At(at)
}

// mergeReason is err for a person. An error about a Secret could quote its
// values (R14).
func mergeReason(m *api.Manifest, err error) string {
	if m.Kind.GroupResource() == api.Secrets() {
		return "cannot be merged with the live Secret: a field has a value of the wrong type or stands twice"
	}
	return err.Error()
}
