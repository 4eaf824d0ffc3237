package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
)

const pausePath = "/headway/pause"

func pauseCommand() *cobra.Command {
	var (
		data, output, length, why string
		end                       bool
		source                    sourceFlag
	)
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Apply nothing and heal nothing for a time",
		Long: `Stops the cluster from following its repository for a time, which ends by itself:
no commit is applied, and what somebody changes by hand stays. Controllers, nodes and
what runs on them are not touched. Commits can be pushed and are judged; the newest
good one is applied when the pause is over, and drift, which is recorded all the
while, is healed then. A pause is of one source: the further ones go on.

Who paused, since when and why stands in headway status and in the server's log; when
it is over, in the receipt of the next commit (git log --notes, headway log -o json),
in headway status -o json, and for an hour in an Event.`,
		Example: `  headway pause --for 2h --why "moving the database by hand"
  headway pause --end`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			verb, query := http.MethodPost, url.Values{"for": {length}, "why": {why}}
			if end {
				if length != "" || why != "" {
					return errors.New("--end stands alone")
				}
				verb, query = http.MethodDelete, url.Values{}
			} else if _, err := readPause(query, time.Now()); err != nil {
				return err
			}
			source.to(query)
			var answer pauseAnswer
			if err := callServer(cmd.Context(), dataDir(data), verb, pausePath+"?"+query.Encode(), &answer); err != nil {
				return err
			}
			return answer.print(cmd.OutOrStdout(), output)
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	source.flag(cmd)
	cmd.Flags().StringVar(&length, "for", "", "how long, from 1m to 30d")
	cmd.Flags().StringVar(&why, "why", "", "why, for those who wonder")
	cmd.Flags().BoolVar(&end, "end", false, "end the pause now")
	return cmd
}

// pauseAnswer is what headway pause prints.
type pauseAnswer struct {
	Pause *api.Pause `json:"pause"` // that holds now; null: none
	Ended *api.Pause `json:"ended,omitempty"`
}

func (a pauseAnswer) print(w io.Writer, output string) error {
	if output == "json" {
		return printJSON(w, a)
	}
	var err error
	switch {
	case a.Pause != nil:
		_, err = fmt.Fprintf(w, "The cluster is %s.\n", syncer.PauseText(a.Pause))
	case a.Ended != nil:
		_, err = fmt.Fprintf(w, "The pause has ended; it was of %s: %s.\n", a.Ended.By, a.Ended.Why)
	default:
		_, err = fmt.Fprintln(w, "The cluster was not paused.")
	}
	return err
}

// readPause reads a pause that begins now.
func readPause(query url.Values, now time.Time) (*api.Pause, error) {
	length, err := days(query.Get("for"))
	if err != nil {
		return nil, err
	}
	if length < api.MinPause || length > api.MaxPause {
		return nil, fmt.Errorf("--for %s: from 1m to 30d", query.Get("for"))
	}
	why, err := reason(query)
	if err != nil {
		return nil, err
	}
	now = now.Truncate(time.Second)
	return &api.Pause{Since: metav1.NewTime(now), Until: metav1.NewTime(now.Add(length)), Why: why}, nil
}

// days reads a length of time such as 90m, 2h or 3d.
func days(text string) (time.Duration, error) {
	if text == "" {
		return 0, errors.New("--for is missing: how long, such as 2h")
	}
	if n, ok := strings.CutSuffix(text, "d"); ok {
		if count, err := strconv.ParseUint(n, 10, 16); err == nil {
			return time.Duration(count) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("--for %q: must be a length of time such as 90m, 2h or 3d", text)
	}
	return d, nil
}

// servePause begins a pause, in the place of one that holds, or ends it.
func (c *cluster) servePause(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) {
		return
	}
	var pause *api.Pause
	switch r.Method {
	case http.MethodPost:
		var err error
		if pause, err = readPause(r.URL.Query(), time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		pause.By = operator(r)
	case http.MethodDelete:
	default:
		w.Header().Set("Allow", "POST, DELETE")
		http.Error(w, "use POST or DELETE", http.StatusMethodNotAllowed)
		return
	}
	f, err := c.sources.asked(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	var before *api.Pause
	_, err = syncer.Order(r.Context(), c.store, f.name, func(src *api.Source) error {
		if pause == nil {
			before = syncer.EndPause(src, operator(r), time.Now())
			return nil
		}
		src.Orders.Pause = pause
		return nil
	})
	if err != nil {
		answer(w, nil, err)
		return
	}
	now := pauseAnswer{Pause: pause}
	if before != nil {
		now.Ended = before
		c.log.Warn("the pause was ended", "source", f.name, "by", operator(r), "began by", before.By, "why", before.Why)
	}
	writeJSON(w, now)
}
