package agent_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

// claimVolume is a volume of a claim.
func claimVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// boundPair is a claim and its volume, which is a folder of this node.
func boundPair(name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name)}}
	claim.Spec.VolumeName = "pvc-" + name
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: "pvc-" + name, UID: types.UID("volume-" + name), Annotations: map[string]string{api.ProvisionedByAnnotation: api.LocalProvisioner},
	}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: name, UID: claim.UID}
	pv.Spec.NodeAffinity = api.LocalVolumeAffinity("n1")
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	pv.Spec.Local = &corev1.LocalVolumeSource{Path: "/persistent/" + pv.Name}
	return claim, pv
}

func setClaim(t testing.TB, c *corev1.PersistentVolumeClaim) *session.Down {
	t.Helper()
	raw, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &session.Down{Message: &session.Down_Set{Set: &session.Assignment{PersistentVolumeClaim: raw}}}
}

func setVolume(t testing.TB, pv *corev1.PersistentVolume, discard bool) *session.Down {
	t.Helper()
	raw, err := pv.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &session.Down{Message: &session.Down_Set{Set: &session.Assignment{PersistentVolume: raw, Discard: discard}}}
}

func unsetThing(resource, namespace, name string) *session.Down {
	return &session.Down{Message: &session.Down_Unset{Unset: &session.ObjectName{Resource: resource, Namespace: namespace, Name: name}}}
}

// want has the server send something now and in every later session.
func (s *server) want(messages ...*session.Down) {
	for _, m := range messages {
		s.mu.Lock()
		s.full = append(s.full, m)
		s.mu.Unlock()
		s.live <- m
	}
}

func (s *server) gone() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ended)
}

func (s *shelf) persistent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.kept))
}

// A pod waits for its claim to be there, bound, and its volume to be there, says so, and
// starts as soon as it is.
func TestPodsWaitForTheirClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		run(t, s, machine, t.TempDir(), vols.in)
		p := withVolume(pod("a"), "v", claimVolume("c"))
		s.assign(p)
		claim, pv := boundPair("c")
		unbound := claim.DeepCopy()
		unbound.Spec.VolumeName = ""
		for _, step := range []struct {
			said string
			then *session.Down
		}{
			{`persistentvolumeclaim "c" not found`, setClaim(t, unbound)},
			{`persistentvolumeclaim "c" is not bound`, setClaim(t, claim)},
			{`persistentvolume "pvc-c" of persistentvolumeclaim "c" is not there`, setVolume(t, pv, false)},
		} {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if said := s.said("FailedMount"); !slices.ContainsFunc(said, func(e string) bool { return strings.Contains(e, step.said) }) {
				t.Errorf("want %q: %q", step.said, said)
			}
			if st := s.state(p, "c0").State; st.Running != nil {
				t.Error("it runs")
			}
			s.want(step.then)
		}
		synctest.Wait()
		if s.state(p, "c0").State.Running == nil || !slices.Equal(vols.persistent(), []string{"pvc-c"}) {
			t.Fatalf("%+v, %v", s.state(p, "c0"), vols.persistent())
		}
	})
}

// R8, R9: an agent that comes back without a server knows its claims; a pod that runs
// needs none, also when its container starts again.
func TestR9_ClaimsAreInTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols, dir := newServer(t), fake.New(fake.Config{}), newShelf(), t.TempDir()
		a := run(t, s, machine, dir, vols.in)
		claim, pv := boundPair("c")
		s.want(setVolume(t, pv, false), setClaim(t, claim))
		p := withVolume(pod("a"), "v", claimVolume("c"))
		s.assign(p)
		time.Sleep(time.Second)
		before := ids(t, machine)
		a.stop()
		s.stop()
		run(t, s, machine, dir, vols.in)
		time.Sleep(time.Minute)
		if now := ids(t, machine); len(now) != 1 || now["a/c0"] != before["a/c0"] {
			t.Fatalf("%v, then %v", before, now)
		}
		machine.Reboot() // everything is made anew
		time.Sleep(10 * time.Minute)
		if now := ids(t, machine); len(now) != 1 || now["a/c0"] == before["a/c0"] {
			t.Errorf("after a boot without a server: %v", now)
		}
	})
}

// The data of a volume goes when the server says so and no pod has it; the server is
// told, again in each session, once.
func TestDataIsDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols, dir := newServer(t), fake.New(fake.Config{}), newShelf(), t.TempDir()
		a := run(t, s, machine, dir, vols.in)
		claim, pv := boundPair("c")
		s.want(setVolume(t, pv, false), setClaim(t, claim))
		p := withVolume(pod("a"), "v", claimVolume("c"))
		s.live <- setPod(t, p)
		time.Sleep(time.Second)
		if s.state(p, "c0").State.Running == nil {
			t.Fatalf("%+v", s.state(p, "c0"))
		}
		s.forget()
		s.want(setVolume(t, pv, true)) // though a pod has it
		time.Sleep(time.Minute)
		if len(s.gone()) > 0 || len(vols.persistent()) != 1 {
			t.Fatalf("gone: %v, kept %v", s.gone(), vols.persistent())
		}
		s.live <- unsetPod(p)
		s.live <- unsetThing(session.Claims, "default", "c")
		time.Sleep(time.Minute)
		if got := s.gone(); !slices.Equal(got, []string{"pvc-c volume-c"}) || len(vols.persistent()) != 0 {
			t.Fatalf("gone: %v, kept %v", got, vols.persistent())
		}
		a.stop()
		run(t, s, machine, dir, vols.in)
		time.Sleep(time.Minute)
		if got := s.gone(); len(got) != 2 || got[1] != "pvc-c volume-c" {
			t.Fatalf("after a restart: %v", got)
		}
	})
}

// Retain keeps the data, and lets the object go.
func TestRetainKeepsTheData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vols := newServer(t), newShelf()
		vols.kept["pvc-c"] = true
		run(t, s, fake.New(fake.Config{}), t.TempDir(), vols.in)
		_, pv := boundPair("c")
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		s.want(setVolume(t, pv, true))
		time.Sleep(time.Minute)
		if got := s.gone(); len(got) != 1 || len(vols.persistent()) != 1 {
			t.Errorf("gone: %v, kept %v", got, vols.persistent())
		}
	})
}

// Data that cannot be removed is told of once for each reason, and tried again; a volume
// of another node is left alone whatever the server says.
func TestDataThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vols := newServer(t), newShelf()
		vols.kept["pvc-c"], vols.kept["pvc-far"] = true, true
		vols.stuck = errors.New("something is mounted at /persistent/pvc-c/x")
		run(t, s, fake.New(fake.Config{}), t.TempDir(), vols.in)
		_, pv := boundPair("c")
		_, far := boundPair("far")
		far.Spec.NodeAffinity = api.LocalVolumeAffinity("n2")
		s.want(setVolume(t, pv, true), setVolume(t, far, true))
		time.Sleep(10 * time.Minute)
		if got := s.said("VolumeFailedDelete"); len(got) != 1 || !strings.Contains(got[0], "something is mounted") || len(s.gone()) != 0 {
			t.Errorf("%v, gone %v", got, s.gone())
		}
		vols.mu.Lock()
		vols.stuck, vols.blind = nil, errors.New("input/output error")
		vols.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if got := s.gone(); len(got) > 0 {
			t.Errorf("gone %v, though nobody could look", got)
		}
		vols.mu.Lock()
		vols.blind = nil
		vols.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if got := s.gone(); !slices.Equal(got, []string{"pvc-c volume-c"}) || !slices.Equal(vols.persistent(), []string{"pvc-far"}) {
			t.Errorf("gone %v, kept %v", got, vols.persistent())
		}
	})
}

// Without a lease nothing is removed: what was to go may have been taken back.
func TestNothingIsDiscardedWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vols := newServer(t), newShelf()
		began := time.Now()
		run(t, s, fake.New(fake.Config{}), t.TempDir(), vols.in, func(c *agent.Config) {
			c.Boot = func() time.Duration { return time.Since(began) + time.Hour }
		})
		_, pv := boundPair("c")
		time.Sleep(time.Second)
		vols.mu.Lock()
		vols.kept["pvc-c"], vols.fails = true, errors.New("busy")
		vols.mu.Unlock()
		s.want(setVolume(t, pv, true))
		time.Sleep(time.Minute)
		s.stop()
		time.Sleep(5 * time.Minute)
		vols.mu.Lock()
		vols.fails = nil
		vols.mu.Unlock()
		time.Sleep(time.Hour)
		if len(vols.persistent()) != 1 {
			t.Fatal("data was removed without a server")
		}
		s.start()
		time.Sleep(time.Minute)
		if len(s.gone()) != 1 || len(vols.persistent()) != 0 {
			t.Errorf("gone %v, kept %v", s.gone(), vols.persistent())
		}
	})
}

// Data of a volume that the cluster does not know is told of once, and left alone.
func TestUnknownDataIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vols, dir := newServer(t), newShelf(), t.TempDir()
		vols.kept["pvc-c"], vols.kept["pvc-lost"] = true, true
		_, pv := boundPair("c")
		s.want(setVolume(t, pv, false))
		a := run(t, s, fake.New(fake.Config{}), dir, vols.in)
		time.Sleep(time.Hour)
		a.stop()
		run(t, s, fake.New(fake.Config{}), dir, vols.in)
		time.Sleep(time.Hour)
		got := s.said("UnknownVolumeData")
		if len(got) != 2 || got[0] != got[1] || !strings.Contains(got[0], "/persistent/pvc-lost") || len(vols.persistent()) != 2 {
			t.Errorf("%v, kept %v", got, vols.persistent())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		n := 0
		for name := range s.names {
			if strings.HasPrefix(name, "n1.") {
				n++
			}
		}
		if n != 1 || s.volumesDir != "/persistent" {
			t.Errorf("%d events by name, volumes in %q", n, s.volumesDir)
		}
	})
}

// A ConfigMap reaches a running pod also when its claim cannot be found any more.
func TestContentFollowsWithoutTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vols := newServer(t), newShelf()
		run(t, s, fake.New(fake.Config{}), t.TempDir(), vols.in)
		claim, pv := boundPair("c")
		s.want(setVolume(t, pv, false), setClaim(t, claim), setSecret(t, "s", "one"))
		p := withVolume(withVolume(pod("a"), "v", secretVolume("s")), "d", claimVolume("c"))
		s.assign(p)
		synctest.Wait()
		s.live <- unsetThing(session.Claims, "default", "c")
		s.live <- setSecret(t, "s", "two")
		synctest.Wait()
		if got := vols.file(p, "v", "k"); got != "two" {
			t.Errorf("the pod has %q", got)
		}
	})
}
