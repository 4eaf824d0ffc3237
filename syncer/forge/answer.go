package forge

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer is what a forge said to a status.
type answer struct {
	kind    Kind
	status  int
	header  http.Header
	message string // in its own words, without the token
}

// outcome is what an answer means for the intent.
type outcome int

const (
	taken   outcome = iota // the forge shows it
	again                  // later: nothing is wrong with the status or the token
	denied                 // a person must change the token, its rights, or the repository's URL
	missing                // as denied, or only this commit is not there
	refused                // the forge will never take this status
)

// judge reads an answer. until is when the forge allows the next request, zero when
// it does not say.
func (a answer) judge(now time.Time) (o outcome, until time.Time) {
	until = a.allowed(now)
	switch s := a.status; {
	case s == http.StatusCreated: // what all three document
		return taken, time.Time{}
	case a.kind == GitLab && s == http.StatusBadRequest && strings.Contains(a.message, "Cannot transition status"):
		return taken, time.Time{} // it is in that state already
	case s == http.StatusTooManyRequests, s == http.StatusForbidden && a.limited():
		if until.IsZero() && a.kind == GitHub {
			until = now.Add(time.Minute) // GitHub's least, when it gives no time
		}
		return again, until
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return denied, time.Time{}
	case s == http.StatusNotFound, s == http.StatusGone:
		return missing, time.Time{}
	case s < 400:
		return denied, time.Time{} // the API is elsewhere, or a proxy asks for a sign-in
	case s == http.StatusRequestTimeout, s == http.StatusConflict, s == http.StatusTooEarly:
		return again, until
	case s/100 == 4:
		return refused, time.Time{}
	}
	return again, until
}

// limited says whether a 403 is of GitHub's rate limits.
func (a answer) limited() bool {
	return a.header.Get("Retry-After") != "" || a.header.Get("X-Ratelimit-Remaining") == "0" ||
		strings.Contains(strings.ToLower(a.message), "rate limit")
}

// maxPause bounds what a forge can make us wait; GitHub's limits are of an hour.
const maxPause = 2 * time.Hour

// allowed is when the headers allow the next request: Retry-After in seconds or as
// a date, or, when nothing remains, the limit's reset in seconds since 1970. Times
// of the forge are measured from its own clock, the Date header.
func (a answer) allowed(now time.Time) time.Time {
	there := now
	if date, err := http.ParseTime(a.header.Get("Date")); err == nil {
		there = date
	}
	var wait time.Duration
	if after := a.header.Get("Retry-After"); after != "" {
		if seconds, err := strconv.ParseUint(after, 10, 31); err == nil {
			wait = time.Duration(seconds) * time.Second
		} else if date, err := http.ParseTime(after); err == nil {
			wait = date.Sub(there)
		}
	}
	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-"} { // GitHub, GitLab
		if wait > 0 || a.header.Get(prefix+"Remaining") != "0" && a.status != http.StatusTooManyRequests {
			continue
		}
		if reset, err := strconv.ParseInt(a.header.Get(prefix+"Reset"), 10, 64); err == nil {
			wait = min(time.Unix(reset, 0).Sub(there), maxPause)
		}
	}
	if wait <= 0 {
		return time.Time{}
	}
	return now.Add(min(wait, maxPause))
}

// said is the answer in short: 401 Unauthorized: Bad credentials.
func (a answer) said() string {
	text := strings.TrimSpace(strconv.Itoa(a.status) + " " + http.StatusText(a.status))
	if a.message != "" {
		text += ": " + a.message
	}
	return text
}

// advice says what happened and what to do about it. at is the URL of the API, and
// project the repository there.
func (a answer) advice(o outcome, at, project, tokenFile string) string {
	name := a.kind.name()
	switch {
	case o == denied && a.status < 400:
		return fmt.Sprintf("%s does not take a status at %s (%s): the repository has moved, or the API is elsewhere, or a proxy stands before it; give the source its new URL, or the API's with --forge-api", name, at, a.said())
	case o == denied && a.status == http.StatusUnauthorized:
		return fmt.Sprintf("%s does not accept the token (%s) at %s: put a valid token into %s; it needs %s", name, a.said(), at, tokenFile, a.kind.scope())
	case o == denied:
		return fmt.Sprintf("the token may not set commit statuses of %s (%s) at %s: the token in %s needs %s", project, a.said(), at, tokenFile, a.kind.scope())
	case o == missing:
		return fmt.Sprintf("%s knows no such repository or commit (%s) at %s: either the token in %s may not see %s, and needs %s, or the commit is not there any more, or the API is elsewhere (--forge-api)", name, a.said(), at, tokenFile, project, a.kind.scope())
	case o == refused:
		return fmt.Sprintf("%s refuses the status (%s) at %s; it is not sent again", name, a.said(), at)
	}
	return fmt.Sprintf("%s takes no status now (%s) at %s", name, a.said(), at)
}

// scope is what a token must allow.
func (k Kind) scope() string {
	switch k {
	case GitHub:
		return "“Commit statuses: Read and write” (fine-grained) or the scope repo:status (classic)"
	case GitLab:
		return "the scope api and the role Developer, or Maintainer where the branch is protected"
	}
	return "the scope write:repository, of a user who may write to the repository's code"
}
