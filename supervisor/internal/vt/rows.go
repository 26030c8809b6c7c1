package vt

import (
	"bytes"
	"encoding/binary"
)

// A rowReader reads the rows of a history by their index, the oldest first. A
// packed arena is unpacked into the reader's room and stays packed, and reading
// one row behind or before the other is cheap.
type rowReader struct {
	h     *history
	arena int // where the last row was read
	first int // the index of that arena's first row
	open  [2]openArena
}

// openArena is an arena with the places of its rows.
type openArena struct {
	of    *arena
	room  []byte // of one that was unpacked
	b     []byte
	looks []storedLook
	rows  []int32 // where in b
}

// seek finds the arena that has a row.
func (r *rowReader) seek(row int) *arena {
	for row < r.first {
		r.arena--
		r.first -= r.h.arenas[r.arena].lines
	}
	for row >= r.first+r.h.arenas[r.arena].lines {
		r.first += r.h.arenas[r.arena].lines
		r.arena++
	}
	return r.h.arenas[r.arena]
}

// row returns a row, which is valid until two other arenas were read.
func (r *rowReader) row(row int) storedLine {
	a := r.seek(row)
	o := r.opened(a)
	l, _ := parseLine(o.b[o.rows[row-r.first]:])
	l.arena, l.looks = a, o.looks
	return l
}

// wrapped reports whether a row continues the one above.
func (r *rowReader) wrapped(row int) bool {
	a := r.seek(row)
	if row == r.first {
		return a.continues()
	}
	if a.starts == a.lines {
		return false
	}
	o := r.opened(a)
	return o.b[o.rows[row-r.first]]&lineWrapped != 0
}

func (r *rowReader) opened(a *arena) *openArena {
	if r.open[0].of != a {
		r.open[0], r.open[1] = r.open[1], r.open[0]
	}
	o := &r.open[0]
	if o.of == a {
		return o
	}
	o.of, o.b, o.looks = a, a.b, a.looks
	if a.packed {
		o.room, o.looks = unpack(o.room[:0], a.b)
		o.b = o.room
	}
	o.rows = o.rows[:0]
	for at := a.start; len(o.rows) < a.lines; {
		o.rows = append(o.rows, int32(at))
		size, k := binary.Uvarint(o.b[at:])
		at += k + int(size>>lineFlags)
	}
	return o
}

// starts returns how many of the rows [from, end) begin a line.
func (r *rowReader) starts(from, end int) (n int) {
	for from < end {
		a := r.seek(from)
		if from == r.first && from+a.lines <= end {
			n += a.starts
			from += a.lines
			continue
		}
		if !r.wrapped(from) {
			n++
		}
		from++
	}
	return n
}

// wideText is that of a row of which it is not known how many columns it has.
const wideText = maxSize

// textColumns returns a bound of the columns that a text form has: none takes
// less than a byte, unless a mark says so.
func textColumns(text []byte, flags int) int {
	if flags&lineASCII == 0 && bytes.IndexByte(text, markSkip) >= 0 {
		return wideText
	}
	return len(text)
}
