//go:build !faults

package main

// fault is where a test may have this process fail.
func fault(string) {}

// altered is what a test may have this process see otherwise.
func altered(_ string, s string) string { return s }
