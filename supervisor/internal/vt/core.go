//go:build !vtother

package vt

const (
	// alwaysCells gives up the text form of a row as soon as something is printed
	// in it.
	alwaysCells = false
	// arenaSize is small enough that dropping one line after the other wastes
	// little, and large enough to be compressed well. It is a power of two, for
	// the compressor's window.
	arenaSize = 64 << 10
)
