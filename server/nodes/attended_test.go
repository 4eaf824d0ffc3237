package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/server/nodes"
	"headway.dev/headway/store"
)

func hello(t testing.TB, version int32, n *corev1.Node) *session.Up {
	t.Helper()
	raw, err := n.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &session.Up{Message: &session.Up_Hello{Hello: &session.Hello{Version: version, Node: raw}}}
}

// A session that one caller steps does what a stream's does (D9).
func TestD9_SteppedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		ctx := context.Background()
		if _, err := c.nodes.Attend(ctx, "n1", hello(t, session.Version+7, facts("n1"))); err == nil {
			t.Fatal("an unknown version is let in")
		}
		if _, err := c.nodes.Attend(ctx, "n1", hello(t, session.Version, facts("n2"))); err == nil {
			t.Fatal("a node speaks for another")
		}
		s, err := c.nodes.Attend(ctx, "n1", hello(t, session.Version, facts("n1")))
		if err != nil {
			t.Fatal(err)
		}
		if c.store.Get(store.Key{GroupResource: api.Nodes(), Name: "n1"}) == nil {
			synctest.Wait()
			if c.store.Get(store.Key{GroupResource: api.Nodes(), Name: "n1"}) == nil {
				t.Fatal("the session has begun without its Node")
			}
		}
		first, err := s.Send()
		if err != nil || len(first) < 2 || first[0].GetWelcome() == nil {
			t.Fatalf("a session begins with %v, %v", first, err)
		}
		renew := func() {
			t.Helper()
			if err := s.Receive(&session.Up{Message: &session.Up_Renew{Renew: &session.Renew{Sent: 5}}}); err != nil {
				t.Fatal(err)
			}
			if did, err := s.Renew(); !did || err != nil {
				t.Fatalf("renew: %v, %v", did, err)
			}
			if did, _ := s.Renew(); did {
				t.Fatal("one renewal was asked for and two were done")
			}
			out, err := s.Send()
			if err != nil || len(out) == 0 || out[0].GetRenewed() == nil {
				t.Fatalf("the answer to a renewal is %v, %v", out, err)
			}
		}
		for range 3 {
			time.Sleep(nodes.DefaultTTL - time.Second)
			renew()
		}
		if err := s.Receive(&session.Up{Message: &session.Up_NodeStatus{NodeStatus: []byte("?")}}); err != nil {
			t.Fatal(err)
		}
		if out, err := s.Send(); err != nil || len(out) != 1 || out[0].GetRefused() == nil {
			t.Fatalf("the answer to a node that cannot be read is %v, %v", out, err)
		}
		if wrote, err := s.Write(); wrote || err != nil {
			t.Fatalf("wrote %v, %v", wrote, err)
		}
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(nodes.DefaultTTL + time.Second)
		if s.Err() == nil {
			t.Fatal("it lives on without a renewal")
		}
		s.End(errors.New("over"))
	})
}

// A newer session of the node ends an older one.
func TestD9_SteppedSessionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		ctx := context.Background()
		old, err := c.nodes.Attend(ctx, "n1", hello(t, session.Version, facts("n1")))
		if err != nil {
			t.Fatal(err)
		}
		next, err := c.nodes.Attend(ctx, "n1", hello(t, session.Version, facts("n1")))
		if err != nil {
			t.Fatal(err)
		}
		if old.Err() == nil || next.Err() != nil {
			t.Errorf("the older one: %v, the newer one: %v", old.Err(), next.Err())
		}
	})
}

// A node that has as many pods as it may, those of ended Jobs included, keeps its session
// when it tells of all of them, and asks for the tokens of those that run, before it reads
// an answer.
func TestANodeWithAllThePodsThatItMayHave(t *testing.T) {
	c := open(t)
	var pods []*corev1.Pod
	for i := range session.MaxHeld {
		p := showing(fmt.Sprint("p", i), "n1", "vault")
		if i >= session.MaxPods {
			p = pod(p.Name, "n1")
		}
		pods = append(pods, p)
		c.create(p)
	}
	s, err := c.nodes.Attend(t.Context(), "n1", hello(t, session.Version, facts("n1")))
	if err != nil {
		t.Fatal(err)
	}
	say := func(m *session.Up) {
		t.Helper()
		if err := s.Receive(m); err != nil {
			t.Fatal(err)
		}
	}
	status, err := (&corev1.PodStatus{Phase: corev1.PodRunning}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range pods {
		say(&session.Up{Message: &session.Up_PodStatus{PodStatus: &session.PodStatus{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID), Sequence: int64(i + 1), Status: status}}})
		if i < session.MaxPods {
			say(&session.Up{Message: &session.Up_TokenRequest{TokenRequest: &session.TokenRequest{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID), Audience: "vault", Seconds: 3607}}})
		}
	}
	for more := true; more; {
		if more, err = s.Write(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	out, err := s.Send()
	if err != nil {
		t.Fatal(err)
	}
	told, tokens := 0, 0
	for _, m := range out {
		if m.GetStored() != nil {
			told++
		}
		if m.GetToken().GetToken() != "" {
			tokens++
		}
	}
	if told != session.MaxHeld || tokens != session.MaxPods {
		t.Errorf("%d statuses of %d are stored, %d tokens of %d given", told, session.MaxHeld, tokens, session.MaxPods)
	}
}
