package picture

import (
	"image"
	"image/color"
	"math/bits"
	"strconv"
)

// maxSixelColumns is the width of the widest sixel, as in the decoder of the addon (npm sixel 0.16.0).
const maxSixelColumns = 16380

// colours is the number of colours of a sixel's palette. A higher number counts modulo this.
const colours = 256

// NewSixel returns the picture of a device control string. data is the whole sequence, which must end with
// ESC \, and body the index of its sixels, behind the final byte q. background is the second parameter of the sequence: if it is 1,
// pixels that are not printed stay transparent; otherwise they get the colour fill.
//
// If the sixels have no width, NewSixel returns nil, and the number of pixels by which the cursor moves
// down. It also returns nil if they exceed a limit.
func NewSixel(data []byte, body, background int, fill color.NRGBA, cell Cell) (p *Picture, down int) {
	s := scanner{b: data[body : len(data)-2]}
	width, height := s.measure()
	if width == 0 {
		return nil, min(height, MaxPixels)
	}
	if height == 0 || width*height > MaxPixels {
		return nil, 0
	}
	if background == 1 {
		fill = color.NRGBA{}
	}
	cost := max(costOf(width*height, len(data)), drawn(s.b, width, height)/4)
	return &Picture{Format: Sixel, Width: width, Height: height, Cell: cell, Data: data, body: body, fill: fill, cost: cost}, 0
}

// A scanner splits sixels into commands.
type scanner struct {
	b []byte
	i int
}

// A command is one of the kinds of sixel commands: '?' is a column of pixels, which count columns repeat;
// the others are '$' (to the first column), '-' (to the next six rows), '#' (a colour) and '"' (the size).
type command struct {
	kind  byte
	bits  byte // of a column: the uppermost pixel is the lowest bit
	count int
	n     int // number of parameters of '#' and '"'
	param [5]int
}

// next returns the next command, and false at the end.
func (s *scanner) next() (c command, ok bool) {
	count := 1
	for s.i < len(s.b) {
		b := s.b[s.i] & 0x7f
		s.i++
		switch {
		case b >= '?' && b <= '~':
			return command{kind: '?', bits: b - '?', count: count}, true
		case b == '!':
			count = 0
			s.numbers(func(_, v int) { count = v })
			count = max(count, 1)
			continue
		case b == '$' || b == '-':
			return command{kind: b}, true
		case b == '#' || b == '"':
			c.kind = b
			s.numbers(func(i, v int) {
				if i < len(c.param) {
					c.param[i], c.n = v, i+1
				}
			})
			return c, true
		}
	}
	return c, false
}

// numbers calls f for each parameter at the position, with its index.
func (s *scanner) numbers(f func(i, v int)) {
	at, v := 0, 0
	for ; s.i < len(s.b); s.i++ {
		switch b := s.b[s.i] & 0x7f; {
		case b >= '0' && b <= '9':
			v = min(v*10+int(b-'0'), maxSixelColumns*maxSixelColumns)
		case b == ';':
			f(at, v)
			at, v = at+1, 0
		case b < ' ': // a control within a number has no effect
		default:
			f(at, v)
			return
		}
	}
	f(at, v)
}

// measure returns the size in pixels. If the sixels begin with a size, that is the size, and pixels beyond
// it are not shown.
func (s *scanner) measure() (width, height int) {
	x, top, low, drawn := 0, 0, 0, false
	for {
		c, ok := s.next()
		if !ok {
			return width, top + low
		}
		switch c.kind {
		case '"':
			if w, h := c.param[2], c.param[3]; !drawn && w > 0 && h > 0 {
				if c, ok := s.next(); ok && hasPixels(c, s) {
					return w, h
				}
				return 0, 0
			}
		case '?':
			drawn = true
			x = min(x+c.count, maxSixelColumns)
			width = max(width, x)
			low = max(low, bits.Len8(c.bits))
		case '$':
			drawn, x = true, 0
		case '-':
			drawn, x, low = true, 0, 0
			if top += 6; top > MaxPixels {
				return width, top
			}
		}
	}
}

// drawn returns how many pixels decodeSixel draws. If the sixels draw pixels again and again, these are many more than the
// picture has.
func drawn(body []byte, width, height int) (n int) {
	s := scanner{b: body}
	x, top := 0, 0
	for {
		c, ok := s.next()
		if !ok {
			return n
		}
		switch c.kind {
		case '$':
			x = 0
		case '-':
			x, top = 0, top+6
		case '?':
			rows := c.bits & (1<<max(min(height-top, 6), 0) - 1)
			n += bits.OnesCount8(rows) * max(min(x+c.count, width)-x, 0)
			x = min(x+c.count, maxSixelColumns)
		}
	}
}

// hasPixels reports whether c, or a command behind it, is one of pixels or of a new line.
func hasPixels(c command, s *scanner) bool {
	for ok := true; ok; c, ok = s.next() {
		if c.kind == '?' || c.kind == '-' || c.kind == '$' {
			return true
		}
	}
	return false
}

// decodeSixel draws sixels on an image of the given size, which has the colour fill.
func decodeSixel(body []byte, width, height int, fill color.NRGBA) image.Image {
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i := 0; fill.A > 0 && i < len(img.Pix); i += 4 {
		img.Pix[i], img.Pix[i+1], img.Pix[i+2], img.Pix[i+3] = fill.R, fill.G, fill.B, fill.A
	}
	palette := defaultPalette()
	s := scanner{b: body}
	pen := palette[0]
	x, top := 0, 0
	for {
		c, ok := s.next()
		if !ok {
			return img
		}
		switch c.kind {
		case '#':
			i := c.param[0] % colours
			if c.n == len(c.param) {
				palette[i] = sixelColor(c.param[1], c.param[2], c.param[3], c.param[4])
			}
			pen = palette[i]
		case '$':
			x = 0
		case '-':
			x, top = 0, top+6
		case '?':
			end := min(x+c.count, width)
			for y := range 6 {
				if c.bits>>y&1 == 0 || top+y >= height {
					continue
				}
				for at := x; at < end; at++ {
					img.SetNRGBA(at, top+y, pen)
				}
			}
			x = min(x+c.count, maxSixelColumns)
		}
	}
}

// sixelColor returns the colour of a definition: 2 is RGB in percent, and 1 is HLS with the hue in
// degrees, 0 of which is blue.
func sixelColor(system, a, b, c int) color.NRGBA {
	if system == 2 {
		part := func(v int) uint8 { return uint8((min(v, 100)*255 + 50) / 100) }
		return color.NRGBA{part(a), part(b), part(c), 255}
	}
	return hls(float64(min(a, 360)+240), float64(min(b, 100))/100, float64(min(c, 100))/100)
}

// hls converts hue (in degrees, 0 is red), lightness and saturation, as CSS Color 3 section 4.2.4 does.
func hls(h, l, s float64) color.NRGBA {
	for h >= 360 {
		h -= 360
	}
	h /= 360
	high := l + s - l*s
	if l <= 0.5 {
		high = l * (1 + s)
	}
	low := 2*l - high
	part := func(h float64) uint8 {
		switch {
		case h < 0:
			h++
		case h > 1:
			h--
		}
		v := low
		switch {
		case 6*h < 1:
			v = low + (high-low)*6*h
		case 2*h < 1:
			v = high
		case 3*h < 2:
			v = low + (high-low)*(2.0/3-h)*6
		}
		return uint8(v*255 + 0.5)
	}
	return color.NRGBA{part(h + 1.0/3), part(h), part(h - 1.0/3), 255}
}

// vt340 are the first 16 colours, in percent (VT330/VT340 manual, table 2-3). The other colours are those
// of the 256 colours of xterm.
var vt340 = [16][3]int{
	{0, 0, 0}, {20, 20, 80}, {80, 13, 13}, {20, 80, 20}, {80, 20, 80}, {20, 80, 80}, {80, 80, 20}, {53, 53, 53},
	{26, 26, 26}, {33, 33, 60}, {60, 26, 26}, {33, 60, 33}, {60, 33, 60}, {33, 60, 60}, {60, 60, 33}, {80, 80, 80},
}

// defaultPalette returns the palette of a terminal in which no colour was defined.
func defaultPalette() (p [colours]color.NRGBA) {
	for i, c := range vt340 {
		p[i] = sixelColor(2, c[0], c[1], c[2])
	}
	for i := 16; i < 232; i++ { // a cube with 6 steps
		step := func(v int) uint8 {
			if v %= 6; v > 0 {
				return uint8(55 + 40*v)
			}
			return 0
		}
		p[i] = color.NRGBA{step((i - 16) / 36), step((i - 16) / 6), step(i - 16), 255}
	}
	for i := 232; i < colours; i++ {
		grey := uint8(8 + 10*(i-232))
		p[i] = color.NRGBA{grey, grey, grey, 255}
	}
	return p
}

// appendSixel appends an image as sixels. If it has more than 256 colours, each colour is rounded to the
// cube of 6 steps. Pixels that are more than half transparent are not printed.
func appendSixel(dst []byte, img *image.NRGBA) []byte {
	w, h := img.Rect.Dx(), img.Rect.Dy()
	numbers, all := map[color.NRGBA]int{}, []color.NRGBA{}
	index := make([]int, w*h) // 1 + the number of the pixel's colour, or 0
	number := func(round func(color.NRGBA) color.NRGBA) bool {
		clear(numbers)
		all = all[:0]
		for i := range index {
			c := color.NRGBA{img.Pix[4*i], img.Pix[4*i+1], img.Pix[4*i+2], 255}
			if index[i] = 0; img.Pix[4*i+3] < 128 {
				continue
			}
			c = round(c)
			n, ok := numbers[c]
			if !ok {
				if len(all) == colours {
					return false
				}
				n = len(all)
				numbers[c] = n
				all = append(all, c)
			}
			index[i] = n + 1
		}
		return true
	}
	if !number(func(c color.NRGBA) color.NRGBA { return c }) {
		step := func(v uint8) uint8 { return uint8((int(v) + 25) / 51 * 51) }
		number(func(c color.NRGBA) color.NRGBA { return color.NRGBA{step(c.R), step(c.G), step(c.B), 255} })
	}
	dst = append(dst, "\x1bP0;1q\"1;1;"...)
	dst = strconv.AppendInt(dst, int64(w), 10)
	dst = strconv.AppendInt(append(dst, ';'), int64(h), 10)
	for i, c := range all {
		dst = strconv.AppendInt(append(dst, '#'), int64(i), 10)
		dst = append(dst, ";2"...)
		for _, v := range []uint8{c.R, c.G, c.B} {
			dst = strconv.AppendInt(append(dst, ';'), int64((int(v)*100+127)/255), 10)
		}
	}
	if len(all) == 0 {
		dst = append(dst, '?') // without a column of pixels, the size has no effect
	}
	for top := 0; top < h; top += 6 {
		if top > 0 {
			dst = append(dst, '-')
		}
		dst = appendBand(dst, index[top*w:min((top+6)*w, len(index))], w, len(all))
	}
	return append(dst, "\x1b\\"...)
}

// appendBand appends up to six rows of pixels, one colour after the other.
func appendBand(dst []byte, rows []int, w, count int) []byte {
	used := make([]bool, count+1)
	for _, n := range rows {
		used[n] = true
	}
	first := true
	for n := 1; n <= count; n++ {
		if !used[n] {
			continue
		}
		if !first {
			dst = append(dst, '$')
		}
		first = false
		dst = strconv.AppendInt(append(dst, '#'), int64(n-1), 10)
		for x := 0; x < w; {
			column := func(x int) (b byte) {
				for y := 0; y*w < len(rows); y++ {
					if rows[y*w+x] == n {
						b |= 1 << y
					}
				}
				return b
			}
			b, run := column(x), 1
			for x+run < w && column(x+run) == b {
				run++
			}
			if x += run; x == w && b == 0 {
				break
			}
			if run > 3 {
				dst = append(strconv.AppendInt(append(dst, '!'), int64(run), 10), '?'+b)
				continue
			}
			for range run {
				dst = append(dst, '?'+b)
			}
		}
	}
	return dst
}
