// Package vttest compares the terminal core with the real xterm.js. It generates streams of
// terminal output, writes them to both, and reports the differences of their states.
//
// Invariant: a stream must be the same for the same seed and options. A stream does not
// contain input that xterm.js is known to handle wrongly. If such input occurs by chance,
// Screen.Defects reports it, and the states are not compared.
//
// Not here: the core itself (package vt), xterm.js (scripts/oracle).
package vttest
