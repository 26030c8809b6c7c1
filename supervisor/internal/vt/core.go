//go:build !vtother

package vt

const (
	// alwaysCells is set if a row must be converted to cells as soon as text is printed in it.
	alwaysCells = false
	// arenaSize is the size of an arena in bytes. If it were larger, dropping lines one by one
	// would waste more memory; if it were smaller, arenas would be compressed worse. It must be
	// a power of two, because the compressor's window is one.
	arenaSize = 64 << 10
)
