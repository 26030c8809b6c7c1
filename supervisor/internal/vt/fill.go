package vt

import (
	"bytes"
	"math/bits"
	"slices"
)

// Some sequences of a few bytes change many rows. ED, DECALN, RIS, IL, SU and similar ones empty whole rows, or fill
// them with the letter E. DECIC, DECDC, SL and SR move the columns of every row between the margins, and DECSED erases
// the cells that are not protected. These sequences touch no row. A deferral describes the changes that rows still
// have to get, and buffer.late has the number of each row's deferral. The next sequence changes the deferral if all of
// its rows are concerned, and otherwise a copy. A row gets its changes when it is read or written next (settle), once
// for any number of sequences.

// A deferral is what rows still have to get: first a content if fills is set, and then the changes of the columnMap. A
// row with a deferral continues no row.
type deferral struct {
	fills   bool // the cells of the row are stale
	content filling
	columnMap
}

// A filling is the content of a row that is empty, or that has an E in each column.
type filling struct {
	style  styleID
	letter bool
}

// maxDeferrals bounds the deferrals of a screen, so that a number fits into a byte.
const maxDeferrals = 64

// deferralLimit returns the largest number of deferrals of a screen. It bounds the time of a sequence, and the memory.
func (b *buffer) deferralLimit() int { return min(8+len(b.rows)/8, maxDeferrals) }

// fewRows is the number of rows up to which a change is not deferred.
const fewRows = 4

// row returns the row y, after it has got the changes that were deferred.
func (b *buffer) row(y int) *row {
	if b.late[y] != 0 {
		return b.settle(y)
	}
	return &b.rows[b.order[y]]
}

// wrapped reports whether the row y continues the row above.
func (b *buffer) wrapped(y int) bool { return b.late[y] == 0 && b.rows[b.order[y]].wrapped }

// settle gives the row y the changes of its deferral, which it must have.
func (b *buffer) settle(y int) *row {
	d := b.deferrals[b.late[y]]
	r := b.drop(y)
	if d.fills {
		b.t.work += rowWork
		r.clear(d.content.style)
		if d.content.letter {
			b.t.work += r.w / 8 // eight columns are set at once
			r.fill = 0
			r.prepare(0, d.content.style)
			r.text, r.n = slices.Grow(r.text, r.w)[:r.w], r.w
			setBytes(r.text, 'E')
		}
	}
	b.t.applyMap(r, &d.columnMap)
	return r
}

// drop returns the row y without the changes that were deferred. The caller must apply them or clear the row.
func (b *buffer) drop(y int) *row {
	if b.late[y] != 0 {
		b.late[y] = 0
		b.lateRows--
	}
	return &b.rows[b.order[y]]
}

// settleAll settles all rows, and releases the deferrals.
func (t *Term) settleAll() {
	for _, b := range []*buffer{&t.normal, &t.alt} {
		for y := range b.order {
			b.row(y)
		}
		b.deferrals, b.changed, b.spare, b.filled = nil, nil, nil, 0
	}
	t.unmoved = nil
}

// setBytes sets all bytes of s to c.
func setBytes(s []byte, c byte) {
	for i := range min(len(s), 16) {
		s[i] = c
	}
	repeatFirst(s, 16)
}

// sameBytes returns how many bytes at the beginning of s are equal. s must not be empty.
func sameBytes(s []byte) int {
	const block = 64
	n := 1
	for n+block <= len(s) && *(*[block]byte)(s[n:]) == *(*[block]byte)(s[n-1:]) {
		n += block
	}
	for all := ones * uint64(s[0]); n+8 <= len(s); n += 8 {
		if differ := load64(s[n:]) ^ all; differ != 0 {
			return n + bits.TrailingZeros64(differ)/8
		}
	}
	for n < len(s) && s[n] == s[0] {
		n++
	}
	return n
}

// repeatFirst fills s with copies of its first n elements, of which each call of copy makes twice as many.
func repeatFirst[T any](s []T, n int) {
	for ; n < len(s); n *= 2 {
		copy(s[n:], s[:n])
	}
}

// fillRows gives the rows from top to bot a content. They continue no row, and have no marks of a shell.
func (b *buffer) fillRows(top, bot int, f filling) {
	b.makeRoom()
	late := b.late[top : bot+1]
	if b.lateRows < len(b.late) {
		b.lateRows += bytes.Count(late, []byte{0})
	}
	setBytes(late, b.fillingNumber(f))
	b.t.work += (bot + 1 - top) / 8
}

// emptyRows empties the rows from top to bot, which get the style fill.
func (b *buffer) emptyRows(top, bot int, fill styleID) {
	if bot+1-top > fewRows {
		b.fillRows(top, bot, filling{style: fill})
		return
	}
	for y := top; y <= bot; y++ {
		b.drop(y).clear(fill)
	}
	b.t.work += rowWork * (bot + 1 - top)
}

// fillingNumber returns the number of a deferral that fills rows with f, and changes nothing else.
func (b *buffer) fillingNumber(f filling) uint8 {
	if b.filled == 0 || !b.deferrals[b.filled].isFilling(f) {
		b.filled = b.newDeferral()
		d := b.deferrals[b.filled]
		d.fills, d.content = true, f
	}
	return b.filled
}

func (d *deferral) isFilling(f filling) bool {
	return d.fills && d.content == f && len(d.parts) == 0 && !d.erases
}

// deferRows applies change to the deferrals of the rows from top to bot. Rows without a deferral get one, unless they
// have no content and the style blank, which change must leave as it is, or now has changed them at once. The argument
// few of now tells that there are few such rows. No row continues the row above any more.
func (b *buffer) deferRows(top, bot int, blank styleID, change func(*deferral), now func(r *row, few bool) bool) {
	late := b.late[top : bot+1]
	b.t.work += len(late) / 8
	if n := late[0]; n != 0 && bytes.Equal(late[1:], late[:len(late)-1]) && !b.isElsewhere(n, top, bot) && !b.isLoose(n) {
		change(b.deferrals[n])
		return
	}
	b.makeRoom()
	few := len(b.late)-b.lateRows <= fewRows || bytes.Count(late, []byte{0}) <= fewRows
	var instead [maxDeferrals]uint8 // by number of a deferral: that of the one that the rows from top to bot get instead
	changed := b.changed[:0]
	var made uint8 // number of the deferral of the rows that had none
	for y, rows := 0, 1; y < len(late); y += rows {
		rows = 1
		n := late[y]
		if n != 0 && !b.isLoose(n) {
			if instead[n] == 0 {
				instead[n] = n
				if b.isElsewhere(n, top, bot) {
					instead[n] = b.newDeferral()
					b.deferrals[instead[n]].copyFrom(b.deferrals[n])
				}
				changed = append(changed, b.deferrals[instead[n]])
			}
			rows = sameBytes(late[y:])
			if instead[n] != n {
				setBytes(late[y:y+rows], instead[n])
			}
			continue
		}
		r := b.row(top + y)
		r.wrapped = false
		b.t.work++
		switch {
		case r.isBlank(blank):
			if !few && len(r.marks) == 0 {
				late[y] = b.fillingNumber(filling{style: blank})
				b.lateRows++
			}
		case now(r, few || made != 0 && r.w != b.deferrals[made].width):
		default:
			if made == 0 {
				made = b.newDeferral()
				b.deferrals[made].width = r.w
				changed = append(changed, b.deferrals[made])
			}
			late[y] = made
			b.lateRows++
		}
	}
	for _, d := range changed {
		change(d)
	}
	b.changed = changed
}

// isElsewhere reports whether a row that is not one of those from top to bot has the deferral n.
func (b *buffer) isElsewhere(n uint8, top, bot int) bool {
	return bytes.IndexByte(b.late[:top], n) >= 0 || bytes.IndexByte(b.late[bot+1:], n) >= 0
}

// isLoose reports whether the rows of the deferral n may have different numbers of columns. Then their columns cannot
// be moved alike.
func (b *buffer) isLoose(n uint8) bool { return b.uneven && len(b.deferrals[n].parts) == 0 }

// newDeferral returns the number of a deferral without changes. makeRoom must have been called for the sequence.
func (b *buffer) newDeferral() (n uint8) {
	if k := len(b.spare); k > 0 {
		n, b.spare = b.spare[k-1], b.spare[:k-1]
	} else {
		if len(b.deferrals) == 0 {
			b.deferrals = append(b.deferrals, nil) // 0 is no number
		}
		n = uint8(len(b.deferrals))
		b.deferrals = append(b.deferrals, new(deferral))
	}
	d := b.deferrals[n]
	d.fills = false
	d.columnMap = columnMap{width: b.t.cols, parts: d.parts[:0], mends: d.mends[:0], mended: d.mended}
	return n
}

// makeRoom makes enough numbers of deferrals free for any sequence, which needs one for each deferral in use, one for
// rows that have none, and one for empty rows. If too many deferrals are in use, it settles the rows of those that are
// cheap to settle, and leaves a quarter of the limit in use, so that not every sequence has to settle rows.
func (b *buffer) makeRoom() {
	limit := b.deferralLimit()
	if len(b.spare)+limit-len(b.deferrals) > limit/2 {
		return
	}
	b.t.work += len(b.late)
	var cost [maxDeferrals]int
	for _, n := range b.late {
		cost[n]++
	}
	for n, d := range b.deferrals {
		cost[n] *= d.cost()
	}
	var used []uint8
	b.spare, b.filled = b.spare[:0], 0
	for n := 1; n < len(b.deferrals); n++ {
		if cost[n] > 0 {
			used = append(used, uint8(n))
		} else {
			b.spare = append(b.spare, uint8(n))
		}
	}
	if over := len(used) - limit/4; over > 0 {
		slices.SortFunc(used, func(m, n uint8) int { return cost[m] - cost[n] })
		for y, n := range b.late {
			if n != 0 && slices.Contains(used[:over], n) {
				b.settle(y)
			}
		}
		b.spare = append(b.spare, used[:over]...)
	}
}

// cost estimates the time that a row takes to settle.
func (d *deferral) cost() int {
	switch {
	case d == nil:
		return 0
	case d.fills && len(d.parts) == 0 && !d.erases:
		return 1
	}
	return 100
}
