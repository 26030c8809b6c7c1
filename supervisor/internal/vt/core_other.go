//go:build vtother

package vt

// With the build tag vtother, the core shows the same content with another internal
// representation. Tests use it to show that a saved screen does not depend on the internals of
// the program that saved it.
const (
	alwaysCells = true
	arenaSize   = 32 << 10
)
