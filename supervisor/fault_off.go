//go:build !faults

package main

// fault does nothing: only what the tests build has steps that fail.
func fault(string) {}
