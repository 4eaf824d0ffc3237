package agent

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// backoff is a wait that doubles: nothing may be tried again before Until.
type backoff struct {
	Delay time.Duration
	Since time.Time // when the last try ended
}

func (b backoff) until() time.Time { return b.Since.Add(b.Delay) }

// next is the backoff after one more failure that ended at now.
func (b backoff) next(now time.Time, first, most time.Duration) backoff {
	return backoff{Delay: min(max(b.Delay*2, first), most), Since: now}
}

// The waits of Kubernetes.
const (
	crashFirst = 10 * time.Second
	crashMost  = 5 * time.Minute
	crashReset = 10 * time.Minute // a container that ran this long starts afresh

	pullFirst = 10 * time.Second
	pullMost  = 5 * time.Minute
	pullShown = 2 * time.Second // ErrImagePull is shown this long, then ImagePullBackOff

	errorFirst = time.Second // the engine failed at something else
	errorMost  = time.Minute
)

// crash is how the restarts of one container have gone: Attempt is the newest
// one that was started, Delay what its successor waits after its end.
type crash struct {
	Attempt int
	Delay   time.Duration
}

// restartAt says when the successor of a dead attempt may start, and how long
// that waits. The first restart is immediate, as in Kubernetes, and so is one
// after a long run. An agent that was restarted meanwhile (no record) takes the
// number of attempts for the number of quick crashes.
func restartAt(c crash, known bool, dead ContainerState) (at time.Time, delay time.Duration) {
	if ran := dead.FinishedAt.Sub(dead.StartedAt); !dead.StartedAt.IsZero() && ran >= crashReset {
		return dead.FinishedAt, 0
	}
	if !known || c.Attempt != dead.Attempt {
		c.Delay = crashDelay(dead.Attempt)
	}
	return dead.FinishedAt.Add(c.Delay), c.Delay
}

// restartAt says when the successor of a dead attempt may start, and how long that
// waits by the rule. What crashed together comes back a little apart: up to a tenth of
// the wait, which is the same whoever asks.
func (o observed) restartAt(name string, dead ContainerState) (at time.Time, delay time.Duration) {
	at, delay = restartAt(o.record.crashes[name], has(o.record.crashes, name), dead)
	return at.Add(spread(delay/10, string(o.pod.UID), name, strconv.Itoa(dead.Attempt))), delay
}

// spread is a part of most that depends on the words alone.
func spread(most time.Duration, words ...string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(strings.Join(words, "/"))) // never fails
	return most * time.Duration(h.Sum32()%1024) / 1024
}

// crashDelay is what follows the end of an attempt when all before it crashed.
func crashDelay(attempt int) time.Duration {
	if attempt <= 0 {
		return 0
	}
	return min(crashFirst<<min(attempt-1, 10), crashMost)
}

// restarted is the record once the successor of an attempt that waited delay has
// been started.
func restarted(attempt int, delay time.Duration) crash {
	return crash{Attempt: attempt, Delay: min(max(delay*2, crashFirst), crashMost)}
}
