package api

import "time"

// LongestTime is what any number of seconds comes to at most: a hundred years. A manifest
// may hold any 64-bit number, which as nanoseconds would be before now, and a grace period
// or a deadline with it; so would the sum of two that are not much smaller.
const LongestTime = 100 * 365 * 24 * time.Hour

// Seconds is a number of seconds that a manifest holds, or LongestTime.
func Seconds(n int64) time.Duration {
	const most = int64(LongestTime / time.Second)
	return time.Duration(max(min(n, most), -most)) * time.Second
}
