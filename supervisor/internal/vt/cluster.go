package vt

import "unicode/utf8"

// clusterTable assigns a number to each text of several code points that a cell holds.
type clusterTable struct {
	all   []string // by number; "" means that the number is free
	ids   map[string]uint32
	free  []uint32
	limit int // if more texts than this are used, the table should be swept

	combined *[combinedSlots]combination // recent results of combine
}

// A combination is a cell's content, a character that joined it, and the resulting content.
type combination struct {
	content, result cell
	ch              rune
}

// combinedSlots is the size of the cache of combinations. It must be a power of two.
const combinedSlots = 64

// minClusterSweep is the number of texts up to which the table is never swept.
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

// sweep frees every text whose number is not set in live. live must be as long as all.
func (t *clusterTable) sweep(live []bool) {
	t.free, t.combined = t.free[:0], nil
	clear(t.ids) // most texts are dead, so deleting them one by one would take longer
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

// content returns a cell with the text p, without width bits and style.
func (t *Term) content(p []byte) cell {
	ch, n := utf8.DecodeRune(p)
	if n == len(p) {
		return cell(ch)
	}
	return cell(t.clusters.id(p)) | clusterBit
}

// appendContent appends the text of a cell to dst. An empty cell has no text.
func (t *Term) appendContent(dst []byte, c cell) []byte {
	switch {
	case c&clusterBit != 0:
		return append(dst, t.clusters.text(c)...)
	case c&codeMask != 0:
		return utf8.AppendRune(dst, rune(c&codeMask))
	}
	return dst
}

// combine returns c with ch added to its text. If the text would be longer than maxCluster
// bytes, ch is dropped.
func (t *Term) combine(c cell, ch rune) cell {
	if !c.hasContent() {
		return c&^(contentMask|widthMask) | cell(ch)
	}
	if t.clusters.combined == nil {
		t.clusters.combined = new([combinedSlots]combination)
	}
	known := &t.clusters.combined[(uint32(c&contentMask)^uint32(ch)*0x9e3779b1)&(combinedSlots-1)]
	if known.ch == ch && known.content == c&contentMask {
		return c&^contentMask | known.result
	}
	var buf [maxCluster + utf8.UTFMax]byte
	p := t.appendContent(buf[:0], c)
	if p = utf8.AppendRune(p, ch); len(p) > maxCluster {
		return c
	}
	*known = combination{c & contentMask, t.content(p), ch}
	return c&^contentMask | known.result
}
