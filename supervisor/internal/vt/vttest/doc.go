// Package vttest holds the terminal core to the real xterm.js: it makes streams
// of terminal output, feeds them to both and tells how their states differ.
//
// Invariant: a stream is the same for the same seed and options, and none is
// made of what xterm.js is known to get plainly wrong. What gets through by
// chance is reported by Screen.Defects and not compared.
//
// Not here: the core itself (package vt), xterm.js (scripts/oracle).
package vttest
