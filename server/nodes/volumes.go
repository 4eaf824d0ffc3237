package nodes

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

// volumeChanged wakes the sessions that a change of a volume or a claim concerns. The
// caller holds n.mu.
func (n *Nodes) volumeChanged(e store.Event) {
	for _, a := range n.sessions {
		a.wakeIfNeeded(e.Key)
	}
	for _, obj := range []api.Object{e.Previous, e.Object} {
		switch obj := obj.(type) {
		case *corev1.PersistentVolume:
			n.wake(api.LocalVolumeNode(obj), e.Key)
		case *corev1.PersistentVolumeClaim: // without it its volume may have to go
			if key := volumeOf(obj); key.Name != "" && (e.Deleted() || e.Object.GetUID() != obj.UID) {
				pv, _ := n.cfg.Store.Get(key).(*corev1.PersistentVolume)
				n.wake(api.LocalVolumeNode(pv), key)
			}
		}
	}
}

// nodeChanged has a session look again at the volumes that its pods' claims have, when
// the labels of its node are others. The caller holds n.mu.
func (n *Nodes) nodeChanged(node string) {
	a := n.sessions[node]
	if a == nil {
		return
	}
	a.mu.Lock()
	for key := range a.needed {
		if key.GroupResource == api.PersistentVolumes() {
			a.note(key)
		}
	}
	a.mu.Unlock()
	notify(a.outward)
}

// volumeOf is the volume that a claim says to have; without a name if it has none.
func volumeOf(claim *corev1.PersistentVolumeClaim) store.Key {
	if claim == nil {
		return store.Key{}
	}
	return store.Key{GroupResource: api.PersistentVolumes(), Name: claim.Spec.VolumeName}
}

// claimOf is the claim that a volume says to be of.
func claimOf(pv *corev1.PersistentVolume) (key store.Key, ok bool) {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return store.Key{}, false
	}
	return store.Key{GroupResource: api.PersistentVolumeClaims(), Namespace: ref.Namespace, Name: ref.Name}, true
}

// localVolumes lists the volumes whose data is on a node.
func localVolumes(r store.Reader, node string) (keys []store.Key) {
	for _, obj := range r.List(api.PersistentVolumes(), "") {
		if pv, ok := obj.(*corev1.PersistentVolume); ok && api.LocalVolumeNode(pv) == node {
			keys = append(keys, store.KeyOf(pv))
		}
	}
	return keys
}

// lookClaim is look for a claim: with it goes its volume, which comes before it.
func (v *view) lookClaim(key store.Key) (out []*session.Down, err error) {
	var claim *corev1.PersistentVolumeClaim
	if v.need(key, 0) > 0 {
		claim, _ = v.store.Get(key).(*corev1.PersistentVolumeClaim)
	}
	before, now := v.bound[key], volumeOf(claim)
	if now != before {
		delete(v.bound, key)
		if now.Name != "" {
			v.bound[key] = now
			v.need(now, 1)
		}
		if before.Name != "" {
			v.need(before, -1)
		}
	}
	look := func(volume store.Key) error {
		if volume.Name == "" {
			return nil
		}
		messages, err := v.lookVolume(volume)
		out = append(out, messages...)
		return err
	}
	if err := look(now); err != nil {
		return nil, err
	}
	messages, err := v.send(key, asObject(claim), "")
	if err != nil {
		return nil, err
	}
	out = append(out, messages...)
	if now != before {
		err = look(before)
	}
	return out, err
}

// asObject is nil for a claim that is not there.
func asObject(claim *corev1.PersistentVolumeClaim) api.Object {
	if claim == nil {
		return nil
	}
	return claim
}

// lookVolume is look for a volume: one whose data is on this node, or that a claim has
// which the agent has been sent.
func (v *view) lookVolume(key store.Key) ([]*session.Down, error) {
	pv, _ := v.store.Get(key).(*corev1.PersistentVolume)
	if pv == nil || api.LocalVolumeNode(pv) != v.node && !v.mountable(pv) {
		return v.send(key, nil, "")
	}
	if doomed(v.store, pv, v.node) {
		return v.send(key, pv, discard)
	}
	return v.send(key, pv, "")
}

// discard marks what was sent of a volume that is to go.
const discard = " discard"

// mountable says whether a claim that pods of this node refer to has a volume, by both
// sides' word, and whether the volume can be reached from the node.
func (v *view) mountable(pv *corev1.PersistentVolume) bool {
	key, ok := claimOf(pv)
	if !ok || v.bound[key] != store.KeyOf(pv) {
		return false
	}
	claim, _ := v.store.Get(key).(*corev1.PersistentVolumeClaim)
	return claim != nil && claim.UID == pv.Spec.ClaimRef.UID && v.reachable(pv)
}

// reachable says whether a volume's node affinity names the node.
func (v *view) reachable(pv *corev1.PersistentVolume) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return true
	}
	node, _ := v.store.Get(store.Key{GroupResource: api.Nodes(), Name: v.node}).(*corev1.Node)
	if node == nil {
		return false
	}
	terms, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	return err == nil && terms.Match(node)
}

// doomed says whether the data of a volume is to be removed from a node: its object is
// being deleted, and no claim has it any more.
func doomed(r store.Reader, pv *corev1.PersistentVolume, node string) bool {
	if pv.DeletionTimestamp == nil || api.LocalVolumeNode(pv) != node ||
		!slices.Contains(pv.Finalizers, api.LocalVolumeFinalizer) || slices.Contains(pv.Finalizers, api.ProtectVolume) {
		return false
	}
	key, ok := claimOf(pv)
	if !ok {
		return true
	}
	claim := r.Get(key)
	return claim == nil || pv.Spec.ClaimRef.UID != "" && claim.GetUID() != pv.Spec.ClaimRef.UID
}

// takeGone takes in that the agent is done with a volume, and says what is wrong with
// that.
func (a *attendance) takeGone(m *session.VolumeGone) *session.Down {
	const what = "end of a volume"
	if len(m.Name) > 253 || len(m.Uid) > 253 {
		return refused(what, "its name is too long")
	}
	if !a.inbox.gone(m) {
		return refused(what, fmt.Sprintf("more than %d wait", session.MaxGone))
	}
	return nil
}

// writeGone takes our finalizer off the volumes that the agent is done with. One that
// is not of this node, or not to go, stays as it is.
func (a *attendance) writeGone(ctx context.Context, batch []*session.VolumeGone) error {
	for _, m := range batch {
		err := a.retry(ctx, func() error {
			pv, _ := a.n.cfg.Store.Get(store.Key{GroupResource: api.PersistentVolumes(), Name: m.Name}).(*corev1.PersistentVolume)
			if pv == nil || string(pv.UID) != m.Uid {
				return nil // it has gone already
			}
			if !doomed(a.n.cfg.Store, pv, a.node) {
				a.reply(refused("end of volume "+pv.Name, "node "+a.node+" was not asked to remove it"))
				return nil
			}
			next := *pv
			next.Finalizers = slices.DeleteFunc(slices.Clone(pv.Finalizers), func(f string) bool { return f == api.LocalVolumeFinalizer })
			if len(next.Finalizers) == 0 {
				return a.commit(ctx, []store.Op{{Verb: store.Delete, Object: &next}})
			}
			return a.commit(ctx, []store.Op{{Verb: store.Update, Object: &next}})
		})
		if err != nil {
			return fmt.Errorf("let volume %s go: %w", m.Name, err)
		}
	}
	return nil
}
