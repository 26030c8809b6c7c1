package screen

import (
	"bytes"
	"image/png"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/escseq"
	"holdfast/supervisor/internal/picture"
)

// The bytes of pictures become NUL, however the output is cut into pieces, and no other bytes change.
func TestPictureCover(t *testing.T) {
	const output = "a\x1bP0;1;2qPIXELS~~\x1b\\b\x1b]1337;File=inline=1;size=3:QUJD\x07c\x1b]1337;CurrentDir=/q\x07\x1bP$qm\x1b\\\x1bP+q544e\x1b\\\x1b_Gi=1,a=T;QUJD\x1b\\\x1b_x\x1b\\d\u0090qMORE\u009ce\x1bPqEND"
	nul := func(n int) string { return strings.Repeat("\x00", n) }
	sixels := strings.NewReplacer("PIXELS~~", nul(8), "MORE", nul(4), "END", nul(3))
	files := strings.NewReplacer("inline=1;size=3:QUJD", nul(20))
	graphics := strings.NewReplacer("i=1,a=T;QUJD", nul(12))
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for _, tt := range []struct {
		shown picture.Formats
		want  string
	}{
		{picture.AllFormats, output},
		{picture.Formats(picture.Sixel), graphics.Replace(files.Replace(output))},
		{picture.Formats(picture.ITerm2 | picture.Kitty), sixels.Replace(output)},
		{0, graphics.Replace(files.Replace(sixels.Replace(output)))},
	} {
		for range 300 {
			var m PictureCover
			p := []byte(output)
			for at := 0; at < len(p); {
				n := min(1+r.IntN(40), len(p)-at)
				m.Apply(p[at:at+n], tt.shown)
				at += n
			}
			if got := string(p); got != tt.want {
				t.Fatalf("seed %d, shown %d:\n got %q\nwant %q", seed, tt.shown, got, tt.want)
			}
		}
	}
}

func TestPicturesAlike(t *testing.T) {
	look := func(width float64) protocol.Appearance {
		return protocol.Appearance{Pictures: protocol.Pictures{Sixel: true, CellWidth: width, CellHeight: 15}}
	}
	same, other := look(7.5), look(8)
	if PicturesAlike(&same, same) != picture.Formats(picture.Sixel) || PicturesAlike(&other, same) != 0 || PicturesAlike(nil, same) != picture.AllFormats {
		t.Error("the wrong viewers receive the program's pictures")
	}
}

func FuzzPictureCover(f *testing.F) {
	f.Add([]byte("a\x1bPqPIXELS\x1b\\"), 3)
	f.Add([]byte("\x1b\xbaPq0\x1b"), 0)
	f.Add([]byte("\x1b]1\n337;File=inline=1:QUJD\x07b\x1b[m"), 0)
	f.Fuzz(func(t *testing.T, p []byte, cut int) {
		cut = min(max(cut, 0), len(p))
		before := string(p)
		var m PictureCover
		m.Apply(p[:cut], 0)
		m.Apply(p[cut:], 0)
		whole := []byte(before)
		slow := PictureCover{tokens: escseq.Tokenizer{Room: maxIntroducer}}
		slow.apply(whole, 0)
		if !bytes.Equal(p, whole) {
			t.Fatalf("%q became %q, want %q", before, p, whole)
		}
		for i := range p {
			if p[i] != before[i] && p[i] != 0 {
				t.Fatalf("byte %d became %#x", i, p[i])
			}
		}
	})
}

// The cells of a screen come with the pictures that they show, if the request asks for them.
func TestScreenPictures(t *testing.T) {
	s := New(protocol.Size{Cols: 20, Rows: 5}, 100)
	s.Write([]byte("\x1bP0;1q\"1;1;25;30#1!25~-!25~\x1b\\\r\nbelow\r\n\r\n\r\n\r\n\x1b[2;3H\x1bP0;1q\"1;1;10;20#1!10~\x1b\\"))
	spec := protocol.ScreenSpec{Format: protocol.ScreenCells, Scrollback: protocol.AllScrollback, Pictures: true}
	c, _ := s.View(Rows(spec)).Content(spec)
	type place struct{ row, col, rows, cols int }
	var got []place
	for _, p := range c.Pictures {
		got = append(got, place{p.Row, p.Col, p.Rows, p.Cols})
		if _, err := png.Decode(bytes.NewReader(p.PNG)); err != nil {
			t.Error(err)
		}
	}
	if want := []place{{0, 0, 2, 3}, {3, 2, 1, 1}}; !slices.Equal(got, want) || c.Above != 2 {
		t.Errorf("%d above, pictures %v, want %v", c.Above, got, want)
	}
	spec.Pictures = false
	if c, _ := s.View(Rows(spec)).Content(spec); c.Pictures != nil {
		t.Error("there are pictures although nothing asked for them")
	}
}
