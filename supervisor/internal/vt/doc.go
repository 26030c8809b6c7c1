// Package vt is the terminal core. It parses the bytes that a program prints, and holds the
// screen that a terminal would show for them, with its history, modes and pen.
//
// It produces the same results as xterm.js 6, except for the differences that README.md lists.
// A row that is written from left to right is stored as the printed bytes with runs of style.
// It is converted to cells only when a column inside it changes. A line of a log is therefore
// never converted: it is copied into its row, and from there to the history.
//
// Invariant: Write does not fail, does not block, and holds a bounded amount of memory,
// whatever the bytes are and however they are cut into pieces. The state must not depend on where
// they were cut. It depends on the bytes alone, except for pictures: which of them are kept also depends on
// the memory that the pictures of all terminals need.
//
// Not here: sending snapshots to viewers (package screen); choosing whether the session or a
// viewer answers a program's questions (package session).
package vt
