package vt

import (
	"maps"
	"slices"
)

// Copy returns a terminal in the same state, with the last history lines of
// what lies above the screen, which takes neither time nor room for each line.
// It shares nothing that changes with this one, and may go to another goroutine; several may copy one terminal at a time as long
// as nothing else is done to it. Nobody gets its events or its answers.
func (t *Term) Copy(history int) *Term {
	c := *t
	c.normal, c.alt = t.normal.copy(), t.alt.copy()
	c.b = &c.normal
	if t.b == &t.alt {
		c.b = &c.alt
	}
	c.styles.all, c.styles.slots, c.styles.free = slices.Clone(t.styles.all), slices.Clone(t.styles.slots), slices.Clone(t.styles.free)
	c.clusters.all, c.clusters.ids, c.clusters.free = slices.Clone(t.clusters.all), maps.Clone(t.clusters.ids), slices.Clone(t.clusters.free)
	c.links.byName = maps.Clone(t.links.byName)
	c.str = slices.Clone(t.str)
	c.titleStack, c.iconStack = slices.Clone(t.titleStack), slices.Clone(t.iconStack)
	c.colors = maps.Clone(t.colors)
	for i := range c.keyboard.Kitty {
		c.keyboard.Kitty[i].Stack = slices.Clone(t.keyboard.Kitty[i].Stack)
	}
	c.scratch, c.replies, c.alone, c.replyLost, c.config.Events = nil, nil, nil, false, nil
	c.copyHistory(t, min(max(history, 0), t.hist.lines))
	return &c
}

// copyHistory takes the last n lines of from's. Both read the same arenas then:
// what is in them never changes, and each appends to room of its own.
func (t *Term) copyHistory(from *Term, n int) {
	old, h := &from.hist, &t.hist
	*h = history{maxLines: old.maxLines, maxBytes: old.maxBytes, serials: old.serials}
	skip := old.lines - n
	for _, a := range old.arenas {
		if skip >= a.lines {
			skip -= a.lines
			continue
		}
		if !a.shared { // those of a copy always are: several may copy it at a time
			a.shared = true
		}
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

// copy takes room for all rows at once. A row that gets longer gets its own.
func (b *buffer) copy() buffer {
	c := *b
	c.rows, c.order, c.tabs = make([]row, len(b.rows)), slices.Clone(b.order), slices.Clone(b.tabs)
	text, runs, cells := 0, 0, 0
	for i := range b.rows {
		r := &b.rows[i]
		text, runs = text+len(r.text), runs+len(r.runs)
		if r.inCells {
			cells += max(r.w, len(r.cells))
		}
	}
	s := slab{make([]byte, 0, text), make([]run, 0, runs), make([]cell, 0, cells)}
	for i := range b.rows {
		r := b.rows[i]
		r.text, s.text = take(s.text, r.text, len(r.text))
		r.runs, s.runs = take(s.runs, r.runs, len(r.runs))
		if r.inCells {
			r.cells, s.cells = take(s.cells, r.cells, max(r.w, len(r.cells))) // as toCells has made them
		} else {
			r.cells = nil
		}
		r.marks = slices.Clone(r.marks)
		c.rows[i] = r
	}
	return c
}

// slab is room for the rows of a screen.
type slab struct {
	text  []byte
	runs  []run
	cells []cell
}

// take copies s into room that it takes from a slab, and returns what is left.
func take[T any](slab, s []T, room int) (taken, left []T) {
	if room == 0 {
		return nil, slab
	}
	return append(slab[:0:room], s...), slab[room:cap(slab)][:0]
}
