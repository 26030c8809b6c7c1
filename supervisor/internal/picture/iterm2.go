package picture

import (
	"bytes"
	"encoding/base64"
	"image"
	"math"
	"strconv"
)

// FilePrefix is the beginning of the text of an OSC that prints a picture.
const FilePrefix = "1337;File="

// maxField is the length of a key or value of a file, as in the addon.
const maxField = 1024

// NewITerm2 returns the picture of an OSC 1337 File=, or nil if it shows none: if it is no inline file, if
// the file is no PNG, JPEG or GIF, or if it exceeds a limit. data is the whole sequence, and text the
// part of it between the introducer and the terminator. cols and rows are the size of the terminal.
func NewITerm2(data, text []byte, cell Cell, cols, rows int) *Picture {
	args, ok := bytes.CutPrefix(text, []byte(FilePrefix))
	if !ok {
		return nil
	}
	fields, encoded, ok := bytes.Cut(args, []byte(":"))
	if !ok {
		return nil
	}
	f, ok := parseFields(fields)
	if !ok || f.inline == 0 {
		return nil
	}
	file, ok := decodeFile(encoded)
	if !ok || f.size > 0 && len(file) > f.size {
		return nil
	}
	config, kind, err := image.DecodeConfig(bytes.NewReader(file))
	if err != nil || config.Width <= 0 || config.Height <= 0 || config.Width > MaxPixels/config.Height {
		return nil
	}
	pixels := config.Width * config.Height
	if kind == "jpeg" {
		pixels *= 1 + scans(file)/usualScans
	}
	w, h := f.shown(float64(config.Width), float64(config.Height), cell, cols, rows)
	if !(w >= 1 && h >= 1 && math.Floor(w)*math.Floor(h) <= MaxPixels) {
		return nil
	}
	return &Picture{Format: ITerm2, NoSize: f.size == 0, Width: int(w), Height: int(h), Cell: cell, Data: data, body: len(data) - terminator(data) - len(encoded), cost: costOf(pixels, len(data))}
}

// usualScans is more than the number of scans that encoders write into a JPEG.
const usualScans = 20

// scans returns the number of scans of a JPEG. The decoder visits all pixels in each of them, even if a scan has some bytes
// only.
func scans(file []byte) (n int) {
	for i := 0; i+3 < len(file); {
		switch marker := file[i+1]; {
		case file[i] != 0xff || marker == 0xff:
			i++
		case marker == 0 || marker >= 0xd0 && marker <= 0xd8: // a byte of a scan, a restart, or the start of the file
			i += 2
		case marker == 0xd9:
			return n
		default: // a segment, whose length follows
			if marker == 0xda {
				n++
			}
			i += 2 + int(file[i+2])<<8 + int(file[i+3])
		}
	}
	return n
}

// terminator returns the length of the terminator of an OSC.
func terminator(data []byte) int {
	if data[len(data)-1] == 0x07 {
		return 1
	}
	return 2
}

// decodeFile decodes base64 with or without padding.
func decodeFile(encoded []byte) ([]byte, bool) {
	encoded = bytes.TrimRight(encoded, "=")
	file := make([]byte, base64.RawStdEncoding.DecodedLen(len(encoded)))
	n, err := base64.RawStdEncoding.Decode(file, encoded)
	return file[:n], err == nil
}

// file returns the picture's file.
func (p *Picture) file() []byte {
	file, _ := decodeFile(p.Data[p.body : len(p.Data)-terminator(p.Data)])
	return file
}

// fields are the keys and values of a file.
type fields struct {
	size, inline  int
	width, height []byte
	stretched     bool // the aspect ratio need not be preserved
}

// parseFields parses keys and values. It returns false for a value that the addon refuses.
func parseFields(b []byte) (f fields, ok bool) {
	for pair := range bytes.SplitSeq(b, []byte(";")) {
		key, value, _ := bytes.Cut(pair, []byte("="))
		if len(key) > maxField || len(value) > maxField {
			return f, false
		}
		number, err := strconv.Atoi(string(value))
		isNumber := err == nil && number >= 0
		switch string(key) {
		case "size":
			f.size, ok = number, isNumber
		case "inline":
			f.inline, ok = number, isNumber
		case "preserveAspectRatio":
			f.stretched, ok = number == 0, isNumber
		case "width":
			f.width, ok = value, isLength(value)
		case "height":
			f.height, ok = value, isLength(value)
		default:
			ok = true
		}
		if !ok {
			return f, false
		}
	}
	return f, true
}

// isLength reports whether a width or height is auto, or a number of cells, pixels or percent.
func isLength(b []byte) bool {
	if string(b) == "auto" {
		return true
	}
	digits := bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("px")), []byte("%"))
	_, err := strconv.ParseUint(string(digits), 10, 31)
	return err == nil
}

// shown returns the size in pixels at which a file of w by h pixels is shown.
func (f *fields) shown(w, h float64, cell Cell, cols, rows int) (float64, float64) {
	width, height := float64(cols)*cell.Width, float64(rows)*cell.Height
	rw, rh := pixelsOf(f.width, width, cell.Width), pixelsOf(f.height, height, cell.Height)
	switch {
	case rw == 0 && rh == 0:
		if scale := min(width/w, (height-cell.Height)/h); scale < 1 {
			return w * scale, h * scale
		}
		return w, h
	case rw == 0:
		return w * rh / h, rh
	case !f.stretched || rh == 0:
		return rw, h * rw / w
	}
	return rw, rh
}

// pixelsOf returns a width or height in pixels, or 0 if it is auto.
func pixelsOf(b []byte, total, cell float64) float64 {
	number := func(b []byte) float64 { n, _ := strconv.ParseUint(string(b), 10, 31); return float64(n) }
	if digits, ok := bytes.CutSuffix(b, []byte("%")); ok {
		return number(digits) * total / 100
	}
	if digits, ok := bytes.CutSuffix(b, []byte("px")); ok {
		return number(digits)
	}
	return number(b) * cell
}

// appendITerm2 appends the sequence that shows a file at the given size.
func appendITerm2(dst, file []byte, s size) []byte {
	unit := "px"
	if s.cells {
		unit = ""
	}
	dst = append(dst, "\x1b]"+FilePrefix+"inline=1;preserveAspectRatio=0;size="...)
	dst = strconv.AppendInt(dst, int64(len(file)), 10)
	dst = strconv.AppendInt(append(dst, ";width="...), int64(s.width), 10)
	dst = strconv.AppendInt(append(dst, unit+";height="...), int64(s.height), 10)
	dst = append(dst, unit+":"...)
	dst = base64.StdEncoding.AppendEncode(dst, file)
	return append(dst, 0x07)
}
