package screen

import (
	"holdfast/protocol"
	"holdfast/shared/escseq"
	"holdfast/supervisor/internal/vt"
)

// An Own is the screen of a viewer that has a terminal of another size than the session: the
// session's screen, laid out for that size. Lines that scroll off this screen do not reach the
// viewer's history, which stays as the viewer's snapshot left it.
type Own struct {
	size protocol.Size
	term *vt.Term // in the state of the viewer's terminal
	vt.Shows

	effects Effects // effects of the output since the last update
}

// NewOwn returns the state of a viewer with an empty terminal of that size. look describes the terminal,
// or is nil.
func NewOwn(size protocol.Size, look *protocol.Appearance) *Own {
	o := &Own{size: size.Normalize(), Shows: shows(look)}
	o.term = newTerm(o.size, 0, nil)
	o.term.SetAppearance(vt.Appearance{PictureCell: o.Cell})
	return o
}

// Size returns the size of the viewer's terminal.
func (o *Own) Size() protocol.Size { return o.size }

// Shown records a piece of the snapshot that the viewer has received. The snapshot must have
// been made for the viewer's size.
func (o *Own) Shown(p []byte) {
	o.term.Write(p)
	o.effects.Skip(p) // a snapshot has no effects, but may end within a sequence
}

// Printed collects the effects of output behind the snapshot, such as bells.
func (o *Own) Printed(p []byte) { o.effects.Write(p) }

// Forget drops the collected effects. It must be called if output is missing.
func (o *Own) Forget() { o.effects = Effects{} }

// Update returns the collected effects, and bytes that change the viewer's terminal to the
// content of v. It returns nil if the viewer shows this content already and there are no
// effects. Update takes the rows of v, which must not be used afterwards.
func (o *Own) Update(v *View) []byte {
	t := v.term
	v.term = nil
	t.LimitHistory(maxAbove)
	if o.size != v.size {
		t.Resize(o.size.Cols, o.size.Rows)
	}
	update := o.effects.take()
	if len(update) > 0 {
		if o.term.InSequence() {
			update = append([]byte{escseq.CAN}, update...)
		}
		o.term.Write(update)
	}
	update = t.AppendTransition(update, o.term, o.Shows)
	o.term = t
	return update
}

// pulledRows bounds the number of rows above a screen that may move onto it when its size
// changes, with a reserve for lines that those rows continue.
func pulledRows(from, to protocol.Size) int {
	const some = 20
	perRow := (to.Cols + from.Cols - 1) / max(from.Cols, 1)
	return some + max(0, perRow*to.Rows-from.Rows)
}
