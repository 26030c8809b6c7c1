// Package vt is the terminal core: it takes what a program prints and keeps
// what a terminal would show for it, with history, modes and pens.
//
// Fidelity is that of xterm.js 6; where we differ on purpose, ARCHITECTURE.md
// says so. A row that is written left to right stays the bytes that were
// printed, with runs of style; it becomes cells only when something within it
// is changed. A line of a log is never taken apart: it is copied in, and copied
// to the history.
//
// Invariant: whatever bytes come, in whatever pieces, Write does not fail, does
// not block, and holds a bounded amount of memory; the state depends on the
// bytes and not on how they were cut.
//
// Not here: who reads the snapshot (package screen), what a program's questions
// are answered with when a viewer answers them (package session).
package vt
