package screen

import (
	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// An Own is what a viewer with a terminal of another size than the session's was
// shown: the screen, laid out for that size. What scrolls off it does not reach
// the viewer's history, which stays as its snapshot left it.
type Own struct {
	size protocol.Size
	term *vt.Term // in the state of the viewer's

	effects Effects // of what was printed since
}

// NewOwn is for a viewer of that size, with an empty terminal.
func NewOwn(size protocol.Size) *Own {
	o := &Own{size: size.Normalize()}
	o.term = newTerm(o.size, 0, nil)
	return o
}

// Size is that of the viewer's terminal.
func (o *Own) Size() protocol.Size { return o.size }

// Shown is told of each piece of the snapshot that the viewer is given, which
// was made for its size.
func (o *Own) Shown(p []byte) {
	o.term.Write(p)
	o.effects.Skip(p) // it has none, but may end within a sequence
}

// Printed is told of the output that follows what the viewer is shown, for what
// it says to the terminal.
func (o *Own) Printed(p []byte) { o.effects.Write(p) }

// Forget is for output that is missing: what follows begins anew.
func (o *Own) Forget() { o.effects = Effects{} }

// Update returns bytes that bring the viewer to what v shows, after what Printed
// has found; nil if it shows that already.
func (o *Own) Update(v *View) []byte {
	t, _ := v.as(o.size, comes(v.size, o.size))
	update := o.effects.take()
	if len(update) > 0 {
		if o.term.InSequence() {
			update = append([]byte{cancel}, update...)
		}
		o.term.Write(update)
	}
	update = t.AppendTransition(update, o.term)
	o.term = t
	return update
}

// comes is how many rows above a screen may come to be on it when its size
// changes, and some that those continue.
func comes(from, to protocol.Size) int {
	const some = 20
	perRow := (to.Cols + from.Cols - 1) / max(from.Cols, 1)
	return some + max(0, perRow*to.Rows-from.Rows)
}
