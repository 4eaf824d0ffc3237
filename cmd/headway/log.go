package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
)

const (
	logPath = "/headway/log"
	maxLog  = 1000
)

func logCommand() *cobra.Command {
	var (
		data, output string
		n            int
		verbose      bool
		source       sourceFlag
	)
	cmd := &cobra.Command{
		Use:   "log [COMMIT]",
		Short: "Show the commits with what the cluster did for each",
		Long: `Lists the commits of the branch that the cluster follows, newest first, each with
its receipt: what came of it, how long that took, and why it was refused or failed.
With COMMIT, a hash, a branch, a tag or HEAD~3, it begins there.

The receipts are git notes, so any clone has them, too:

  git fetch origin 'refs/notes/*:refs/notes/*'
  git log --notes='headway/*'`,
		Example: "  headway log -n 5\n  headway log -n 1 --verbose\n  headway log -o json | jq -r '.[] | select(.receipt.result == \"Refused\") | .commit'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if n < 1 || n > maxLog {
				return fmt.Errorf("-n %d: from 1 to %d", n, maxLog)
			}
			var entries []syncer.LogEntry
			query := source.to(url.Values{"n": {strconv.Itoa(n)}, "from": args})
			if err := callServer(cmd.Context(), dataDir(data), http.MethodGet, logPath+"?"+query.Encode(), &entries); err != nil {
				return err
			}
			return printLog(cmd.OutOrStdout(), entries, time.Now(), output, verbose)
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	source.flag(cmd)
	cmd.Flags().IntVarP(&n, "number", "n", 20, "how many commits")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "the whole receipt of each")
	return cmd
}

func printLog(w io.Writer, entries []syncer.LogEntry, now time.Time, output string, verbose bool) error {
	if output == "json" {
		if entries == nil {
			entries = []syncer.LogEntry{}
		}
		return printJSON(w, entries)
	}
	if len(entries) == 0 {
		_, err := fmt.Fprintln(w, "no commit yet")
		return err
	}
	if verbose {
		for i, e := range entries {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "commit %s\nauthor %s\ndate   %s\n\n    %s\n\n", e.Commit, api.Printable(e.Author), e.Authored.Local().Format(time.DateTime), api.Printable(e.Subject))
			for line := range strings.Lines(receiptText(e)) {
				fmt.Fprint(w, "    "+line)
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMMIT\tAGE\tAUTHOR\tRESULT\tTOOK\tSUBJECT")
	for _, e := range entries {
		result, took, reason := logResult(e)
		name, _, _ := strings.Cut(e.Author, " <")
		fmt.Fprintf(table, "%.10s\t%s\t%s\t%s\t%s\t%s%s\n", e.Commit, ago(now.Sub(e.Authored)), cut(api.Printable(name), 20), result, took, cut(api.Printable(e.Subject), 60), reason)
	}
	return table.Flush()
}

// logResult is an entry's outcome in a word, how long it took, and the reason that
// stands behind the subject.
func logResult(e syncer.LogEntry) (result, took, reason string) {
	r := e.Receipt
	switch {
	case e.Unread != "":
		return "?", "", ": its note cannot be read: " + api.Printable(e.Unread)
	case r == nil && e.With != "":
		return fmt.Sprintf("with %.10s", e.With), "", ""
	case r == nil:
		return "-", "", ""
	}
	if r.Seconds > 0 {
		took = fmt.Sprintf("%.1fs", r.Seconds)
	}
	reason = r.Reason
	if r.Result == api.ResultRefused && len(r.Problems) > 0 {
		reason = r.Problems[0]
	}
	if r.Result == api.ResultSuperseded {
		reason = "" // the line above shows which
	}
	if reason != "" {
		reason = ": " + cut(api.Printable(reason), 160)
	}
	return string(r.Result), took, reason
}

// receiptText is the receipt as its note has it.
func receiptText(e syncer.LogEntry) string {
	switch {
	case e.Receipt != nil:
		return string(syncer.NoteText(*e.Receipt))
	case e.Unread != "":
		return "its note cannot be read: " + api.Printable(e.Unread) + "\n"
	case e.With != "":
		return "applied with commit " + e.With + "\n"
	}
	return "no receipt\n"
}

// serveLog answers with the newest commits and their receipts.
func (c *cluster) serveLog(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) || !method(w, r, http.MethodGet) {
		return
	}
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil || n < 1 || n > maxLog {
		http.Error(w, fmt.Sprintf("n must be from 1 to %d", maxLog), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	f, err := c.sources.asked(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	entries, err := f.syncer.Log(ctx, f.repository, r.URL.Query().Get("from"), n)
	answer(w, entries, err)
}
