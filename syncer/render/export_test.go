package render

import "headway.dev/headway/api"

// String returns the notice as path: why, in one line.
func (n Notice) String() string { return api.Printable(n.Path) + ": " + api.Printable(n.Why) }

// Reads says whether a pattern is one that can match.
func Reads(pattern string) bool {
	_, ok := parsePattern(pattern)
	return ok
}
