// Package lapse turns the numbers of seconds that manifests hold into durations.
package lapse

import "time"

// Longest is what any number of seconds comes to at most: a hundred years. A manifest may
// hold any 64-bit number, which as nanoseconds would be before now, and a grace period or
// a deadline with it; so would the sum of two that are not much smaller.
const Longest = 100 * 365 * 24 * time.Hour

// Seconds is n seconds, or Longest.
func Seconds(n int64) time.Duration {
	const most = int64(Longest / time.Second)
	return time.Duration(max(min(n, most), -most)) * time.Second
}
