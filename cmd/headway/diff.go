package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
)

const diffPath = "/headway/diff"

func diffCommand() *cobra.Command {
	var data, output string
	var source sourceFlag
	cmd := &cobra.Command{
		Use:   "diff [A] [B]",
		Short: "Show which objects two commits declare differently, or which are live",
		Long: `Compares what the manifests declare, object by object and field by field, and not
the text of the files: a manifest that moved, or is written in another way, is no
difference.

A and B are commits (a hash or the start of one, a branch, a tag, HEAD for the newest
of the followed branch, HEAD~1 for the one before), "applied" or "live", what is really
there. Without B it is live, without A the applied commit.`,
		Example: "  headway diff                what differs from the applied commit now\n  headway diff 1a2b3c4 main   what the branch changes since that commit\n  headway diff HEAD~1 HEAD    what the newest commit changes",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			ask := append(args, []string{syncer.NameApplied, syncer.NameLive}[len(args):]...)
			var found syncer.Comparison
			path := diffPath + "?" + source.to(url.Values{"a": {ask[0]}, "b": {ask[1]}}).Encode()
			if err := callServer(cmd.Context(), dataDir(data), http.MethodGet, path, &found); err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), found)
			}
			printDiff(cmd.OutOrStdout(), found)
			return nil
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	source.flag(cmd)
	return cmd
}

func printDiff(w io.Writer, c syncer.Comparison) {
	for _, p := range c.Problems {
		fmt.Fprintf(w, "! not compared: %s\n", p)
	}
	for _, change := range c.Changes {
		sign := map[string]string{"create": "+", "delete": "-", "update": "~"}[change.Verb]
		fmt.Fprintf(w, "%s %s", sign, change.Title())
		if change.Path != "" {
			fmt.Fprintf(w, " (%s:%d)", api.Printable(change.Path), change.Line)
		}
		fmt.Fprintln(w)
		for _, f := range change.Fields {
			fmt.Fprintf(w, "    %s\n", api.Printable(f.String()))
		}
	}
	if len(c.Changes) == 0 {
		fmt.Fprintf(w, "No object differs between %s and %s.\n", shortName(c.From), shortName(c.To))
	}
}

func shortName(name string) string {
	if isCommit(name) {
		return shortCommit(name)
	}
	return name
}

// serveDiff compares two states, for administrators.
func (c *cluster) serveDiff(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) || !method(w, r, http.MethodGet) {
		return
	}
	f, err := c.sources.asked(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	found, err := f.syncer.Compare(r.Context(), f.repository, r.URL.Query().Get("a"), r.URL.Query().Get("b"))
	answer(w, found, err)
}
