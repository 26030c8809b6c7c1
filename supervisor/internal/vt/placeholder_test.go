package vt_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/supervisor/internal/picture"
	"holdfast/supervisor/internal/vt"
)

// numerals are the combining characters that mean the numbers from 0 on.
var numerals = func() (all []rune) {
	for ch := rune(0x300); ch <= 0x1ffff; ch++ {
		if picture.NumberOf(ch) >= 0 {
			all = append(all, ch)
		}
	}
	return all
}()

// virtual returns commands that send an image of random pixels and place it virtually.
func virtual(r *rand.Rand, id, number, cols, rows int) string {
	w, h := 1+r.IntN(60), 1+r.IntN(60)
	return kitty(r, fmt.Sprintf("a=T,U=1,i=%d,p=%d,f=32,s=%d,v=%d,c=%d,r=%d,q=2", id, number, w, h, cols, rows), w, h)
}

// placeholders returns text that shows a virtual placement. Unless r is nil, it leaves out some of the numbers that it may leave out.
func placeholders(r *rand.Rand, id, number, cols, rows int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\x1b[38;5;%dm", id)
	if number > 0 {
		fmt.Fprintf(&b, "\x1b[58:5:%dm", number)
	}
	for row := range rows {
		for col := range cols {
			b.WriteRune(picture.Placeholder)
			if col == 0 || r == nil || r.IntN(2) == 0 {
				b.WriteRune(numerals[row])
				if r == nil || r.IntN(2) == 0 {
					b.WriteRune(numerals[col])
				}
			}
		}
		b.WriteString("\r\n")
	}
	return b.String() + "\x1b[39;59m"
}

// Text shows virtual placements: the same cells, with the same pixels, for a viewer that has the image and the text, for one
// with other pictures, and after a restart. The text of the session does not have the placeholders.
func TestPlaceholders(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 8))
	for range 20 {
		term := withPictures(30, 6)
		term.Write([]byte("above\r\n" + virtual(r, 7, 0, 5, 4) + placeholders(r, 7, 0, 5, 4) + "below\r\n" + placeholders(r, 7, 0, 3, 2) + "end\r\n"))
		want := vt.Tiles(term)
		if n := strings.Count(want, ":"); n != 5*4+3*2 {
			t.Fatalf("seed %d: %d cells show the picture, want 26: %s", seed, n, want)
		}
		for _, format := range []picture.Format{picture.ITerm2, picture.Kitty, picture.Sixel} {
			viewer := withPictures(30, 6)
			snapshot := term.AppendSnapshot(nil, 100, vt.Shows{Formats: picture.Formats(format), Cell: term.Cell()})
			viewer.Write(snapshot)
			if got := vt.Tiles(viewer); got != want && format != picture.Sixel { // sixels have fewer colours
				t.Fatalf("seed %d, format %d:\n got %s\nwant %s", seed, format, got, want)
			} else if g, w := strings.Count(got, ":"), strings.Count(want, ":"); g != w {
				t.Fatalf("seed %d, format %d: %d cells show a picture, want %d", seed, format, g, w)
			}
			if has := bytes.ContainsRune(snapshot, picture.Placeholder); has != (format == picture.Kitty) {
				t.Fatalf("seed %d, format %d: placeholders in the snapshot: %v", seed, format, has)
			}
		}
		again := restarted(t, term)
		again.Write([]byte(placeholders(r, 7, 0, 1, 1)))
		term.Write([]byte(placeholders(r, 7, 0, 1, 1)))
		if got, want := vt.Tiles(again), vt.Tiles(term); got != want {
			t.Fatalf("seed %d: after a restart:\n got %s\nwant %s", seed, got, want)
		}
		rows := term.Rows()
		for i := range rows.Len() {
			for _, c := range rows.Cells(i) {
				if strings.ContainsRune(c.Text, picture.Placeholder) {
					t.Fatalf("seed %d: row %d has the text %q", seed, i, c.Text)
				}
			}
		}
		pictures, cut := rows.Pictures(0, rows.Len(), 1<<20)
		if len(pictures) != 3 || cut || pictures[0].Rows != 4 || pictures[0].Cols != 5 {
			t.Fatalf("seed %d: %d pictures", seed, len(pictures))
		}
	}
}

// A placement takes effect for text before it, ends with its image, and is not deleted with what the screen shows.
func TestPlaceholderLife(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	var told int
	term := vt.New(vt.Config{Cols: 30, Rows: 6, PictureBytes: 1 << 20, Events: func(e vt.Event) {
		if e.Kind == vt.PicturePrinted {
			told++
		}
	}})
	text := placeholders(r, 7, 0, 4, 2)
	for _, step := range []struct {
		name, output string
		cells        int
		told         bool
	}{
		{"no placement", text, 0, false},
		{"a smaller placement", virtual(r, 7, 0, 3, 2), 6, true},
		{"it is not visible by itself", "\x1b_Ga=d,d=a\x1b\\\x1b_Ga=d,d=c\x1b\\\x1b_Ga=d,d=x,x=1\x1b\\\x1b_Ga=d,d=A\x1b\\", 6, false},
		{"another size", "\x1b_Ga=p,U=1,i=7,c=2,r=2,q=2\x1b\\", 4, true},
		{"another number", virtual(r, 8, 5, 4, 2), 4, true},
		{"any number", strings.ReplaceAll(text, "8;5;7m", "8;5;8m"), 4 + 8, true},
		{"that number", "\x1b_Ga=d,d=i,i=8,p=5\x1b\\", 4, true},
		{"the image", "\x1b_Ga=d,d=I,i=7\x1b\\", 0, true},
		{"a reset", virtual(r, 7, 0, 3, 2) + "\x1bc" + text, 0, true},
	} {
		told = 0
		term.Write([]byte(step.output))
		if got := strings.Count(vt.Tiles(term), ":"); got != step.cells {
			t.Errorf("%s: %d cells show the picture, want %d", step.name, got, step.cells)
		}
		if (told > 0) != step.told {
			t.Errorf("%s: told of pictures %d times", step.name, told)
		}
	}
}

// The numbers of a placeholder may be cut anywhere, and all of the 297 combine with it.
func TestPlaceholderNumbers(t *testing.T) {
	for n, ch := range numerals {
		if got := picture.NumberOf(ch); got != n {
			t.Errorf("%U means %d, want %d", ch, got, n)
		}
		for _, graphemes := range []bool{false, true} {
			term := vt.New(vt.Config{Cols: 10, Rows: 2, Graphemes: graphemes})
			for _, b := range []byte(string([]rune{picture.Placeholder, ch, ch})) {
				term.Write([]byte{b})
			}
			if x, _ := term.Cursor(); x != 1 {
				t.Errorf("%U does not combine (mode 2027: %v): the cursor is in column %d", ch, graphemes, x)
			}
		}
	}
	if n := len(numerals); n != 297 || numerals[0] != 0x305 || numerals[1] != 0x30d || numerals[n-1] != 0x1d244 {
		t.Errorf("%d numerals", n)
	}
	for _, ch := range []rune{'x', 0x306, 0x10ffff} {
		if got := picture.NumberOf(ch); got != -1 {
			t.Errorf("%U means %d, want no number", ch, got)
		}
	}
}

// A combining character that means no number ends the numbers of a placeholder, which then shows what it shows without it.
func TestPlaceholderWithOtherCharacters(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	image := virtual(r, 7, 0, 3, 2)
	for _, numbers := range []string{"", "\u0305", "\u0305\u0305", "\u030d\u030d", "\u030d\u030d\u0305"} {
		var tiles [2]string
		for i, other := range []string{"", "\u0301"} {
			term := withPictures(30, 6)
			term.Write([]byte(image + "\x1b[38;5;7m" + string(picture.Placeholder) + numbers + other))
			tiles[i] = vt.Tiles(term)
		}
		if tiles[0] == "" || tiles[0] != tiles[1] {
			t.Errorf("numbers %+q: shows %q, and %q with another character behind them", numbers, tiles[0], tiles[1])
		}
	}
}

// The picture of a virtual placement keeps its proportions in the middle of its cells.
func TestPlaceholderFit(t *testing.T) {
	for _, tt := range []struct{ w, h, cols, rows, left, top int }{
		{20, 20, 2, 1, 0, 0}, {10, 20, 2, 1, 5, 0}, {20, 10, 2, 1, 0, 5}, {40, 40, 2, 1, 0, 0}, {2, 2, 4, 1, 10, 0},
	} {
		c := &picture.Command{Format: 32, Medium: 'd', Width: tt.w, Height: tt.h, Cols: tt.cols, Rows: tt.rows, Virtual: true}
		image, err := picture.NewTransmission(c, bytes.Repeat([]byte{1, 2, 3, 255}, tt.w*tt.h))
		if err != nil {
			t.Fatal(err)
		}
		p := image.Fit(c, picture.DefaultCell)
		part := p.Part(picture.Area{Cols: tt.cols, Rows: tt.rows}, picture.DefaultCell)
		left, top := 0, 0
		for left < p.Width && part.NRGBAAt(left, p.Height/2).A == 0 {
			left++
		}
		for top < p.Height && part.NRGBAAt(p.Width/2, top).A == 0 {
			top++
		}
		if left != tt.left || top != tt.top || part.Rect.Dx() != tt.cols*10 || part.Rect.Dy() != tt.rows*20 {
			t.Errorf("%+v: margins %d and %d, size %v", tt, left, top, part.Rect)
		}
	}
	c := &picture.Command{Format: 32, Medium: 'd', Width: 1, Height: 10_000, Cols: 1000, Rows: 1}
	if image, err := picture.NewTransmission(c, make([]byte, 40_000)); err != nil || image.Fit(c, picture.DefaultCell) != nil {
		t.Errorf("margins of more pixels than a picture may have: %v", err)
	}
}

// After a snapshot and after a restart, the commands of a program have the same effect as if the terminal had been there from
// the beginning: an image that was sent before can be placed, and a placement deleted by its id.
func TestImagesHaveIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	term := withPictures(40, 10)
	term.Write([]byte("\x1b[2;2H" + kitty(r, "a=T,f=32,s=35,v=30,i=4,C=1,q=2,X=3,Y=4,z=-1", 35, 30) + // has a placement without a number
		"\x1b[5;9H" + kitty(r, "a=t,f=32,s=25,v=30,i=5,q=2", 25, 30) + "\x1b_Ga=p,i=5,p=1,c=3,r=2,q=2\x1b\\\x1b[2;20H\x1b_Ga=p,i=5,p=2,C=1,q=2\x1b\\\x1b[7;30H" +
		kitty(r, "a=t,f=32,s=12,v=30,o=z,i=6,q=2", 12, 30) + // has none
		kitty(r, "a=T,f=32,s=12,v=30,q=2,i=7,p=3", 12, 30) + "\x1b_Ga=d,d=i,i=7\x1b\\")) // has none any more
	viewer := withPictures(40, 10)
	viewer.Write(term.Copy(100).AppendSnapshot(nil, 100, vt.Shows{Formats: picture.Formats(picture.Kitty), Cell: term.Cell()}))
	again := restarted(t, term)
	for _, command := range []string{
		"", "a=p,i=6,q=2", "a=p,i=7,p=3,c=2,q=2", "a=d,d=i,i=5,p=2", "a=d,d=z,z=-1", "a=p,i=4,q=2,C=1", "a=d,d=I,i=5", "a=p,i=5,q=2", "a=p,U=1,i=6,q=2", "a=d,d=A", "a=p,i=4,q=2",
	} {
		for _, one := range []*vt.Term{term, viewer, again} {
			one.Write([]byte("\x1b_G" + command + "\x1b\\"))
		}
		if got, want := vt.Tiles(viewer), vt.Tiles(term); got != want {
			t.Errorf("viewer, after %q:\n got %s\nwant %s", command, got, want)
		}
		if got, want := vt.Tiles(again), vt.Tiles(term); got != want {
			t.Errorf("restarted, after %q:\n got %s\nwant %s", command, got, want)
		}
	}
}

// A viewer that begins again, and keeps its lines, must not keep a picture that the program has deleted: no erasing deletes it
// on a terminal that shows kitty's graphics.
func TestSnapshotDeletesPlacements(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	term, viewer := withPictures(40, 10), withPictures(40, 10)
	viewer.Write([]byte(kitty(r, "a=T,f=32,s=35,v=30", 35, 30) + "\x1b[H"))
	viewer.Write(term.AppendSnapshot(nil, 100, vt.Shows{Formats: picture.Formats(picture.Kitty), Cell: term.Cell()}))
	if got := vt.Tiles(viewer); got != "" {
		t.Errorf("the viewer still shows %s", got)
	}
	term.Write([]byte("\x1b[2;1H" + kitty(r, "a=T,f=32,s=35,v=60", 35, 60)))
	for _, tt := range []struct {
		change  string
		deletes bool
	}{{"\x1b[8;1Htext", false}, {"\x1b[3;3Htext", true}, {"\x1b[8;1Hmore", false}, {"\x1b[L", false}, {"\x1b[2;1H\x1b[M", true}, {"\x1b[2J", true}, {"text", false}} {
		from := term.Copy(0)
		term.Write([]byte(tt.change))
		update := string(term.Copy(0).AppendTransition(nil, from, allFormats))
		if got := strings.Contains(update, "\x1b_Ga=d,q=2\x1b\\"); got != tt.deletes {
			t.Errorf("%q deletes the placements: %v, want %v", tt.change, got, tt.deletes)
		}
		iterm2 := vt.Shows{Formats: picture.Formats(picture.ITerm2), Cell: allFormats.Cell}
		if update = string(term.Copy(0).AppendTransition(nil, from, iterm2)); strings.Contains(update, "\x1b_G") {
			t.Errorf("%q: a terminal without kitty's graphics receives %q", tt.change, update)
		}
	}
}
