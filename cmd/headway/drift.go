package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
)

const driftPath = "/headway/drift"

func driftCommand() *cobra.Command {
	var data, output string
	var source sourceFlag
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Show what differs from the applied commit, and what was put back",
		Long: `Shows every declared object that is not as the applied commit says: which field,
what is declared and what is live, since when, and who changed it. What was put
back stays in the list for an hour.

The same is in git: the branch headway/main/live of the repository (main is the
cluster's name) is the applied commit with what is really live, one commit for
each change, and its history is that of the drift.`,
		Example: "  headway drift\n  git fetch && git diff COMMIT origin/headway/main/live",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			var report syncer.DriftReport
			if err := callServer(cmd.Context(), dataDir(data), http.MethodGet, driftPath+"?"+source.to(url.Values{}).Encode(), &report); err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), report)
			}
			return printDrift(cmd.OutOrStdout(), report, time.Now())
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	source.flag(cmd)
	return cmd
}

func printDrift(w io.Writer, r syncer.DriftReport, now time.Time) error {
	var open, healed int
	for _, o := range r.Objects {
		if o.Healed == nil {
			open++
		} else {
			healed++
		}
	}
	switch {
	case r.Applied == "":
		fmt.Fprintln(w, "No commit has been applied yet.")
	case open == 0:
		fmt.Fprintf(w, "Every declared object is as commit %s says.\n", shortCommit(r.Applied))
	default:
		fmt.Fprintf(w, "%d of the declared objects differ from commit %s.\n", open, shortCommit(r.Applied))
	}
	if r.WriteBack != "" {
		fmt.Fprintf(w, "The live ref does not reach the forge: %s\n", r.WriteBack)
	}
	if len(r.Objects) > 0 {
		fmt.Fprintln(w)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "OBJECT\tDECLARED AT\tDECLARED → LIVE\tBY\tSINCE\tSTATE")
		for _, o := range r.Objects {
			printDrifted(table, o, now)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if len(r.Runtime) > 0 {
		fmt.Fprintln(w, "\nOn the nodes:")
		for _, d := range r.Runtime {
			fmt.Fprintf(w, "  %s", d.Object)
			if d.Container != "" {
				fmt.Fprintf(w, ", container %s", d.Container)
			}
			if d.Node != "" && d.Object != "Node "+d.Node {
				fmt.Fprintf(w, ", on %s", d.Node)
			}
			if !d.Time.IsZero() {
				fmt.Fprintf(w, ", %s ago", ago(now.Sub(d.Time)))
			}
			fmt.Fprintf(w, ": %s\n", d.Message)
		}
	}
	return nil
}

// printDrifted is one line for each field.
func printDrifted(w io.Writer, o syncer.DriftedObject, now time.Time) {
	state := "live"
	if o.Why != "" {
		state += ": " + o.Why
	}
	if o.Healed != nil {
		state = "healed"
		if o.HealedBy != "" && o.HealedBy != "Headway" {
			state += " by " + o.HealedBy
		}
	}
	if o.Fight {
		state += " (set again each time that it is put back)"
	}
	line := func(what, by string, since time.Time) {
		fmt.Fprintf(w, "%s\t%s:%d\t%s\t%s\t%s\t%s\n", o.Title(), api.Printable(o.Path), o.Line, api.Printable(what), api.Printable(by), ago(now.Sub(since)), state)
	}
	if o.Deleted {
		line("deleted", o.By.String(), o.Since)
	}
	for _, f := range o.Fields {
		line(f.String(), f.By.String(), f.Since)
	}
}

// serveDrift answers with the drift, for administrators.
func (c *cluster) serveDrift(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) || !method(w, r, http.MethodGet) {
		return
	}
	f, err := c.sources.asked(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	writeJSON(w, f.syncer.Drift())
}
