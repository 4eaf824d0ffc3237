package nodes_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/session"
)

// signer signs readable tokens.
type signer struct{}

func (signer) ForPod(_ context.Context, pod *corev1.Pod, audience string, seconds int64) (string, time.Duration, error) {
	return "token of " + pod.Spec.ServiceAccountName + " for " + audience, time.Duration(seconds) * time.Second, nil
}

// showing is a pod with a volume that shows a token.
func showing(name, node, audience string) *corev1.Pod {
	p := pod(name, node)
	p.Spec.ServiceAccountName = "robot"
	seconds := int64(3607)
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: audience, ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "ca"}}},
	}}}}}
	return p
}

// ask asks for the token that a pod shows.
func (s *client) ask(p *corev1.Pod) {
	s.c.t.Helper()
	s.up(&session.Up{Message: &session.Up_TokenRequest{TokenRequest: &session.TokenRequest{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID), Audience: "vault", Seconds: 3607}}})
}

// A node is given the tokens that its own pods' volumes show, and no others.
func TestANodeGetsTheTokensOfItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		mine, other, ended, plain := showing("mine", "n1", "vault"), showing("other", "n2", "vault"), showing("ended", "n1", "vault"), pod("plain", "n1")
		ended.Status.Phase = corev1.PodSucceeded
		c.create(mine, other, ended, plain)
		s := c.session("n1")
		s.settle()
		ask := func(p *corev1.Pod, uid, audience string, seconds int64) *session.Token {
			t.Helper()
			s.got = nil
			s.up(&session.Up{Message: &session.Up_TokenRequest{TokenRequest: &session.TokenRequest{Namespace: p.Namespace, Name: p.Name, Uid: uid, Audience: audience, Seconds: seconds}}})
			s.settle()
			for _, m := range s.got {
				if token := m.GetToken(); token != nil {
					return token
				}
			}
			t.Fatalf("no answer for %s", p.Name)
			return nil
		}
		got := ask(mine, string(mine.UID), "vault", 3607)
		if got.Token != "token of robot for vault" || got.LifeNanos != int64(3607*time.Second) || got.Error != "" || got.Uid != string(mine.UID) {
			t.Errorf("%v", got)
		}
		for name, c := range map[string]struct {
			pod      *corev1.Pod
			uid      string
			audience string
			seconds  int64
			says     string
		}{
			"a pod of another node":     {other, string(other.UID), "vault", 3607, "is not bound to node n1"},
			"another pod of its name":   {mine, "another", "vault", 3607, "is not bound to node n1"},
			"a pod that has ended":      {ended, string(ended.UID), "vault", 3607, "has ended"},
			"another audience":          {mine, string(mine.UID), "", 3607, "no volume"},
			"another life":              {mine, string(mine.UID), "vault", 360700, "no volume"},
			"a pod that shows no token": {plain, string(plain.UID), "", 3607, "no volume"},
		} {
			if got := ask(c.pod, c.uid, c.audience, c.seconds); got.Token != "" || !strings.Contains(got.Error, c.says) {
				t.Errorf("%s: %v", name, got)
			}
		}
	})
}

// What a node says of its pods does not wait until all their tokens are signed: a
// thousand pods that start at once have thousands.
func TestStatusesDoNotWaitForTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		mine := showing("mine", "n1", "vault")
		c.create(mine)
		s := c.session("n1")
		s.settle()
		hold := make(chan struct{})
		c.kv.hold = hold
		s.status(mine, corev1.PodPending, 1, false)
		synctest.Wait() // the writer waits for the store
		for range 900 {
			s.ask(mine)
		}
		s.status(mine, corev1.PodRunning, 2, false)
		synctest.Wait() // the server has all of it
		close(hold)
		answers := s.settle()
		if i := slices.Index(answers, "stored mine 2"); i < 0 || i > 100 {
			t.Errorf("the status is stored after %d of %d answers", i, len(answers))
		}
	})
}

// A node that asks on and on is put off, and its session goes on.
func TestRequestsForTokensAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		mine := showing("mine", "n1", "vault")
		c.create(mine)
		s := c.session("n1")
		s.settle()
		put := 0
		for range 5 { // 1000 answers are read between
			s.got = nil
			for range 900 {
				s.ask(mine)
			}
			s.settle()
			for _, m := range s.got {
				if strings.Contains(m.GetToken().GetError(), "more tokens than it needs") {
					put++
				}
			}
		}
		if put != 500 {
			t.Errorf("%d of 4500 requests were put off", put)
		}
	})
}

// An agent that knows no tokens is sent its pods without them, so that they start.
func TestAnOldAgentGetsPodsWithoutTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		c.create(showing("mine", "n1", ""))
		for version, want := range map[int32]int{session.Version - 1: 1, session.Version: 2} {
			c.hello = version
			s := c.session("n1")
			s.settle()
			sources := -1
			for _, m := range s.got {
				if raw := m.GetSet().GetPod(); len(raw) > 0 {
					var p corev1.Pod
					if err := p.Unmarshal(raw); err != nil {
						t.Fatal(err)
					}
					sources = len(p.Spec.Volumes[0].Projected.Sources)
				}
			}
			if sources != want {
				t.Errorf("version %d: %d sources, want %d", version, sources, want)
			}
			s.close()
			s.settle()
		}
	})
}
