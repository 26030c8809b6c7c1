//go:build !faults

package main

// fault does nothing, because only a build with the tag faults has steps that fail on request.
func fault(string) {}
