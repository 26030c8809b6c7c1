package vt

// A cell is one column of a row, packed:
//
//	bits  0..20  code point, or index into Term.clusters; 0 is empty
//	bit  21      set if the cell has several code points; the code is then an index
//	bits 22..23  width: 0 one column, 1 two columns, 2 none
//	bits 24..55  style id
//
// Zero is an empty cell of one column in the default style. A cell without width is the second
// half of a wide character, or a combining character that had no character to combine with.
type cell uint64

const (
	codeMask    cell = 1<<21 - 1
	clusterBit  cell = 1 << 21
	contentMask      = codeMask | clusterBit
	widthShift       = 22
	widthMask   cell = 3 << widthShift
	wideCell    cell = 1 << widthShift
	zeroCell    cell = 2 << widthShift
	styleShift       = 24
)

// A styleID is an index into Term.styles; 0 is the default style.
type styleID uint32

func (s styleID) cell() cell { return cell(s) << styleShift }

func (c cell) style() styleID   { return styleID(c >> styleShift) }
func (c cell) hasContent() bool { return c&contentMask != 0 }
func (c cell) isWide() bool     { return c&widthMask == wideCell }

// isSpacer reports whether the cell is empty and has no width: it is then the second half of a
// wide character.
func (c cell) isSpacer() bool { return c&(contentMask|widthMask) == zeroCell }

func (c cell) width() int {
	switch c & widthMask {
	case wideCell:
		return 2
	case zeroCell:
		return 0
	}
	return 1
}

func widthBits(w int) cell {
	switch w {
	case 2:
		return wideCell
	case 0:
		return zeroCell
	}
	return 0
}
