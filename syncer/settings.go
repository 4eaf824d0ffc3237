package syncer

import "time"

// interval is how often a forge is asked; unsaid is what the server was started
// with, and counts unless the commit says something.
func (d *desired) interval(unsaid time.Duration) time.Duration {
	if d.config.Says("pollInterval") {
		return d.config.PollInterval.Duration
	}
	return unsaid
}
