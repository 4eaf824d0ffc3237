package nodes_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{"token": "secret"}},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.43.0.9", Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func slice(name string, pods ...*corev1.Pod) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web", "owner": "me"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.42.0.7"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: p.Name, UID: p.UID}})
	}
	return s
}

// routed has the session say how far its traffic is: everything that it was sent.
func (s *client) routed() {
	s.c.t.Helper()
	var last int64
	for _, m := range s.got {
		if mark := m.GetMark(); mark != nil {
			last = mark.Revision
		}
	}
	s.up(&session.Up{Message: &session.Up_Routed{Routed: &session.Routed{Revision: last}}})
}

func TestRoutesGoToEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p := pod("p1", "n1")
		c.create(p)
		c.create(service("web"), slice("web-1", p))
		first, second := c.session("n1"), c.session("n2")
		expect(t, first.settle(), "welcome", "set pod p1", "set service web", "set slice web-1", "synced", "mark")
		expect(t, second.settle(), "welcome", "set service web", "set slice web-1", "synced", "mark")

		c.create(service("db"))
		expect(t, first.settle(), "set service db", "mark")
		if m := first.got[len(first.got)-1].GetMark(); m.Revision != c.store.Revision() {
			t.Errorf("the mark is at %d, the store at %d", m.Revision, c.store.Revision())
		}
		second.settle()
		change(c, service("db"), func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
		expect(t, first.settle(), "set service db", "mark")
		remove(c, service("db"))
		expect(t, first.settle(), "unset services db", "mark")
		expect(t, second.settle(), "set service db", "mark", "unset services db", "mark")
	})
}

// What the pod's own agent and the control plane know is not enough: every other
// node must have taken the pod out of its routes.
func TestDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p := pod("p1", "n1")
		c.create(p)
		c.create(service("web"), slice("web-1", p))
		own, other := c.session("n1"), c.session("n2")
		own.settle()
		other.settle()
		other.routed()
		leave(c, p)
		expect(t, own.settle(), "set pod p1")
		change(c, slice("web-1"), func(s *discoveryv1.EndpointSlice) {
			yes := true
			s.Endpoints[0].Conditions.Terminating = &yes
		})
		expect(t, own.settle(), "set slice web-1", "mark")
		expect(t, other.settle(), "set slice web-1", "mark")
		other.routed()
		expect(t, own.settle())
		own.routed()
		expect(t, own.settle(), "drained "+string(p.UID))
		other.routed()
		expect(t, own.settle())

		// A new session is told again; a node that is known but not here is waited for.
		own.close()
		synctest.Wait()
		own = c.session("n1")
		expect(t, own.settle(), "welcome", "set pod p1", "set service web", "set slice web-1", "synced", "mark")
		own.routed()
		expect(t, own.settle(), "drained "+string(p.UID))
		other.close()
		q := pod("p2", "n1")
		c.create(q)
		expect(t, own.settle(), "set pod p2")
		leave(c, q)
		expect(t, own.settle(), "set pod p2")
		time.Sleep(time.Minute) // the lease of n2 runs out
		if got := own.settle(); !slices.Contains(got, "drained "+string(q.UID)) && !ended(own) {
			t.Errorf("after the other node is lost: %v", got)
		}
	})
}

func ended(s *client) bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// With no other node there is nothing to wait for.
func TestDrainedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		p := pod("p1", "n1")
		c.create(p)
		s := c.session("n1")
		s.settle()
		s.routed()
		s.settle()
		leave(c, p)
		expect(t, s.settle(), "drained "+string(p.UID), "set pod p1")
	})
}

func leave(c *cluster, p *corev1.Pod) {
	now, grace := metav1.Now(), int64(30)
	change(c, p, func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace })
}

// A session never carries what a Service's annotations, labels or managed fields
// say (D5).
func TestD5_RoutesAreStripped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		c.create(service("web"), slice("web-1"))
		s := c.session("n1")
		s.settle()
		seen := 0
		for _, m := range s.got {
			if raw := m.GetSet().GetService(); len(raw) > 0 {
				var got corev1.Service
				if err := got.Unmarshal(raw); err != nil {
					t.Fatal(err)
				}
				if got.Spec.ClusterIP != "10.43.0.9" || len(got.Annotations)+len(got.Labels)+len(got.ManagedFields) > 0 {
					t.Errorf("sent %+v", got)
				}
				seen++
			}
			if raw := m.GetSet().GetEndpointSlice(); len(raw) > 0 {
				var got discoveryv1.EndpointSlice
				if err := got.Unmarshal(raw); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(got.Labels) != fmt.Sprint(map[string]string{discoveryv1.LabelServiceName: "web"}) || len(got.Annotations) > 0 {
					t.Errorf("sent %+v", got)
				}
				seen++
			}
		}
		if seen != 2 {
			t.Errorf("%d objects were sent", seen)
		}
	})
}

func remove(c *cluster, obj *corev1.Service) {
	c.t.Helper()
	live := c.store.Get(store.KeyOf(obj))
	if _, err := c.store.Commit(c.ctx, store.Txn{Ops: []store.Op{{Verb: store.Delete, Object: live}}}); err != nil {
		c.t.Fatal(err)
	}
}
