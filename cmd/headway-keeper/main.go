// Command headway-keeper is the small process of a node that outlives the agent
// (see runtime/keeper). It is also the git hook helper, because a hook must
// start in a millisecond.
//
//	headway-keeper run --dir DIR     serve in the foreground
//	headway-keeper start --dir DIR   start it detached, return when it serves
//	headway-keeper hook NAME         be a git hook of the hosted repository
//	headway-keeper pause             be the first process of a pod, and do nothing
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"headway.dev/headway/runtime/keeper"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "hook" {
		os.Exit(keeper.Hook(os.Args[2], os.Args[3:], os.Stdin, os.Stdout, os.Getenv))
	}
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "headway-keeper:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: headway-keeper run|start --dir DIR")
	}
	if args[0] == "pause" {
		return pause()
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := flags.String("dir", "", "directory of state and socket")
	build := flags.String("build", "", "identity of this binary")
	readyFD := flags.Uint("ready-fd", 0, "descriptor to write to when ready")
	switch args[0] {
	case "run", "start":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *dir == "" || flags.NArg() > 0 {
			return fmt.Errorf("usage: headway-keeper %s --dir DIR", args[0])
		}
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
	if args[0] == "start" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own binary: %w", err)
		}
		return keeper.Detach(self, *dir, *build)
	}
	return run(*dir, *build, *readyFD)
}

func run(dir, build string, readyFD uint) error {
	// It copies bytes: two threads are plenty, and its memory is what its
	// buffers are.
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(32 << 20)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return keeper.Run(ctx, keeper.Config{
		Dir:      dir,
		Build:    build,
		Rotation: keeper.DefaultRotation(),
		Now:      time.Now,
		Ready:    func() { tell(readyFD) },
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// tell writes to the descriptor that our starter waits on, if it named one.
func tell(fd uint) {
	if fd == 0 {
		return
	}
	f := os.NewFile(uintptr(fd), "ready")
	if _, err := f.WriteString("ready\n"); err != nil {
		slog.Warn("starter left before we were ready", "err", err)
	}
	if err := f.Close(); err != nil {
		slog.Warn("close ready descriptor", "err", err)
	}
}
