package runtimetest

import (
	"time"

	"headway.dev/headway/runtime/agent"
)

// usage says what Usage tells: CPU time that rises with what a container does, its
// working set, and nothing of what was not asked for or does not run.
func usage(b *bench) {
	busy, idle, ended := b.pod(b.Burn), b.pod(b.Sleep), b.pod(b.Exit3)
	events := b.Runtime.Events(b.ctx)
	id := b.start(busy, 0).ID
	b.start(idle, 0)
	b.start(ended, 0)
	b.await(events, ended.UID, func(s *agent.SandboxState) bool {
		return s != nil && len(s.Containers) == 1 && s.Containers[0].Phase == agent.Exited
	})
	read := func() agent.Usage {
		b.Helper()
		list, err := b.Runtime.Usage(b.ctx, busy.UID)
		b.must(err)
		if len(list) != 1 || list[0].Pod != busy.UID || list[0].Container != "main" || list[0].ID != id {
			b.Fatalf("usage of one pod: %+v", list)
		}
		return list[0]
	}
	// Until it has had some of a CPU, however busy the machine is: no event tells of it.
	const some = 200 * time.Millisecond
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	first := read()
	deadline := first.Time.Add(patience)
	last := first
	for last.CPU-first.CPU < some || last.Memory >= 0 && last.Memory < 32<<20 {
		if last.Time.After(deadline) {
			b.Fatalf("it has used %s of CPU and %d bytes in %s", last.CPU-first.CPU, last.Memory, last.Time.Sub(first.Time))
		}
		<-tick.C
		last = read()
	}
	if took := last.Time.Sub(first.Time); last.CPU-first.CPU > 4*took+time.Second {
		b.Errorf("%s of CPU in %s by one thread", last.CPU-first.CPU, took)
	}
	if last.Memory > 256<<20 {
		b.Errorf("working set of %d bytes", last.Memory)
	}
	both, err := b.Runtime.Usage(b.ctx, busy.UID, idle.UID, ended.UID, "not-there")
	b.must(err)
	if len(both) != 2 {
		b.Fatalf("usage of what runs: %+v", both)
	}
	for _, u := range both {
		if u.Pod == idle.UID && u.CPU > last.CPU {
			b.Errorf("who sleeps has used %s, who does not %s", u.CPU, last.CPU)
		}
	}
	if none, err := b.Runtime.Usage(b.ctx); err != nil || len(none) != 0 {
		b.Errorf("nothing was asked for: %+v, %v", none, err)
	}
}

// written says what Written tells: what the attempts of a container that are there have
// put on the disk, also when it has ended, and nothing of what was not asked for.
func written(b *bench) {
	events := b.Runtime.Events(b.ctx)
	said, other := b.pod(b.Hello), b.pod(b.Sleep)
	b.start(other, 0)
	read := func() agent.Room {
		b.Helper()
		list, err := b.Runtime.Written(b.ctx, said.UID, said.UID)
		b.must(err)
		if len(list) != 1 || list[0].Pod != said.UID || list[0].Container != "main" {
			b.Fatalf("what one pod has written: %+v", list)
		}
		return list[0].Room
	}
	var before agent.Room
	for attempt := range 2 {
		b.start(said, attempt)
		b.await(events, said.UID, func(s *agent.SandboxState) bool {
			return s != nil && len(s.Containers) == attempt+1 && s.Containers[attempt].Phase == agent.Exited
		})
		if got := b.log(agent.LogRequest{UID: said.UID, Container: "main", Attempt: attempt, TailLines: -1}); got != "hello\nworld\n" {
			b.Fatalf("the log is %q", got)
		}
		after := read()
		if after.Bytes < before.Bytes+12 || after.Inodes <= before.Inodes {
			b.Errorf("after attempt %d: %+v, before %+v", attempt, after, before)
		}
		before = after
	}
	both, err := b.Runtime.Written(b.ctx, said.UID, other.UID, "not-there")
	b.must(err)
	if len(both) != 2 {
		b.Errorf("of two pods: %+v", both)
	}
	if none, err := b.Runtime.Written(b.ctx); err != nil || len(none) != 0 {
		b.Errorf("nothing was asked for: %+v, %v", none, err)
	}
}
