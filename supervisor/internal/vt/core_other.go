//go:build vtother

package vt

// With the tag vtother the core shows the same and holds it in another way, for
// tests of one program that goes on with what another one has saved.
const (
	alwaysCells = true
	arenaSize   = 32 << 10
)
