package picture

import (
	"bytes"
	"image"
	"image/color"
	"math/rand/v2"
	"slices"
	"testing"
)

func sixel(t *testing.T, body string, background int) (*Picture, int) {
	t.Helper()
	data := []byte("\x1bPq" + body + "\x1b\\")
	return NewSixel(data, 3, background, color.NRGBA{A: 255}, DefaultCell)
}

// The sizes are those of the decoder of the addon (npm sixel 0.16.0).
func TestSixelSize(t *testing.T) {
	for _, tt := range []struct {
		body                string
		width, height, down int
	}{
		{"@@@", 3, 1, 0}, {"!10~", 10, 6, 0}, {"~-~", 1, 12, 0}, {"~-", 1, 6, 0}, {"~--", 1, 12, 0},
		{"-", 0, 0, 6}, {"--", 0, 0, 12}, {`"1;1;20;10`, 0, 0, 0}, {`"1;1;3;2~~~~~`, 3, 2, 0}, {`"1;1;3;20~`, 3, 20, 0},
		{`"1;1;0;0~~`, 2, 6, 0}, {`"2;1;3;4~`, 3, 4, 0}, {"?", 0, 0, 0}, {"???-", 3, 6, 0}, {"#1~$#2A", 1, 6, 0},
		{`~~"1;1;9;9~`, 3, 6, 0}, {"!5?", 0, 0, 0}, {"B", 1, 2, 0}, {`"1;1;5~`, 1, 6, 0}, {"!0~", 1, 6, 0}, {"!~", 1, 6, 0},
		{"!3!2~", 2, 6, 0}, {`"1;1;3;2-~-~`, 3, 2, 0}, {" ~\n~", 2, 6, 0}, {"!99999~", 16380, 6, 0}, {"~$-~", 1, 12, 0},
		{"@-?-?", 1, 12, 0}, {`#1"1;1;4;8~`, 4, 8, 0}, {`"1;1;100000;100000~`, 0, 0, 0}, {"", 0, 0, 0}, {"$", 0, 0, 0},
	} {
		p, down := sixel(t, tt.body, 0)
		got := [3]int{0, 0, down}
		if p != nil {
			got[0], got[1] = p.Width, p.Height
		}
		if want := [3]int{tt.width, tt.height, tt.down}; got != want {
			t.Errorf("%s: width, height, down = %v, want %v", tt.body, got, want)
		}
	}
}

func pixels(t *testing.T, p *Picture) []color.NRGBA {
	t.Helper()
	img := p.decode()
	if img == nil {
		t.Fatal("not decoded")
	}
	var all []color.NRGBA
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			all = append(all, img.At(img.Bounds().Min.X+x, img.Bounds().Min.Y+y).(color.NRGBA))
		}
	}
	return all
}

// The colours are those of the decoder of the addon.
func TestSixelColors(t *testing.T) {
	p, _ := sixel(t, "#1;2;100;0;0@#5;1;120;50;100@#2@#3@#7@#8@#15@#16@#17@#255@#257@", 0)
	want := []color.NRGBA{
		{255, 0, 0, 255}, {255, 0, 0, 255}, {204, 33, 33, 255}, {51, 204, 51, 255}, {135, 135, 135, 255}, {66, 66, 66, 255}, {204, 204, 204, 255},
		{0, 0, 0, 255}, {0, 0, 95, 255}, {238, 238, 238, 255}, {255, 0, 0, 255},
	}
	if got := pixels(t, p); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	p, _ = sixel(t, "@$#1A-B", 1)
	clear, black, blue := color.NRGBA{}, color.NRGBA{0, 0, 0, 255}, color.NRGBA{51, 51, 204, 255}
	if got, want := pixels(t, p), []color.NRGBA{black, blue, clear, clear, clear, clear, blue, blue}; !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// What appendSixel writes is read as the same image.
func TestAppendSixel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		img := image.NewNRGBA(image.Rect(0, 0, 1+r.IntN(40), 1+r.IntN(20)))
		percent := func() uint8 { return sixelColor(2, r.IntN(101), 0, 0).R }
		few := []color.NRGBA{{}, {percent(), percent(), percent(), 255}, {percent(), percent(), percent(), 255}, {1, 2, 3, 10}}
		for y := range img.Rect.Dy() {
			for x := range img.Rect.Dx() {
				img.SetNRGBA(x, y, few[r.IntN(len(few))])
			}
		}
		data := appendSixel(nil, img)
		q := bytes.IndexByte(data, 'q')
		p, _ := NewSixel(data, q+1, 1, color.NRGBA{}, DefaultCell)
		if p == nil || p.Width != img.Rect.Dx() || p.Height != img.Rect.Dy() {
			t.Fatalf("seed %d: %q is not of %v", seed, data, img.Rect)
		}
		for i, got := range pixels(t, p) {
			want := img.NRGBAAt(i%img.Rect.Dx(), i/img.Rect.Dx())
			if want.A < 128 {
				want = color.NRGBA{}
			}
			if got != want {
				t.Fatalf("seed %d: pixel %d is %v, want %v", seed, i, got, want)
			}
		}
	}
}

// No sixels make the package panic, or hold more than their pixels.
func FuzzSixel(f *testing.F) {
	for _, body := range []string{"#1;2;100;0;0!10~-@", `"1;1;30;20#5;1;120;50;100~$-?`, "!999999~---"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		p, down := sixel(t, body, 0)
		if p == nil {
			if down < 0 || down > MaxPixels {
				t.Fatalf("down %d", down)
			}
			return
		}
		if p.Width*p.Height > 1<<16 {
			return
		}
		cols, rows := p.Cells()
		p.Append(nil, Area{0, 0, cols, 1}, Formats(Sixel), DefaultCell)
		p.Append(nil, Area{0, rows - 1, cols, 1}, Formats(ITerm2), Cell{7, 13})
	})
}
