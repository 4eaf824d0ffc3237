// Command bench measures a real headway up on this machine and prints the table
// of docs/benchmarks.md: it pushes real commits with git, and sees what becomes of
// them through a watch, as any client of Kubernetes would.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	headway := flags.String("headway", "bin/headway", "the program to measure")
	output := flags.String("o", "markdown", "how to print: markdown or json")
	runs := flags.Int("runs", 5, "how often each of the short lines is measured; the median counts")
	idle := flags.Duration("idle", time.Minute, "how long the idle processor time is measured")
	only := flags.String("only", "", "measure only the steps whose name matches this, and cold start")
	timeout := flags.Duration("timeout", 15*time.Minute, "the whole may take this long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("it starts containers: run as root")
	}
	if *output != "markdown" && *output != "json" {
		return fmt.Errorf("-o %q: give markdown or json", *output)
	}
	steps, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	program, err := filepath.Abs(*headway)
	if err != nil {
		return err
	}
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%w: run make build", err)
	}
	dir, err := os.MkdirTemp("", "headway-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()

	b := &bench{program: program, dir: dir, runs: *runs, idle: *idle, only: steps, progress: progress}
	report, err := b.run(ctx)
	if err != nil {
		return err
	}
	if *output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	return report.markdown(out)
}
