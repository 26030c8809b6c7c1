//go:build !linux && !darwin

package machine

// Boot returns "", because this system has no terminals.
func Boot() string { return "" }
