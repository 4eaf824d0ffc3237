// Package schema says how objects merge: for every kind that a repository may
// declare, which lists are merged by which keys, and which maps and lists are one
// value (D6). The syncer merges by it, and drift is found by it.
package schema
