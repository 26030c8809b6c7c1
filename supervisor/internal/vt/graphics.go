package vt

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	"holdfast/supervisor/internal/picture"
)

// maxImages bounds the images that a program has sent by kitty's protocol.
const maxImages = 256

// graphics are the images that a program has sent by kitty's protocol, whether they are placed or not. They are part of a
// saved screen, but the numbers are not.
type graphics struct {
	images  map[uint32]*picture.Transmission // by id
	order   []uint32                         // the ids, those that were sent longest ago first
	bytes   int
	numbers map[uint32]uint32 // the id of the last image that was sent with a number instead
	last    uint32            // the last id that was chosen here

	virtual map[placementID]*placedPicture // those of Term.pictures that text places
	first   map[uint32]*placedPicture      // by image, the one of virtual with the smallest number; replaced as a whole

	unfinished *picture.Command // the first command of an image of which more data follows
	data       []byte           // its data so far
}

// copy returns a copy for a terminal that receives no commands.
func (g *graphics) copy() graphics {
	return graphics{images: maps.Clone(g.images), order: slices.Clone(g.order), virtual: maps.Clone(g.virtual), first: g.first}
}

// firstChosen is the first id that is chosen for an image that has a number, or neither. Programs choose
// smaller ones.
const firstChosen = 1 << 31

// graphicsCommand executes a command of kitty's graphics protocol. Like the addon of xterm.js, it knows
// no animations.
func (t *Term) graphicsCommand(text []byte) {
	keys, encoded, _ := bytes.Cut(text, []byte(";"))
	c := picture.ParseCommand(keys)
	g := &t.graphics
	t.work += len(text)
	if g.unfinished != nil && c.Continues {
		first := *g.unfinished
		first.More = c.More
		if c.Quiet > 0 {
			first.Quiet = c.Quiet
		}
		c = first
	} else {
		g.unfinished, g.data = nil, nil
	}
	switch c.Action {
	case 't', 'T', 'q':
		t.receiveImage(&c, encoded)
	case 'p':
		t.placeImage(&c)
	case 'd':
		t.deleteImages(&c)
	}
}

// receiveImage executes a command with data.
func (t *Term) receiveImage(c *picture.Command, encoded []byte) {
	g := &t.graphics
	data, ok := decodeBase64(encoded)
	g.data = append(g.data, data...)
	if len(g.data) > min(picture.MaxBytes, t.config.PictureBytes) {
		g.unfinished, g.data = nil, nil
		t.answerGraphics(c, picture.ErrSize.Error())
		return
	}
	if c.More && ok {
		g.unfinished = c
		return
	}
	all := slices.Clip(g.data)
	g.unfinished, g.data = nil, nil
	if c.Action == 'q' && len(all) == 0 && c.Medium == 'd' {
		t.answerGraphics(c, "OK")
		return
	}
	var image *picture.Transmission
	err := picture.ErrData
	if ok {
		image, err = picture.NewTransmission(c, all)
	}
	if err != nil {
		t.answerGraphics(c, err.Error())
		return
	}
	if c.Action == 'q' {
		t.answerGraphics(c, "OK")
		return
	}
	hasName, answer := c.ID != 0 || c.Number != 0, "OK"
	g.keep(t, c, image)
	if c.Action == 'T' && !t.placeTransmission(c, image) {
		answer = "EINVAL:nothing to show, or too much"
	}
	if hasName {
		t.answerGraphics(c, answer)
	}
}

func decodeBase64(encoded []byte) ([]byte, bool) {
	encoded = bytes.TrimRight(encoded, "=")
	data := make([]byte, base64.RawStdEncoding.DecodedLen(len(encoded)))
	n, err := base64.RawStdEncoding.Decode(data, encoded)
	return data[:n], err == nil
}

// keep stores an image under the id of the command, and chooses an id if the command has none. An image
// that had the id, and its placements, are dropped.
func (g *graphics) keep(t *Term, c *picture.Command, image *picture.Transmission) {
	if c.ID == 0 {
		g.last = max(g.last+1, firstChosen)
		c.ID = g.last
		if c.Number != 0 {
			if g.numbers == nil || len(g.numbers) >= maxImages {
				g.numbers = make(map[uint32]uint32)
			}
			g.numbers[c.Number] = c.ID
		}
	}
	t.dropPlacements(func(p *placedPicture) bool { return p.id == c.ID })
	g.forget(c.ID)
	for len(g.order) > 0 && (len(g.order) >= maxImages || g.bytes+len(image.Data) > t.config.PictureBytes) {
		g.forget(g.order[0])
	}
	if g.images == nil {
		g.images = make(map[uint32]*picture.Transmission)
	}
	g.images[c.ID], g.order, g.bytes = image, append(g.order, c.ID), g.bytes+len(image.Data)
}

// forget drops an image. Its placements stay.
func (g *graphics) forget(id uint32) {
	if image := g.images[id]; image != nil {
		delete(g.images, id)
		g.order = slices.DeleteFunc(g.order, func(other uint32) bool { return other == id })
		g.bytes -= len(image.Data)
	}
}

// placeImage places an image that was sent before.
func (t *Term) placeImage(c *picture.Command) {
	if c.ID == 0 {
		c.ID = t.graphics.numbers[c.Number]
	}
	image := t.graphics.images[c.ID]
	switch {
	case image == nil:
		t.answerGraphics(c, "ENOENT:there is no such image")
	case t.placeTransmission(c, image):
		t.answerGraphics(c, "OK")
	default:
		t.answerGraphics(c, "EINVAL:nothing to show, or too much")
	}
}

// placeTransmission places an image at the cursor, which moves behind it unless the command forbids that. It
// replaces the placement with the same number, if the command has one. If text places the image, it only notes that.
func (t *Term) placeTransmission(c *picture.Command, image *picture.Transmission) bool {
	if c.Virtual {
		return t.placeVirtually(c, image)
	}
	p := image.Place(c, t.Cell())
	if p == nil {
		return false
	}
	if c.Placement != 0 {
		t.dropPlacements(func(p *placedPicture) bool { return p.id == c.ID && p.number == c.Placement })
	}
	b := t.b
	x := b.x
	cols, rows := p.Cells()
	if !t.place(p, &placedPicture{id: c.ID, number: c.Placement}) {
		return false
	}
	if c.Still {
		b.y = max(b.y-(rows-1), 0) // the screen may have scrolled
	} else {
		b.x = min(x+cols, t.cols)
	}
	return true
}

// deleteImages executes a=d. If d is a capital letter, the images are forgotten, too, and not only their
// placements. Only the ids of images delete virtual placements.
func (t *Term) deleteImages(c *picture.Command) {
	var which func(*placedPicture) bool
	switch c.Delete | 0x20 {
	case 'a':
		which = t.shownAt(-1, -1) // those that are visible
	case 'n':
		c.ID = t.graphics.numbers[c.Number]
		fallthrough
	case 'i':
		which = func(p *placedPicture) bool { return p.id == c.ID && (c.Placement == 0 || p.number == c.Placement) }
	case 'r':
		which = func(p *placedPicture) bool { return p.id != 0 && int(p.id) >= c.X && int(p.id) <= c.Y }
	case 'c':
		which = t.shownAt(t.b.x, t.b.y)
	case 'p':
		which = t.shownAt(c.X-1, c.Y-1)
	case 'x':
		which = t.shownAt(c.X-1, -1)
	case 'y':
		which = t.shownAt(-1, c.Y-1)
	case 'z':
		which = func(p *placedPicture) bool { return p.id != 0 && !p.virtual && p.isAtZ(c.Z) }
	case 'q':
		isAt := t.shownAt(c.X-1, c.Y-1)
		which = func(p *placedPicture) bool { return isAt(p) && p.isAtZ(c.Z) }
	default:
		return
	}
	ids := t.dropPlacements(which)
	if c.Delete >= 'a' {
		return
	}
	switch c.Delete {
	case 'A':
		for _, id := range slices.Clone(t.graphics.order) {
			if t.graphics.first[id] == nil {
				t.graphics.forget(id)
			}
		}
	case 'I', 'N':
		t.graphics.forget(c.ID)
	default:
		for _, id := range ids {
			t.graphics.forget(id)
		}
	}
}

// isAtZ reports whether a placement has a z-index.
func (placed *placedPicture) isAtZ(z int) bool {
	p := placed.Load()
	return p != nil && p.Z() == z
}

// shownAt returns a function that reports whether a cell of column x or row y shows a picture. -1 is any.
func (t *Term) shownAt(x, y int) func(*placedPicture) bool {
	at := map[*placedPicture]bool{}
	for row := range t.rows {
		r := t.b.row(row)
		if y >= 0 && row != y || !t.hasTiles(r) {
			continue
		}
		for col, c := range t.rowCells(r) {
			if x >= 0 && col != x {
				continue
			}
			if tile := t.styles.at(c.style()).shownTile(); tile != nil {
				at[tile.picture] = true
			}
		}
	}
	t.work += t.rows * rowWork
	return func(p *placedPicture) bool { return p.id != 0 && at[p] }
}

// dropPlacements drops placements of kitty's graphics, and returns the ids of their images.
func (t *Term) dropPlacements(which func(*placedPicture) bool) []uint32 {
	ids := map[uint32]bool{}
	t.work += len(t.pictures.all)
	for _, p := range slices.Clone(t.pictures.all) {
		if p.id != 0 && which(p) {
			ids[p.id] = true
			t.pictures.drop(p)
		}
	}
	if len(ids) > 0 {
		t.graphics.tidyVirtual()
		t.clearTiles()
		t.event(Event{Kind: PicturePrinted, Code: int(picture.Kitty)})
	}
	return slices.Collect(maps.Keys(ids))
}

// answerGraphics answers a command that has an id or a number, if the terminal shows kitty's graphics.
func (t *Term) answerGraphics(c *picture.Command, text string) {
	if c.ID == 0 && c.Number == 0 || c.Quiet > 1 || c.Quiet == 1 && text == "OK" || !t.appearance.Pictures.Has(picture.Kitty) {
		return
	}
	keys := ""
	if c.ID != 0 {
		keys = fmt.Sprintf(",i=%d", c.ID)
	}
	if c.Number != 0 {
		keys += fmt.Sprintf(",I=%d", c.Number)
	}
	if c.Placement != 0 {
		keys += fmt.Sprintf(",p=%d", c.Placement)
	}
	t.reply("\x1b_G" + keys[1:] + ";" + text + "\x1b\\")
}
