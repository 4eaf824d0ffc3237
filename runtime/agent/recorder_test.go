package agent

import (
	"testing"
	"time"
)

// Twenty-five events of a pod for a reason go at once, then one every five minutes; other
// reasons are not held up by it.
func TestEventsAreBounded(t *testing.T) {
	r, now, sent := newRecorder("n1"), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 0
	for range 3600 { // one per second for an hour
		if r.allowed("a", "Unhealthy", now) {
			sent++
		}
		now = now.Add(time.Second)
	}
	if sent != 25+11 && sent != 25+12 {
		t.Errorf("%d events in an hour", sent)
	}
	if !r.allowed("a", "Killing", now) || !r.allowed("b", "Unhealthy", now) {
		t.Error("another reason, or another pod, is held up")
	}
	for i := range 5 * maxRemembered {
		r.allowed("c", string(rune(i)), now)
	}
	if len(r.flows) > maxRemembered {
		t.Errorf("%d are remembered", len(r.flows))
	}
}
