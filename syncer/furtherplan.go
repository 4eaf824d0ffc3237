package syncer

import (
	"fmt"
	"slices"
	"strings"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// further plans the Source objects of the further sources. One that the commit does
// not name any more goes in three parts, so that its own syncer cannot make anything
// again that was let go: its Source is marked as deleted, which ends that syncer's
// writes; what it has made is let go, or deleted; and when nothing is left, the Source
// goes. Whatever is done of that is not planned again.
func (p *planner) further() {
	if p.Follows == nil && len(p.Sources) == 0 {
		return
	}
	named := map[string]bool{}
	var begin, end []Step
	for i, entry := range p.Follows {
		named[entry.Name] = true
		if step, ok := p.followStep(i, entry); ok {
			end = append(end, step)
		}
	}
	for _, name := range sortedNames(p.Sources) {
		if named[name] {
			continue
		}
		src := p.Sources[name]
		key := store.KeyOf(src)
		marked := src.DeletionTimestamp != nil
		if !marked {
			out := src.DeepCopyObject().(*api.Source)
			at := metav1.NewTime(p.now.UTC())
			out.DeletionTimestamp = &at
			begin = append(begin, Step{Verb: Delete, Key: key, Op: store.Op{Verb: store.Update, Object: out}, Reason: p.leaveReason(name), Live: src})
		}
		p.leave(name)
		if marked {
			end = append(end, Step{Verb: Delete, Key: key, Op: store.Op{Verb: store.Delete, Object: src}, Reason: p.leaveReason(name), Live: src})
		} else {
			end = append(end, Step{Verb: Wait, Key: key, Reason: "is being let go"})
		}
	}
	p.steps = slices.Concat(begin, p.steps, end)
}

// followStep makes the Source of an entry, or makes it say what the entry says.
func (p *planner) followStep(i int, entry api.SourceConfig) (Step, bool) {
	spec := entry.Spec()
	key := store.Key{GroupResource: api.Sources(), Name: entry.Name}
	where := fmt.Sprintf("sources[%d] of the configuration: %s, %s", i, spec.URL, spec.Ref)
	src := p.Sources[entry.Name]
	if src == nil {
		src = &api.Source{ObjectMeta: metav1.ObjectMeta{Name: entry.Name}, Spec: spec}
		store.Stamp(src, p.now)
		return Step{Verb: Create, Key: key, Op: store.Op{Verb: store.Create, Object: src}, Reason: "followed from now on, " + where}, true
	}
	if src.Spec.Equal(spec) && src.DeletionTimestamp == nil {
		return Step{}, false
	}
	out := src.DeepCopyObject().(*api.Source)
	out.Spec, out.DeletionTimestamp = spec, nil
	out.Generation++
	return Step{Verb: Update, Key: key, Op: store.Op{Verb: store.Update, Object: out}, Reason: "followed as it says now, " + where, Live: src}, true
}

// leave plans what becomes of what a source has made.
func (p *planner) leave(name string) {
	prunes := p.Prunes != nil && p.Prunes(name)
	leaves := slices.Clone(p.Leaves[name])
	slices.SortFunc(leaves, func(a, b api.Object) int { return compareKeys(store.KeyOf(b), store.KeyOf(a)) })
	for _, obj := range leaves {
		key := store.KeyOf(obj)
		kind, _ := api.ResourceKind(key.GroupResource)
		switch {
		case !kind.Declarable: // a record of ours about it
			p.steps = append(p.steps, Step{Verb: Record, Key: key, Op: store.Op{Verb: store.Delete, Object: obj}, Reason: p.leaveReason(name), Live: obj})
		case p.declared[key] != nil || obj.GetDeletionTimestamp() != nil:
		case prunes && !(key.GroupResource == api.Namespaces() && admission.Permanent(key.Name)):
			from, _ := api.ProvenanceOf(obj)
			p.remove(key, obj, nil, fmt.Sprintf("source %s, which declared it in %s, is followed no longer, and the commit says %s: Source/%s", name, from.Path, TrailerAllowDelete, name))
		default:
			p.release(key, obj, "source "+name+" is followed no longer; it stays, and no source declares it")
		}
	}
}

func (p *planner) leaveReason(name string) string {
	objects := 0
	for _, obj := range p.Leaves[name] {
		if kind, _ := api.ResourceKind(store.KeyOf(obj).GroupResource); kind.Declarable {
			objects++
		}
	}
	if p.Prunes != nil && p.Prunes(name) {
		return "followed no longer; what it declared is deleted"
	}
	return fmt.Sprintf("followed no longer; what it declared (%s) stays and is nobody's. To delete it, say so in the last paragraph of the commit message: %s: Source/%s",
		plural(objects, "object"), TrailerAllowDelete, name)
}

// release makes an object one that no source declares.
func (p *planner) release(key store.Key, live api.Object, why string) {
	out := live.DeepCopyObject().(api.Object)
	clearProvenance(out)
	p.steps = append(p.steps, Step{Verb: Update, Key: key, Op: store.Op{Verb: store.Update, Object: out}, Reason: why, Live: live})
}

// claimed says which other source an object belongs to.
func (p *planner) claimed(key store.Key, live api.Object) (api.Provenance, bool) {
	if p.Theirs == nil {
		return api.Provenance{}, false
	}
	from, owned := p.Claims[key], true
	if live != nil {
		from, owned = api.ProvenanceOf(live)
		owned = owned && metav1.GetControllerOfNoCopy(live) == nil
	}
	return from, owned && from.Source != "" && from.Source != p.Source && p.Theirs(from.Source)
}

func claimPlace(from api.Provenance) string {
	if from.Path == "" {
		return "last commit"
	}
	at := fmt.Sprintf("%s:%d", from.Path, from.Line)
	if from.Commit != "" {
		at += " at commit " + short(from.Commit)
	}
	return at
}

func spaceName(namespace string) string {
	if namespace == "" {
		return "objects outside of namespaces"
	}
	return "namespace " + namespace
}

// spaceNames lists the namespaces that a source may write to.
func spaceNames(list []string) string {
	const most = 10
	if len(list) > most {
		return strings.Join(list[:most], ", ") + ", …"
	}
	return strings.Join(list, ", ")
}
