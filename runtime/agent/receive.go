package agent

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
)

// Begin notes that a session begins: what it does not send until it is synced is
// not assigned any more, and what no earlier one has acknowledged is sent again.
func (a *Agent) Begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = map[string]bool{}
	a.flow.marked, a.flow.routed = 0, 0 // of another session, perhaps of another history of the store
	a.gauge.ask(nil)                    // it asks anew
	a.upkeep.again()
	a.out.again()
	a.tokens.again()
	for _, e := range a.entries {
		e.told = false
	}
	notify(a.send)
}

// Receive takes in one message about what should run. An error ends the session.
func (a *Agent) Receive(m *session.Down) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := m.Message.(type) {
	case *session.Down_Set:
		return a.set(m.Set)
	case *session.Down_Unset:
		a.unset(m.Unset)
	case *session.Down_Synced:
		a.sweep()
	case *session.Down_Mark:
		a.flow.mark(m.Mark.Revision)
	case *session.Down_Token:
		a.given(m.Token)
	case *session.Down_Measure:
		a.gauge.ask(m.Measure)
	case *session.Down_Renewed:
		a.renewed(time.Duration(m.Renewed.Sent), time.Duration(m.Renewed.TtlNanos))
	case *session.Down_Drained:
		if e := a.entries[types.UID(m.Drained.Uid)]; e != nil {
			e.record.drained = true
			a.wake(e)
		}
	case *session.Down_Stored:
		a.out.stored(types.UID(m.Stored.Uid), m.Stored.Sequence)
	case *session.Down_Refused:
		a.log.Error("server refused what the agent sent", "what", m.Refused.What, "why", m.Refused.Why)
	}
	return nil
}

func (a *Agent) set(m *session.Assignment) error {
	switch {
	case len(m.Pod) > 0:
		pod := &corev1.Pod{}
		if err := pod.Unmarshal(m.Pod); err != nil {
			return fmt.Errorf("decode a pod that the server sent: %w", err)
		}
		if pod.UID == "" || len(pod.Spec.Containers) == 0 {
			return fmt.Errorf("the server sent pod %s/%s without a uid or without containers", pod.Namespace, pod.Name)
		}
		if a.entries[pod.UID] == nil && len(a.entries) >= session.MaxHeld {
			return fmt.Errorf("the server sent more than %d pods", session.MaxHeld)
		}
		a.note(session.Pods, string(pod.UID))
		a.assign(pod)
		a.save(a.entries[pod.UID])
	case len(m.ConfigMap) > 0:
		cm := &corev1.ConfigMap{}
		if err := cm.Unmarshal(m.ConfigMap); err != nil {
			return fmt.Errorf("decode a configmap that the server sent: %w", err)
		}
		a.note(session.ConfigMaps, nameOf(cm))
		a.things.configMaps[nameOf(cm)] = cm
		a.keep.saveConfigMap(cm)
		a.arrived(session.ConfigMaps, cm.Namespace, cm.Name)
	case len(m.Secret) > 0:
		s := &corev1.Secret{}
		if err := s.Unmarshal(m.Secret); err != nil {
			return fmt.Errorf("decode a secret that the server sent: its bytes are not one") // the cause could hold some of it (R14)
		}
		a.note(session.Secrets, nameOf(s))
		a.things.secrets[nameOf(s)] = s
		a.keep.saveSecret(s)
		a.arrived(session.Secrets, s.Namespace, s.Name)
	case len(m.PersistentVolumeClaim) > 0:
		c := &corev1.PersistentVolumeClaim{}
		if err := c.Unmarshal(m.PersistentVolumeClaim); err != nil {
			return fmt.Errorf("decode a persistentvolumeclaim that the server sent: %w", err)
		}
		a.note(session.Claims, nameOf(c))
		a.things.claims[nameOf(c)] = c
		a.keep.saveClaim(c)
		a.arrived(session.Claims, c.Namespace, c.Name)
	case len(m.PersistentVolume) > 0:
		pv := &corev1.PersistentVolume{}
		if err := pv.Unmarshal(m.PersistentVolume); err != nil {
			return fmt.Errorf("decode a persistentvolume that the server sent: %w", err)
		}
		a.note(session.Volumes, pv.Name)
		a.things.volumes[pv.Name] = pv
		a.keep.saveVolume(pv)
		a.upkeep.doom(pv, m.Discard)
		a.volumeArrived(pv.Name)
	case len(m.Service) > 0:
		s := &corev1.Service{}
		if err := s.Unmarshal(m.Service); err != nil {
			return fmt.Errorf("decode a service that the server sent: %w", err)
		}
		a.note(session.Services, nameOf(s))
		if known := a.flow.services[s.Namespace][s.Name]; known == nil || !same(known, s) {
			a.flow.setService(s)
			a.keep.saveService(s)
		}
	case len(m.Node) > 0:
		node := &corev1.Node{}
		if err := node.Unmarshal(m.Node); err != nil {
			return fmt.Errorf("decode the node that the server sent: %w", err)
		}
		a.known = node
	case len(m.EndpointSlice) > 0:
		s := &discoveryv1.EndpointSlice{}
		if err := s.Unmarshal(m.EndpointSlice); err != nil {
			return fmt.Errorf("decode an endpointslice that the server sent: %w", err)
		}
		a.note(session.Slices, nameOf(s))
		if known := a.flow.slices[nameOf(s)]; known == nil || !same(known, s) {
			a.flow.setSlice(s)
			a.keep.saveSlice(s)
		}
	}
	return nil
}

// same says whether an object that a new session sends is the one that an earlier one
// sent.
func same(known, sent metav1.Object) bool {
	return sent.GetResourceVersion() != "" && known.GetUID() == sent.GetUID() && known.GetResourceVersion() == sent.GetResourceVersion()
}

func (a *Agent) unset(m *session.ObjectName) {
	switch m.Resource {
	case session.Pods:
		if e := a.entries[types.UID(m.Uid)]; e != nil {
			a.release(e)
		}
	case session.ConfigMaps:
		delete(a.things.configMaps, m.Namespace+"/"+m.Name)
		a.keep.dropConfigMap(m.Namespace, m.Name)
	case session.Secrets:
		delete(a.things.secrets, m.Namespace+"/"+m.Name)
		a.keep.dropSecret(m.Namespace, m.Name)
	case session.Claims:
		delete(a.things.claims, m.Namespace+"/"+m.Name)
		a.keep.dropClaim(m.Namespace, m.Name)
	case session.Volumes:
		delete(a.things.volumes, m.Name)
		a.keep.dropVolume(m.Name)
		a.upkeep.spare(m.Name)
	case session.Services:
		a.flow.unsetService(m.Namespace, m.Name)
		a.keep.dropService(m.Namespace, m.Name)
	case session.Slices:
		a.flow.unsetSlice(m.Namespace, m.Name)
		a.keep.dropSlice(m.Namespace, m.Name)
	}
}

func (a *Agent) note(resource, name string) {
	if a.seen != nil {
		a.seen[resource+" "+name] = true
	}
}

// sweep ends the first part of a session: the server has sent everything that it
// has for this node, so the rest is not assigned.
func (a *Agent) sweep() {
	if a.seen == nil {
		return
	}
	for _, uid := range sortedKeys(a.entries) {
		if !a.seen[session.Pods+" "+string(uid)] {
			a.release(a.entries[uid])
		}
	}
	for _, name := range sortedKeys(a.things.configMaps) {
		if !a.seen[session.ConfigMaps+" "+name] {
			cm := a.things.configMaps[name]
			a.unset(&session.ObjectName{Resource: session.ConfigMaps, Namespace: cm.Namespace, Name: cm.Name})
		}
	}
	for _, name := range sortedKeys(a.things.secrets) {
		if !a.seen[session.Secrets+" "+name] {
			s := a.things.secrets[name]
			a.unset(&session.ObjectName{Resource: session.Secrets, Namespace: s.Namespace, Name: s.Name})
		}
	}
	for _, name := range sortedKeys(a.things.claims) {
		if !a.seen[session.Claims+" "+name] {
			c := a.things.claims[name]
			a.unset(&session.ObjectName{Resource: session.Claims, Namespace: c.Namespace, Name: c.Name})
		}
	}
	for _, name := range sortedKeys(a.things.volumes) {
		if !a.seen[session.Volumes+" "+name] {
			a.unset(&session.ObjectName{Resource: session.Volumes, Name: name})
		}
	}
	for _, o := range a.flow.unseen(a.seen) {
		a.unset(o)
	}
	a.flow.do(Traffic.Synced)
	a.keep.saveAll()
	for _, uid := range sortedKeys(a.entries) { // what changed while there was no session
		a.outdate(a.entries[uid])
	}
	a.seen, a.synced = nil, true
	for _, uid := range sortedKeys(a.entries) { // which other pods the node has is known now
		if e := a.entries[uid]; !e.settled {
			a.wake(e)
		}
	}
	a.upkeep.list()
}

// Take takes the next message for the server out of the outbox; nil with a time
// asks to be called again then, nil without one when the agent has done more.
func (a *Agent) Take() (*session.Up, time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.request(); m != nil {
		return m, time.Time{}, nil
	}
	m, wake, err := a.out.next(a.cfg.Now(), a.keep.written)
	if err != nil {
		return nil, wake, fmt.Errorf("encode a message for the server: %w", err)
	}
	return m, wake, nil
}
