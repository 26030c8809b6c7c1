// Package e2e runs the two real programs as users run them, and takes them
// down in the ways in which they go down: killed, replaced, stopped, flooded,
// lied to.
//
// Each test has a world of its own: a HOLDFAST_DIR and the processes in it.
// The programs are built once, with -race if HOLDFAST_E2E_RACE is 1.
//
// Invariant: a test waits for what it can see (a line, an event, a process's
// end) and never for a time. The limits are there for a failure alone.
//
// Not here: what one package can be asked by itself (that package's tests).
package e2e
