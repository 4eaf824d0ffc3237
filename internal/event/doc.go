// Package event records Kubernetes Events: what happened to an object, for
// people who look (kubectl describe, kubectl get events).
//
// An event is best written in the transaction that does what it tells of
// (Recorder.Op); then it costs no round trip and never tells of what did not
// happen. Recorder.Event writes one on its own.
//
// Repeats coalesce: the name of an Event is made from what it says about whom, so
// the second occurrence updates the first, with count raised and lastTimestamp
// moved. Events are bounded: a bucket per object and one for the recorder drop
// what exceeds them, and controllers/garbage removes events that did not occur for
// TTL. Messages must never hold a secret's value (R14).
package event
