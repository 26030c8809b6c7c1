package vt

import (
	"bytes"
	"slices"
)

// HistoryWithin returns how many of the last n rows of the history a snapshot may contain, if
// their bytes in the snapshot, and their cells when they are read, must not exceed about room
// each. One number bounds both, because each byte and each cell takes time.
func (t *Term) HistoryWithin(n, room int) (rows int) {
	e := estimate{t: t}
	if e.certainlyFits(n, room) {
		return min(n, t.hist.lines)
	}
	return t.within(n, room, e.openArena, e.rowCost)
}

// LayoutWithin returns how many of the last n rows of the history can be laid out for another
// size if that must not take more than about the time of cells cells. The cells are assumed to
// be more than ASCII.
func (t *Term) LayoutWithin(n, cells int) (rows int) {
	return t.within(n, cells, func(*arena, []storedLook) {}, layoutCost)
}

// linksWithin returns how many of the last n rows of the history can keep their links in a
// snapshot if the links must not take more than room bytes.
func (t *Term) linksWithin(n, room int) (rows int) {
	if !slices.ContainsFunc(t.hist.arenas, func(a *arena) bool { return a.linkBytes > 0 }) {
		return n
	}
	e := estimate{t: t}
	return t.within(n, room, e.openArena, e.linkCost)
}

// within returns how many of the last n rows of the history together cost no more than room.
// It calls open with each arena, and then cost with each row of that arena.
func (t *Term) within(n, room int, open func(*arena, []storedLook), cost func(storedLine) int) (rows int) {
	var plain []byte
	var styles []storedLook
	var costs []int
	for _, a := range slices.Backward(t.hist.arenas) {
		if rows >= n {
			break
		}
		b, looks := a.b, a.looks
		if a.packed {
			b, looks = unpack(plain[:0], styles[:0], a.b)
			plain, styles = b, looks
		}
		open(a, looks)
		costs = costs[:0]
		for b = b[a.start:]; len(costs) < a.lines; {
			var l storedLine
			l, b = parseLine(b)
			costs = append(costs, cost(l))
		}
		for _, c := range slices.Backward(costs) {
			if room -= c; room < 0 || rows == n {
				return rows
			}
			rows++
		}
	}
	return rows
}

// Laying out a row has these costs besides its cells, in cells.
const (
	layoutRow  = 8
	layoutLook = 8
)

// layoutCost returns the cost of laying out a row for another size.
func layoutCost(l storedLine) int {
	cost := layoutRow
	l.eachLook(func(int, int) { cost += layoutLook })
	if l.flags&lineASCII != 0 {
		return cost + len(l.text)/4
	}
	_, columns := unwritten(l.text)
	return cost + len(l.text) + columns
}

// An estimate computes the cost of rows of the history in a snapshot: their bytes, or a few
// more.
type estimate struct {
	t     *Term
	looks []storedLook // styles of the arena
	arena *arena
	costs []int // costs of these styles; 0 is not computed yet
}

const (
	gapCost  = 12 // erases columns and moves behind them
	halfCost = 32 // an empty column with more style than a background (emptyStyled)
	wrapCost = 24 // makes a row continue the row above (wrapInto)
	markCost = 8  // opens and closes the sequence of a mark
	lookCost = 64 // bounds the SGR of any style, which appendSGR writes
)

// certainlyFits reports whether n rows have room for certain. It takes hardly any time, and
// holds for most attaches.
func (e *estimate) certainlyFits(n, room int) bool {
	perByte := max(lookCost, e.t.cols)
	for _, a := range slices.Backward(e.t.hist.arenas) {
		if n <= 0 {
			break
		}
		if a.packed || a.linkBytes > 0 {
			return false
		}
		if room -= (len(a.b) - a.start) * perByte; room < 0 {
			return false
		}
		n -= a.lines
	}
	return true
}

// openArena prepares the estimate for the rows of an arena.
func (e *estimate) openArena(a *arena, looks []storedLook) {
	e.arena, e.looks = a, looks
	e.costs = slices.Grow(e.costs[:0], len(looks))[:len(looks)]
	clear(e.costs)
}

// rowCost returns the cost of a row.
func (e *estimate) rowCost(l storedLine) int {
	cost, most, half := len("\r\n")+len(l.text), 0, false
	l.arena, l.looks = e.arena, e.looks
	l.eachLook(func(_, look int) {
		c := e.penCost(l, look)
		cost += c
		most = max(most, c)
		half = half || !e.isErased(look)
	})
	for _, m := range l.marks {
		cost += len(m.text) + markCost + most
	}
	gaps, columns := 0, 0
	if l.flags&lineASCII == 0 {
		gaps, columns = unwritten(l.text)
		if e.t.modes.Graphemes {
			cost += len(l.text) / 2 // a control may be necessary between two cells
		}
	} else {
		gaps = bytes.Count(l.text, []byte{markEmpty})
		columns = gaps
	}
	cost += gaps*gapCost + columns
	if half {
		cost += columns * (halfCost + 2*most)
	}
	if l.flags&lineWrapped != 0 && (len(l.text) < e.t.cols || gaps > 0) {
		cost += wrapCost + 2*most
	}
	return cost
}

// unwritten returns the number of marks for empty columns in a text form, and the number of
// columns for which they stand.
func unwritten(text []byte) (marks, columns int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case markEmpty, markSpacer:
			columns++
		case markCell:
			columns++
			i += 2 + int(text[i+2])
		case markSkip:
			columns += int(text[i+1]) | int(text[i+2])<<8
			i += 2
		default:
			continue
		}
		marks++
	}
	return marks, columns
}

// penCost returns the cost of giving the pen a style of the arena.
func (e *estimate) penCost(l storedLine, i int) int {
	if e.costs[i] == 0 {
		s := l.look(i)
		var buf [lookCost]byte
		e.costs[i] = len("\x1b[m") + len(appendSGR(buf[:0], s.visible(), ';'))
		if s.bg&bgProtected != 0 {
			e.costs[i] += len("\x1b[1\"q")
		}
		if link := s.shownLink(); link != nil {
			e.costs[i] += link.cost()
		}
	}
	return e.costs[i]
}

// linkCost returns the cost of the links of a row.
func (e *estimate) linkCost(l storedLine) (cost int) {
	l.eachLook(func(_, look int) {
		if n := e.looks[look].link; n > 0 {
			cost += e.arena.links[n-1].cost()
		}
	})
	return cost
}

// isErased reports whether erasing can produce the style.
func (e *estimate) isErased(i int) bool {
	l := e.looks[i]
	return l.fg == 0 && l.bg&^colorMask == 0 && l.extended == 0 && l.link == 0
}

// cost returns the number of bytes that open and close a link.
func (l *link) cost() int { return len(l.uri) + len(l.id) + len("\x1b]8;id=;\x1b\\\x1b]8;;\x1b\\") }
