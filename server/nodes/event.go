package nodes

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

const maxEventText = 1024

// writeEvents writes a batch of events. They are news, not truth: what the store
// cannot take now is given up, with a line in the log.
func (a *attendance) writeEvents(ctx context.Context, batch [][]byte) error {
	err := a.retryOnce(ctx, func() error {
		ops := a.eventOps(batch)
		if len(ops) == 0 {
			return nil
		}
		return a.commit(ctx, ops)
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return nil
	case errors.Is(err, errReplaced):
		return err
	}
	a.n.log.Warn("events of a node are lost", "node", a.node, "events", len(batch), "error", err)
	return nil
}

// retryOnce tries again after a conflict, on a cache that has caught up.
func (a *attendance) retryOnce(ctx context.Context, try func() error) error {
	err := try()
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound) {
		if err := a.catchUp(ctx); err != nil {
			return err
		}
		return try()
	}
	return err
}

// eventOps decides what a batch writes; a later event of the same name takes the
// place of an earlier one. An event of neither this node nor a pod of it writes
// nothing.
func (a *attendance) eventOps(batch [][]byte) []store.Op {
	place := map[store.Key]int{}
	var ops []store.Op
	for _, raw := range batch {
		e := a.readEvent(raw)
		if e == nil {
			continue
		}
		op := store.Op{Verb: store.Create, Object: e}
		key := store.KeyOf(e)
		if live, _ := a.n.cfg.Store.Get(key).(*corev1.Event); live != nil {
			if live.InvolvedObject.UID != e.InvolvedObject.UID || live.ReportingInstance != a.node || live.Count >= e.Count {
				continue
			}
			next := live.DeepCopy()
			next.Count, next.LastTimestamp = e.Count, e.LastTimestamp
			op = store.Op{Verb: store.Update, Object: next}
		} else {
			store.Stamp(e, a.n.now())
		}
		if i, ok := place[key]; ok {
			ops[i] = op
			continue
		}
		place[key] = len(ops)
		ops = append(ops, op)
	}
	return ops
}

// readEvent decodes an event and keeps of it what an agent may say.
func (a *attendance) readEvent(raw []byte) *corev1.Event {
	var in corev1.Event
	if err := in.Unmarshal(raw); err != nil {
		return nil
	}
	about, ok := a.about(&in)
	if !ok {
		return nil
	}
	if len(validation.IsDNS1123Subdomain(in.Name)) > 0 || len(in.Reason) > 128 || len(about.FieldPath) > maxEventText {
		return nil
	}
	if in.Type != corev1.EventTypeNormal && in.Type != corev1.EventTypeWarning {
		return nil
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name},
		InvolvedObject: about, Reason: in.Reason, Message: cut(in.Message), Type: in.Type,
		Count: max(in.Count, 1), FirstTimestamp: in.FirstTimestamp, LastTimestamp: in.LastTimestamp,
		Source:              corev1.EventSource{Component: "headway-agent", Host: a.node},
		ReportingController: "headway-agent", ReportingInstance: a.node,
	}
}

// about is the object of an event, as the store has it: a pod of this node, a volume
// whose data is on it, or the node itself. ok is false for any other.
func (a *attendance) about(in *corev1.Event) (about corev1.ObjectReference, ok bool) {
	about = in.InvolvedObject
	about.APIVersion, about.ResourceVersion = "v1", ""
	switch about.Kind {
	case "Pod":
		pod, _ := a.n.cfg.Store.Get(store.Key{GroupResource: api.Pods(), Namespace: about.Namespace, Name: about.Name}).(*corev1.Pod)
		mine := pod != nil && pod.UID == about.UID && pod.Spec.NodeName == a.node
		if mine {
			about.ResourceVersion = pod.ResourceVersion
		}
		return about, in.Namespace == about.Namespace && (mine || a.farewell.has(about.UID, about.Namespace, about.Name))
	case "PersistentVolume":
		pv, _ := a.n.cfg.Store.Get(store.Key{GroupResource: api.PersistentVolumes(), Name: about.Name}).(*corev1.PersistentVolume)
		mine := pv != nil && pv.UID == about.UID && api.LocalVolumeNode(pv) == a.node && about.Namespace == "" && about.FieldPath == "" &&
			in.Namespace == metav1.NamespaceDefault && strings.HasPrefix(in.Name, pv.Name[:min(len(pv.Name), 220)]+".")
		if mine {
			about.ResourceVersion = pv.ResourceVersion
		}
		return about, mine
	case "Node":
		node := a.n.cfg.Store.Get(store.Key{GroupResource: api.Nodes(), Name: a.node})
		mine := node != nil && about.Name == a.node && about.Namespace == "" && about.FieldPath == "" &&
			in.Namespace == metav1.NamespaceDefault && strings.HasPrefix(in.Name, a.node[:min(len(a.node), 220)]+".")
		if mine {
			about.UID, about.ResourceVersion = node.GetUID(), node.GetResourceVersion()
		}
		return about, mine
	}
	return about, false
}

// cut bounds a message, between two characters.
func cut(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxEventText)], "")
}

// farewell remembers the pods that the session has just taken away: what was said
// about their end may come after it.
type farewell struct {
	names map[types.UID]string
	order []types.UID
}

const maxFarewell = 1000

func (f *farewell) add(pod api.Object) {
	if f.names == nil {
		f.names = map[types.UID]string{}
	}
	if len(f.order) >= maxFarewell {
		delete(f.names, f.order[0])
		f.order = f.order[1:]
	}
	f.names[pod.GetUID()] = pod.GetNamespace() + "/" + pod.GetName()
	f.order = append(f.order, pod.GetUID())
}

func (f *farewell) has(uid types.UID, namespace, name string) bool {
	return uid != "" && f.names[uid] == namespace+"/"+name
}
