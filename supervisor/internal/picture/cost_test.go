package picture

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// partly is an area that is not the whole picture, so that the picture must be decoded.
var partly = Area{Col: 1, Cols: 1, Rows: 1}

// Work counts the pixels that sixels draw, also if they draw the same pixels again and again.
func TestWorkOfSixels(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       int
	}{
		{"each pixel once", `"1;1;200;60` + strings.Repeat("#1!200~-", 10), 200 * 60},
		{"each pixel four times", `"1;1;200;6` + strings.Repeat("#1!200~$", 4), 200 * 6},
		{"each pixel 400 times", `"1;1;200;6` + strings.Repeat("#1!200~$", 400), 100 * 200 * 6},
		{"without a size", strings.Repeat("#1!200~$", 400), 100 * 200 * 6},
		{"one pixel of each column", `"1;1;200;6` + strings.Repeat("!200A$", 800), 200 * 200},
		{"beyond the right edge", `"1;1;200;6!200~` + strings.Repeat("!2000~", 800), 200 * 6},
		{"below the lower edge", `"1;1;200;5` + strings.Repeat("!200~$", 400) + strings.Repeat("-!200~$", 400), 100 * 200 * 5},
		{"colours without pixels", `"1;1;20;6~` + strings.Repeat("#1", 40_000), 10_000},
	} {
		p, _ := sixel(t, tt.body, 0)
		if got := p.Work(partly, 0, p.Cell); got/10 != tt.want/10 {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// Work counts the scans of a JPEG, of which each visits all pixels.
func TestWorkOfScans(t *testing.T) {
	var b bytes.Buffer
	testkit.Must(t, jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 80, 64)), nil))
	at := bytes.Index(b.Bytes(), []byte{0xff, 0xda})
	head, scan, end := b.Bytes()[:at], b.Bytes()[at:b.Len()-2], b.Bytes()[b.Len()-2:]
	note := append([]byte{0xff, 0xe1, 0x40, 0x02}, bytes.Repeat([]byte{0xff, 0xda}, 1<<13)...) // bytes in a segment that are no scans
	for _, tt := range []struct{ scans, times int }{{1, 1}, {19, 1}, {20, 2}, {400, 21}} {
		file := bytes.Join([][]byte{head[:2], note, head[2:], bytes.Repeat(append([]byte{0xff}, scan...), tt.scans), end, scan}, nil)
		if got := scans(file); got != tt.scans {
			t.Errorf("got %d scans, want %d", got, tt.scans)
		}
		p := iterm2("inline=1;size=SIZE", file)
		if got, want := p.Work(partly, 0, p.Cell), 80*64*tt.times; got != want {
			t.Errorf("%d scans: %d, want %d", tt.scans, got, want)
		}
		if p.decode() == nil {
			t.Errorf("%d scans: not decoded", tt.scans)
		}
	}
}

// A compressed PNG may have a megabyte beside its pixels. The decoder reads no more.
func TestCompressedPNG(t *testing.T) {
	var b bytes.Buffer
	testkit.Must(t, png.Encode(&b, image.NewNRGBA(image.Rect(0, 0, 80, 64))))
	const header = 8 + 25 // signature and IHDR
	for _, tt := range []struct {
		text int
		want bool
	}{{0, true}, {1 << 19, true}, {1 << 21, false}} {
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		_, _ = w.Write(bytes.Join([][]byte{b.Bytes()[:header], textChunk(tt.text), b.Bytes()[header:]}, nil))
		testkit.Must(t, w.Close())
		c := ParseCommand([]byte("a=T,f=100,o=z"))
		image, err := NewTransmission(&c, z.Bytes())
		testkit.Must(t, err)
		p := image.Place(&c, DefaultCell)
		if got := p.decode() != nil; got != tt.want {
			t.Errorf("%d bytes of text: decoded %v, want %v", tt.text, got, tt.want)
		}
		if got := p.Work(partly, 0, p.Cell); got < maxExtra/8 {
			t.Errorf("%d bytes of text: work %d, want that of a megabyte", tt.text, got)
		}
	}
}

// textChunk returns a chunk of a PNG that decoders skip.
func textChunk(length int) []byte {
	body := append([]byte("teXt"), make([]byte, length)...)
	chunk := append(binary.BigEndian.AppendUint32(nil, uint32(length)), body...)
	return binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(body))
}
