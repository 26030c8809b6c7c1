package vt

import "unicode/utf8"

// clusterTable assigns a number to each text of several code points that a cell holds. A text is found by the content of
// a cell with all code points but the last one, so that a character joins another one without a look at their texts.
type clusterTable struct {
	all   []string // by number; "" means that the number is free
	from  []uint32 // by number: the content without the last code point
	slots []uint64 // open addressing: content<<42 | last code point<<21 | number; its length is a power of two
	free  []uint32
	limit int // if more texts than this are used, the table should be swept
}

const (
	// minClusterSweep is the number of texts up to which the table is never swept.
	minClusterSweep = 1 << 12

	runeBits = 21
)

func (t *clusterTable) text(c cell) string { return t.all[c&codeMask] }
func (t *clusterTable) used() int          { return len(t.all) - len(t.free) }

// slot returns the slot with the result of a character that joins a content, or the free slot where it belongs.
func (t *clusterTable) slot(content cell, ch rune) *uint64 {
	key := uint64(content)<<runeBits | uint64(ch)
	mask := uint64(len(t.slots) - 1)
	for i := key * 0x9e3779b97f4a7c15 >> 32; ; i++ {
		if s := &t.slots[i&mask]; *s == 0 || *s>>runeBits == key {
			return s
		}
	}
}

// join returns the content of a cell with ch behind its content. If the text would be longer than maxCluster bytes, or
// if there are too many texts, ch is dropped.
func (t *clusterTable) join(content cell, ch rune) cell {
	if 2*t.used() >= len(t.slots) {
		t.rehash()
	}
	slot := t.slot(content, ch)
	if *slot != 0 {
		return cell(*slot)&codeMask | clusterBit
	}
	var buf [maxCluster + utf8.UTFMax]byte
	p := buf[:0]
	if content&clusterBit != 0 {
		p = append(p, t.text(content)...)
	} else {
		p = utf8.AppendRune(p, rune(content))
	}
	p = utf8.AppendRune(p, ch)
	if len(p) > maxCluster || t.used() > int(codeMask) {
		return content
	}
	var id uint32
	if k := len(t.free); k > 0 {
		id, t.free = t.free[k-1], t.free[:k-1]
		t.all[id], t.from[id] = string(p), uint32(content)
	} else {
		id = uint32(len(t.all))
		t.all, t.from = append(t.all, string(p)), append(t.from, uint32(content))
	}
	*slot = uint64(content)<<(2*runeBits) | uint64(ch)<<runeBits | uint64(id)
	return cell(id) | clusterBit
}

// rehash rebuilds the slots.
func (t *clusterTable) rehash() {
	size := 64
	for size < 4*t.used() {
		size *= 2
	}
	t.slots = make([]uint64, size)
	t.limit = max(t.limit, minClusterSweep)
	for id, s := range t.all {
		if s != "" {
			ch, _ := utf8.DecodeLastRuneInString(s)
			*t.slot(cell(t.from[id]), ch) = uint64(t.from[id])<<(2*runeBits) | uint64(ch)<<runeBits | uint64(id)
		}
	}
}

// sweep frees every text whose number is not set in live, and that is not the beginning of one whose number is set.
// live must be as long as all. The table is swept again if it has more than least texts.
func (t *clusterTable) sweep(live []bool, least int) {
	for id := range live {
		for at := uint32(id); live[id] && t.from[at]&uint32(clusterBit) != 0; {
			if at = t.from[at] & uint32(codeMask); live[at] {
				break
			}
			live[at] = true
		}
	}
	t.free = t.free[:0]
	for id := range t.all {
		if !live[id] {
			t.all[id] = ""
			t.free = append(t.free, uint32(id))
		}
	}
	t.limit = max(minClusterSweep, least, 2*t.used())
	t.rehash()
}

// content returns a cell with the text p, without width bits and style.
func (t *Term) content(p []byte) cell {
	ch, n := utf8.DecodeRune(p)
	c := cell(ch)
	for n < len(p) {
		ch, k := utf8.DecodeRune(p[n:])
		c = t.clusters.join(c, ch)
		n += k
	}
	return c
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
	return c&^contentMask | t.clusters.join(c&contentMask, ch)
}
