// Package cli tests the commands as people and scripts use them: the real
// programs, in real terminals, with real shells and editors in the sessions.
//
// Each test has a world of its own: a HOLDFAST_DIR and the processes in it.
//
// Invariant: a test waits for what it can see (a text, a file, a process's
// end) and never for a time. The limit is there for a failure alone.
//
// Not here: what happens to bytes when processes are killed and replaced
// (scripts/e2e), and the parts of the commands by themselves (proxy).
package cli
