package vt

import (
	"maps"
	"slices"

	"holdfast/supervisor/internal/picture"
)

// A viewer that shows kitty's graphics receives the images with the ids that the program has chosen, and placements that
// refer to them, so that the commands that the program writes later have the same effect there: it may place an image
// again, or delete it.

// deletePlacements deletes the placements that are visible on a terminal that shows kitty's graphics. No erasing deletes them.
const deletePlacements = "\x1b_Ga=d,q=2\x1b\\"

// maxUnplaced bounds the bytes of images without placements in a snapshot for a viewer.
const maxUnplaced = 4 << 20

// images writes the images and the virtual placements for a viewer. If they have no room, those that were sent longest ago are
// left out.
func (p *painter) images() {
	if !p.album.Formats.Has(picture.Kitty) {
		return
	}
	if p.w == nil {
		p.add(deletePlacements)
	}
	g := &p.t.graphics
	p.sent = make(map[uint32]*picture.Transmission)
	p.virtual(nil)
	isPlaced := map[uint32]bool{}
	for _, placed := range p.t.pictures.all {
		isPlaced[placed.id] = true
	}
	unplaced := min(p.album.room, maxUnplaced)
	if p.w != nil {
		unplaced = p.album.room
	}
	var chosen []uint32
	for _, id := range slices.Backward(g.order) {
		n := len(g.images[id].Data) * 4 / 3 // base64
		switch {
		case p.sent[id] != nil || n > p.album.room:
			continue
		case !isPlaced[id]:
			if unplaced -= n; unplaced < 0 {
				continue
			}
		}
		p.album.room -= n
		chosen = append(chosen, id)
	}
	for _, id := range slices.Backward(chosen) {
		p.out, p.sent[id] = g.images[id].AppendImage(p.out, id), g.images[id]
		p.flushIfLarge()
	}
}

// virtual writes the virtual placements for a viewer that shows kitty's graphics and has those in known. An image that has no
// room is left out.
func (p *painter) virtual(known map[placementID]*placedPicture) {
	now := p.t.graphics.virtual
	if !p.album.Formats.Has(picture.Kitty) || len(now)+len(known) == 0 {
		return
	}
	differ := map[uint32]bool{} // the images with another placement
	for id, placed := range now {
		if known[id] != placed {
			differ[id.image] = true
		}
	}
	for id := range known {
		if now[id] == nil {
			differ[id.image] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(differ)) { // in a fixed order, as all of a snapshot
		p.virtualOf(id)
	}
}

// virtualOf writes an image and its virtual placements, which replace those of the viewer. If there are none, it deletes the image.
func (p *painter) virtualOf(id uint32) {
	from := len(p.out)
	var image *picture.Transmission
	for _, placed := range p.t.pictures.all {
		data := placed.Load()
		if !placed.virtual || placed.id != id || data == nil {
			continue
		}
		if image == nil {
			image = data.Image()
			p.out = image.AppendImage(p.out, id)
		}
		p.out = data.AppendVirtual(p.out, id, placed.number)
		placed.touch()
	}
	n := len(p.out) - from
	if image == nil || n > p.album.room {
		p.out = picture.AppendDelete(p.out[:from], id)
		return
	}
	p.album.room -= n
	if p.sent != nil {
		p.sent[id] = image
	}
}

// losesPictures reports whether a viewer that shows kitty's graphics has a part of a picture on its screen that the screen b has
// no longer there. The viewer has the screen fb, or another one if fb is nil.
func (c *transition) losesPictures(b, fb *buffer) bool {
	if fb == nil || !c.album.Formats.Has(picture.Kitty) || !c.from.hasPlaced() {
		return false
	}
	for y := range c.t.rows {
		r := fb.row(y)
		if !c.from.hasTiles(r) {
			continue
		}
		cells := c.from.rowCells(r)
		was, is := c.from.tiles(cells, false), c.t.tiles(c.t.rowCells(b.row(y)), false)
		for x := range cells {
			if shown := was.at(x); shown.picture != nil && shown != is.at(x) {
				return true
			}
		}
	}
	return false
}

// placement writes a placement of an image that the viewer has, if a part of a picture is one. It writes nothing otherwise.
func (p *painter) placement(b *block, data *picture.Picture, cell picture.Cell) {
	if image := data.Image(); image != nil && p.sent[b.picture.id] == image {
		p.out = data.AppendPlacement(p.out, b.area, cell, b.picture.id, b.picture.number)
	}
}
