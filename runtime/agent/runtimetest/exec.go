package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
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
	// An engine that has not begun the command by then says so, and not that it was
	// killed: it is given more time.
	killed := func(what string, run func(d time.Duration) error) {
		var err error
		for d := 300 * time.Millisecond; d < patience; d *= 4 {
			if err = run(d); errors.Is(err, agent.ErrKilled) {
				return
			}
		}
		b.Fatalf("%s: %v", what, err)
	}
	killed("at its timeout", func(d time.Duration) error {
		_, _, err := run(c.ID, d, b.Sleep...)
		return err
	})
	killed("at the end of its context", func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(b.ctx, d)
		defer cancel()
		_, err := b.Runtime.Exec(ctx, agent.ExecRequest{ID: c.ID, Command: b.Sleep})
		return err
	})
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

// executeInput runs commands that read.
func executeInput(b *bench) {
	p := b.pod(b.Sleep)
	c := b.start(p, 0)
	text := strings.Repeat("a line of text\n", 20_000) // more than a pipe holds
	var out, errs bytes.Buffer
	code, err := b.Runtime.Exec(b.ctx, agent.ExecRequest{ID: c.ID, Command: b.Cat, Stdin: strings.NewReader(text), Stdout: &out, Stderr: &errs})
	if err != nil || code != 4 || out.String() != text || errs.String() != "done\n" {
		b.Fatalf("%d bytes of %d came back, ended with %d: %v, %q", out.Len(), len(text), code, err, errs.String())
	}
	// Input that never ends does not keep a command that does.
	in, _ := io.Pipe()
	defer in.Close()
	if code, err = b.Runtime.Exec(b.ctx, agent.ExecRequest{ID: c.ID, Command: b.Exit3, Stdin: in}); err != nil || code != 3 {
		b.Fatalf("ended with %d: %v", code, err)
	}
}

// executeTerminal runs a command in a terminal whose size changes.
func executeTerminal(b *bench) {
	p := b.pod(b.Sleep)
	c := b.start(p, 0)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	sizes := make(chan agent.TerminalSize, 1)
	sizes <- agent.TerminalSize{Width: 80, Height: 24}
	out := &watcher{until: "132x50", found: cancel}
	first := &watcher{until: "80x24", found: func() {
		select {
		case sizes <- agent.TerminalSize{Width: 132, Height: 50}:
		default:
		}
	}}
	_, err := b.Runtime.Exec(ctx, agent.ExecRequest{ID: c.ID, Command: b.Size, Stdout: io.MultiWriter(first, out), TTY: true, Sizes: sizes})
	if !errors.Is(err, agent.ErrKilled) || !strings.Contains(out.text.String(), "80x24") || !strings.Contains(out.text.String(), "132x50") {
		b.Fatalf("it says %q: %v", out.text.String(), err)
	}
}

// dial connects to a pod.
func dial(b *bench) {
	p := b.pod(b.Serve)
	b.start(p, 0)
	for _, inside := range []bool{true, false} {
		var text []byte
		ask := func() error {
			conn, err := b.Runtime.Dial(b.ctx, agent.DialRequest{UID: p.UID, Port: 8099, Inside: inside})
			if err != nil {
				return err
			}
			defer conn.Close()
			text, err = io.ReadAll(conn)
			return err
		}
		if inside { // it may not listen yet
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for deadline := time.Now().Add(patience); ask() != nil && time.Now().Before(deadline); {
				<-tick.C
			}
			if string(text) != "hello\n" {
				b.Fatalf("%q, %v", text, ask())
			}
		} else if err := ask(); err == nil { // it listens on the loopback address alone
			b.Fatalf("from outside it says %q", text)
		}
	}
	if _, err := b.Runtime.Dial(b.ctx, agent.DialRequest{UID: p.UID, Port: 8098, Inside: true}); err == nil {
		b.Fatal("a port that nobody listens on")
	}
	if _, err := b.Runtime.Dial(b.ctx, agent.DialRequest{UID: "nobody", Port: 8099, Inside: true}); err == nil {
		b.Fatal("a pod that is not there")
	}
}
