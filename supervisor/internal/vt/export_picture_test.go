package vt

import (
	"crypto/sha256"
	"fmt"
	"image"
	"strings"

	"holdfast/supervisor/internal/picture"
)

// Tiles returns the pixels of each cell that shows a picture, as a hash, with its place.
func Tiles(t *Term) string {
	var out strings.Builder
	decoded := map[*picture.Picture]*image.NRGBA{}
	line := func(y int, cells []cell) {
		tiles := t.tiles(cells, true)
		for x := range min(len(cells), t.cols) {
			l := tiles.at(x)
			if l.picture == nil {
				continue
			}
			p := l.picture.Load()
			if p == nil {
				continue
			}
			img, ok := decoded[p]
			if !ok {
				img = p.Part(picture.Area{Cols: l.picture.cols, Rows: l.picture.rows}, p.Cell)
				decoded[p] = img
			}
			col, row := float64(l.index%l.picture.cols), float64(l.index/l.picture.cols)
			h := sha256.New()
			for py := int(row * p.Cell.Height); py < min(int((row+1)*p.Cell.Height), p.Height); py++ {
				for px := int(col * p.Cell.Width); px < min(int((col+1)*p.Cell.Width), p.Width); px++ {
					_, _ = fmt.Fprint(h, img.NRGBAAt(px, py))
				}
			}
			fmt.Fprintf(&out, "%d,%d:%x ", x, y, h.Sum(nil)[:3])
		}
	}
	i := 0
	t.hist.each(0, func(_ int, l storedLine) bool {
		t.scratch = t.storedCells(t.scratch[:0], l)
		line(i-t.hist.lines, t.scratch)
		i++
		return true
	})
	for y := range t.rows {
		line(y, t.rowCells(t.b.row(y)))
	}
	return out.String()
}

// AllPictures returns the bytes of the pictures of all terminals.
func AllPictures() int64 { return allPictures.Load() }
