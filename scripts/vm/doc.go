// Package vm tests control groups, the end of memory and losses of power on a real kernel, in an
// emulated machine that scripts/vm/run boots, because containers do not have them.
//
// Invariant: the same test program must run outside, where it builds the programs and boots the
// machine, and inside, where it is root and all other programs are busybox.
//
// Not here: tests that need no kernel of their own (scripts/e2e).
package vm
