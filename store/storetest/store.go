package storetest

import (
	"testing"

	"headway.dev/headway/store"
)

// Store is the contract of a Store over a backend. open returns an empty one.
func Store(t *testing.T, open func(testing.TB) store.KV) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, store.KV)
	}{
		{"every kind comes back as it was written", everyKind},
		{"conflicts", conflicts},
		{"refused before the backend", refused},
		{"a transaction is all or nothing", allOrNothing},
		{"conditions on other objects", conditions},
		{"indexes follow the objects", indexes},
		{"what a reader got never changes", immutable},
		{"hooks get each revision once, whole", hooks},
		{"sealed kinds", sealed},
		{"a value that does not decode stops a load", undecodable},
		{"an object vanishes with its lease", objectLease},
		{"get and list from the backend", fromBackend},
		{"pages at one revision", pages},
		{"wait for a revision", waits},
		{"cache is the backend's state after many writers", manyWriters},
		{"a gap in the watch is mended", gap},
		{"addresses are given out", addressesGivenOut},
		{"addresses that another server gave out", addressesOfOthers},
		{"addresses given out at once", addressesAtOnce},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}
