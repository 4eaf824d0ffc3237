package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

// A container that belongs to no pod is an event once, and in the node's condition for
// as long as it is there.
func TestForeignContainerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, dir := newServer(t), fake.New(fake.Config{}), t.TempDir()
		a := run(t, s, machine, dir)
		synctest.Wait()
		condition := func() corev1.NodeCondition {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.foreign
		}
		if c := condition(); c.Status != corev1.ConditionFalse || len(s.said("ForeignContainer")) != 0 {
			t.Errorf("nothing is there: %+v", c)
		}
		first := agent.ForeignContainer{ID: "toy\x1b[2J", Namespace: "headway", Image: "docker.io/library/toy:1", CreatedAt: time.Now()}
		machine.SetForeign(first)
		synctest.Wait()
		const text = `toy\x1b[2J (docker.io/library/toy:1) in containerd's namespace headway belongs to no pod`
		if got := s.said("ForeignContainer"); len(got) != 1 || !strings.Contains(got[0], text) {
			t.Errorf("events %q", got)
		}
		since := condition()
		if since.Status != corev1.ConditionTrue || !strings.Contains(since.Message, text) {
			t.Errorf("condition %+v", since)
		}
		// Nothing is said again in a day, and a second one is said for itself.
		time.Sleep(24 * time.Hour)
		var all []agent.ForeignContainer
		for i := range 9 {
			all = append(all, agent.ForeignContainer{ID: fmt.Sprintf("more-%d%s", i, strings.Repeat("x", 300)), Namespace: "headway", CreatedAt: time.Now()})
		}
		machine.SetForeign(append(all, first)...)
		synctest.Wait()
		if got := s.said("ForeignContainer"); len(got) != 10 {
			t.Errorf("%d events: %q", len(got), got)
		}
		c := condition()
		if !strings.Contains(c.Message, "and 5 more in") || len(c.Message) > 1024 || !c.LastTransitionTime.Equal(&since.LastTransitionTime) {
			t.Errorf("condition of %d bytes: %+v", len(c.Message), c)
		}
		// An agent that is started again says the same event, which the server has.
		a.stop()
		names := len(s.names)
		a = run(t, s, machine, dir)
		synctest.Wait()
		if len(s.names) != names || condition().Status != corev1.ConditionTrue {
			t.Errorf("events of %d names, before %d; condition %+v", len(s.names), names, condition())
		}
		machine.SetForeign()
		synctest.Wait()
		if c := condition(); c.Status != corev1.ConditionFalse {
			t.Errorf("all are gone: %+v", c)
		}
		a.stop()
	})
}
