package vt

import (
	"bytes"
	"maps"
	"strings"

	"holdfast/supervisor/internal/picture"
)

// A virtual placement of kitty's graphics is shown by cells whose text is a placeholder (package picture). The cells
// keep that text. A viewer that shows kitty's graphics receives the image and the text. For any other viewer, the
// painter leaves the cells blank, and paints the parts of the image as it paints other pictures.

// A placementID identifies a placement of kitty's graphics.
type placementID struct {
	image, number uint32 // the number is 0 if the placement has none
}

// placeholderText is the text of a placeholder without its combining characters.
var placeholderText = string(picture.Placeholder)

// hasVirtual reports whether there are virtual placements.
func (t *Term) hasVirtual() bool { return len(t.graphics.virtual) > 0 }

// isPlaceholder reports whether a cell has the text of a placeholder. Without virtual placements no cell is one.
func (t *Term) isPlaceholder(c cell) bool {
	switch {
	case !t.hasVirtual():
		return false
	case c&clusterBit != 0:
		return strings.HasPrefix(t.clusters.text(c), placeholderText)
	}
	return rune(c&codeMask) == picture.Placeholder
}

// placeVirtually makes a virtual placement. It replaces the one with the same number.
func (t *Term) placeVirtually(c *picture.Command, image *picture.Transmission) bool {
	p := image.Fit(c, t.Cell())
	if p == nil {
		return false
	}
	id := placementID{c.ID, c.Placement}
	t.dropPlacements(func(p *placedPicture) bool { return p.virtual && p.id == id.image && p.number == id.number })
	placed := &placedPicture{id: id.image, number: id.number, virtual: true}
	placed.cols, placed.rows = p.Cells()
	t.keep(placed, p)
	if t.graphics.virtual == nil {
		t.graphics.virtual = make(map[placementID]*placedPicture)
	}
	t.graphics.virtual[id] = placed
	t.graphics.tidyVirtual()
	if placed.Load() == nil {
		return false
	}
	t.event(Event{Kind: PicturePrinted, Code: int(picture.Kitty)}) // its text may have been printed before
	return true
}

// tidyVirtual forgets the virtual placements without bytes. It must be called after virtual has changed.
func (g *graphics) tidyVirtual() {
	maps.DeleteFunc(g.virtual, func(_ placementID, p *placedPicture) bool { return p.Load() == nil })
	g.first = make(map[uint32]*placedPicture)
	for id, p := range g.virtual {
		if first := g.first[id.image]; first == nil || id.number < first.number {
			g.first[id.image] = p
		}
	}
}

// find returns the virtual placement of an image with a number. If the number is 0, it may be any placement of the image.
func (g *graphics) find(id placementID) *placedPicture {
	if p := g.virtual[id]; p != nil || id.number != 0 {
		return p
	}
	return g.first[id.image]
}

// mayPlace reports whether output may contain a placeholder, of which it may have the first byte alone.
func (t *Term) mayPlace(output []byte) bool {
	return t.hasVirtual() && bytes.IndexByte(output, placeholderText[0]) >= 0
}

// A placeholder is the meaning of a cell with the text of a placeholder.
type placeholder struct {
	fg, underline uint32 // colours: the lower 24 bits of the image's id, and the number of the placement
	row, col      int
	high          int // the upper 8 bits of the image's id
}

func (p placeholder) placement() placementID {
	return placementID{colorNumber(p.fg) | uint32(p.high)<<24, colorNumber(p.underline)}
}

// colorNumber returns the number that a colour of a placeholder means.
func colorNumber(color uint32) uint32 {
	switch color & colorMask &^ 0xffffff {
	case colorMode16, colorModeP:
		return color & 0xff
	case colorModeRG:
		return color & 0xffffff
	}
	return 0
}

// placeholderOf returns the meaning of a cell that is a placeholder. left is the cell before it, or nil if that is no
// placeholder: a cell continues it if it has no combining characters, or not all of them.
func (t *Term) placeholderOf(c cell, left *placeholder) placeholder {
	s := t.styles.at(c.style())
	p := placeholder{fg: s.fg & colorMask, underline: s.extended & colorMask}
	var numbers [3]int
	n := 0
	if c&clusterBit != 0 {
		for _, ch := range t.clusters.text(c)[len(placeholderText):] {
			number := picture.NumberOf(ch)
			if number < 0 || n == len(numbers) {
				break
			}
			numbers[n] = number
			n++
		}
	}
	p.row, p.col, p.high = numbers[0], numbers[1], numbers[2]&0xff
	continues := left != nil && left.fg == p.fg && left.underline == p.underline
	switch {
	case !continues:
	case n == 0:
		p.row, p.col, p.high = left.row, left.col+1, left.high
	case n == 1 && p.row == left.row:
		p.col, p.high = left.col+1, left.high
	case n == 2 && p.row == left.row && p.col == left.col+1:
		p.high = left.high
	}
	return p
}

// A tileReader reads the parts of pictures that the cells of a row show, from left to right.
type tileReader struct {
	t      *Term
	cells  []cell
	byText bool         // placeholders show parts of pictures
	next   int          // column behind the cell that was read last
	tile   tile         // of that cell
	last   *placeholder // that cell, or nil if it is none
}

// A tile is a part of a picture, counted by rows. picture is nil if there is none.
type tile struct {
	picture *placedPicture
	index   int
}

func (t *Term) tiles(cells []cell, byText bool) tileReader {
	return tileReader{t: t, cells: cells, byText: byText}
}

// at returns the tile of the cell in column x, which must be the column that was read last or the next one.
func (r *tileReader) at(x int) tile {
	if x < r.next {
		return r.tile
	}
	r.next = x + 1
	c := r.cells[x]
	r.tile = tile{}
	if !r.byText || !r.t.isPlaceholder(c) {
		r.last = nil
		if l := r.t.styles.at(c.style()).shownTile(); l != nil {
			r.tile = tile{l.picture, int(l.tile)}
		}
		return r.tile
	}
	last := r.t.placeholderOf(c, r.last)
	r.last = &last
	if p := r.t.graphics.find(last.placement()); p != nil && last.col < p.cols && last.row < p.rows {
		r.tile = tile{p, last.row*p.cols + last.col}
	}
	return r.tile
}

// hides reports whether the painter leaves a cell blank that has the text of a placeholder.
func (p *painter) hides(c cell) bool {
	return !p.album.Formats.Has(picture.Kitty) && p.t.isPlaceholder(c)
}

// hidesIn reports whether the painter leaves cells of a text blank.
func (p *painter) hidesIn(text []byte) bool {
	return p.t.hasVirtual() && !p.album.Formats.Has(picture.Kitty) && bytes.Contains(text, []byte(placeholderText))
}
