// Command headway is the whole of Headway in one program: server, node agent and
// the client's verbs. This package is the only place that wires: it turns flags
// into configurations, configurations into components, and signals into an end.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker (make build).
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	err := root().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	var coded codedError
	if !errors.As(err, &coded) {
		fmt.Fprintln(os.Stderr, "headway:", err)
		os.Exit(1)
	}
	if text := coded.Error(); text != "" {
		fmt.Fprintln(os.Stderr, text)
	}
	os.Exit(coded.exitCode())
}

// codedError ends the program with an exit status of its own.
type codedError interface {
	error
	exitCode() int
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "headway",
		Short: "Run what a git repository declares",
		Long: `Headway runs containers on a fleet of machines from what a git repository
declares. You push a commit, it runs; you revert the commit, it rolls back.

On a new machine, as root:

  headway up                      server and node in one process, in the foreground
  headway init ~/app              a repository to start from
  cd ~/app && git push            deploy it (headway up prints the remote)
  headway plan                    what a commit or a folder would change
  headway status                  what is applied, and how it is
  headway drift                   what differs from it, since when, and by whom
  headway blame deployment/web    which commit each field comes from
  headway log                     what became of each commit

In a repository, without a cluster:

  headway lint .                  what is wrong with its manifests
  headway supported               which kinds and fields can be used

headway completion bash > /etc/bash_completion.d/headway installs completion.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	cmd.SetVersionTemplate("headway {{.Version}}\n")
	cmd.CompletionOptions.DisableDefaultCmd = true // completionCommand says how to install it
	cmd.AddCommand(upCommand(), serverCommand(), agentCommand(), tokenCommand(), initCommand(), statusCommand(), planCommand(), logCommand(), atCommand(), remoteCommand(), syncCommand(), pauseCommand(), driftCommand(), diffCommand(), blameCommand(), netCommand(), resetCommand(), lintCommand(), supportedCommand(), completionCommand(), versionCommand())
	return cmd
}
