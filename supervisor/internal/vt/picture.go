package vt

import (
	"bytes"
	"cmp"
	"image/color"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"

	"holdfast/supervisor/internal/picture"
)

// Pictures are placed in cells as the image addon of xterm.js does it: each cell that a picture covers
// refers to its part of the picture, in addition to the text that the cell has. Text that is printed
// there later replaces the part, and cells that move take their parts with them.

// Limits of the pictures.
const (
	// maxTiles bounds the cells that one picture covers.
	maxTiles = 1 << 17
	// maxPictures bounds the pictures of a terminal, which a picture of few bytes searches.
	maxPictures = 256
	// maxAllPictures bounds the bytes of the pictures of all terminals of this process.
	maxAllPictures = 256 << 20
)

// allPictures counts the bytes of the pictures of all terminals. The garbage collector subtracts those of
// a picture that no terminal has any more.
var allPictures atomic.Int64

// shows counts how often a picture was printed or painted.
var shows atomic.Int64

// A placedPicture is a picture in cells. Its bytes are nil after the picture had to be dropped because
// of a limit; its cells are then empty of it. Copies of the terminal share it.
type placedPicture struct {
	atomic.Pointer[picture.Picture]
	cols, rows int
	background style        // the part of the pen from which backgroundColor was derived when it was printed
	id, number uint32       // of kitty's graphics: the image, and its placement; 0 if it has none
	virtual    bool         // text places it (placeholder.go)
	shown      atomic.Int64 // the greatest is that of the picture that was printed or painted last
}

// pictures are the pictures of a terminal that have bytes, in the order in which they were printed. Some
// of them may have no cells any more.
type pictures struct {
	all   []*placedPicture
	bytes int
}

// Cell returns the size of a cell for which pictures are laid out.
func (t *Term) Cell() picture.Cell {
	if c := t.appearance.PictureCell; c.Valid() {
		return c
	}
	if c := (picture.Cell{Width: float64(t.appearance.CellWidth), Height: float64(t.appearance.CellHeight)}); c.Valid() {
		return c
	}
	return picture.DefaultCell
}

// HasPictures reports whether there are pictures that cells may show, or images that the program may place.
func (t *Term) HasPictures() bool { return t.hasPlaced() || len(t.graphics.order) > 0 }

// hasPlaced reports whether there are pictures that cells may show.
func (t *Term) hasPlaced() bool { return len(t.pictures.all) > 0 }

// keepsPictures reports whether pictures are not ignored.
func (t *Term) keepsPictures() bool { return t.config.PictureBytes > 0 }

// showsSixels reports whether the terminal should tell programs that it shows sixels.
func (t *Term) showsSixels() bool {
	return t.keepsPictures() && t.appearance.Pictures.Has(picture.Sixel)
}

// unfinishedPicture returns the format of the picture within which the output ends, or 0.
func (t *Term) unfinishedPicture() picture.Format {
	switch {
	case !t.keepsPictures() || t.tooLong:
	case t.state == dcsPassthrough && t.collect == 'q':
		return picture.Sixel
	case t.state == oscString && bytes.HasPrefix(t.str, []byte(picture.FilePrefix)):
		return picture.ITerm2
	case t.state == otherString && t.opener == '_' && bytes.HasPrefix(t.str, []byte("G")):
		return picture.Kitty
	}
	return 0
}

// pictureRoom returns the length to which the string that is being read may grow if it is a picture, or 0.
func (t *Term) pictureRoom() int {
	if t.unfinishedPicture() == 0 {
		return 0
	}
	return min(picture.MaxBytes, t.config.PictureBytes)
}

// sixel executes a device control string of sixels.
func (t *Term) sixel(body []byte) {
	if !t.keepsPictures() {
		return
	}
	t.work += len(body)
	data := append(t.appendParams([]byte("\x1bP"), 0), 'q')
	from := len(data)
	data = append(append(data, body...), "\x1b\\"...)
	background := 0
	if t.par.n > 1 {
		background = int(t.par.v[1])
	}
	p, down := picture.NewSixel(slices.Clip(data), from, background, t.backgroundColor(), t.Cell())
	if p != nil {
		t.place(p, &placedPicture{})
		return
	}
	rows := int(math.Ceil(float64(down) / t.Cell().Height))
	for range min(rows, maxSize) - 1 { // as in the addon, only the cursor moves
		t.lineFeed()
		t.work += rowWork
	}
}

// inlineImage executes OSC 1337 File=. text is the whole text of the OSC.
func (t *Term) inlineImage(text []byte) {
	if !t.keepsPictures() {
		return
	}
	t.work += len(text)
	data := append(append(append(make([]byte, 0, len(text)+3), "\x1b]"...), text...), 0x07)
	if p := picture.NewITerm2(data, data[2:len(data)-1], t.Cell(), t.cols, t.rows); p != nil {
		t.place(p, &placedPicture{})
	}
}

// backgroundColor returns the colour that the pixels of a sixel have that it does not print.
func (t *Term) backgroundColor() color.NRGBA {
	rgb := func(c uint32, plain int) color.NRGBA {
		v := t.color(plain)
		switch n := int(c & 0xffffff); c &^ 0xffffff {
		case colorMode16, colorModeP:
			v = t.color(n & 255)
		case colorModeRG:
			v = uint32(n)
		}
		return color.NRGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 255}
	}
	if t.pen.fg&fgInverse != 0 {
		return rgb(t.pen.fg&colorMask, foreground)
	}
	return rgb(t.pen.bg&colorMask, background)
}

// place lets the cells from the cursor on show a picture, which scrolls the screen as line feeds do. The
// cursor stays in its column, in the last row of the picture. place returns false if the picture covers
// too many cells.
func (t *Term) place(p *picture.Picture, placed *placedPicture) bool {
	b := t.b
	cols, rows := p.Cells()
	x := b.x
	visible := min(cols, t.cols-x)
	if rows*max(visible, 1) > maxTiles {
		return false
	}
	t.work += rows * (visible*byteWork + rowWork)
	placed.cols, placed.rows, placed.background = cols, rows, style{bg: t.pen.bg & colorMask}
	if t.pen.fg&fgInverse != 0 {
		placed.background = style{fg: t.pen.fg & (colorMask | fgInverse)}
	}
	tiles := make([]link, rows*max(visible, 0))
	for row := range rows {
		if visible > 0 {
			r := b.row(b.y)
			t.toCells(r)
			for i := range visible {
				tile := &tiles[row*visible+i]
				t.links.serials++
				*tile = link{serial: t.links.serials, tile: int32(row*cols + i), picture: placed}
				c := r.at(x + i)
				r.set(x+i, c&(contentMask|widthMask)|t.tileStyle(c.style(), tile).cell())
			}
		}
		if row+1 < rows {
			t.lineFeed()
			b.x = x
		}
	}
	t.keep(placed, p)
	format := p.Format
	if p.NoSize {
		format |= picture.Unlike
	}
	t.event(Event{Kind: PicturePrinted, Code: int(format)})
	return true
}

// tileStyle returns the number of a style with a part of a picture.
func (t *Term) tileStyle(id styleID, tile *link) styleID {
	s := *t.styles.at(id)
	if n := s.underline(); n > 0 {
		s.extended = s.extended&^underlineMask | uint32(n)<<underlineShift
	}
	if l := s.shownLink(); l != nil {
		tile.id, tile.uri = l.id, l.uri
	}
	s.link = tile
	s.bg |= bgExtended
	return t.styles.id(s)
}

// keep keeps the bytes of a picture, and drops those of other pictures that exceed a limit: first those
// that were not printed or painted for the longest time.
func (t *Term) keep(placed *placedPicture, p *picture.Picture) {
	s, n := &t.pictures, len(p.Data)
	if n > t.config.PictureBytes {
		return
	}
	for len(s.all) > 0 && (len(s.all) >= maxPictures || s.bytes+n > t.config.PictureBytes || allPictures.Load()+int64(n) > maxAllPictures) {
		t.work += len(s.all)
		oldest := slices.MinFunc(s.all, func(a, b *placedPicture) int { return cmp.Compare(a.shown.Load(), b.shown.Load()) })
		s.drop(oldest)
	}
	if allPictures.Add(int64(n)) > maxAllPictures {
		allPictures.Add(-int64(n))
		return
	}
	runtime.AddCleanup(p, func(n int64) { allPictures.Add(-n) }, int64(n))
	placed.Store(p)
	s.all, s.bytes = append(s.all, placed), s.bytes+n
	placed.touch()
}

func (s *pictures) drop(placed *placedPicture) {
	s.all = slices.DeleteFunc(s.all, func(other *placedPicture) bool { return other == placed })
	if p := placed.Swap(nil); p != nil {
		s.bytes -= len(p.Data)
	}
}

// touch notes that a picture was shown.
func (placed *placedPicture) touch() {
	placed.shown.Store(shows.Add(1))
}

// dropPictures drops the bytes of all pictures, as the addon does for DECSTR and RIS.
func (t *Term) dropPictures() {
	if t.hasPlaced() {
		for _, p := range slices.Clone(t.pictures.all) {
			t.pictures.drop(p)
		}
		t.clearTiles()
	}
	t.graphics = graphics{}
}

// clearTiles removes the parts of pictures without bytes from the cells of both screens, so that a viewer's
// view differs from its last state.
func (t *Term) clearTiles() {
	for _, b := range []*buffer{&t.normal, &t.alt} {
		t.work += len(b.order) * rowWork
		for y := range b.order {
			if r := b.row(y); t.hasTiles(r) {
				t.clearRowTiles(r)
			}
		}
	}
}

// hasTiles reports whether a row shows parts of pictures.
func (t *Term) hasTiles(r *row) bool {
	if !r.inCells {
		return slices.ContainsFunc(r.runs, func(u run) bool { return t.styles.at(u.style()).shownTile() != nil })
	}
	t.work += r.n
	return slices.ContainsFunc(r.cells[:r.n], func(c cell) bool { return c.style() != 0 && t.styles.at(c.style()).shownTile() != nil })
}

// clearRowTiles removes the parts of pictures without bytes from a row.
func (t *Term) clearRowTiles(r *row) {
	t.toCells(r)
	t.work += r.n
	for x, c := range r.cells[:r.n] {
		s := *t.styles.at(c.style())
		if s.dropTile() {
			r.cells[x] = c&(contentMask|widthMask) | t.styles.id(s).cell()
		}
	}
}

// dropTile removes the part of a picture from the style, and reports whether there was one. It keeps a part whose picture
// has its bytes.
func (s *style) dropTile() bool {
	tile := s.shownTile()
	if tile == nil || tile.picture.Load() != nil {
		return false
	}
	if s.link = nil; tile.uri != "" || tile.id != "" {
		s.link = &link{id: tile.id, uri: tile.uri, serial: tile.serial}
	}
	s.refresh()
	return true
}

// sweepPictures drops the pictures that no cell shows. The styles must have been swept.
func (t *Term) sweepPictures() {
	if len(t.pictures.all) == 0 {
		return
	}
	live := map[*placedPicture]bool{}
	for _, p := range t.graphics.virtual {
		live[p] = true
	}
	for _, page := range t.styles.pages {
		for i := range page.styles {
			if l := page.styles[i].shownTile(); l != nil {
				live[l.picture] = true
			}
		}
	}
	for _, a := range t.hist.arenas {
		for _, l := range a.links {
			if l.picture != nil {
				live[l.picture] = true
			}
		}
	}
	for _, p := range slices.Clone(t.pictures.all) {
		if !live[p] {
			t.pictures.drop(p)
		}
	}
}

// reportGraphics answers XTSMGRAPHICS for the item first, as the addon of xterm.js does: 1 is the number
// of colours, which cannot be changed, and 2 the size of a sixel.
func (t *Term) reportGraphics(item int32) {
	if !t.showsSixels() || t.par.n < 2 {
		return
	}
	const ok, errorItem, errorAction = 0, 1, 2
	action := t.par.v[1]
	cell := t.Cell()
	width, height := int(cell.Width*float64(t.cols)), int(cell.Height*float64(t.rows))
	largest := 4096 // its square is picture.MaxPixels
	switch {
	case item == 1 && (action == 1 || action == 2 || action == 4):
		t.replyf("\x1b[?1;%d;256S", ok)
	case item == 1, item == 2 && action != 1 && action != 4:
		t.replyf("\x1b[?%d;%dS", item, errorAction)
	case item == 2 && (action == 4 || width*height >= picture.MaxPixels):
		t.replyf("\x1b[?2;%d;%d;%dS", ok, largest, largest)
	case item == 2:
		t.replyf("\x1b[?2;%d;%d;%dS", ok, width, height)
	default:
		t.replyf("\x1b[?%d;%dS", item, errorItem)
	}
}

// reportCellSize answers OSC 1337 ReportCellSize, height first, if the terminal shows inline images.
func (t *Term) reportCellSize() {
	if c := t.Cell(); t.keepsPictures() && t.appearance.Pictures.Has(picture.ITerm2) {
		number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
		t.reply("\x1b]1337;ReportCellSize=" + number(c.Height) + ";" + number(c.Width) + "\x1b\\")
	}
}

// Shows describes the pictures that a viewer's terminal shows. The zero value is a terminal without
// pictures.
type Shows struct {
	Formats picture.Formats
	Cell    picture.Cell // if it is not valid, the cells are as large as those of the session
}

// An album collects the parts of pictures in lines that are painted from the top, and paints each part
// after the line below it. The cells are painted before, because text that is printed later would replace
// the pictures; the line below, because it may have to continue the line of the picture.
type album struct {
	Shows
	line   int // number of the line that was painted last
	blocks []block
	room   int // bytes that the pictures may still take
	work   int // pixels that may still be decoded
}

// maxPainted bounds the bytes of the pictures in a snapshot for a viewer, and maxDecoded the pixels of those of
// which only a part is shown, or that are converted, as Work counts them. Decoding these takes some 0.3 s.
const (
	maxPainted = 16 << 20
	maxDecoded = picture.MaxPixels
)

// A block is a rectangle of parts of one picture that are placed as in the picture.
type block struct {
	picture *placedPicture
	x       int // column on the screen
	line    int // first line
	area    picture.Area
}

// collect adds the parts of pictures in a line that was painted, and returns those that must be painted
// now. row is its row on the screen, and cells are its cells. wrapped is set if the line continues the line
// above: a picture that is painted across both would separate them. more is set if another line follows.
func (p *painter) collect(row int, cells []cell, wrapped, more bool) (done []block) {
	a := &p.album
	if a.Formats == 0 || !p.t.hasPlaced() {
		return nil
	}
	a.line++
	open := a.blocks
	a.blocks = nil
	tiles := p.t.tiles(cells, !a.Formats.Has(picture.Kitty))
	for x := 0; x < min(len(cells), p.t.cols); {
		shown := tiles.at(x)
		if shown.picture == nil {
			x++
			continue
		}
		cols := shown.picture.cols
		b := block{shown.picture, x, a.line, picture.Area{Col: shown.index % cols, Row: shown.index / cols, Cols: 1, Rows: 1}}
		for x++; x < min(len(cells), p.t.cols) && b.area.Col+b.area.Cols < cols; x++ {
			if tiles.at(x) != (tile{shown.picture, shown.index + b.area.Cols}) {
				break
			}
			b.area.Cols++
		}
		if i := slices.IndexFunc(open, func(o block) bool { return !wrapped && o.isAbove(b) }); i >= 0 {
			b.line, b.area.Row, b.area.Rows = open[i].line, open[i].area.Row, open[i].area.Rows+1
			open = slices.Delete(open, i, i+1)
		}
		if leaves := more && row == p.t.rows-1 && b.area.Rows == p.t.rows; !leaves {
			a.blocks = append(a.blocks, b)
			continue
		}
		done = append(done, b) // the next line moves its first row off the screen
		if last := p.t.cols - 1 - b.x; last < b.area.Cols {
			// The last column may be printed once more, so that the next line continues this one. That removes its
			// part of the picture, which is therefore painted again.
			corner := picture.Area{Col: b.area.Col + last, Row: b.area.Row + b.area.Rows - 1, Cols: 1, Rows: 1}
			a.blocks = append(a.blocks, block{b.picture, b.x + last, a.line, corner})
		}
	}
	return append(open, done...)
}

// isAbove reports whether b continues o in the next row.
func (o block) isAbove(b block) bool {
	return o.picture == b.picture && o.x == b.x && o.area.Col == b.area.Col && o.area.Cols == b.area.Cols && o.area.Row+o.area.Rows == b.area.Row
}

// finishAlbum paints the parts of pictures that end with the last line, which is in the given row. It may
// move the cursor.
func (p *painter) finishAlbum(row int) {
	blocks := p.album.blocks
	p.album.blocks = nil
	p.paintBlocks(blocks, row, nil)
}

// paintBlocks paints parts of pictures. If cells has the cells of the last line, the cursor moves back
// behind them.
func (p *painter) paintBlocks(blocks []block, row int, cells []cell) {
	a, t := &p.album, p.t
	painted := false
	for _, b := range blocks {
		data, top := b.picture.Load(), row-(a.line-b.line)
		if data == nil || top < 0 { // the corner of a picture on a screen of one row has left it
			continue
		}
		if b.area.Col == 0 && b.x+b.area.Cols == t.cols { // it was cut where the screen ends, as it will be again
			b.area.Cols = b.picture.cols
		}
		cell := a.Cell
		if !cell.Valid() {
			cell = data.Cell
		}
		if a.work -= data.Work(b.area, a.Formats, cell); a.work < 0 {
			continue
		}
		from := len(p.out)
		p.csi('H', top+1, b.x+1)
		p.setPen(&b.picture.background)
		at := len(p.out)
		if p.placement(&b, data, cell); len(p.out) == at {
			p.out = data.Append(p.out, b.area, a.Formats, cell)
		}
		if n := len(p.out) - at; n == 0 || n > a.room {
			p.out, p.isPenUnknown = p.out[:from], true
			continue
		}
		a.room -= len(p.out) - at
		painted = true
		b.picture.touch()
	}
	if !painted || cells == nil {
		return
	}
	p.joins = false
	if p.x < t.cols {
		p.csi('H', row+1, p.x+1)
		return
	}
	x := t.cols - 1
	for x > 0 && cells[x].isSpacer() {
		x--
	}
	p.csi('H', row+1, x+1)
	if c := cells[x]; c.hasContent() { // only printing the last character again makes a wrap pending
		p.content(c, t.styles.at(c.style()))
	}
}
