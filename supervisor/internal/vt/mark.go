package vt

import "encoding/binary"

// A mark is an OSC 133 (FinalTerm) or 633 (VS Code) that a shell has left in a
// row: where its prompt begins and ends, and its commands. They are for those
// who look, who get them again with a snapshot.
type mark struct {
	col  int
	text string // as between OSC and ST
}

const (
	maxMarks = 8   // of a row; a prompt has four
	maxMark  = 256 // bytes of one
)

// addMark leaves a mark at the cursor. A program on the alternate screen has no
// prompts.
func (t *Term) addMark(p []byte) {
	b := t.b
	r := b.row(b.y)
	if b != &t.normal || len(r.marks) == maxMarks || len(p) > maxMark {
		return
	}
	r.marks = append(r.marks, mark{min(b.x, t.cols-1), string(p)})
}

// appendMarks appends what a line of history keeps of them: their number, and
// for each its column, its length and its text.
func appendMarks(dst []byte, marks []mark) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(marks)))
	for _, m := range marks {
		dst = binary.AppendUvarint(dst, uint64(m.col))
		dst = binary.AppendUvarint(dst, uint64(len(m.text)))
		dst = append(dst, m.text...)
	}
	return dst
}

// parseMarks returns what appendMarks has appended, and what follows it.
func parseMarks(p []byte) (marks []mark, rest []byte) {
	number := func() int {
		v, k := binary.Uvarint(p)
		p = p[k:]
		return int(v)
	}
	for n := number(); n > 0; n-- {
		col := number()
		k := number()
		marks = append(marks, mark{col, string(p[:k])})
		p = p[k:]
	}
	return marks, p
}

// marksUpTo writes the marks that stand at a column or before it, and returns
// the others.
func (p *painter) marksUpTo(col int, marks []mark) []mark {
	for len(marks) > 0 && marks[0].col <= col {
		p.add("\x1b]" + marks[0].text + "\x1b\\")
		marks = marks[1:]
	}
	return marks
}

// marksBehind writes the marks behind a line's content.
func (p *painter) marksBehind(marks []mark) {
	for len(marks) > 0 {
		// Of a screen that has become narrower some stand behind its end.
		col := marks[0].col
		if c := min(col, p.t.cols-1); c > p.x {
			p.csi('G', c+1)
			p.x = c
		}
		marks = p.marksUpTo(col, marks)
	}
}
