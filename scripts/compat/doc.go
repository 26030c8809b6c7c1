// Package compat runs the last releases beside this version: each as the
// supervisor, as the proxy that is replaced, and as the one that replaces it.
//
// Each test has a world of its own: a HOLDFAST_DIR and the processes in it. The
// releases are built from the repository's history; they stand in the file
// releases. What the tests find out is the table in README.md.
//
// Invariant: a test waits for what it can see (an echo, a process's end) and
// never for a time. The limit is there for a failure alone.
//
// Not here: what this version does by itself (scripts/e2e).
package compat
