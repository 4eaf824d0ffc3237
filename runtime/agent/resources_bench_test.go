package agent_test

import (
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

// BenchmarkWatchedMachine is what it costs to know that a machine with 100 pods is not
// full: each op is what the agent does every ten seconds, on the real figures of this
// machine. milli-cores is the figure.
func BenchmarkWatchedMachine(b *testing.B) {
	srv, machine := newServer(b), fake.New(fake.Config{})
	thresholds, err := agent.ParseThresholds("memory.available<1Ki,nodefs.available<1Ki,nodefs.inodesFree<1,pid.available<1", "", "")
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	a := run(b, srv, machine, dir, func(c *agent.Config) {
		c.Host, c.Thresholds = func() (agent.Host, error) { return agent.ReadHost(dir, dir) }, thresholds
	})
	for i := range 100 {
		srv.assign(pod(fmt.Sprintf("web%d", i)))
	}
	for len(ids(b, machine)) < 100 {
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	for b.Loop() {
		if err := a.Press(b.Context()); err != nil {
			b.Fatal(err)
		}
		a.Weigh(b.Context())
	}
	b.ReportMetric(float64(time.Since(began))/float64(b.N)/float64(10*time.Second)*1000, "milli-cores")
	if n := machine.Calls("Usage") + machine.Calls("Written"); n != 0 {
		b.Errorf("pods were measured %d times", n)
	}
}
