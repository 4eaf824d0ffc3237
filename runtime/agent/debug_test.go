package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

// An ephemeral container starts in the pod that runs, beside it, is shown, never
// restarted, and does not keep the pod from ending.
func TestEphemeralContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var targets []string
		machine := fake.New(fake.Config{Programs: func(s agent.ContainerSpec) fake.Program {
			if s.Container.Name == "debug" {
				targets = append(targets, s.Target)
				return fake.Program{Runs: time.Minute, Code: 3}
			}
			return fake.Program{}
		}})
		s := newServer(t)
		dir := t.TempDir()
		a := run(t, s, machine, dir)
		p := pod("a", "web:1")
		s.assign(p)
		sleep(time.Second)
		web := ids(t, machine)["a/c0"]
		p = p.DeepCopy()
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "tools:1"}, TargetContainerName: "c0",
		}}
		s.assign(p)
		sleep(time.Second)
		shown := func() corev1.ContainerStatus {
			st := s.status(p)
			if len(st.EphemeralContainerStatuses) != 1 || st.Phase != corev1.PodRunning {
				t.Fatalf("%+v", st)
			}
			return st.EphemeralContainerStatuses[0]
		}
		if st := shown(); st.State.Running == nil || st.Name != "debug" || st.Ready {
			t.Errorf("%+v", st)
		}
		if len(targets) != 1 || targets[0] != web || ids(t, machine)["a/c0"] != web {
			t.Errorf("it sees %v, the pod runs as %v", targets, ids(t, machine))
		}
		a.stop()
		a = run(t, s, machine, dir)
		sleep(10 * time.Minute)
		if st := shown(); st.State.Terminated == nil || st.State.Terminated.ExitCode != 3 || st.RestartCount != 0 || len(targets) != 1 {
			t.Errorf("after its end, of %d starts: %+v", len(targets), st)
		}
		if st := s.status(p); !ready(st) {
			t.Errorf("the pod is not ready: %+v", st.Conditions)
		}
		a.stop()
		run(t, s, machine, dir)
		sleep(time.Minute)
		if len(targets) != 1 {
			t.Errorf("it was started %d times", len(targets))
		}
	})
}
