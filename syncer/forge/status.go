package forge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Phase is how far the cluster has come with a commit.
type Phase string

const (
	Waiting    Phase = "Waiting"    // seen, not begun
	Applying   Phase = "Applying"   // its objects are being written
	RollingOut Phase = "RollingOut" // applied; not everything is healthy yet
	Healthy    Phase = "Healthy"    // applied, and everything is healthy
	Failed     Phase = "Failed"     // applied, and something has failed
	Refused    Phase = "Refused"    // changes nothing (R2)
	Superseded Phase = "Superseded" // a newer commit has taken over before it was done (R13)
)

// Report is what the syncer says about a commit. A report repeats nothing but the
// truth of the moment: to report the same twice, or to leave some out, is fine.
type Report struct {
	Commit   string
	Ref      string // that was pushed, in full; GitLab files the status under it
	Attempt  int64  // larger for each new attempt at this or any commit: the store's revision when it began
	Revision int64  // of the store that the report was made from; larger is newer
	Phase    Phase
	Reason   string // what we wait for, or the first thing that is wrong; no secrets
}

// State is what a forge shows. Its values are stored in intents.
type State string

const (
	Pending  State = "pending"
	Running  State = "running" // only GitLab tells it from pending
	Success  State = "success"
	Failure  State = "failure"
	Canceled State = "canceled" // superseded: neither good nor bad
)

func (s State) final() bool { return s != Pending && s != Running }

// Intent is a status that the forge shall show, or, settled, one that it was sent.
// It is stored as JSON.
type Intent struct {
	Key         string `json:"key"`        // 32 hex digits of repository, context and commit
	Repository  string `json:"repository"` // https://host/path, never with credentials
	Context     string `json:"context"`
	Commit      string `json:"commit"`
	Ref         string `json:"ref,omitempty"`
	Attempt     int64  `json:"attempt"`
	Revision    int64  `json:"revision"`
	State       State  `json:"state"`
	Description string `json:"description"`
	Settled     bool   `json:"settled,omitempty"` // sent, or refused by the forge for good
}

// shows says whether the forge shows the same for both.
func (i Intent) shows(other Intent) bool {
	return i.State == other.State && i.Description == other.Description && i.Ref == other.Ref
}

func keyOf(repository, context, commit string) string {
	sum := sha256.Sum256([]byte(repository + "\x00" + context + "\x00" + commit))
	return hex.EncodeToString(sum[:16])
}

// Context names the statuses of a cluster that follows a path of the repository:
// headway/<cluster>/<path>, without the last part for the repository's root. One
// that no forge would take, of more than 255 characters, is cut and made distinct.
func Context(cluster, path string) string {
	c := "headway/" + cluster
	if path = strings.Trim(path, "/"); path != "" && path != "." {
		c += "/" + path
	}
	c = oneLine(c)
	if utf8.RuneCountInString(c) > maxContext {
		sum := sha256.Sum256([]byte(c))
		c = truncate(c, maxContext-9) + "-" + hex.EncodeToString(sum[:4])
	}
	return c
}

// Limits in characters. GitHub documents 140 for a description. The others store
// text; 255 is what they show in a line, and GitLab's limit for names.
const (
	maxContext     = 255
	maxDescription = 255
	maxGitHub      = 140
)

// state and description of a report. The description is kept as long as the forge
// with the longest takes it, and is cut for the others when it is sent.
func describe(r Report) (State, string) {
	state, text := Pending, ""
	switch r.Phase {
	case Waiting:
		text = "waiting to be applied"
	case Applying:
		state, text = Running, "being applied"
	case RollingOut:
		state, text = Running, "rolling out"
	case Healthy:
		state, text = Success, "applied and healthy"
	case Failed:
		state, text = Failure, "failed"
	case Refused:
		state, text = Failure, "refused, nothing was changed"
	case Superseded:
		state, text = Canceled, "superseded before it was done"
	}
	if reason := oneLine(r.Reason); reason != "" {
		text += ": " + reason
	}
	return state, truncate(text, maxDescription)
}

// oneLine makes text fit for a line: each run of white space and of characters that
// steer a terminal or the direction of writing is one space, and what is not UTF-8
// is replaced.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
	}), " ")
}

// truncate cuts text to most characters, the last of which is then an ellipsis.
func truncate(s string, most int) string {
	n := 0
	cut := len(s)
	for i := range s {
		if n == most-1 {
			cut = i
		}
		if n == most {
			return s[:cut] + "…"
		}
		n++
	}
	return s
}

func (r Report) check() error {
	if !isCommit(r.Commit) {
		return fmt.Errorf("report a status: %.80q is not the full name of a commit", r.Commit)
	}
	switch r.Phase {
	case Waiting, Applying, RollingOut, Healthy, Failed, Refused, Superseded:
		return nil
	}
	return fmt.Errorf("report a status: no such phase as %.40q", r.Phase)
}

// isCommit says whether s is a full name, SHA-1 or SHA-256.
func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
