package picture

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"errors"
	"image"
	"image/png"
	"io"
	"math"
	"strconv"
)

// A Command is one of kitty's graphics commands (sw.kovidgoyal.net/kitty/graphics-protocol, "Control data
// reference"): the text of an APC between G and the semicolon before its data.
type Command struct {
	Action                byte // a: t transmit, T transmit and place, p place, q ask, d delete; others are for animations
	Delete                byte // d: the pictures that are deleted
	Medium                byte // t: d if the data is in the commands
	Format                int  // f: 24 RGB, 32 RGBA, 100 PNG
	Compressed            bool // o=z: zlib
	ID, Number, Placement uint32
	Width, Height         int // s, v: of the data, in pixels
	X, Y, PartW, PartH    int // x, y, w, h: the part that is placed
	Cols, Rows            int // c, r: the cells that it covers; 0 is its natural size
	Left, Top             int // X, Y: where it begins in its first cell, in pixels
	Z                     int
	Quiet                 int  // q: 1 no OK, 2 no errors either
	More                  bool // m=1: the data continues in another command
	Still                 bool // C=1: the cursor does not move
	Virtual               bool // U=1: text places the picture (virtual.go)
	Continues             bool // the command has no key but m and q, so it continues the last one
}

// maxKey bounds the value of a key.
const maxKey = 1<<31 - 1

// ParseCommand parses the keys of a command. Unknown keys are ignored.
func ParseCommand(keys []byte) Command {
	c := Command{Action: 't', Delete: 'a', Medium: 'd', Format: 32, Continues: true}
	for pair := range bytes.SplitSeq(keys, []byte(",")) {
		key, value, ok := bytes.Cut(pair, []byte("="))
		if !ok || len(key) != 1 || len(value) == 0 {
			continue
		}
		if k := key[0]; k != 'm' && k != 'q' {
			c.Continues = false
		}
		n64, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			n64 = 0
		}
		id := uint32(n64)
		n := int(min(max(n64, -maxKey), maxKey))
		switch key[0] {
		case 'a':
			c.Action = value[0]
		case 'd':
			c.Delete = value[0]
		case 't':
			c.Medium = value[0]
		case 'o':
			c.Compressed = value[0] == 'z'
		case 'f':
			c.Format = n
		case 'i':
			c.ID = id
		case 'I':
			c.Number = id
		case 'p':
			c.Placement = id
		case 's':
			c.Width = n
		case 'v':
			c.Height = n
		case 'x':
			c.X = max(n, 0)
		case 'y':
			c.Y = max(n, 0)
		case 'w':
			c.PartW = max(n, 0)
		case 'h':
			c.PartH = max(n, 0)
		case 'c':
			c.Cols = min(max(n, 0), maxCells)
		case 'r':
			c.Rows = min(max(n, 0), maxCells)
		case 'X':
			c.Left = max(n, 0)
		case 'Y':
			c.Top = max(n, 0)
		case 'z':
			c.Z = n
		case 'q':
			c.Quiet = n
		case 'm':
			c.More = n == 1
		case 'C':
			c.Still = n == 1
		case 'U':
			c.Virtual = n == 1
		}
	}
	return c
}

// maxCells bounds the columns and rows over which a command stretches a picture.
const maxCells = 10_000

// The errors of kitty's protocol. Their texts are answers to the program.
var (
	ErrFormat = errors.New("EINVAL:unsupported format or medium")
	ErrData   = errors.New("ENODATA:not enough pixel data, or damaged")
	ErrSize   = errors.New("EFBIG:too many pixels or bytes")
)

// A Transmission is an image that a program has sent by kitty's protocol, and that can be placed.
type Transmission struct {
	Data          []byte // decoded from base64
	format        int
	compressed    bool
	width, height int
}

// NewTransmission checks the data of a command. Errors: ErrFormat, ErrData, ErrSize.
func NewTransmission(c *Command, data []byte) (*Transmission, error) {
	t := &Transmission{Data: data, format: c.Format, compressed: c.Compressed, width: c.Width, height: c.Height}
	switch {
	case c.Medium != 'd':
		return nil, ErrFormat
	case len(data) > MaxBytes:
		return nil, ErrSize
	case c.Format == 100:
		config, err := png.DecodeConfig(t.reader(maxExtra))
		if err != nil {
			return nil, ErrData
		}
		t.width, t.height = config.Width, config.Height
	case c.Format != 24 && c.Format != 32:
		return nil, ErrFormat
	}
	if t.width <= 0 || t.height <= 0 {
		return nil, ErrData
	}
	if t.width > MaxPixels/t.height {
		return nil, ErrSize
	}
	if t.format != 100 && !t.compressed && len(data) < t.width*t.height*t.format/8 {
		return nil, ErrData
	}
	return t, nil
}

// maxExtra bounds the bytes of a compressed PNG that are not pixels. A few bytes can become a gigabyte of text that the
// decoder skips.
const maxExtra = 1 << 20

// reader returns a reader of the data as it was before its compression, of which it returns at most limit bytes.
func (t *Transmission) reader(limit int) io.Reader {
	if !t.compressed {
		return bytes.NewReader(t.Data)
	}
	z, err := zlib.NewReader(bytes.NewReader(t.Data))
	if err != nil {
		return bytes.NewReader(nil)
	}
	return io.LimitReader(z, int64(limit))
}

// cost returns the cost of decoding the image.
func (t *Transmission) cost() int {
	n := len(t.Data)
	if t.compressed {
		n += maxExtra
	}
	return costOf(t.width*t.height, n)
}

// decode returns the image, or nil if the data is damaged.
func (t *Transmission) decode() image.Image {
	if t.format == 100 {
		img, err := png.Decode(t.reader(maxExtra + 9*t.width*t.height)) // a pixel has up to 8 bytes, and each row one more
		if err != nil {
			return nil
		}
		return img
	}
	img := image.NewNRGBA(image.Rect(0, 0, t.width, t.height))
	if t.format == 32 {
		if _, err := io.ReadFull(t.reader(len(img.Pix)), img.Pix); err != nil {
			return nil
		}
		return img
	}
	rgb := make([]byte, 3*t.width*t.height)
	if _, err := io.ReadFull(t.reader(len(rgb)), rgb); err != nil {
		return nil
	}
	for i := range t.width * t.height {
		copy(img.Pix[4*i:], rgb[3*i:3*i+3])
		img.Pix[4*i+3] = 255
	}
	return img
}

// Place returns the picture of a transmission that is placed by a command, or nil if the part that the
// command names is empty, or too large. Without c and r the picture has its natural size, and may begin within a cell; with one
// of them, it keeps its proportions.
func (t *Transmission) Place(c *Command, cell Cell) *Picture {
	part := image.Rect(0, 0, t.width, t.height)
	if c.X < t.width && c.Y < t.height {
		part.Min = image.Pt(c.X, c.Y)
	} else {
		return nil
	}
	if c.PartW > 0 {
		part.Max.X = min(part.Max.X, c.X+c.PartW)
	}
	if c.PartH > 0 {
		part.Max.Y = min(part.Max.Y, c.Y+c.PartH)
	}
	w, h := float64(part.Dx()), float64(part.Dy())
	cols, rows := c.Cols, c.Rows
	switch {
	case cols > 0 && rows == 0:
		rows = max(1, int(math.Ceil(h/w*float64(cols)*cell.Width/cell.Height)))
	case rows > 0 && cols == 0:
		cols = max(1, int(math.Ceil(w/h*float64(rows)*cell.Height/cell.Width)))
	}
	if cols > 0 {
		w, h = float64(cols)*cell.Width, float64(rows)*cell.Height // not rounded up, which would cover one more cell
	}
	box := part
	if cols == 0 {
		left, top := min(c.Left, int(cell.Width)-1), min(c.Top, int(cell.Height)-1)
		box.Min = box.Min.Sub(image.Pt(left, top))
		w, h = w+float64(left), h+float64(top)
	}
	if w < 1 || h < 1 || w*h > MaxPixels {
		return nil
	}
	return &Picture{Format: Kitty, Width: int(w), Height: int(h), Cell: cell, Data: t.Data, kitty: kitty{t, part, box, cols, rows, c.Z}, cost: max(t.cost(), box.Dx()*box.Dy())}
}

// kitty is the part of a transmission that a picture shows.
type kitty struct {
	*Transmission
	part       image.Rectangle
	box        image.Rectangle // the part with its margins, in the same pixels
	cols, rows int             // 0 is the natural size
	z          int
}

// image returns the pixels of the part, or nil if the data is damaged.
func (k *kitty) image() image.Image {
	img := k.Transmission.decode()
	if img == nil {
		return nil
	}
	whole, ok := img.(interface {
		SubImage(image.Rectangle) image.Image
	})
	if !ok {
		return nil
	}
	return withMargins(whole.SubImage(k.part), k.box)
}

// append appends commands that place the whole picture without moving the cursor, scaled to cols and rows
// unless these are 0.
func (k *kitty) append(dst []byte, cols, rows int) []byte {
	return appendKitty(dst, "a=T,q=2,C=1"+k.dataKeys()+k.partKeys(), k.Data, cols, rows)
}

// dataKeys returns the keys that describe the data of the transmission.
func (t *Transmission) dataKeys() string {
	keys := ",f=" + strconv.Itoa(t.format) + ",s=" + strconv.Itoa(t.width) + ",v=" + strconv.Itoa(t.height)
	if t.compressed {
		keys += ",o=z"
	}
	return keys
}

// partKeys returns the keys that describe the part of the transmission that is shown, except for its size in cells.
func (k *kitty) partKeys() (keys string) {
	if k.part != image.Rect(0, 0, k.width, k.height) {
		keys += ",x=" + strconv.Itoa(k.part.Min.X) + ",y=" + strconv.Itoa(k.part.Min.Y) + ",w=" + strconv.Itoa(k.part.Dx()) + ",h=" + strconv.Itoa(k.part.Dy())
	}
	if margin := k.part.Min.Sub(k.box.Min); margin != (image.Point{}) && k.cols == 0 {
		keys += ",X=" + strconv.Itoa(margin.X) + ",Y=" + strconv.Itoa(margin.Y)
	}
	if k.z != 0 {
		keys += ",z=" + strconv.Itoa(k.z)
	}
	return keys
}

// The functions below append commands about an image with an id to dst, which are not answered.

// AppendImage appends commands that transmit the image.
func (t *Transmission) AppendImage(dst []byte, id uint32) []byte {
	return appendKitty(dst, "a=t,q=2,i="+number(id)+t.dataKeys(), t.Data, 0, 0)
}

// AppendDelete appends a command that deletes the image with its placements.
func AppendDelete(dst []byte, id uint32) []byte {
	return append(dst, "\x1b_Ga=d,d=I,q=2,i="+number(id)+"\x1b\\"...)
}

// AppendVirtual appends a command that makes a virtual placement. The number is 0 if it has none.
func (p *Picture) AppendVirtual(dst []byte, id, placement uint32) []byte {
	return p.kitty.appendPlacement(dst, "a=p,U=1", id, placement, p.kitty.cols, p.kitty.rows)
}

// AppendPlacement appends a command that places an area of the picture at the cursor, which does not move. It appends
// nothing if no such command shows the area (commandSize).
func (p *Picture) AppendPlacement(dst []byte, a Area, cell Cell, id, placement uint32) []byte {
	cols, rows, ok := p.commandSize(a, cell)
	if !ok {
		return dst
	}
	return p.kitty.appendPlacement(dst, "a=p,C=1", id, placement, cols, rows)
}

func (k *kitty) appendPlacement(dst []byte, keys string, id, placement uint32, cols, rows int) []byte {
	keys += ",q=2,i=" + number(id) + k.partKeys()
	if placement != 0 {
		keys += ",p=" + number(placement)
	}
	if cols > 0 {
		keys += ",c=" + strconv.Itoa(cols) + ",r=" + strconv.Itoa(rows)
	}
	return append(dst, "\x1b_G"+keys+"\x1b\\"...)
}

func number(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// kittyChunk is the length of the data of a command (the protocol's limit, in base64).
const kittyChunk = 4096

// appendKitty appends commands with these keys and data.
func appendKitty(dst []byte, keys string, data []byte, cols, rows int) []byte {
	if cols > 0 {
		keys += ",c=" + strconv.Itoa(cols) + ",r=" + strconv.Itoa(rows)
	}
	encoded := base64.StdEncoding.EncodeToString(data)
	for first := true; first || len(encoded) > 0; first = false {
		n := min(kittyChunk, len(encoded))
		dst = append(dst, "\x1b_G"...)
		if first {
			dst = append(append(dst, keys...), ',')
		}
		more := byte('0')
		if n < len(encoded) {
			more = '1'
		}
		dst = append(dst, 'm', '=', more, ';')
		dst = append(append(dst, encoded[:n]...), "\x1b\\"...)
		encoded = encoded[n:]
	}
	return dst
}
