package agent_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		run(t, s, machine, t.TempDir())
		p := pod("web")
		s.assign(p)
		synctest.Wait()
		// The first restart is immediate, the others wait 10 s, doubled up to 5 min, and up
		// to a tenth more.
		for i, wait := range []int{0, 10, 20, 40, 80, 160, 300, 300} {
			ended := time.Now()
			crash(t, machine, p, 3)
			if wait > 0 {
				sleep(time.Duration(wait)*time.Second - time.Millisecond)
				c := s.state(p, "c0")
				if c.State.Waiting == nil || c.State.Waiting.Reason != "CrashLoopBackOff" || c.LastTerminationState.Terminated.ExitCode != 3 || c.Ready {
					t.Fatalf("restart %d: %+v", i, c)
				}
				if want := "back-off " + (time.Duration(wait) * time.Second).String() + " restarting failed container=c0 pod=web_default(uid-web)"; c.State.Waiting.Message != want {
					t.Fatalf("message %q", c.State.Waiting.Message)
				}
				if len(ids(t, machine)) != 0 {
					t.Fatalf("restart %d came after less than %d s", i, wait)
				}
				sleep(time.Duration(wait)*time.Second/10 + time.Millisecond)
			}
			if len(ids(t, machine)) != 1 {
				t.Fatalf("restart %d did not come after %s", i, time.Since(ended))
			}
			c := s.state(p, "c0")
			if int(c.RestartCount) != i+1 || c.State.Running == nil || !c.Ready || s.status(p).Phase != corev1.PodRunning {
				t.Fatalf("restart %d: %+v", i, c)
			}
		}
		if got := s.said("BackOff"); len(got) == 0 || !strings.HasPrefix(got[0], "BackOff Back-off restarting failed container c0 in pod web_default(uid-web)") {
			t.Fatalf("events %v", got)
		}
		sleep(10 * time.Minute)
		crash(t, machine, p, 3) // it ran long enough
		if len(ids(t, machine)) != 1 {
			t.Fatal("a long run did not reset the back-off")
		}
	})
}

func TestRestartPolicies(t *testing.T) {
	for _, c := range []struct {
		policy  corev1.RestartPolicy
		code    int32
		phase   corev1.PodPhase
		reason  string
		running bool
	}{
		{corev1.RestartPolicyAlways, 0, corev1.PodRunning, "", true},
		{corev1.RestartPolicyAlways, 1, corev1.PodRunning, "", true},
		{corev1.RestartPolicyOnFailure, 0, corev1.PodSucceeded, "Completed", false},
		{corev1.RestartPolicyOnFailure, 1, corev1.PodRunning, "", true},
		{corev1.RestartPolicyNever, 0, corev1.PodSucceeded, "Completed", false},
		{corev1.RestartPolicyNever, 2, corev1.PodFailed, "Error", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, machine := newServer(t), fake.New(fake.Config{})
			run(t, s, machine, t.TempDir())
			p := pod("job")
			p.Spec.RestartPolicy = c.policy
			s.assign(p)
			synctest.Wait()
			crash(t, machine, p, c.code)
			st := s.status(p)
			if st.Phase != c.phase || (len(ids(t, machine)) == 1) != c.running {
				t.Fatalf("%s, exit %d: phase %s, %v runs", c.policy, c.code, st.Phase, ids(t, machine))
			}
			if c.running {
				return
			}
			if got := s.state(p, "c0").State.Terminated; got == nil || got.Reason != c.reason || got.ExitCode != c.code || got.ContainerID == "" {
				t.Fatalf("%s: %+v", c.policy, got)
			}
			if machine.Calls("StopSandbox") != 1 || machine.Calls("RemoveSandbox") != 0 {
				t.Fatal("a pod that has ended keeps its address, or loses its log")
			}
			if st.PodIP == "" {
				t.Fatal("the status loses the address")
			}
			// The outcome survives a machine that lost everything: it runs once.
			sleep(10 * time.Minute)
			if machine.Calls("StartContainer") != 1 {
				t.Fatal("it ran twice")
			}
		})
	}
}

func TestEndedPodIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		p := pod("job")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c0", ContainerID: "containerd://gone", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}}
		s.assign(p) // the server says that it ran, the machine knows nothing of it
		run(t, s, machine, t.TempDir())
		synctest.Wait()
		if st := s.status(p); st.Phase != corev1.PodFailed || st.ContainerStatuses[0].State.Terminated.Reason != "ContainerStatusUnknown" {
			t.Fatalf("status is %+v", st)
		}
		if machine.Calls("StartContainer") != 0 {
			t.Fatal("it ran twice")
		}
	})
}

// A machine that lost its containers runs nothing twice, whether it is the server
// or the checkpoint that remembers.
func TestLostContainersAreNotRunAgain(t *testing.T) {
	for _, serverKnows := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, dir := newServer(t), t.TempDir()
			a := run(t, s, fake.New(fake.Config{}), dir)
			p := pod("job")
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			s.assign(p)
			sleep(5 * time.Second)
			a.stop()
			s.stop()
			if serverKnows {
				dir = t.TempDir()
				known := p.DeepCopy()
				known.Status = s.status(p)
				s.full = []*session.Down{setPod(t, known)}
				s.start()
			}
			machine := fake.New(fake.Config{}) // a new disk
			run(t, s, machine, dir)
			sleep(time.Minute)
			if machine.Calls("StartContainer") != 0 {
				t.Fatalf("it ran twice; server knows: %v", serverKnows)
			}
		})
	}
}

func TestPullAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		run(t, s, machine, t.TempDir())
		p := pod("web")
		p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		s.assign(p)
		synctest.Wait()
		crash(t, machine, p, 1)
		if n := machine.Calls("Pull"); n != 2 {
			t.Fatalf("%d pulls for two starts", n)
		}
	})
}

func TestInitContainersAndSidecars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		machine := fake.New(fake.Config{Programs: func(c agent.ContainerSpec) fake.Program {
			order = append(order, c.Container.Name)
			switch c.Container.Name {
			case "init1":
				return fake.Program{Runs: 2 * time.Second}
			case "init2":
				return fake.Program{AtOnce: true}
			case "c0":
				return fake.Program{Runs: time.Minute}
			}
			return fake.Program{}
		}})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		p := pod("job")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{{Name: "init1", Image: "hello:1"}, {Name: "side", Image: "hello:1", RestartPolicy: &always}, {Name: "init2", Image: "hello:1"}}
		s.assign(p)
		sleep(time.Second)
		if st := s.status(p); st.Phase != corev1.PodPending || s.state(p, "init1").State.Running == nil || s.state(p, "c0").State.Waiting.Reason != "PodInitializing" {
			t.Fatalf("status is %+v", st)
		}
		sleep(2 * time.Second)
		if !slices.Equal(order, []string{"init1", "side", "init2", "c0"}) {
			t.Fatal(order)
		}
		if st := s.status(p); st.Phase != corev1.PodRunning || !s.state(p, "init1").Ready || !s.state(p, "side").Ready {
			t.Fatalf("status is %+v", st)
		}
		sleep(time.Minute)
		if st := s.status(p); st.Phase != corev1.PodSucceeded || len(ids(t, machine)) != 0 {
			t.Fatalf("the sidecar keeps the pod: %+v", st)
		}
	})
}

func TestDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := fake.New(fake.Config{Programs: func(c agent.ContainerSpec) fake.Program { return fake.Program{Stubborn: true} }})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		p := pod("web")
		s.assign(p)
		synctest.Wait()
		deleted := p.DeepCopy()
		now, grace := metav1.Now(), int64(60)
		deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = &now, &grace
		s.assign(deleted)
		sleep(10 * time.Second)
		if len(ids(t, machine)) != 1 {
			t.Fatal("killed before its grace was over")
		}
		shorter := deleted.DeepCopy()
		grace2 := int64(5)
		shorter.DeletionGracePeriodSeconds = &grace2
		s.assign(shorter)
		sleep(6 * time.Second)
		if len(ids(t, machine)) != 0 {
			t.Fatal("a shorter grace was not taken")
		}
		if !s.stopped[p.UID] {
			t.Fatal("the server is not told that the pod has stopped")
		}
		st := s.status(p)
		if end := st.ContainerStatuses[0].State.Terminated; st.Phase != corev1.PodFailed || end == nil || end.ExitCode != 137 {
			t.Fatalf("status is %+v", st)
		}
		if machine.Calls("RemoveSandbox") != 1 {
			t.Fatal("the sandbox stays")
		}
		// Told again each time the server shows the pod: its finalizers are gone now.
		writes := s.writes
		s.live <- setPod(t, shorter)
		synctest.Wait()
		if s.writes != writes+1 {
			t.Fatal("not told again")
		}
		s.live <- unsetPod(p)
		synctest.Wait()
		if got := s.said("Killing"); len(got) == 0 {
			t.Fatal("no event")
		}
	})
}

func TestMissingConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var env []string
		machine := fake.New(fake.Config{Programs: func(c agent.ContainerSpec) fake.Program { env = c.Env; return fake.Program{} }})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		p := pod("web")
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}}}
		s.assign(p)
		synctest.Wait()
		w := s.state(p, "c0").State.Waiting
		if w == nil || w.Reason != "CreateContainerConfigError" || w.Message != `secret "s" not found` {
			t.Fatalf("waiting is %+v", w)
		}
		s.live <- setSecret(t, "s", "hunter2")
		synctest.Wait() // at once, without a timer
		if s.state(p, "c0").State.Running == nil || !slices.Contains(env, "PASSWORD=hunter2") {
			t.Fatalf("env is %v", env)
		}
		for _, e := range s.said("") {
			if strings.Contains(e, "hunter2") {
				t.Fatal("R14: an event holds the secret")
			}
		}
	})
}

func TestActiveDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		run(t, s, machine, t.TempDir())
		p := pod("job")
		limit := int64(30)
		p.Spec.ActiveDeadlineSeconds = &limit
		s.assign(p)
		sleep(29 * time.Second)
		if len(ids(t, machine)) != 1 {
			t.Fatal("ended early")
		}
		sleep(2 * time.Second)
		if st := s.status(p); st.Phase != corev1.PodFailed || st.Reason != "DeadlineExceeded" || len(ids(t, machine)) != 0 {
			t.Fatalf("status is %+v", st)
		}
	})
}

func TestRunAsNonRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		run(t, s, machine, t.TempDir())
		p, yes := pod("web"), true
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes}
		s.assign(p)
		synctest.Wait()
		if w := s.state(p, "c0").State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, "will run as root") {
			t.Fatalf("waiting is %+v", w)
		}
	})
}

// A grace period of any number that a manifest may hold is one: not so long that it is
// before now, and the stop of the pod begun again and again.
func TestGraceWithoutEnd(t *testing.T) {
	for _, grace := range []int64{9223372036, 9223372037, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			machine := fake.New(fake.Config{})
			s := newServer(t)
			run(t, s, machine, t.TempDir())
			p := pod("web")
			p.Spec.TerminationGracePeriodSeconds = &grace
			s.assign(p)
			sleep(time.Minute)
			s.assign(deleted(p, grace))
			sleep(time.Minute)
			if n := machine.Calls("StopContainer"); n != 1 || len(ids(t, machine)) != 0 {
				t.Errorf("%d seconds: stopped %d times, and %v run", grace, n, ids(t, machine))
			}
		})
	}
}
