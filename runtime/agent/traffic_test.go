package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

// roads is a Traffic that writes down what it is told.
type roads struct {
	mu     sync.Mutex
	said   []string
	broken error
}

func (r *roads) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *roads) SetService(s *corev1.Service)          { r.say("set service %s", s.Name) }
func (r *roads) UnsetService(_, name string)           { r.say("unset service %s", name) }
func (r *roads) SetSlice(s *discoveryv1.EndpointSlice) { r.say("set slice %s", s.Name) }
func (r *roads) UnsetSlice(_, name string)             { r.say("unset slice %s", name) }
func (r *roads) Drop(a netip.Addr)                     { r.say("drop %s", a) }
func (r *roads) Admit(netip.Addr)                      {}
func (r *roads) Synced()                               { r.say("synced") }

func (r *roads) Sync(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

func (r *roads) heard(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.said, what)
}

func (r *roads) breakWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = err
}

func with(r *roads) func(*agent.Config) { return func(c *agent.Config) { c.Traffic = r } }

func setService(t testing.TB, name string) *session.Down {
	t.Helper()
	raw, err := (&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &session.Down{Message: &session.Down_Set{Set: &session.Assignment{Service: raw}}}
}

func setSlice(t testing.TB, name string, pods ...*corev1.Pod) *session.Down {
	t.Helper()
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: p.Name, UID: p.UID}})
	}
	raw, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &session.Down{Message: &session.Down_Set{Set: &session.Assignment{EndpointSlice: raw}}}
}

func mark(revision int64) *session.Down {
	return &session.Down{Message: &session.Down_Mark{Mark: &session.Mark{Revision: revision}}}
}

func drained(p *corev1.Pod) *session.Down {
	return &session.Down{Message: &session.Down_Drained{Drained: &session.Drained{Uid: string(p.UID)}}}
}

func deleted(p *corev1.Pod, grace int64) *corev1.Pod {
	now := metav1.Now()
	p = p.DeepCopy()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
	return p
}

func TestRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, dir := newServer(t), &roads{}, t.TempDir()
		s.full = []*session.Down{setService(t, "web"), setSlice(t, "web-1"), setService(t, "old"), mark(7)}
		a := run(t, s, fake.New(fake.Config{}), dir, with(r))
		sleep(time.Second)
		if got, want := fmt.Sprint(r.said), "[set service web set slice web-1 set service old synced]"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		if s.routed != 7 {
			t.Errorf("routed %d", s.routed)
		}
		// What cannot be synced is not said to be routed, and is tried again.
		r.breakWith(errors.New("nft is missing"))
		s.live <- setService(t, "db")
		s.live <- mark(8)
		sleep(time.Second)
		if s.routed != 7 || s.network.Status != corev1.ConditionTrue || s.network.Message == "" {
			t.Errorf("routed %d while the kernel refuses; condition %+v", s.routed, s.network)
		}
		r.breakWith(nil)
		sleep(time.Minute)
		if s.routed != 8 || s.network.Status != corev1.ConditionFalse {
			t.Errorf("routed %d afterwards; condition %+v", s.routed, s.network)
		}
		a.stop()

		// Without a server the next agent knows all of it; what its session does not
		// send is taken back.
		s.stop()
		next := &roads{}
		a = run(t, s, fake.New(fake.Config{}), dir, with(next))
		sleep(time.Second)
		for _, want := range []string{"set service web", "set slice web-1", "set service old", "set service db", "synced"} {
			if !next.heard(want) {
				t.Errorf("after a restart without a server: %v lacks %q", next.said, want)
			}
		}
		s.full = []*session.Down{setService(t, "web"), setSlice(t, "web-1"), mark(5)} // a store that was put back from a backup
		s.start()
		sleep(time.Minute)
		if !next.heard("unset service old") || !next.heard("unset service db") || next.heard("unset service web") {
			t.Errorf("after the session: %v", next.said)
		}
		if s.routed != 5 {
			t.Errorf("routed %d, the session has marked 5", s.routed)
		}
	})
}

// A pod that is to be stopped is taken out of every Service first, here and on the
// other nodes, and is told to stop only then.
func TestDrainedBeforeStopped(t *testing.T) {
	for _, tt := range []struct {
		name    string
		named   bool
		grace   int64
		told    time.Duration // when the server says that the others are done; 0: never
		stopped time.Duration
	}{
		{"the others say so", true, 30, 700 * time.Millisecond, 700 * time.Millisecond},
		{"nobody says anything", true, 30, 0, 2 * time.Second},
		{"less grace than that", true, 1, 0, time.Second},
		{"no grace", true, 0, 0, 0},
		{"no Service has it", false, 30, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newServer(t), &roads{}
				machine := fake.New(fake.Config{})
				run(t, s, machine, t.TempDir(), with(r))
				p := pod("web")
				s.assign(p)
				if tt.named {
					s.live <- setSlice(t, "web-1", p)
				}
				sleep(time.Second)
				ip := s.status(p).PodIP
				began := time.Now()
				s.live <- setPod(t, deleted(p, tt.grace))
				told := false
				for len(ids(t, machine)) > 0 {
					if tt.told > 0 && !told && time.Since(began) >= tt.told {
						told = true
						s.live <- drained(p)
					}
					sleep(10 * time.Millisecond)
					if time.Since(began) > time.Minute {
						t.Fatal("the pod is never stopped")
					}
				}
				if took := time.Since(began); took < tt.stopped || took > tt.stopped+50*time.Millisecond {
					t.Errorf("stopped %s after its deletion, want %s", took, tt.stopped)
				}
				if dropped := r.heard("drop " + ip); dropped != (tt.named && tt.grace > 0) {
					t.Errorf("dropped %t: %v", dropped, r.said)
				}
			})
		})
	}
}
