// Package fake is a scripted Runtime: it starts nothing, takes the time it is
// told to take, crashes and lies on request. Tests and the simulator drive an
// agent with it; it passes the same suite as the real one (runtimetest). Volumes stand
// for those of a machine.
package fake
