package picture

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"
)

// file returns a PNG in which each pixel has another colour.
func file(t testing.TB, w, h int) []byte {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetNRGBA(x, y, color.NRGBA{uint8(x), uint8(y), uint8(x / 256 * 16), 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func iterm2(args string, file []byte) *Picture {
	text := FilePrefix + strings.ReplaceAll(args, "SIZE", fmt.Sprint(len(file))) + ":" + base64.StdEncoding.EncodeToString(file)
	return NewITerm2([]byte("\x1b]"+text+"\x1b\\"), []byte(text), DefaultCell, 80, 24)
}

func TestITerm2Size(t *testing.T) {
	for _, tt := range []struct {
		args          string
		w, h          int
		width, height int
	}{
		{"inline=1;size=SIZE", 100, 50, 100, 50},
		{"width=20;height=4;inline=1", 100, 50, 200, 100}, // as timg prints it
		{"inline=1;size=SIZE;width=20", 100, 50, 200, 100},
		{"inline=1;size=SIZE;height=5", 100, 50, 200, 100},
		{"inline=1;size=SIZE;width=50px;height=50px", 100, 50, 50, 25},
		{"inline=1;size=SIZE;width=50px;height=50px;preserveAspectRatio=0", 100, 50, 50, 50},
		{"inline=1;size=SIZE;width=50%", 100, 50, 400, 200},
		{"inline=1;size=SIZE;width=auto", 1000, 50, 800, 40},
		{"inline=1;size=SIZE", 100, 920, 50, 460},
		{"name=YQ==;inline=1;size=SIZE;other=1", 10, 10, 10, 10},
		{"size=SIZE", 10, 10, 0, 0},
		{"inline=1", 10, 10, 10, 10},
		{"inline=1;size=5", 10, 10, 0, 0},
		{"inline=1;size=SIZE;width=x", 10, 10, 0, 0},
		{"inline=1;size=SIZE;width=99999999px", 10, 10, 0, 0},
	} {
		p := iterm2(tt.args, file(t, tt.w, tt.h))
		got := [2]int{}
		if p != nil {
			got = [2]int{p.Width, p.Height}
		}
		if want := [2]int{tt.width, tt.height}; got != want {
			t.Errorf("%s: %v, want %v", tt.args, got, want)
		}
	}
}

// A part of a picture has the pixels that the whole picture has there.
func TestAppendPart(t *testing.T) {
	p := iterm2("inline=1;size=SIZE", file(t, 95, 50)) // 10 columns and 3 rows, of which the last ones are incomplete
	all := Formats(Sixel) | Formats(ITerm2)
	if got := p.Append(nil, Area{0, 0, 10, 3}, all, DefaultCell); !bytes.Equal(got, p.Data) {
		t.Error("the whole picture is not the sequence of the program")
	}
	if got := p.Append(nil, Area{0, 0, 10, 3}, 0, DefaultCell); got != nil {
		t.Error("a terminal without pictures gets one")
	}
	got := p.Append(nil, Area{3, 1, 7, 2}, all, DefaultCell)
	part := NewITerm2(got, got[2:len(got)-1], DefaultCell, 80, 24)
	if part == nil || part.Width != 65 || part.Height != 30 {
		t.Fatalf("part %+v", part)
	}
	img := part.decode()
	for y := range 30 {
		for x := range 65 {
			if r, g, _, _ := img.At(x, y).RGBA(); r>>8 != uint32(30+x) || g>>8 != uint32(20+y) {
				t.Fatalf("pixel %d,%d is %d,%d", x, y, r>>8, g>>8)
			}
		}
	}
	scaled := p.Append(nil, Area{3, 1, 7, 2}, all, Cell{5, 10})
	small := NewITerm2(scaled, scaled[2:len(scaled)-1], Cell{5, 10}, 80, 24)
	if cols, rows := small.Cells(); cols != 7 || rows != 2 {
		t.Errorf("in other cells it covers %d columns and %d rows", cols, rows)
	}
	if six := p.Append(nil, Area{3, 1, 7, 2}, Formats(Sixel), DefaultCell); !bytes.HasPrefix(six, []byte("\x1bP0;1q\"1;1;65;30#")) {
		t.Errorf("as a sixel: %.40q", six)
	}
}

// No file makes the package panic.
func FuzzITerm2(f *testing.F) {
	f.Add("inline=1;size=SIZE;width=3", file(f, 20, 20))
	f.Add("inline=1;size=SIZE;width=30%;height=2px", []byte("GIF89a"))
	f.Fuzz(func(t *testing.T, args string, file []byte) {
		if strings.ContainsAny(args, "\x00\x07\x1b") {
			return
		}
		if p := iterm2(args, file); p != nil && p.Width*p.Height < 1<<16 {
			cols, rows := p.Cells()
			p.Append(nil, Area{0, rows - 1, cols, 1}, Formats(Sixel), DefaultCell)
		}
	})
}
