package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer"
)

const (
	statusPath = "/headway/status"
	maxWait    = time.Hour
)

// statusError ends headway status with an exit code of its own: 1 not healthy, 2
// still on the way when the time was up.
type statusError struct {
	code   int
	reason string
}

func (e *statusError) Error() string { return "headway status: " + e.reason }
func (e *statusError) exitCode() int { return e.code }

func statusCommand() *cobra.Command {
	var (
		data, output string
		wait         bool
		timeout      time.Duration
		source       sourceFlag
	)
	cmd := &cobra.Command{
		Use:   "status [COMMIT]",
		Short: "Show the applied commit and the health of every declared object",
		Long: `Shows which commit is applied, and for each declared object where it stands in
the repository and how it is; then in a line each the further sources that the main one's
.headway.yaml names. --source NAME shows one of them.

With --wait it waits until the newest commit (or COMMIT) is applied and every
object is healthy. Exit status: 0 healthy; 1 refused, failed, or not healthy; 2
still on the way when the timeout was reached. With COMMIT and without --wait it is
the same at once: 2 as long as COMMIT is not applied and healthy.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			query := url.Values{}
			if len(args) == 1 {
				if !isCommit(args[0]) {
					return fmt.Errorf("COMMIT %q: give 7 to 40 hex digits", args[0])
				}
				query.Set("commit", args[0])
			}
			if wait {
				query.Set("wait", timeout.String())
			}
			source.to(query)
			var report statusAnswer
			if err := callServer(cmd.Context(), dataDir(data), http.MethodGet, statusPath+"?"+query.Encode(), &report); err != nil {
				return err
			}
			if err := report.print(cmd.OutOrStdout(), output); err != nil {
				return err
			}
			return verdict(report.Report, query.Get("commit"), wait)
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	source.flag(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until everything is healthy or has failed")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long --wait waits")
	return cmd
}

func isCommit(s string) bool {
	return len(s) >= 7 && len(s) <= 40 && strings.Trim(s, "0123456789abcdef") == ""
}

// verdict is the exit status. Without --wait and a commit a report is a success if
// it could be made, unless something has failed.
func verdict(r syncer.Report, commit string, wait bool) error {
	done, err := settled(r, commit)
	switch {
	case err != nil:
		return &statusError{1, err.Error()}
	case !done && commit != "" && !about(r, commit):
		return &statusError{2, fmt.Sprintf("commit %s is neither the newest one nor the applied one", commit)}
	case !done && (wait || commit != ""):
		return &statusError{2, r.Reason}
	}
	return nil
}

// settled says whether the wait for a commit (or, empty, the newest one) is over,
// and with what. A commit that the report does not know is waited for.
func settled(r syncer.Report, commit string) (bool, error) {
	if commit != "" && !about(r, commit) {
		return false, nil
	}
	switch r.State {
	case syncer.Healthy:
		return true, nil
	case syncer.Failed:
		return true, errors.New(r.Reason)
	}
	return false, nil
}

// about says whether the report tells of a commit, given by its beginning.
func about(r syncer.Report, commit string) bool {
	return slices.ContainsFunc([]string{r.Head, r.Applied, r.Refused}, func(hash string) bool {
		return hash != "" && strings.HasPrefix(hash, commit)
	})
}

// statusAnswer is one source; of the main one, also a line for each of the others.
type statusAnswer struct {
	syncer.Report
	Further []sourceLine `json:"sources,omitempty"`
}

// sourceLine is how a further source is doing.
type sourceLine struct {
	Name       string       `json:"name"`
	URL        string       `json:"url,omitempty"`
	Ref        string       `json:"ref,omitempty"`
	Path       string       `json:"path,omitempty"`
	Namespaces []string     `json:"namespaces,omitempty"`
	State      syncer.State `json:"state"`
	Reason     string       `json:"reason,omitempty"`
	Head       string       `json:"head,omitempty"`
	Applied    string       `json:"applied,omitempty"`
	Objects    int          `json:"objects"`
}

func (a statusAnswer) print(w io.Writer, output string) error {
	if output == "json" {
		return printJSON(w, a)
	}
	if err := printStatus(w, a.Report, output); err != nil || len(a.Further) == 0 {
		return err
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SOURCE\tSTATE\tAPPLIED\tOBJECTS\tREPOSITORY\tMESSAGE")
	for _, s := range a.Further {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", s.Name, s.State, shortCommit(s.Applied), s.Objects, api.Printable(s.URL), api.Printable(s.Reason))
	}
	return table.Flush()
}

// summary is a line for each further source, also of those that cannot be followed.
func (s *sources) summary() []sourceLine {
	var out []sourceLine
	for _, f := range s.list() {
		if !f.spec.Further() {
			continue
		}
		r := f.syncer.Status()
		out = append(out, sourceLine{
			Name: r.Source, URL: r.URL, Ref: r.Ref, Path: r.Path, Namespaces: r.Namespaces,
			State: r.State, Reason: r.Reason, Head: r.Head, Applied: r.Applied, Objects: len(r.Objects),
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.fails)) {
		out = append(out, sourceLine{Name: name, State: syncer.Failed, Reason: s.fails[name].Error()})
	}
	return out
}

func printStatus(w io.Writer, r syncer.Report, output string) error {
	if output == "json" {
		return printJSON(w, r)
	}
	where := r.URL
	if where == "" {
		where = "hosted here"
	}
	if r.Source != api.MainSource && r.Source != "" {
		where = r.Source + ", " + where
	}
	fmt.Fprintf(w, "source   %s, %s\n", where, r.Ref)
	if r.Path != "" {
		fmt.Fprintf(w, "path     %s\n", r.Path)
	}
	applied := "none yet"
	if r.Applied != "" {
		applied = r.Applied
		if r.AppliedTime != nil {
			applied += "  " + r.AppliedTime.Local().Format(time.DateTime)
		}
	}
	fmt.Fprintf(w, "applied  %s\n", applied)
	if r.Head != "" && r.Head != r.Applied {
		fmt.Fprintf(w, "newest   %s\n", r.Head)
	}
	if r.Used != nil {
		fmt.Fprintf(w, "allowed  the applied commit, %s\n", allowedText(r.Used))
	}
	if r.Allowed != nil {
		fmt.Fprintf(w, "allowed  commit %s, once, %s\n", r.Allowed.Commit, allowedText(r.Allowed))
	}
	if r.Pause != nil {
		fmt.Fprintf(w, "paused   %s\n", strings.TrimPrefix(syncer.PauseText(r.Pause), "paused "))
	}
	if r.WriteBack != "" {
		fmt.Fprintf(w, "forge    the live ref and the notes do not reach it: %s\n", api.Printable(r.WriteBack))
	}
	if r.CommitStatus != "" {
		fmt.Fprintf(w, "forge    commit statuses do not reach it: %s\n", api.Printable(r.CommitStatus))
	}
	fmt.Fprintf(w, "state    %s", r.State)
	if r.Reason != "" {
		fmt.Fprintf(w, ": %s", r.Reason)
	}
	fmt.Fprintln(w)
	for _, p := range r.Problems {
		fmt.Fprintf(w, "  %s\n", p)
	}
	if len(r.Objects) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OBJECT\tSTATE\tDECLARED AT\tCHANGED BY\tMESSAGE")
	for _, o := range r.Objects {
		commit := o.Commit
		if len(commit) > 10 {
			commit = commit[:10]
		}
		fmt.Fprintf(table, "%s\t%s\t%s:%d\t%s\t%s\n", o.Title(), o.State, o.Path, o.Line, commit, o.Message)
	}
	return table.Flush()
}

// allowedText says what an operator let pass, and why.
func allowedText(a *api.Allowance) string {
	var what []string
	if a.Rewind {
		what = append(what, "no descendant")
	}
	if a.Unsigned {
		what = append(what, "not signed")
	}
	return fmt.Sprintf("although %s: by %s at %s: %s", strings.Join(what, " and "), a.By, a.At.UTC().Format("2006-01-02 15:04:05 UTC"), a.Why)
}

// serveStatus answers with the report; with wait it first waits until that is
// settled, or the time is up.
func (c *cluster) serveStatus(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) || !method(w, r, http.MethodGet) {
		return
	}
	wait, err := waitOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f, err := c.sources.asked(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	report := statusAnswer{Report: c.awaitStatus(r.Context(), f, r.URL.Query().Get("commit"), wait)}
	if f.name == api.MainSource {
		report.Further = c.sources.summary()
	}
	writeJSON(w, report)
}

// waitOf is how long a request wants to wait.
func waitOf(query url.Values) (time.Duration, error) {
	text := query.Get("wait")
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > maxWait {
		return 0, fmt.Errorf("wait must be between 0s and %s", maxWait)
	}
	return wait, nil
}

// lookPause is the least time between two looks of one wait: a report is about
// every declared object, and a rollout changes the store many times a second.
const lookPause = 100 * time.Millisecond

// awaitStatus waits until what is known of a commit is settled.
func (c *cluster) awaitStatus(ctx context.Context, f *follower, commit string, wait time.Duration) syncer.Report {
	if wait == 0 {
		return f.syncer.Status()
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.await(ctx, f, func(r syncer.Report) bool { done, _ := settled(r, commit); return done })
}

// await looks again when the store has changed, until done or ctx ends.
func (c *cluster) await(ctx context.Context, f *follower, done func(syncer.Report) bool) syncer.Report {
	for {
		changed := c.pulse.next()
		report := f.syncer.Status()
		if done(report) {
			return report
		}
		for _, next := range []<-chan struct{}{changed, after(lookPause)} {
			select {
			case <-next:
			case <-ctx.Done():
				return f.syncer.Status()
			}
		}
	}
}

// after is time.After for a select over channels of one type.
func after(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

// pulse wakes everybody who waits for the store to change.
type pulse struct {
	mu   sync.Mutex
	wait chan struct{} // nil: nobody waits
}

// next is closed at the next change.
func (p *pulse) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wait == nil {
		p.wait = make(chan struct{})
	}
	return p.wait
}

// beat is a hook for store events.
func (p *pulse) beat([]store.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wait != nil {
		close(p.wait)
		p.wait = nil
	}
}
