package vt

import "unicode/utf8"

// clusterTable gives a number to every text of several code points that some
// cell holds.
type clusterTable struct {
	all   []string // by number; "" is free
	ids   map[string]uint32
	free  []uint32
	limit int // texts at which the next sweep is due
}

// minClusterSweep is how many texts are kept before the first sweep.
const minClusterSweep = 1 << 12

func (t *clusterTable) text(c cell) string { return t.all[c&codeMask] }
func (t *clusterTable) used() int          { return len(t.all) - len(t.free) }

func (t *clusterTable) id(s []byte) uint32 {
	if id, ok := t.ids[string(s)]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = make(map[string]uint32)
		t.limit = minClusterSweep
	}
	text := string(s)
	var id uint32
	if k := len(t.free); k > 0 {
		id, t.free = t.free[k-1], t.free[:k-1]
		t.all[id] = text
	} else {
		id = uint32(len(t.all))
		t.all = append(t.all, text)
	}
	t.ids[text] = id
	return id
}

// sweep frees every text that is not in live, which is as long as all.
func (t *clusterTable) sweep(live []bool) {
	t.free = t.free[:0]
	clear(t.ids) // and not one by one: most are dead
	for id, s := range t.all {
		if live[id] {
			t.ids[s] = uint32(id)
		} else {
			t.all[id] = ""
			t.free = append(t.free, uint32(id))
		}
	}
	t.limit = max(minClusterSweep, 2*t.used())
}

// content returns a cell with the text p and nothing else.
func (t *Term) content(p []byte) cell {
	ch, n := utf8.DecodeRune(p)
	if n == len(p) {
		return cell(ch)
	}
	return cell(t.clusters.id(p)) | clusterBit
}

// appendContent appends the cell's text, nothing for an empty cell.
func (t *Term) appendContent(dst []byte, c cell) []byte {
	switch {
	case c&clusterBit != 0:
		return append(dst, t.clusters.text(c)...)
	case c&codeMask != 0:
		return utf8.AppendRune(dst, rune(c&codeMask))
	}
	return dst
}

// combine returns c with ch added to its text.
func (t *Term) combine(c cell, ch rune) cell {
	if !c.hasContent() {
		return c&^(contentMask|widthMask) | cell(ch)
	}
	var buf [maxCluster + utf8.UTFMax]byte
	p := t.appendContent(buf[:0], c)
	if p = utf8.AppendRune(p, ch); len(p) > maxCluster {
		return c
	}
	return c&^contentMask | t.content(p)
}
