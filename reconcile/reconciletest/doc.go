// Package reconciletest steps a controller by hand in unit tests: a store in memory, the
// controller's loop over it, a clock, and hands that play everybody else.
//
// Tests of components alone import it.
package reconciletest
