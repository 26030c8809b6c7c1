package vt_test

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/picture"
	"holdfast/supervisor/internal/vt"
)

// inlineImage returns the sequence that prints a picture of the given size, with random pixels.
func inlineImage(t testing.TB, r *rand.Rand, w, h int) string {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range img.Pix {
		img.Pix[i] = uint8(r.Uint32()) | uint8(i%4/3*255)
	}
	var b bytes.Buffer
	testkit.Must(t, png.Encode(&b, img))
	return fmt.Sprintf("\x1b]1337;File=inline=1;size=%d:%s\x07", b.Len(), base64.StdEncoding.EncodeToString(b.Bytes()))
}

var cellSize = picture.Cell{Width: 10, Height: 20}

func withPictures(cols, rows int) *vt.Term {
	return vt.New(vt.Config{Cols: cols, Rows: rows, HistoryLines: 200, PictureBytes: 8 << 20})
}

var allFormats = vt.Shows{Formats: picture.AllFormats, Cell: cellSize}

// A picture moves the cursor as in xterm.js, and scrolls the screen.
func TestPictureCursor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, tt := range []struct {
		output string
		x, y   int
	}{
		{"ab" + inlineImage(t, r, 30, 40), 2, 1},
		{"ab" + inlineImage(t, r, 30, 41), 2, 2},
		{"ab\x1bPq\"1;1;30;41~\x1b\\", 2, 2},
		{"ab\x1bPq" + strings.Repeat("-", 20) + "\x1b\\c", 3, 5},
		{"ab" + inlineImage(t, r, 30, 400), 2, 8},
		{"\x1b[5;20H" + inlineImage(t, r, 300, 20), 19, 4},
		{"ab\x1bPq\"1;1;30;41~\x18c", 3, 0}, // cancelled
		{"ab\x1b]1337;File=inline=1;size=3:AAAA\x07c", 3, 0},
	} {
		term := withPictures(20, 10)
		term.Write([]byte(tt.output))
		if x, y := term.Cursor(); x != tt.x || y != tt.y {
			t.Errorf("%.40q: cursor %d,%d, want %d,%d", tt.output, x, y, tt.x, tt.y)
		}
	}
	term := vt.New(vt.Config{Cols: 20, Rows: 10})
	term.Write([]byte("ab" + inlineImage(t, r, 30, 400)))
	if x, y := term.Cursor(); x != 2 || y != 0 {
		t.Errorf("without pictures: cursor %d,%d", x, y)
	}
}

// What a snapshot paints is what the terminal shows: each cell has the same part of the same picture,
// whether the picture is whole, cut, covered by text, moved or in the history.
func TestPictureSnapshot(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range 40 {
		cols, rows := 5+r.IntN(30), 3+r.IntN(12)
		term := withPictures(cols, rows)
		var printed strings.Builder
		for range 1 + r.IntN(12) {
			s := randomPicture(t, r, cols, rows)
			printed.WriteString(s)
			term.Write([]byte(s))
		}
		viewer := withPictures(cols, rows)
		shows := allFormats
		switch i % 4 {
		case 2:
			shows.Formats = picture.Formats(picture.ITerm2)
		case 3:
			shows.Formats = picture.Formats(picture.Kitty)
		}
		viewer.Write(term.AppendSnapshot(nil, 1000, shows))
		viewer.Write([]byte(beforeCursor(term))) // a snapshot prints the last character once more, without its part of a picture
		term.Write([]byte(beforeCursor(term)))
		if got, want := vt.Tiles(viewer), vt.Tiles(term); got != want {
			t.Fatalf("seed %d, stream %d, %dx%d:\n got %s\nwant %s\n%s\n%s", seed, i, cols, rows, got, want, short(printed.String()), short(string(term.AppendSnapshot(nil, 1000, allFormats))))
		}
		plain := withPictures(cols, rows)
		plain.Write(term.AppendSnapshot(nil, 1000, vt.Shows{}))
		if got := vt.Tiles(plain); got != "" {
			t.Fatalf("seed %d, stream %d: a terminal without pictures gets %s", seed, i, got)
		}
		if g, w := shownLines(viewer), shownLines(term); i%5 == 0 && i%4 != 2 && g != w { // without kitty's graphics, the placeholders are blank
			t.Fatalf("seed %d, stream %d: the text differs:\n got %.500s\nwant %.500s\n%s", seed, i, g, w, short(printed.String()))
		}
	}
}

// short leaves out the files of pictures.
func short(s string) string {
	return regexp.MustCompile(`[:;][A-Za-z0-9+/=]{20,}`).ReplaceAllString(fmt.Sprintf("%q", s), ":...")
}

func shownLines(t *vt.Term) string {
	s := t.State()
	s.Normal.Lines[0].Wrapped = false // no bytes bring it back
	for i := range s.Normal.Lines {   // empty cells may have had a part of a picture
		l := &s.Normal.Lines[i]
		for n := len(l.Cells); n > 0 && l.Cells[n-1].Text == "" && s.Attrs[l.Cells[n-1].Attr] == (vt.Attr{}); n-- {
			l.Cells = l.Cells[:n-1]
		}
	}
	return fmt.Sprint(s.Normal.Lines)
}

// beforeCursor replaces the character before the cursor.
func beforeCursor(t *vt.Term) string {
	x, y := t.Cursor()
	return fmt.Sprintf("\x1b[%d;%dH\x1b[0m\x1b[X", y+1, max(x, 1))
}

// restarted returns a terminal with the saved screen of another one.
func restarted(t *testing.T, term *vt.Term) *vt.Term {
	t.Helper()
	var saved bytes.Buffer
	rest, err := term.Save(&saved, 1000)
	testkit.Must(t, err)
	again := withPictures(term.Size())
	again.PrepareRestore(rest)
	again.Refill(saved.Bytes())
	again.FinishRestore(rest)
	return again
}

// A saved screen has the pictures, also those whose cells have another size than the terminal has now, and
// a picture within which the output ends.
func TestPictureSaved(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	term := withPictures(40, 10)
	term.SetAppearance(vt.Appearance{CellWidth: 10, CellHeight: 20})
	for range 12 {
		term.Write([]byte("above\r\n  " + inlineImage(t, r, 1+r.IntN(200), 1+r.IntN(90)) + "beside\r\n\x1bP0;1q#1;2;50;0;9!90~-~\x1b\\\r\n"))
	}
	cut := inlineImage(t, r, 600, 100)
	half := len(cut) / 2
	if half < 70_000 {
		t.Fatalf("half of the picture has %d bytes, which is no more than another string may have", half)
	}
	term.Write([]byte(cut[:half]))
	again := restarted(t, term)
	again.Write([]byte(cut[half:]))
	term.Write([]byte(cut[half:]))
	if got, want := vt.Tiles(again), vt.Tiles(term); got != want || len(want) < 1000 {
		t.Errorf(" got %s\nwant %s", got, want)
	}
}

// A picture that is longer than another string may be is shown wherever its bytes are cut, also within its first ones.
func TestPictureCut(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	long := inlineImage(t, r, 160, 130)
	if len(long) < 70_000 {
		t.Fatalf("the picture has %d bytes, which is no more than another string may have", len(long))
	}
	for cut := range 60 {
		term := withPictures(40, 12)
		term.Write([]byte(long[:cut]))
		term.Write([]byte(long[cut:]))
		if vt.Tiles(term) == "" {
			t.Errorf("the picture is lost if it is cut behind %q", long[:cut])
		}
	}
}

// Pictures that exceed a limit are dropped, the oldest first. Their cells stay.
func TestPictureLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	first, second := inlineImage(t, r, 40, 40), inlineImage(t, r, 40, 40)
	term := vt.New(vt.Config{Cols: 20, Rows: 10, PictureBytes: len(second) + 100})
	term.Write([]byte(first))
	if got := strings.Count(vt.Tiles(term), ":"); got != 8 {
		t.Fatalf("%d cells show the picture", got)
	}
	term.Write([]byte("\x1b[6;1H" + second))
	got := vt.Tiles(term)
	if strings.Count(got, ":") != 8 || !strings.HasPrefix(got, "0,5:") {
		t.Errorf("after the second picture: %s", got)
	}
	if _, y := term.Cursor(); y != 6 {
		t.Errorf("the cursor is in row %d", y)
	}
	term.Write([]byte("\x1b[!p"))
	if got := vt.Tiles(term); got != "" {
		t.Errorf("after DECSTR: %s", got)
	}
	before := vt.AllPictures()
	many := withPictures(200, 50)
	for range 3 {
		many.Write([]byte("\x1b[H" + inlineImage(t, r, 500, 300)))
	}
	if held := vt.AllPictures() - before; held < 3*500*300 || held > 8<<20 {
		t.Errorf("three pictures count as %d bytes", held)
	}
	many.Pack()
	if got := strings.Count(vt.Tiles(many), ":"); got != 50*15 {
		t.Errorf("after Pack, %d cells show a picture", got)
	}
	// A picture of very many cells is not placed.
	tiny := vt.New(vt.Config{Cols: 2000, Rows: 10, PictureBytes: 1 << 20})
	tiny.SetAppearance(vt.Appearance{CellWidth: 2, CellHeight: 2})
	tiny.Write([]byte("\x1bPq\"1;1;4000;4000~\x1b\\"))
	if _, y := tiny.Cursor(); y != 0 {
		t.Errorf("a picture of 2000 rows moved the cursor to row %d", y)
	}
}

// The session answers for a viewer whose terminal shows pictures, and only for such a viewer.
func TestPictureQuestions(t *testing.T) {
	for question, want := range map[string]string{
		"\x1b[c": "\x1b[?62;4;9;22c", "\x1b[?1;1S": "\x1b[?1;0;256S", "\x1b[?2;1S": "\x1b[?2;0;160;120S", "\x1b[?2;4S": "\x1b[?2;0;4096;4096S",
		"\x1b[?2;3;5S": "\x1b[?2;2S", "\x1b[?3;1S": "\x1b[?3;1S", "\x1b]1337;ReportCellSize\x07": "\x1b]1337;ReportCellSize=12;8\x1b\\",
	} {
		term := withPictures(20, 10)
		term.Write([]byte(question))
		if got := string(term.Replies()); got != map[bool]string{true: "\x1b[?1;2c"}[question == "\x1b[c"] {
			t.Errorf("%q without pictures: %q", question, got)
		}
		term.SetAppearance(vt.Appearance{CellWidth: 8, CellHeight: 12, Pictures: allFormats.Formats})
		term.Write([]byte(question))
		if got := string(term.Replies()); got != want {
			t.Errorf("%q: %q, want %q", question, got, want)
		}
	}
}

// kitty returns commands with these keys and the data of random pixels.
func kitty(r *rand.Rand, keys string, w, h int) string {
	data := make([]byte, 4*w*h)
	for i := range data {
		data[i] = uint8(r.Uint32()) | uint8(i%4/3*255)
	}
	if strings.Contains(keys, "o=z") {
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		_, _ = z.Write(data)
		_ = z.Close()
		data = b.Bytes()
	}
	encoded := base64.StdEncoding.EncodeToString(data)
	var all strings.Builder
	for keys != "" || encoded != "" {
		n := min(4096, len(encoded))
		more := 0
		if n < len(encoded) {
			more = 1
		}
		fmt.Fprintf(&all, "\x1b_G%s,m=%d;%s\x1b\\", keys, more, encoded[:n])
		keys, encoded = "", encoded[n:]
	}
	return strings.ReplaceAll(all.String(), "G,", "G")
}

// randomPicture returns output with pictures, or that moves, covers or erases some.
func randomPicture(t testing.TB, r *rand.Rand, cols, rows int) string {
	switch r.IntN(14) {
	case 0, 1, 2:
		return inlineImage(t, r, 1+r.IntN(200), 1+r.IntN(150))
	case 9:
		w, h := 1+r.IntN(90), 1+r.IntN(60)
		keys := fmt.Sprintf("a=%c,i=%d,f=%d,s=%d,v=%d", "tT"[r.IntN(2)], 1+r.IntN(3), 24+8*r.IntN(2), w, h)
		return kitty(r, keys+[]string{"", ",c=4", ",r=2,C=1", ",x=3,y=2,w=40,h=30", ",o=z", ",X=4,Y=13,z=-1", ",x=3,y=2,X=4,z=2"}[r.IntN(7)], w, h)
	case 10:
		return fmt.Sprintf("\x1b_Ga=p,i=%d,p=%d,c=%d;\x1b\\", 1+r.IntN(3), r.IntN(3), r.IntN(5))
	case 11:
		return "\x1b_Ga=d,d=" + []string{"a", "i,i=1", "I,i=2", "c", "x,x=2", "y,y=2", "p,x=1,y=1", "A", "z,z=-1", "q,x=1,y=1,z=2"}[r.IntN(10)] + "\x1b\\"
	case 12:
		return virtual(r, 1+r.IntN(3), r.IntN(2), 1+r.IntN(6), 1+r.IntN(4))
	case 13:
		return placeholders(nil, 1+r.IntN(3), r.IntN(2), 1+r.IntN(6), 1+r.IntN(4)) // the test erases cells, and no other may depend on them
	case 3:
		return fmt.Sprintf("\x1bP0;%dq#%d;2;%d;%d;%d!%d~-!9N\x1b\\", r.IntN(3), r.IntN(9), r.IntN(100), r.IntN(100), r.IntN(100), 1+r.IntN(150))
	case 4:
		return fmt.Sprintf("\x1b[%d;%dH", 1+r.IntN(rows), 1+r.IntN(cols))
	case 5:
		return strings.Repeat("\r\n", r.IntN(rows))
	case 6:
		return fmt.Sprintf("\x1b[4%dm%s", r.IntN(8), strings.Repeat("text ", r.IntN(20)))
	case 7:
		return fmt.Sprintf("\x1b[%d%c", 1+r.IntN(4), "@PLMXJKST"[r.IntN(9)])
	}
	return []string{"\x1b[?1049h", "\x1b[?1049l", "", "", "", ""}[r.IntN(6)]
}

// A viewer whose view is updated by transitions sees the pictures on the screen.
func TestPictureTransition(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 5))
	for i := range 40 {
		cols, rows := 5+r.IntN(30), 3+r.IntN(12)
		term, viewer := withPictures(cols, rows), withPictures(cols, rows)
		var output strings.Builder
		printed := map[[2]int]bool{} // the cells before the cursor, which the transitions have printed once more
		from := term.Copy(0)
		for range 1 + r.IntN(12) {
			for range 1 + r.IntN(3) {
				s := randomPicture(t, r, cols, rows)
				output.WriteString(s)
				term.Write([]byte(s))
			}
			to := term.Copy(0)
			update := to.AppendTransition(nil, from, allFormats)
			viewer.Write(update)
			from = to
			x, y := term.Cursor()
			printed[[2]int{x - 1, y}] = true
			if got, want := screenTiles(viewer, printed), screenTiles(term, printed); got != want {
				t.Fatalf("seed %d, stream %d, %dx%d:\n got %s\nwant %s\n%s\n%s", seed, i, cols, rows, got, want, short(output.String()), short(string(update)))
			}
		}
	}
}

// screenTiles returns the parts of pictures on the screen, except for those in the given cells.
func screenTiles(t *vt.Term, except map[[2]int]bool) string {
	var all []string
	for _, tile := range strings.Fields(vt.Tiles(t)) {
		var at [2]int
		if _, err := fmt.Sscanf(tile, "%d,%d:", &at[0], &at[1]); err == nil && at[1] >= 0 && !except[at] {
			all = append(all, tile)
		}
	}
	return strings.Join(all, " ")
}

// Kitty's graphics are answered as its documentation says, if the last viewer's terminal shows them.
func TestKittyAnswers(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	pixels := base64.StdEncoding.EncodeToString(make([]byte, 12))
	term := withPictures(40, 10)
	for _, tt := range []struct{ command, want string }{
		{"a=q,i=31,s=1,v=1,t=d,f=24;AAAA", "i=31;OK"},
		{"a=q,i=31,s=1,v=1,t=s,f=24;AAAA", "i=31;EINVAL:unsupported format or medium"},
		{"a=q,i=31,s=2,v=1,f=24;AAAA", "i=31;ENODATA:not enough pixel data, or damaged"},
		{"a=q,i=31,f=25;AAAA", "i=31;EINVAL:unsupported format or medium"},
		{"a=q,i=31,s=99999,v=99999,o=z;AAAA", "i=31;EFBIG:too many pixels or bytes"},
		{"a=q,i=31,f=100;AAAA", "i=31;ENODATA:not enough pixel data, or damaged"},
		{"a=p,i=9", "i=9;ENOENT:there is no such image"},
		{"i=9,s=2,v=2,f=24;" + pixels, "i=9;OK"},
		{"a=p,i=9,p=3", "i=9,p=3;OK"},
		{"a=p,i=9,x=2", "i=9;EINVAL:nothing to show, or too much"},
		{"a=T,I=5,s=2,v=2,f=24;" + pixels, "i=2147483648,I=5;OK"},
		{"a=p,I=5,q=1", ""},
		{"a=p,I=6,q=2", ""},
		{"a=T,s=2,v=2,f=24;" + pixels, ""},
		{"a=d,d=I,i=9", ""},
		{"a=p,i=9", "i=9;ENOENT:there is no such image"},
		{"a=f,i=9;AAAA", ""},
	} {
		if tt.want != "" {
			tt.want = "\x1b_G" + tt.want + "\x1b\\"
		}
		term.SetAppearance(vt.Appearance{Pictures: picture.Formats(picture.Kitty)})
		term.Write([]byte("\x1b_G" + tt.command + "\x1b\\"))
		if got := string(term.Replies()); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.command, got, tt.want)
		}
	}
	term.SetAppearance(vt.Appearance{})
	term.Write([]byte("\x1b_Ga=q,i=31,s=1,v=1,f=24;AAAA\x1b\\"))
	if got := string(term.Replies()); got != "" {
		t.Errorf("for a terminal without graphics: %q", got)
	}
	term = withPictures(40, 10)
	term.Write([]byte("ab" + kitty(r, "a=T,f=32,s=35,v=30", 35, 30)))
	if x, y := term.Cursor(); x != 6 || y != 1 {
		t.Errorf("the cursor is at %d,%d", x, y)
	}
	term.Write([]byte("\x1b[10;1H" + kitty(r, "a=T,f=32,s=35,v=30,C=1,i=4", 35, 30)))
	if x, y := term.Cursor(); x != 0 || y != 8 {
		t.Errorf("the cursor is at %d,%d", x, y)
	}
	if got := strings.Count(vt.Tiles(term), ":"); got != 16 {
		t.Errorf("%d cells show pictures", got)
	}
	term.Write([]byte("\x1b_Ga=d,d=i,i=4\x1b\\\x1b_Ga=p,i=4,c=2,r=2,C=1\x1b\\"))
	if got := strings.Count(vt.Tiles(term), ":"); got != 12 {
		t.Errorf("after another placement, %d cells show pictures", got)
	}
	term = withPictures(40, 10)
	term.Write([]byte(kitty(r, "a=T,f=32,s=30,v=20,X=5,Y=1,z=3,i=4,C=1", 30, 20)))
	if got := strings.Count(vt.Tiles(term), ":"); got != 4*2 {
		t.Errorf("a picture that begins within a cell covers %d cells, want 8", got)
	}
	for i, d := range []string{"z,z=2", "q,x=1,y=1,z=2", "q,x=5,y=1,z=3", "q,x=4,y=2,z=3"} {
		term.Write([]byte("\x1b_Ga=d,d=" + d + "\x1b\\"))
		if got := vt.Tiles(term) == ""; got != (i == 3) {
			t.Errorf("d=%s deletes: %v", d, got)
		}
	}
}

// d=a deletes the placements that are visible, and not those above the screen or on the other screen.
func TestKittyDeletesVisible(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 14))
	image := kitty(r, "a=T,f=32,s=10,v=20,q=2", 10, 20)
	term := withPictures(40, 3)
	term.Write([]byte(image + "\r\n\r\n\r\n" + image + "\x1b[?1049h\x1b[H" + image))
	for _, step := range []struct {
		output string
		cells  int // that show pictures, above the screen and on it
	}{{"", 2}, {"\x1b_Ga=d\x1b\\", 1}, {"\x1b[?1049l", 2}, {"\x1b_Ga=d\x1b\\", 1}} {
		term.Write([]byte(step.output))
		if got := strings.Count(vt.Tiles(term), ":"); got != step.cells {
			t.Errorf("after %q, %d cells show pictures, want %d", step.output, got, step.cells)
		}
	}
}

// No command makes the core panic, or hold more than its limit.
func FuzzKitty(f *testing.F) {
	f.Add("a=T,f=32,s=1,v=1;AAAAAA==", "a=d")
	f.Add("i=1,m=1,f=100;AAAA", "m=0;AAAA")
	f.Add("a=p,i=1,c=99999,r=99999", "a=q,i=1,s=-1,v=-1")
	f.Add("a=T,U=1,i=1,f=32,s=1,v=1,c=10000,r=10000;AAAAAA==", "a=p,U=1,i=1,r=2")
	f.Fuzz(func(t *testing.T, one, other string) {
		term := withPictures(20, 5)
		term.SetAppearance(vt.Appearance{Pictures: picture.AllFormats})
		term.Write([]byte("\x1b_G" + one + "\x1b\\\x1b_G" + other + "\x1b\\\x1b[38;5;1m\U0010EEEE\U0010EEEE\u0305\u0305"))
		term.AppendSnapshot(nil, 100, allFormats)
		term.AppendSnapshot(nil, 100, vt.Shows{Formats: picture.Formats(picture.Sixel)})
	})
}
