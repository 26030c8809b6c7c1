// Package compat runs the last releases together with this version: each as the supervisor, as the
// proxy that is replaced, and as the proxy that replaces it.
//
// Each test has a world of its own: a HOLDFAST_DIR and the processes that use it. The file releases
// lists the releases; the tests build them from the repository's history. The table in upgrade.md
// has the results of the tests.
//
// Invariant: a test must wait for an effect that it can observe (an echo, the end of a process) and
// never for a time. If the effect does not occur, the test fails at its limit.
//
// Not here: tests of this version alone (scripts/e2e).
package compat
