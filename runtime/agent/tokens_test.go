package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

// withToken gives a pod a volume with a token of its account.
func withToken(p *corev1.Pod, seconds int64) *corev1.Pod {
	return withVolume(p, "v", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
	}}})
}

// asks are the requests for tokens that a server has had.
func (s *server) asks() []*session.TokenRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*session.TokenRequest(nil), s.tokens...)
}

// answer has the server give a token, or say why not.
func (s *server) answer(m *session.TokenRequest, token, refusal string) {
	life := time.Duration(m.Seconds) * time.Second
	s.live <- &session.Down{Message: &session.Down_Token{Token: &session.Token{Uid: m.Uid, Audience: m.Audience, Seconds: m.Seconds, Token: token, LifeNanos: int64(life), Error: refusal}}}
}

// A pod starts when its token is there, is given a new one after 80 % of its life
// without a restart, and keeps the old one when none comes.
func TestATokenComesFirstAndIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		run(t, s, machine, t.TempDir(), vols.in)
		p := withToken(pod("a"), 3607)
		s.assign(p)
		synctest.Wait()
		asks := s.asks()
		if len(asks) != 1 || asks[0].Name != "a" || asks[0].Uid != string(p.UID) || asks[0].Seconds != 3607 || asks[0].Audience != "" {
			t.Fatalf("asked for %v", asks)
		}
		if machine.Calls("EnsureSandbox") != 0 || len(s.said("FailedMount")) != 0 {
			t.Errorf("%d sandboxes before the token, events %q", machine.Calls("EnsureSandbox"), s.said("FailedMount"))
		}
		s.answer(asks[0], "first", "")
		synctest.Wait()
		if s.state(p, "c0").State.Running == nil || vols.file(p, "v", "token") != "first" {
			t.Fatalf("%+v, token %q", s.state(p, "c0"), vols.file(p, "v", "token"))
		}
		time.Sleep(47 * time.Minute) // 80 % of 3607 s are 48 minutes
		if n := len(s.asks()); n != 1 {
			t.Fatalf("renewed after 47 minutes: %d requests", n)
		}
		time.Sleep(2 * time.Minute)
		asks = s.asks()
		if len(asks) != 2 {
			t.Fatalf("%d requests after 49 minutes", len(asks))
		}
		if vols.file(p, "v", "token") != "first" {
			t.Error("the old token went before the new one came")
		}
		s.answer(asks[1], "second", "")
		synctest.Wait()
		if vols.file(p, "v", "token") != "second" || machine.Calls("StartContainer") != 1 {
			t.Errorf("token %q, %d starts", vols.file(p, "v", "token"), machine.Calls("StartContainer"))
		}
		// What the server refuses is asked for again, with patience, and nothing is lost.
		time.Sleep(49 * time.Minute)
		s.answer(s.asks()[2], "", "the account is gone")
		time.Sleep(10 * time.Minute)
		if n := len(s.asks()); n < 4 || n > 12 || vols.file(p, "v", "token") != "second" || s.state(p, "c0").RestartCount != 0 {
			t.Errorf("%d requests, token %q", n, vols.file(p, "v", "token"))
		}
	})
}

// A long token is renewed once a day.
func TestALongTokenIsRenewedDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		run(t, s, machine, t.TempDir(), vols.in)
		s.assign(withToken(pod("a"), 30*24*3600))
		synctest.Wait()
		s.answer(s.asks()[0], "first", "")
		time.Sleep(23 * time.Hour)
		if n := len(s.asks()); n != 1 {
			t.Fatalf("%d requests within a day", n)
		}
		time.Sleep(time.Hour + time.Minute)
		if n := len(s.asks()); n != 2 {
			t.Fatalf("%d requests after a day", n)
		}
	})
}

// A pod without a token waits, and says why.
func TestAPodWaitsForItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		run(t, s, machine, t.TempDir(), vols.in)
		p := withToken(pod("a"), 3607)
		s.assign(p)
		synctest.Wait()
		s.answer(s.asks()[0], "", `serviceaccounts "robot" not found`)
		time.Sleep(10 * time.Second)
		said := s.said("FailedMount")
		if len(said) == 0 || !strings.Contains(said[0], `MountVolume.SetUp failed for volume "v" : failed to fetch token: serviceaccounts "robot" not found`) {
			t.Fatalf("events: %q", said)
		}
		if st := s.state(p, "c0"); st.State.Waiting == nil || st.State.Waiting.Reason != "ContainerCreating" {
			t.Errorf("%+v", st)
		}
		asks := s.asks()
		if len(asks) < 2 {
			t.Fatalf("%d requests", len(asks))
		}
		s.answer(asks[len(asks)-1], "at last", "")
		synctest.Wait()
		if s.state(p, "c0").State.Running == nil {
			t.Errorf("not running: %+v", s.state(p, "c0"))
		}
	})
}

// A session that breaks before the answer: the next server is asked.
func TestANewSessionIsAskedForTokensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		run(t, s, machine, t.TempDir(), vols.in)
		p := withToken(pod("a"), 3607)
		s.assign(p)
		synctest.Wait()
		s.stop()
		s.start()
		time.Sleep(15 * time.Second)
		asks := s.asks()
		if len(asks) != 2 {
			t.Fatalf("%d requests", len(asks))
		}
		s.answer(asks[1], "first", "")
		synctest.Wait()
		if s.state(p, "c0").State.Running == nil {
			t.Errorf("not running: %+v", s.state(p, "c0"))
		}
	})
}

// A restarted agent without a server goes on with the token that it had (R9), which is
// in memory only (R14), and forgets it with the pod.
func TestR9_TokensOutliveTheAgent(t *testing.T) {
	secrets, err := os.MkdirTemp("/dev/shm", "headway-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(secrets) })
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols, dir := newServer(t), fake.New(fake.Config{}), newShelf(), t.TempDir()
		in := func(c *agent.Config) { c.Volumes, c.Secrets = vols, secrets }
		a := run(t, s, machine, dir, in)
		p := withToken(pod("a"), 3607)
		s.assign(p)
		synctest.Wait()
		s.answer(s.asks()[0], "first-of-all", "")
		synctest.Wait()
		a.stop()
		s.stop()
		if found := grep(t, dir, "first-of-all"); found != "" {
			t.Errorf("the token is on the disk: %s", found)
		}
		if grep(t, secrets, "first-of-all") == "" {
			t.Error("the token is not kept")
		}
		delete(vols.pods, p.UID) // so that it is seen to be made again
		machine.Reboot()
		b := run(t, s, machine, dir, in)
		time.Sleep(time.Minute)
		if got := vols.file(p, "v", "token"); got != "first-of-all" || len(ids(t, machine)) != 1 {
			t.Errorf("token %q, running %v", got, ids(t, machine))
		}
		s.forget()
		s.start()
		time.Sleep(time.Minute)
		b.stop()
		if found := grep(t, secrets, "first-of-all"); found != "" {
			t.Errorf("the token of a pod that is gone is still in %s", found)
		}
	})
}

// grep is a file below a folder that has a text; "" when none has.
func grep(t *testing.T, dir, text string) (found string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if strings.Contains(string(raw), text) {
			found = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
