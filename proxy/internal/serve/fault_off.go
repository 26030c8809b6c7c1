//go:build !faults

package serve

// fault does nothing. With the build tag faults, a test can make this process fail here.
func fault(string) {}

// altered returns s. With the build tag faults, a test can change it.
func altered(_ string, s string) string { return s }
