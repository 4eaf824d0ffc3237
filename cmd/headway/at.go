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

const atPath = "/headway/at"

func atCommand() *cobra.Command {
	var data, output string
	var source sourceFlag
	cmd := &cobra.Command{
		Use:   "at COMMIT|TIME",
		Short: "Show what was declared and what ran at a commit or a time",
		Long: `Shows the objects that a commit declares, and for what runs pods the images that
really ran, with their digests, from the receipts.

A COMMIT is a hash (7 digits or more), a branch or a tag of the cluster's repository, or
HEAD, the newest commit of the followed branch; and what lies before it: HEAD~2, main^.
A TIME stands for the commit that was applied last before it: in RFC 3339
(2026-03-01T12:00:00Z), as "2026-03-01 12:00" or 2026-03-01 in this machine's time
zone, or as "90m ago", "2h ago", "3d ago".`,
		Example: "  headway at 3f2a1c9\n  headway at HEAD~1\n  headway at 2h ago",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			query, err := atQuery(strings.Join(args, " "), time.Now())
			if err != nil {
				return err
			}
			var then syncer.Then
			if err := callServer(cmd.Context(), dataDir(data), http.MethodGet, atPath+"?"+source.to(query).Encode(), &then); err != nil {
				if name := query.Get("commit"); name != "" && !isCommit(name) {
					err = fmt.Errorf("%w; a time is written "+timeForms, err)
				}
				return err
			}
			return printThen(cmd.OutOrStdout(), then, output)
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	source.flag(cmd)
	return cmd
}

// atQuery reads COMMIT or TIME. Only the server knows which names are those of commits.
func atQuery(text string, now time.Time) (url.Values, error) {
	if isCommit(text) {
		return url.Values{"commit": {text}}, nil
	}
	at, err := parseTime(text, now)
	switch {
	case err == nil && at.After(now):
		return nil, fmt.Errorf("%q is in the future", text)
	case err == nil:
		return url.Values{"time": {at.UTC().Format(time.RFC3339Nano)}}, nil
	case text == "" || strings.ContainsAny(text, " :"): // no name of git's can have these
		return nil, err
	}
	return url.Values{"commit": {text}}, nil
}

func parseTime(text string, now time.Time) (time.Time, error) {
	if ago, ok := strings.CutSuffix(text, " ago"); ok {
		ago = strings.TrimSpace(ago)
		if days, ok := strings.CutSuffix(ago, "d"); ok {
			if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 100_000 {
				return now.AddDate(0, 0, -n), nil
			}
		} else if d, err := time.ParseDuration(ago); err == nil && d >= 0 {
			return now.Add(-d), nil
		}
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf(`%q is neither a commit nor a time: write `+timeForms, text)
}

// timeForms are how a time may be written.
const timeForms = `2026-03-01T12:00:00Z, "2026-03-01 12:00" or "2h ago"`

func printThen(w io.Writer, t syncer.Then, output string) error {
	if output == "json" {
		return printJSON(w, t)
	}
	fmt.Fprintf(w, "commit   %s\n", t.Commit)
	fmt.Fprintf(w, "author   %s\n", api.Printable(t.Author))
	fmt.Fprintf(w, "subject  %s\n", api.Printable(t.Subject))
	switch r := t.Receipt; {
	case r == nil:
		fmt.Fprintln(w, "result   no receipt: it was not applied by itself")
	default:
		if !r.Applied.IsZero() {
			fmt.Fprintf(w, "applied  %s by %s\n", r.Applied.Local().Format(time.DateTime), r.Server)
		}
		fmt.Fprintf(w, "result   %s", r.Result)
		if r.Reason != "" {
			fmt.Fprintf(w, ": %s", api.Printable(r.Reason))
		}
		fmt.Fprintln(w)
		for _, p := range r.Problems {
			fmt.Fprintf(w, "  %s\n", api.Printable(p))
		}
	}
	if len(t.Objects) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OBJECT\tDECLARED AT\tSTATE\tRAN")
	for _, o := range t.Objects {
		line := fmt.Sprintf("%s\t%s:%d\t%s\t", o.Object, api.Printable(o.Path), o.Line, o.State)
		if len(o.Images) == 0 {
			fmt.Fprintln(table, line)
		}
		for _, i := range o.Images {
			fmt.Fprintf(table, "%s%s: %s = %s\n", line, i.Container, i.Image, i.Digest)
			line = "\t\t\t"
		}
	}
	return table.Flush()
}

// serveAt answers with what was declared and ran.
func (c *cluster) serveAt(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) || !method(w, r, http.MethodGet) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	f, err := c.sources.asked(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	var then *syncer.Then
	commit, text := r.URL.Query().Get("commit"), r.URL.Query().Get("time")
	at, bad := time.Parse(time.RFC3339, text)
	switch {
	case commit != "":
		then, err = f.syncer.AtCommit(ctx, f.repository, commit)
	case bad == nil:
		then, err = f.syncer.AtTime(ctx, f.repository, at)
	default:
		http.Error(w, "give commit, or time in RFC 3339", http.StatusBadRequest)
		return
	}
	answer(w, then, err)
}
