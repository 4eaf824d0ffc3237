package nodes

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

// wake has an object looked at again.
func (a *attendance) wake(key store.Key) {
	a.mu.Lock()
	a.note(key)
	a.mu.Unlock()
	notify(a.outward)
}

func (a *attendance) note(key store.Key) {
	if !a.dirty[key] {
		a.dirty[key] = true
		a.order = append(a.order, key)
	}
}

// wakeIfNeeded is wake for what a node has only because its pods refer to it.
func (a *attendance) wakeIfNeeded(key store.Key) {
	a.mu.Lock()
	needed := a.needed[key] > 0
	a.mu.Unlock()
	if needed {
		a.wake(key)
	}
}

// work takes what there is to look at and to answer, the newest revision of a route
// among it, and whether other pods may have to be measured.
func (a *attendance) work() (keys []store.Key, replies []*session.Down, newest int64, unsure bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys, replies, unsure = a.order, a.replies, a.gauge.unsure
	a.order, a.replies, a.gauge.unsure = nil, nil, false
	clear(a.dirty)
	return keys, replies, a.newest, unsure
}

// send is the one writer of the stream: the welcome, everything that the node
// needs, pods first, then what changes. What changed several times meanwhile is
// sent once, as it is then.
func (a *attendance) send(ctx context.Context) error {
	v, err := a.sendFull()
	if err != nil {
		return err
	}
	for {
		sent, err := a.sendNext(v)
		switch {
		case err != nil:
			return err
		case sent:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.outward:
		}
	}
}

// sendFull sends the welcome and everything that the node needs.
func (a *attendance) sendFull() (*view, error) {
	welcome := &session.Welcome{Version: session.Version, Epoch: a.epoch, TtlNanos: int64(a.n.cfg.TTL)}
	if err := a.stream.Send(&session.Down{Message: &session.Down_Welcome{Welcome: welcome}}); err != nil {
		return nil, err
	}
	v := &view{store: a.n.cfg.Store, node: a.node, pods: map[store.Key]*corev1.Pod{}, things: map[store.Key]string{}, bound: map[store.Key]store.Key{}, need: a.need, old: a.version < carrying}
	// First the node: pods are held against its labels.
	keys := append([]store.Key{{GroupResource: api.Nodes(), Name: a.node}}, localVolumes(a.n.cfg.Store, a.node)...)
	for _, pod := range a.n.cfg.Store.OnNode(a.node) {
		keys = append(keys, store.KeyOf(pod))
	}
	all, marked := allRoutes(a.n.cfg.Store)
	v.marked = marked
	if err := a.sendChanges(v, append(keys, all...)); err != nil {
		return nil, err
	}
	if err := a.sendAll(&session.Down{Message: &session.Down_Synced{Synced: &session.Synced{}}}, mark(marked)); err != nil {
		return nil, err
	}
	return v, a.sendMeasure(v)
}

// sendNext sends what has changed since and what is to be answered, and says whether
// there was anything.
func (a *attendance) sendNext(v *view) (bool, error) {
	keys, replies, newest, unsure := a.work()
	if len(keys)+len(replies) == 0 && !unsure {
		return false, nil
	}
	if err := a.sendAll(replies...); err != nil {
		return true, err
	}
	if err := a.sendChanges(v, keys); err != nil {
		return true, err
	}
	if newest > v.marked {
		v.marked = newest
		if err := a.sendAll(mark(newest)); err != nil {
			return true, err
		}
	}
	if unsure || slices.ContainsFunc(keys, func(key store.Key) bool { return key.GroupResource == api.Pods() }) {
		return true, a.sendMeasure(v)
	}
	return true, nil
}

// sendChanges sends what the node does not have yet of these objects. They may be
// many: answers, those to renewals above all, do not wait until all are sent.
func (a *attendance) sendChanges(v *view, keys []store.Key) error {
	for i, key := range keys {
		if i%100 == 99 {
			if err := a.sendAll(a.answers()...); err != nil {
				return err
			}
		}
		messages, err := v.look(key)
		if err != nil {
			return err
		}
		if err := a.sendAll(messages...); err != nil {
			return err
		}
	}
	return nil
}

func (a *attendance) sendAll(messages ...*session.Down) error {
	for _, m := range messages {
		if err := a.stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// answers takes what there is to answer.
func (a *attendance) answers() []*session.Down {
	a.mu.Lock()
	defer a.mu.Unlock()
	replies := a.replies
	a.replies = nil
	return replies
}

// need counts the pods that refer to an object, and returns how many do.
func (a *attendance) need(key store.Key, more int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.needed[key] += more
	left := a.needed[key]
	if left <= 0 {
		delete(a.needed, key)
	}
	return left
}

// view is what a session has sent of the store.
type view struct {
	store  store.Reader
	node   string
	pods   map[store.Key]*corev1.Pod // as sent
	things map[store.Key]string      // resourceVersion as sent
	bound  map[store.Key]store.Key   // volumes of claims, as sent
	need   func(key store.Key, more int) int
	labels map[string]string // of the node, as sent; nil: they were not
	marked int64             // revision of the newest mark that was sent
	old    bool              // the agent knows nothing of tokens, claims and volumes

	measured []types.UID // pods that the agent was asked to measure
}

// carrying is the version of the protocol from which agents ask for tokens and mount
// persistent volumes.
const carrying = 4

// look compares an object with what was sent of it and returns what to send.
func (v *view) look(key store.Key) ([]*session.Down, error) {
	switch key.GroupResource {
	case api.Pods():
		return v.lookPod(key)
	case api.Nodes():
		return v.lookNode(key)
	}
	return v.lookThing(key)
}

// lookNode is look for the labels of the session's own node, which others give it.
func (v *view) lookNode(key store.Key) ([]*session.Down, error) {
	node, _ := v.store.Get(key).(*corev1.Node)
	if node == nil || v.labels != nil && maps.Equal(v.labels, node.Labels) {
		return nil, nil
	}
	raw, err := (&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}}).Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}
	if v.labels = node.Labels; v.labels == nil {
		v.labels = map[string]string{}
	}
	return []*session.Down{set(&session.Assignment{Node: raw})}, nil
}

func (v *view) lookPod(key store.Key) (out []*session.Down, err error) {
	pod, _ := v.store.Get(key).(*corev1.Pod)
	if pod != nil && pod.Spec.NodeName != v.node {
		pod = nil
	}
	before := v.pods[key]
	if before != nil && pod != nil && before.UID == pod.UID && !changed(before, pod) {
		return nil, nil
	}
	if pod != nil {
		for _, ref := range v.references(pod) {
			if v.need(ref, 1) > 1 {
				continue
			}
			messages, err := v.lookThing(ref)
			if err != nil {
				return nil, err
			}
			out = append(out, messages...)
		}
	}
	if before != nil && (pod == nil || before.UID != pod.UID) {
		out = append(out, unset(session.Pods, key, before.UID))
		delete(v.pods, key)
	}
	if pod != nil {
		sent := *pod
		sent.ManagedFields = nil
		told := &sent
		if v.old {
			told = without(told)
		}
		raw, err := told.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
		out = append(out, set(&session.Assignment{Pod: raw}))
		v.pods[key] = &sent
	}
	if before != nil {
		for _, ref := range v.references(before) {
			if v.need(ref, -1) > 0 {
				continue
			}
			messages, err := v.lookThing(ref)
			if err != nil {
				return nil, err
			}
			out = append(out, messages...)
		}
	}
	return out, nil
}

// lookThing is look for what a node has only because its pods refer to it, and for
// what every node has.
func (v *view) lookThing(key store.Key) ([]*session.Down, error) {
	switch {
	case key.GroupResource == api.PersistentVolumes() || key.GroupResource == api.PersistentVolumeClaims():
		if v.old {
			return nil, nil
		}
		if key.GroupResource == api.PersistentVolumes() {
			return v.lookVolume(key)
		}
		return v.lookClaim(key)
	case !routes(key) && v.need(key, 0) <= 0:
		return v.send(key, nil, "")
	}
	return v.send(key, v.store.Get(key), "")
}

// send is what to send of an object that the node is to have as it is, with a mark of
// ours; of none if that is nil.
func (v *view) send(key store.Key, obj api.Object, mark string) ([]*session.Down, error) {
	sent, was := v.things[key]
	if obj == nil {
		if !was {
			return nil, nil
		}
		delete(v.things, key)
		return []*session.Down{unset(key.Resource, key, "")}, nil
	}
	if was && sent == obj.GetResourceVersion()+mark {
		return nil, nil
	}
	m, err := assignment(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}
	m.Discard = mark == discard
	v.things[key] = obj.GetResourceVersion() + mark
	return []*session.Down{set(m)}, nil
}

// assignment encodes what a node may know of an object.
func assignment(obj api.Object) (m *session.Assignment, err error) {
	m = &session.Assignment{}
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		plain := *obj
		plain.ManagedFields = nil
		m.ConfigMap, err = plain.Marshal()
	case *corev1.Secret:
		plain := *obj
		plain.ManagedFields = nil
		m.Secret, err = plain.Marshal()
	case *corev1.PersistentVolumeClaim:
		plain := *obj
		plain.ManagedFields = nil
		m.PersistentVolumeClaim, err = plain.Marshal()
	case *corev1.PersistentVolume:
		plain := *obj
		plain.ManagedFields = nil
		m.PersistentVolume, err = plain.Marshal()
	case *corev1.Service:
		m.Service, err = session.ServiceForRouting(obj).Marshal()
	case *discoveryv1.EndpointSlice:
		m.EndpointSlice, err = session.SliceForRouting(obj).Marshal()
	}
	return m, err
}

// references are what a pod refers to, as far as its agent knows of such.
func (v *view) references(pod *corev1.Pod) []store.Key {
	var out []store.Key
	for _, r := range session.References(pod) {
		key := store.Key{GroupResource: api.ConfigMaps(), Namespace: pod.Namespace, Name: r.Name}
		switch r.Resource {
		case session.Secrets:
			key.GroupResource = api.Secrets()
		case session.Claims:
			if v.old {
				continue
			}
			key.GroupResource = api.PersistentVolumeClaims()
		}
		out = append(out, key)
	}
	return out
}

// changed says whether a pod differs in what its agent goes by. Its status, which
// the agent wrote itself, only counts where others write it.
func changed(before, after *corev1.Pod) bool {
	if before.ResourceVersion == after.ResourceVersion {
		return false
	}
	if before.Generation != after.Generation || !before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!slices.Equal(before.Finalizers, after.Finalizers) || ended(before) != ended(after) {
		return true
	}
	if len(after.Spec.ReadinessGates) > 0 && !equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) {
		return true
	}
	return !equality.Semantic.DeepEqual(before.DeletionGracePeriodSeconds, after.DeletionGracePeriodSeconds) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func set(m *session.Assignment) *session.Down {
	return &session.Down{Message: &session.Down_Set{Set: m}}
}

func unset(resource string, key store.Key, uid types.UID) *session.Down {
	return &session.Down{Message: &session.Down_Unset{Unset: &session.ObjectName{
		Resource: resource, Namespace: key.Namespace, Name: key.Name, Uid: string(uid),
	}}}
}
