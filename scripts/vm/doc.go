// Package vm tests on a real kernel, in an emulated machine that scripts/vm/run boots,
// what no container shows: control groups, and memory that runs out.
//
// Invariant: the same test program runs outside, where it builds the programs and boots
// the machine, and inside, where it is root and all else is busybox.
//
// Not here: what works without a kernel of its own (scripts/e2e).
package vm
