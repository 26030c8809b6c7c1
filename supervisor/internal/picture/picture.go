// Package picture reads the forms in which programs print pictures, sixel, the inline images of iTerm2 and
// kitty's graphics, tells how many cells a picture covers, and writes a picture, or a part of it, in a form
// that a viewer's terminal shows.
//
// The sizes are those that @xterm/addon-image 0.9.0 computes, because the page shows pictures with it:
// a viewer that has seen a picture being printed and one that attaches later must see the same. Those of
// kitty's graphics, which this version does not know, are those of its beta 0.10.0.
//
// Invariant: no input makes this package hold more than some bytes for each pixel of MaxPixels.
// A picture tells what it costs to decode it, so that a caller can bound the time (Work).
//
// Not here: the cells of the screen, and the bytes that all pictures of a session may take (package vt).
package picture

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	_ "image/gif"
	_ "image/jpeg"
	"image/png"
	"math"
)

// Limits of a picture.
const (
	// MaxBytes is the length of the longest sequence that prints a picture. The addon accepts up to 25 MB,
	// but a snapshot of the screen may have to contain all pictures.
	MaxBytes = 8 << 20
	// MaxPixels bounds the pixels of a picture, as in the addon.
	MaxPixels = 1 << 24
)

// Format is a form in which a picture is printed.
type Format byte

// The formats.
const (
	Sixel  Format = 1 << iota // a device control string with the final byte q (VT330/VT340 manual, chapter 14)
	ITerm2                    // OSC 1337 File= (iterm2.com/documentation-images.html)
	Kitty                     // APC G (sw.kovidgoyal.net/kitty/graphics-protocol)
)

// Unlike is not a format: viewers show such a picture in different ways, although they know its format.
const Unlike Format = 1 << 7

// Formats is a set of formats.
type Formats byte

// AllFormats has all formats.
const AllFormats = Formats(Sixel | ITerm2 | Kitty)

// Has reports whether the set has a format.
func (f Formats) Has(one Format) bool { return f&Formats(one) != 0 }

// Cell is the size of a cell in pixels. A browser's cells may have fractions of a pixel.
type Cell struct{ Width, Height float64 }

// DefaultCell is the size of a cell if the terminal is unknown: that of a VT340, for which programs
// compute sixels if they cannot learn more.
var DefaultCell = Cell{10, 20}

// The limits of a cell's size. A cell of fewer pixels would make a picture cover very many cells.
const (
	minCell = 2
	maxCell = 1000
)

// Valid reports whether the size is one that a terminal may have.
func (c Cell) Valid() bool {
	return c.Width >= minCell && c.Height >= minCell && c.Width <= maxCell && c.Height <= maxCell
}

// A Picture is one that a program has printed.
type Picture struct {
	Format        Format
	NoSize        bool   // an inline image of iTerm2 without the size of its file, which some terminals ignore, as the addon does
	Width, Height int    // in pixels, as it is shown
	Cell          Cell   // of the terminal for which it was laid out
	Data          []byte // the whole sequence; of kitty's graphics, the data
	body          int    // the index in Data of the sixels, or of the encoded file
	fill          color.NRGBA
	kitty         kitty
	cost          int // of decoding its image, in pixels; see costOf
}

// Work returns the cost of Append in pixels that it decodes.
func (p *Picture) Work(a Area, formats Formats, cell Cell) int {
	if _, _, ok := p.commandSize(a, cell); ok && formats.Has(p.Format) && (cell == p.Cell || p.Format != Sixel) {
		return 0
	}
	return p.cost
}

// costOf returns the cost of decoding an image with so many pixels from a file or sequence with so many bytes. A program
// can print much that is read or drawn and never seen, and a viewer that attaches must not wait for it: 8 bytes that are
// read count as one pixel, although this takes less time.
func costOf(pixels, bytes int) int { return max(pixels, bytes/8) }

// commandSize reports whether a command with the whole image can show an area, on a terminal whose cells have the given
// size: the area must be the whole picture, and if the picture has margins, the cells must be as large as its own. cols and
// rows are those of a command of kitty's graphics, or 0 for the natural size.
func (p *Picture) commandSize(a Area, cell Cell) (cols, rows int, ok bool) {
	cols, rows = p.Cells()
	switch {
	case a != Area{0, 0, cols, rows}:
		return 0, 0, false
	case cell == p.Cell:
		return p.kitty.cols, p.kitty.rows, true
	}
	return cols, rows, p.kitty.box == p.kitty.part
}

// Cells returns the numbers of columns and rows that the picture covers.
func (p *Picture) Cells() (cols, rows int) {
	return int(math.Ceil(float64(p.Width) / p.Cell.Width)), int(math.Ceil(float64(p.Height) / p.Cell.Height))
}

// Z returns the z-index of a placement of kitty's graphics.
func (p *Picture) Z() int { return p.kitty.z }

// Image returns the image of a placement of kitty's graphics, or nil.
func (p *Picture) Image() *Transmission { return p.kitty.Transmission }

// An Area is a part of a picture, in cells.
type Area struct{ Col, Row, Cols, Rows int }

// area returns the pixels of an area. The last column and row of a picture may be incomplete. If cells have
// fractions of a pixel, the area begins at the pixel at which the addon begins, and ends before a pixel
// that it covers in part, because it would otherwise cover one more cell.
func (p *Picture) area(a Area) image.Rectangle {
	x, y := int(float64(a.Col)*p.Cell.Width), int(float64(a.Row)*p.Cell.Height)
	w, h := int(float64(a.Cols)*p.Cell.Width), int(float64(a.Rows)*p.Cell.Height)
	return image.Rect(x, y, min(x+w, p.Width), min(y+h, p.Height))
}

// Append appends a sequence that shows an area of the picture at the cursor, in one of the formats, on a
// terminal whose cells have the given size. It appends nothing if there is no such format, or if the
// picture cannot be decoded.
//
// The whole picture in its own format and for cells of its own size is the sequence of the program. A
// sixel may depend on the pen's background, which must be that with which it was printed.
func (p *Picture) Append(dst []byte, a Area, formats Formats, cell Cell) []byte {
	cols, rows, whole := p.commandSize(a, cell)
	if whole && formats.Has(p.Format) {
		switch {
		case p.Format == Kitty:
			return p.kitty.append(dst, cols, rows)
		case cell == p.Cell && !p.NoSize:
			return append(dst, p.Data...)
		}
	}
	if formats == 0 {
		return dst
	}
	r := p.area(a)
	if formats.Has(ITerm2) && whole && p.Format == ITerm2 {
		return appendITerm2(dst, p.file(), p.shownSize(r, a, cell))
	}
	if formats.Has(ITerm2) || formats.Has(Kitty) {
		file := p.PNG(a)
		if file == nil {
			return dst
		}
		if formats.Has(ITerm2) {
			return appendITerm2(dst, file, p.shownSize(r, a, cell))
		}
		if cell == p.Cell {
			a.Cols, a.Rows = 0, 0 // its natural size, so that an incomplete cell is not stretched
		}
		return appendKitty(dst, "a=T,q=2,C=1,f=100", file, a.Cols, a.Rows)
	}
	if img := p.Part(a, cell); img != nil {
		return appendSixel(dst, img)
	}
	return dst
}

// PNG returns an area of the picture as a file, or nil if the picture is damaged or the area empty.
func (p *Picture) PNG(a Area) []byte {
	all := p.decode()
	r := p.area(a)
	if all == nil || r.Empty() {
		return nil
	}
	w, h := r.Dx(), r.Dy()
	if w > maxScaled/h { // a picture that is shown much larger than it is has no more pixels in the file than before
		w, h = min(w, max(1, w*all.Bounds().Dx()/p.Width)), min(h, max(1, h*all.Bounds().Dy()/p.Height))
	}
	img := crop(all, p.Width, p.Height, r, w, h)
	var file bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestSpeed}
	if e.Encode(&file, img) != nil { // it fails only for an empty image
		return nil
	}
	return file.Bytes()
}

// Part returns the pixels of an area on a terminal whose cells have the given size. It returns nil if the
// picture is damaged, or if the area has no pixels or more than maxScaled.
func (p *Picture) Part(a Area, cell Cell) *image.NRGBA {
	r := p.area(a)
	w, h := r.Dx(), r.Dy()
	if cell != p.Cell {
		w, h = int(float64(w)*cell.Width/p.Cell.Width), int(float64(h)*cell.Height/p.Cell.Height)
	}
	img := p.decode()
	if img == nil || w < 1 || h < 1 || (w != r.Dx() || h != r.Dy() || !p.isNatural(img)) && w > maxScaled/h {
		return nil
	}
	return crop(img, p.Width, p.Height, r, w, h)
}

// maxScaled bounds the pixels of a part that is scaled, which takes some 20 ns for a pixel.
const maxScaled = 1 << 22

// isNatural reports whether the picture is shown with as many pixels as its image has.
func (p *Picture) isNatural(img image.Image) bool {
	return img.Bounds().Dx() == p.Width && img.Bounds().Dy() == p.Height
}

// A size tells iTerm2's protocol how large a picture is shown: in cells if cells is set, otherwise in
// pixels.
type size struct {
	width, height int
	cells         bool
}

// shownSize returns the size at which an area of the pixels r is shown in cells of the given size.
func (p *Picture) shownSize(r image.Rectangle, a Area, cell Cell) size {
	if cell == p.Cell {
		return size{r.Dx(), r.Dy(), false}
	}
	return size{a.Cols, a.Rows, true}
}

// decode returns the picture's pixels, or nil if it is damaged. Their number may differ from Width and
// Height, because iTerm2's protocol scales pictures.
func (p *Picture) decode() image.Image {
	switch p.Format {
	case Kitty:
		return p.kitty.image()
	case Sixel:
		return decodeSixel(p.Data[p.body:len(p.Data)-2], p.Width, p.Height, p.fill)
	}
	img, _, err := image.Decode(bytes.NewReader(p.file()))
	if err != nil {
		return nil
	}
	return img
}

// crop returns the part r of an image that is shown with width by height pixels, scaled to w by h pixels.
// It takes the nearest pixel.
func crop(img image.Image, width, height int, r image.Rectangle, w, h int) *image.NRGBA {
	b := img.Bounds()
	out := image.NewNRGBA(image.Rect(0, 0, w, h))
	if b.Dx() == width && b.Dy() == height && r.Dx() == w && r.Dy() == h {
		draw.Draw(out, out.Rect, img, b.Min.Add(r.Min), draw.Src)
		return out
	}
	for y := range h {
		sy := b.Min.Y + nearest(r.Min.Y, r.Dy(), y, h, b.Dy(), height)
		for x := range w {
			sx := b.Min.X + nearest(r.Min.X, r.Dx(), x, w, b.Dx(), width)
			out.Set(x, y, img.At(sx, sy))
		}
	}
	return out
}

// nearest returns the pixel of an axis that is shown at i of n, which stand for the length pixels behind
// from. The axis has stored pixels, and is shown with shown pixels.
func nearest(from, length, i, n, stored, shown int) int {
	at := float64(from) + (float64(i)+0.5)*float64(length)/float64(n)
	return min(int(at*float64(stored)/float64(shown)), stored-1)
}
