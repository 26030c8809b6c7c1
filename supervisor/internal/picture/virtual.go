package picture

import (
	"image"
	"image/draw"
	"math"
)

// A virtual placement of kitty's graphics (U=1) has columns and rows, but no place: text places it. Each cell that
// shows a part of it has the character Placeholder, whose foreground colour is the number of the image. Combining
// characters behind it are the row and the column of the part ("Unicode placeholders" in the protocol).

// Placeholder is the character of the cells that show parts of virtual placements.
const Placeholder = '\U0010EEEE'

// numerals are the combining characters that mean the numbers from 0 on, as ranges. They are the characters of Unicode
// 6.0 that are in the list rowcolumn-diacritics.txt of kitty: those of category Mn, class 230 and bidirectional class NSM
// that do not decompose, without some that normalization joins with other characters.
var numerals = [...][2]rune{
	{0x305, 0x305}, {0x30d, 0x30e}, {0x310, 0x310}, {0x312, 0x312}, {0x33d, 0x33f}, {0x346, 0x346}, {0x34a, 0x34c},
	{0x350, 0x352}, {0x357, 0x357}, {0x35b, 0x35b}, {0x363, 0x36f}, {0x483, 0x487}, {0x592, 0x595}, {0x597, 0x599},
	{0x59c, 0x5a1}, {0x5a8, 0x5a9}, {0x5ab, 0x5ac}, {0x5af, 0x5af}, {0x5c4, 0x5c4}, {0x610, 0x617}, {0x657, 0x65b},
	{0x65d, 0x65e}, {0x6d6, 0x6dc}, {0x6df, 0x6e2}, {0x6e4, 0x6e4}, {0x6e7, 0x6e8}, {0x6eb, 0x6ec}, {0x730, 0x730},
	{0x732, 0x733}, {0x735, 0x736}, {0x73a, 0x73a}, {0x73d, 0x73d}, {0x73f, 0x741}, {0x743, 0x743}, {0x745, 0x745},
	{0x747, 0x747}, {0x749, 0x74a}, {0x7eb, 0x7f1}, {0x7f3, 0x7f3}, {0x816, 0x819}, {0x81b, 0x823}, {0x825, 0x827},
	{0x829, 0x82d}, {0x951, 0x951}, {0x953, 0x954}, {0xf82, 0xf83}, {0xf86, 0xf87}, {0x135d, 0x135f}, {0x17dd, 0x17dd},
	{0x193a, 0x193a}, {0x1a17, 0x1a17}, {0x1a75, 0x1a7c}, {0x1b6b, 0x1b6b}, {0x1b6d, 0x1b73}, {0x1cd0, 0x1cd2},
	{0x1cda, 0x1cdb}, {0x1ce0, 0x1ce0}, {0x1dc0, 0x1dc1}, {0x1dc3, 0x1dc9}, {0x1dcb, 0x1dcc}, {0x1dd1, 0x1de6},
	{0x1dfe, 0x1dfe}, {0x20d0, 0x20d1}, {0x20d4, 0x20d7}, {0x20db, 0x20dc}, {0x20e1, 0x20e1}, {0x20e7, 0x20e7},
	{0x20e9, 0x20e9}, {0x20f0, 0x20f0}, {0x2cef, 0x2cf1}, {0x2de0, 0x2dff}, {0xa66f, 0xa66f}, {0xa67c, 0xa67d},
	{0xa6f0, 0xa6f1}, {0xa8e0, 0xa8f1}, {0xaab0, 0xaab0}, {0xaab2, 0xaab3}, {0xaab7, 0xaab8}, {0xaabe, 0xaabf},
	{0xaac1, 0xaac1}, {0xfe20, 0xfe26}, {0x10a0f, 0x10a0f}, {0x10a38, 0x10a38}, {0x1d185, 0x1d189}, {0x1d1aa, 0x1d1ad},
	{0x1d242, 0x1d244},
}

// NumberOf returns the number that a combining character means, or -1.
func NumberOf(ch rune) int {
	n := 0
	for _, r := range numerals {
		switch {
		case ch < r[0]:
			return -1
		case ch <= r[1]:
			return n + int(ch-r[0])
		}
		n += int(r[1]-r[0]) + 1
	}
	return -1
}

// Fit returns the picture of a virtual placement by a command, or nil if there is nothing to show, or too much. Its size is the
// columns and rows of the command, or those of Place if the command lacks some. The part of the transmission keeps its
// proportions, so that the picture may have transparent margins on two sides.
func (t *Transmission) Fit(c *Command, cell Cell) *Picture {
	p := t.Place(c, cell)
	if p == nil {
		return nil
	}
	cols, rows := p.Cells()
	w, h := float64(cols)*cell.Width, float64(rows)*cell.Height
	if w*h > MaxPixels {
		return nil
	}
	part := p.kitty.part
	partW, partH := float64(part.Dx()), float64(part.Dy())
	boxW, boxH := math.Max(partW, math.Round(partH*w/h)), math.Max(partH, math.Round(partW*h/w))
	if boxW*boxH > MaxPixels {
		return nil
	}
	p.Width, p.Height = int(w), int(h)
	p.kitty.cols, p.kitty.rows = cols, rows
	from := image.Pt(part.Min.X-int(boxW-partW)/2, part.Min.Y-int(boxH-partH)/2)
	p.kitty.box = image.Rectangle{from, from.Add(image.Pt(int(boxW), int(boxH)))}
	p.cost = max(p.cost, int(boxW)*int(boxH))
	return p
}

// withMargins returns an image with the transparent margins between it and a rectangle that contains it.
func withMargins(img image.Image, box image.Rectangle) image.Image {
	if img.Bounds() == box {
		return img
	}
	out := image.NewNRGBA(box)
	draw.Draw(out, img.Bounds(), img, img.Bounds().Min, draw.Src)
	return out
}
