package vt

import "encoding/binary"

// A shellMark is an OSC 133 (FinalTerm) or 633 (VS Code) that a shell has printed in a row. It
// tells where a prompt or a command begins or ends. A snapshot repeats the marks, so that
// viewers get them, too.
type shellMark struct {
	col  int
	text string // text between OSC and ST
}

const (
	maxMarks = 8   // marks of a row; a prompt has four
	maxMark  = 256 // bytes of a mark
)

// addMark adds a mark at the cursor. It is dropped if the row has maxMarks marks, if it is
// longer than maxMark bytes, or if the alternate screen is shown, because its programs have no
// prompts.
func (t *Term) addMark(p []byte) {
	b := t.b
	r := b.row(b.y)
	if b != &t.normal || len(r.marks) == maxMarks || len(p) > maxMark {
		return
	}
	r.marks = append(r.marks, shellMark{min(b.x, t.cols-1), string(p)})
}

// appendMarks appends the encoding of marks in a line of the history: their number, and for
// each mark its column, its length and its text.
func appendMarks(dst []byte, marks []shellMark) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(marks)))
	for _, m := range marks {
		dst = binary.AppendUvarint(dst, uint64(m.col))
		dst = binary.AppendUvarint(dst, uint64(len(m.text)))
		dst = append(dst, m.text...)
	}
	return dst
}

// parseMarks decodes the marks that appendMarks has appended, and returns them with the bytes
// that follow.
func parseMarks(p []byte) (marks []shellMark, rest []byte) {
	number := func() int {
		v, k := binary.Uvarint(p)
		p = p[k:]
		return int(v)
	}
	for n := number(); n > 0; n-- {
		col := number()
		k := number()
		marks = append(marks, shellMark{col, string(p[:k])})
		p = p[k:]
	}
	return marks, p
}

// skipMarks returns the bytes after the marks that appendMarks has appended.
func skipMarks(p []byte) (rest []byte) {
	v, k := binary.Uvarint(p)
	p = p[k:]
	for range v {
		_, k := binary.Uvarint(p)
		size, k2 := binary.Uvarint(p[k:])
		p = p[k+k2+int(size):]
	}
	return p
}

// marksUpTo writes the marks in the columns up to col, and returns the others.
func (p *painter) marksUpTo(col int, marks []shellMark) []shellMark {
	for len(marks) > 0 && marks[0].col <= col {
		p.add("\x1b]" + marks[0].text + "\x1b\\")
		marks = marks[1:]
	}
	return marks
}

// marksBehind writes the marks behind the content of a line.
func (p *painter) marksBehind(marks []shellMark) {
	for len(marks) > 0 {
		// If the screen has become narrower, marks may be in columns behind its end.
		col := marks[0].col
		if c := min(col, p.t.cols-1); c > p.x {
			p.csi('G', c+1)
			p.x = c
		}
		marks = p.marksUpTo(col, marks)
	}
}
