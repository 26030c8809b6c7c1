package vt

import (
	"maps"
	"slices"
)

// Copy returns a terminal in the same state, with the last history lines above the screen. If
// there are fewer lines, it has all of them. The history is shared and not copied, so that its
// length costs neither time nor memory.
//
// The two terminals share only data that never changes, so the copy may be used in another
// goroutine. Copy itself must be called by the user of t, because it marks the shared data.
// The copy has no receiver of events, and no answers of t.
func (t *Term) Copy(history int) *Term {
	c := *t
	c.normal = t.normal.copy()
	c.b = &c.normal
	c.alt.tabs = slices.Clone(t.alt.tabs)
	if t.b == &t.alt {
		c.alt, c.b = t.alt.copy(), &c.alt
	} else {
		c.alt.setRows(nil) // they are not shown again
	}
	c.normal.t, c.alt.t = &c, &c
	c.styles = t.styles.copy()
	c.clusters.all, c.clusters.from = slices.Clone(t.clusters.all), slices.Clone(t.clusters.from)
	c.clusters.slots, c.clusters.free = slices.Clone(t.clusters.slots), slices.Clone(t.clusters.free)
	c.links.byName = maps.Clone(t.links.byName)
	c.pictures.all, c.graphics = slices.Clone(t.pictures.all), t.graphics.copy()
	c.str = slices.Clone(t.str)
	c.titleStack, c.iconStack = slices.Clone(t.titleStack), slices.Clone(t.iconStack)
	c.colors = maps.Clone(t.colors)
	for i := range c.keyboard.Kitty {
		c.keyboard.Kitty[i].Stack = slices.Clone(t.keyboard.Kitty[i].Stack)
	}
	c.scratch, c.unmoved, c.replies, c.requiredReplies, c.replyLost, c.config.Events = nil, nil, nil, nil, false, nil
	c.copyHistory(&t.hist, history)
	c.settleAll() // the deferrals belong to t
	return &c
}

// KeepHistory drops the oldest lines above the screen, except for the last n.
func (t *Term) KeepHistory(n int) {
	old := t.hist
	t.copyHistory(&old, n)
}

// copyHistory gives t the last n lines of another history. Both then read the same arenas,
// whose content never changes. Each appends to an arena of its own.
func (t *Term) copyHistory(old *history, n int) {
	h := &t.hist
	*h = history{maxLines: old.maxLines, maxBytes: old.maxBytes, serials: old.serials}
	skip := old.lines - min(max(n, 0), old.lines)
	for _, a := range old.arenas {
		if skip >= a.lines {
			skip -= a.lines
			continue
		}
		a.shared = true
		c := *a
		c.b, c.looks, c.links = slices.Clip(a.b), slices.Clip(a.looks), slices.Clip(a.links)
		h.arenas = append(h.arenas, &c)
		h.lines += c.lines
		h.bytes += c.size()
		for ; skip > 0; skip-- {
			h.dropLine()
		}
	}
	h.first = old.first + old.numbered() - h.numbered()
	t.normal.saved.y = max(t.normal.saved.y-(old.lines-h.lines), 0)
}

// copy returns a copy of the buffer. It allocates all rows together. A row that becomes longer
// later is allocated for itself.
func (b *buffer) copy() buffer {
	c := *b
	c.rows, c.order, c.tabs = slices.Clone(b.rows), slices.Clone(b.order), slices.Clone(b.tabs)
	c.late = slices.Clone(b.late)
	for y, i := range b.order {
		if n := b.late[y]; n != 0 && b.deferrals[n].fills {
			c.rows[i] = row{w: b.rows[i].w}
		}
	}
	text, runs, cells := 0, 0, 0
	for i := range c.rows {
		r := &c.rows[i]
		text, runs = text+len(r.text), runs+len(r.runs)
		if r.inCells {
			cells += max(r.w, len(r.cells))
		}
	}
	s := slab{make([]byte, 0, text), make([]run, 0, runs), make([]cell, 0, cells)}
	for i := range c.rows {
		r := &c.rows[i]
		r.text, s.text = copyIntoSlab(s.text, r.text, len(r.text))
		r.runs, s.runs = copyIntoSlab(s.runs, r.runs, len(r.runs))
		if r.inCells {
			r.cells, s.cells = copyIntoSlab(s.cells, r.cells, max(r.w, len(r.cells))) // with the capacity that toCells would give them
		} else {
			r.cells = nil
		}
		r.marks = slices.Clone(r.marks)
	}
	return c
}

// slab is memory for the rows of a screen.
type slab struct {
	text  []byte
	runs  []run
	cells []cell
}

// copyIntoSlab copies s into the beginning of slab, with a capacity of room. It returns the
// copy and the remaining slab.
func copyIntoSlab[T any](slab, s []T, room int) (taken, left []T) {
	if room == 0 {
		return nil, slab
	}
	return append(slab[:0:room], s...), slab[room:cap(slab)][:0]
}
