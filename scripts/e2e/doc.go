// Package e2e runs the two real programs as users run them, while processes are killed, replaced,
// stopped, flooded, or receive false messages.
//
// Each test has a world of its own: a HOLDFAST_DIR and the processes that use it. The programs are
// built once, with -race if HOLDFAST_E2E_RACE is 1.
//
// Invariant: a test must wait for an effect that it can observe (a line, an event, the end of a
// process) and never for a time. If the effect does not occur, the test fails at its limit.
//
// Not here: tests that need only one package (that package has them).
package e2e
