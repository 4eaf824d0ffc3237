package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"headway.dev/headway/runtime/agent"
)

// execute runs commands in a container.
func execute(b *bench) {
	p := b.pod(b.Sleep)
	c := b.start(p, 0)
	run := func(id string, timeout time.Duration, command ...string) (string, int32, error) {
		var out bytes.Buffer
		code, err := b.Runtime.Exec(b.ctx, agent.ExecRequest{ID: id, Command: command, Timeout: timeout, Stdout: &out, Stderr: io.Discard})
		return out.String(), code, err
	}
	if out, code, err := run(c.ID, patience, b.Hello...); err != nil || code != 0 || out != "hello\nworld\n" {
		b.Fatalf("printed %q and ended with %d: %v", out, code, err)
	}
	if _, code, err := run(c.ID, patience, b.Exit3...); err != nil || code != 3 {
		b.Fatalf("ended with %d: %v", code, err)
	}
	if _, _, err := run(c.ID, patience, "absent"); err == nil || errors.Is(err, agent.ErrKilled) {
		b.Fatalf("a program that is not there: %v", err)
	}
	if _, _, err := run(c.ID, 300*time.Millisecond, b.Sleep...); !errors.Is(err, agent.ErrKilled) {
		b.Fatalf("at its timeout: %v", err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := b.Runtime.Exec(ctx, agent.ExecRequest{ID: c.ID, Command: b.Sleep}); !errors.Is(err, agent.ErrKilled) {
		b.Fatalf("at the end of its context: %v", err)
	}
	if s := b.state(b.Runtime, p.UID); s.Containers[0].Phase != agent.Running || s.Containers[0].ID != c.ID {
		b.Fatalf("the container is %+v", s.Containers[0])
	}
	b.must(b.Runtime.StopContainer(b.ctx, c.ID, time.Minute))
	if _, _, err := run(c.ID, patience, b.Hello...); err == nil {
		b.Fatal("a command ran in a dead container")
	}
	if _, _, err := run("nothing", patience, b.Hello...); err == nil {
		b.Fatal("a command ran in no container")
	}
}
