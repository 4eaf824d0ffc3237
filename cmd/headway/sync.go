package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
)

const syncPath = "/headway/sync"

func syncCommand() *cobra.Command {
	var (
		data, output, why string
		rewind, unsigned  string
		timeout           time.Duration
		source            sourceFlag
	)
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Look at the repository now, and let one commit pass",
		Long: `Looks at the repository now instead of at the next poll, also when it is left
alone for a while because it could not be read; a commit that was refused is judged
again. Then it waits and answers like headway status --wait.

  --allow-rewind COMMIT     the branch may move to COMMIT, once, although that is no
                            descendant of the applied commit. Without it a rewritten
                            history is refused. To undo a commit, git revert is the
                            better way: it needs no permission and keeps the history.
  --allow-unsigned COMMIT   COMMIT may be applied, once, with all that comes with it,
                            although nobody has signed it whom the applied commit
                            allows to sign: the way out when all keys are lost. Let
                            COMMIT name new keys.

COMMIT is given in full. Both need --why, and it is recorded who allowed what, why and
when: in the status, in the server's log, and in the receipt of the commit, which is a
note on it (headway log --verbose). When Headway hosts the
repository, push the commit after that (git push --force for a rewind).

Exit status: as of headway status --wait.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			query := url.Values{"wait": {timeout.String()}}
			for flag, commit := range map[string]string{"rewind": rewind, "unsigned": unsigned} {
				if commit != "" {
					query.Set(flag, commit)
				}
			}
			if why != "" {
				query.Set("why", why)
			}
			if _, err := readAllowance(query); err != nil {
				return err
			}
			source.to(query)
			var report syncer.Report
			if err := callServer(cmd.Context(), dataDir(data), http.MethodPost, syncPath+"?"+query.Encode(), &report); err != nil {
				return err
			}
			if err := printStatus(cmd.OutOrStdout(), report, output); err != nil {
				return err
			}
			if report.Allowed != nil && report.URL == "" { // it waits to be pushed
				return nil
			}
			return verdict(report, "", true)
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	source.flag(cmd)
	cmd.Flags().StringVar(&rewind, "allow-rewind", "", "let the branch move to this commit, once")
	cmd.Flags().StringVar(&unsigned, "allow-unsigned", "", "let this commit be applied without a signature that counts, once")
	cmd.Flags().StringVar(&why, "why", "", "why it is allowed")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	return cmd
}

// readAllowance reads what a request allows; nil when it allows nothing.
func readAllowance(query url.Values) (*api.Allowance, error) {
	rewind, unsigned := query.Get("rewind"), query.Get("unsigned")
	if rewind == "" && unsigned == "" {
		if query.Get("why") != "" {
			return nil, errors.New("--why is for --allow-rewind and --allow-unsigned")
		}
		return nil, nil
	}
	if rewind != "" && unsigned != "" && rewind != unsigned {
		return nil, errors.New("--allow-rewind and --allow-unsigned name two commits: allow one at a time")
	}
	a := &api.Allowance{Commit: rewind, Rewind: rewind != "", Unsigned: unsigned != ""}
	if rewind == "" {
		a.Commit = unsigned
	}
	if !isCommit(a.Commit) || len(a.Commit) != 40 {
		return nil, fmt.Errorf("COMMIT %q: give all 40 hex digits", a.Commit)
	}
	var err error
	a.Why, err = reason(query)
	return a, err
}

// reason reads why an operator orders something.
func reason(query url.Values) (string, error) {
	why := strings.TrimSpace(query.Get("why"))
	switch {
	case why == "":
		return "", errors.New("--why is missing: say why, it is recorded")
	case len(why) > api.MaxWhy:
		return "", fmt.Errorf("--why has %d bytes, at most %d are recorded", len(why), api.MaxWhy)
	case strings.ContainsFunc(why, unicode.IsControl):
		return "", errors.New("--why must be one line")
	}
	return why, nil
}

// serveSync has the source looked at, and answers when that was done and what it
// brought is settled, or the time is up.
func (c *cluster) serveSync(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) || !method(w, r, http.MethodPost) {
		return
	}
	query := r.URL.Query()
	wait, err := waitOf(query)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	allow, err := readAllowance(query)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id := rand.Text()
	f, err := c.sources.asked(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	_, err = syncer.Order(r.Context(), c.store, f.name, func(src *api.Source) error {
		src.Orders.Sync = id
		if allow != nil {
			a := *allow
			a.By, a.At = operator(r), metav1.Now()
			if old := src.Orders.Allow; old != nil && old.Commit == a.Commit {
				a.Rewind, a.Unsigned = a.Rewind || old.Rewind, a.Unsigned || old.Unsigned
			}
			src.Orders.Allow = &a
		}
		return nil
	})
	if err != nil {
		answer(w, nil, err)
		return
	}
	if allow != nil {
		c.log.Warn("an operator lets a commit pass, once", "commit", allow.Commit, "rewind", allow.Rewind, "unsigned", allow.Unsigned, "source", f.name, "by", operator(r), "why", allow.Why)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	report := c.await(ctx, f, func(report syncer.Report) bool {
		if report.Synced != id {
			return false
		}
		done, _ := settled(report, "")
		return done || report.Pause != nil || report.URL == "" && report.Allowed != nil // it waits to be pushed
	})
	writeJSON(w, report)
}

// operator is the name that the caller's certificate gives.
func operator(r *http.Request) string { return r.TLS.VerifiedChains[0][0].Subject.CommonName }
