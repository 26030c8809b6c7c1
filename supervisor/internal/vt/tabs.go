package vt

import (
	"math/bits"
	"slices"
)

// Tab stops are bits, one for each column. They are kept if the terminal becomes narrower.

func (b *buffer) hasTab(x int) bool {
	return x>>6 < len(b.tabs) && b.tabs[x>>6]>>(x&63)&1 != 0
}

func (b *buffer) addTab(x int) {
	for x>>6 >= len(b.tabs) {
		b.tabs = append(b.tabs, 0)
	}
	b.tabs[x>>6] |= 1 << (x & 63)
}

// setTabs sets a tab stop in every eighth column, beginning with from.
func (b *buffer) setTabs(from, cols int) {
	for ; from < cols; from += 8 {
		b.addTab(from)
	}
}

// resetTabs sets a tab stop in every eighth column, and no other one.
func (b *buffer) resetTabs(cols int) {
	n := (cols + 63) / 64
	b.tabs = slices.Grow(b.tabs[:0], n)[:n]
	for i := range min(n, 8) {
		b.tabs[i] = ones
	}
	repeatFirst(b.tabs, 8)
	if over := len(b.tabs)*64 - cols; over > 0 {
		b.tabs[len(b.tabs)-1] = ones << over >> over
	}
}

// widenTabs sets the tab stops in the new columns of a screen that has become wider. They
// continue from the last tab stop before its old end.
func (b *buffer) widenTabs(cols int) {
	from := cols
	if !b.hasTab(from) {
		for from--; from > 0 && !b.hasTab(from); from-- {
		}
	}
	b.setTabs(max(from, 0), cols)
}

func (t *Term) setTab() { t.b.addTab(t.b.x) }

// nextTab returns the column of the n-th tab stop behind the cursor.
func (t *Term) nextTab(n int) int {
	b := t.b
	for x := b.x + 1; x < t.cols && x>>6 < len(b.tabs); x = x&^63 + 64 {
		later := b.tabs[x>>6] >> (x & 63)
		if k := bits.OnesCount64(later); k < n {
			n -= k
			continue
		}
		for ; n > 1; n-- {
			later &= later - 1
		}
		return min(x+bits.TrailingZeros64(later), t.cols-1)
	}
	return t.cols - 1
}

// previousTab returns the column of the n-th tab stop before the cursor.
func (t *Term) previousTab(n int) int {
	b := t.b
	for x := min(b.x, len(b.tabs)*64) - 1; x > 0; x = x&^63 - 1 {
		before := b.tabs[x>>6] << (63 - x&63)
		if k := bits.OnesCount64(before); k < n {
			n -= k
			continue
		}
		for ; n > 1; n-- {
			before &^= 1 << (63 - bits.LeadingZeros64(before))
		}
		return x - bits.LeadingZeros64(before)
	}
	return 0
}

func (t *Term) clearTab(mode int) {
	b := t.b
	switch mode {
	case 0:
		if b.hasTab(b.x) {
			b.tabs[b.x>>6] &^= 1 << (b.x & 63)
		}
	case 3:
		b.tabs = b.tabs[:0]
	}
}
