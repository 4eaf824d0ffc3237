// Package probe asks containers how they are, as their manifests say: by HTTP, TCP,
// gRPC or a command. It keeps no goroutine or timer for a probe that is not due: a
// Schedule is a heap of due times, and its owner takes from it what is due.
//
// It reads: the answers of containers. It writes nothing.
//
// Invariants:
//   - Tally.Add alone says what results come to; it is pure.
//   - At most so many checks are under way as the Schedule has room for, commands
//     counted apart, so that neither kind holds up the other.
//   - What cannot be asked (Unknown) counts for nothing, as in Kubernetes.
//
// Example: a readiness probe with failureThreshold 3 answers, and its Tally's verdict is
// Success. Two failures change nothing, a third makes it Failure, and the next
// success makes it Success again.
package probe
