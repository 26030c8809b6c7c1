package screen

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// scrolled returns the texts of a terminal's history.
func scrolled(t *vt.Term) (lines []string) {
	s := t.State()
	for _, l := range s.Normal.Lines[:s.Normal.History] {
		var b strings.Builder
		for _, c := range l.Cells {
			b.WriteString(c.Text)
		}
		lines = append(lines, b.String())
	}
	return lines
}

// shown returns the content of a terminal's screen, without history and state that does not show.
func shown(t *vt.Term) protocol.ScreenContent {
	cols, rows := t.Size()
	v := &View{term: t, size: protocol.Size{Cols: cols, Rows: rows}}
	c, _ := v.Content(protocol.ScreenSpec{Format: protocol.ScreenCells})
	return c
}

// A viewer of another size that receives updates shows the same as one that attaches anew, and its history does not
// change.
func TestOwn(t *testing.T) {
	own := func(cols, rows int) protocol.Size { return protocol.Size{Cols: cols, Rows: rows} }
	for _, tt := range []struct {
		name  string
		size  protocol.Size
		steps []string
	}{
		{"text", own(10, 3), []string{"one", "\r\ntwo", " and more than fits in a row", "\r\n\r\n\r\nthree"}},
		{"taller", own(20, 8), []string{numbers(20), "x", numbers(3)}},
		{"wider", own(60, 4), []string{strings.Repeat("long line ", 9) + "\r\n", numbers(3), strings.Repeat("0123456789", 8), "\r\n"}},
		{"smaller", own(7, 2), []string{numbers(20), "世界世界世界世界", "\x1b[H", "\x1b[2J", "\x1b[3;18Hx"}},
		{"the alternate screen", own(12, 6), []string{"shell\r\n", "\x1b[?1049h\x1b[Hfull\x1b[4;1H\x1b[7mstatus\x1b[m", "\x1b[2;2Htext", "\x1b[?1049l", "$ "}},
		{"cut sequences", own(30, 5), []string{"a\x1b[3", "1mred\x1b]2;ti", "tle\x07caf\xc3", "\xa9"}},
		{"reset", own(30, 5), []string{"\x1b[31mred\x1b[?25l\x1b[2;3r\x1b(0q", "\x1bcx"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := printed(small, "start\r\n")
			data, _ := s.Snapshot(100, tt.size, nil)
			o := ownOf(tt.size, data)
			viewer := newTerm(tt.size, 100, nil)
			viewer.Write(data)
			above := scrolled(viewer)
			for _, step := range tt.steps {
				s.Write([]byte(step))
				v := s.ViewAs(tt.size)
				viewer.Write(o.Update(v))
				if again := o.Update(s.ViewAs(tt.size)); again != nil {
					t.Errorf("after %q: the second update is %q", step, again)
				}
				fresh := newTerm(tt.size, 100, nil)
				data, offset := s.Snapshot(0, tt.size, nil)
				fresh.Write(data)
				if got, want := shown(viewer), shown(fresh); !reflect.DeepEqual(got, want) || v.Offset() != offset {
					t.Errorf("after %q: got\n%+v\nwant\n%+v", step, got, want)
				}
			}
			if got := scrolled(viewer); !reflect.DeepEqual(got, above) {
				t.Errorf("the viewer's history was %q and is %q", above, got)
			}
		})
	}
}

// Several goroutines may use views at the same time, while the screen continues.
func TestOwnAtOnce(t *testing.T) {
	s := printed(small, numbers(100))
	s.Pack()
	var wg sync.WaitGroup
	for i := range 8 {
		v, w := s.View(1000), s.View(1000)
		wg.Go(func() {
			size := protocol.Size{Cols: 10 + 5*i, Rows: 3 + i}
			viewer := newTerm(size, 0, nil)
			viewer.Write(NewOwn(size, nil).Update(v))
			c, _ := w.Content(protocol.ScreenSpec{Format: protocol.ScreenCells, Cols: size.Cols, Rows: size.Rows})
			if got := shown(viewer); !reflect.DeepEqual(got.Cells, c.Cells) || got.Cursor != c.Cursor {
				t.Errorf("%s: got %+v, want %+v", size, got, c)
			}
		})
	}
	s.Write([]byte("\x1bc" + numbers(1000)))
	wg.Wait()
}

// The update after a keystroke has few bytes, whatever the rest of the screen shows.
func TestOwnIsCheap(t *testing.T) {
	size := protocol.Size{Cols: 80, Rows: 24}
	s := New(protocol.Size{Cols: 200, Rows: 50}, 1000)
	s.Write([]byte(numbers(200) + "\x1b[32muser@host\x1b[m:\x1b[34m~\x1b[m$ "))
	data, _ := s.Snapshot(100, size, nil)
	o := ownOf(size, data)
	for _, tt := range []struct {
		in  string
		max int
	}{
		{"l", 10}, {"s", 10}, {" -la", 20}, {"\b\x1b[K", 20}, {"\b", 10}, {"\x1b[C", 10}, {"", 0}, {"\x1b[31m", 20}, {"\x1b]2;title\x07", 20}, {"\x1b[?25l", 10},
	} {
		s.Write([]byte(tt.in))
		if got := o.Update(s.ViewAs(size)); len(got) > tt.max {
			t.Errorf("%q takes %d bytes, want at most %d: %q", tt.in, len(got), tt.max, got)
		}
	}
}

// vim returns a screen full of coloured words, with a line of numbers and a status line, of a text that begins at the
// line first.
func vim(size protocol.Size, first int) string {
	var b strings.Builder
	b.WriteString("\x1b[?1049h\x1b[?25l")
	r := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 500)
	for i := range words {
		words[i] = strings.Repeat(string(rune('a'+r.IntN(26))), 1+r.IntN(9))
	}
	for y := range size.Rows - 1 {
		fmt.Fprintf(&b, "\x1b[%dH\x1b[33m%4d \x1b[m", y+1, first+y)
		for x, i := 5, 37*(first+y); ; i++ {
			w := words[i%len(words)]
			if x += len(w) + 1; x > size.Cols*3/4 {
				break
			}
			fmt.Fprintf(&b, "\x1b[38;5;%dm%s\x1b[m ", 20+i%7*30, w)
		}
		b.WriteString("\x1b[K")
	}
	fmt.Fprintf(&b, "\x1b[%dH\x1b[7mfile.go [+] %d\x1b[K\x1b[m\x1b[12;20H\x1b[?25h", size.Rows, first)
	return b.String()
}

// BenchmarkOwn measures an update for a viewer of 80x24 of a session of 200x50. The session's goroutine has to make
// the view.
func BenchmarkOwn(b *testing.B) {
	size, own := protocol.Size{Cols: 200, Rows: 50}, protocol.Size{Cols: 80, Rows: 24}
	for _, tt := range []struct {
		name   string
		before string
		steps  [2]string // printed in turn
	}{
		{"nothing", vim(size, 1), [2]string{"", ""}},
		{"cursor", vim(size, 1), [2]string{"\x1b[13;21H", "\x1b[14;22H"}},
		{"row", vim(size, 1), [2]string{"\x1b[12H one\x1b[K", "\x1b[12H another row, which is longer\x1b[K"}},
		{"all", vim(size, 1), [2]string{vim(size, 40), vim(size, 80)}},
		{"shell", numbers(1000), [2]string{"a line of output\r\n", "and another one\r\n"}},
	} {
		s := New(size, 10_000)
		s.Write([]byte(tt.before))
		data, _ := s.Snapshot(0, own, nil)
		o := ownOf(own, data)
		var views [2]*View
		for i := range views {
			s.Write([]byte(tt.steps[i]))
			views[i] = s.ViewAs(own)
		}
		b.Run(tt.name, func(b *testing.B) {
			bytes, n := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				bytes += len(o.Update(views[n&1]))
				n++
			}
			b.ReportMetric(float64(bytes)/float64(n), "bytes/op")
		})
		b.Run(tt.name+"/view", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.ViewAs(own)
			}
		})
	}
}

// ownOf returns an Own of a viewer that has received a snapshot.
func ownOf(size protocol.Size, snapshot []byte) *Own {
	o := NewOwn(size, nil)
	o.Shown(snapshot)
	return o
}
