// Command conformance is what scripts/conformance needs beside Kubernetes' own suite: a
// registry with images of ours under the names that the suite uses, and a table of what
// the suite found.
//
//	conformance registry SUITE PROGRAMS ADDRESS   serve until SIGTERM
//	conformance table REPORT ...                  print what JSON reports of ginkgo say
//
// SUITE is the program of the suite, which says what its images are called. PROGRAMS is a
// folder with agnhost, nnp and the files of test/images. ADDRESS is the file to write the
// registry's URL to.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 4 && args[0] == "registry":
		return serve(ctx, args[1], args[2], args[3])
	case len(args) >= 2 && args[0] == "table":
		return table(os.Stdout, args[1:])
	}
	return errors.New("give: registry SUITE PROGRAMS ADDRESS, or: table REPORT ...")
}
