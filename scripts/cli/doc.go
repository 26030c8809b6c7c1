// Package cli tests the commands as people and scripts use them: the real
// programs, in real terminals, with real shells and editors in the sessions.
//
// Each test has a world of its own: a HOLDFAST_DIR and the processes that use it.
//
// Invariant: a test must wait for an effect that it can observe (a text, a file, the end of a
// process) and never for a time. If the effect does not occur, the test fails at its limit.
//
// Not here: input and output while processes are killed and replaced (scripts/e2e), and tests of
// single functions of the commands (proxy).
package cli
