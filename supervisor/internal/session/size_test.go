//go:build linux || darwin

package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
)

// A resize sets the size. Columns or rows of zero mean their default, and an attach without a size changes none. The
// child and the viewer learn the same size.
// demand: M1
func TestResize(t *testing.T) {
	size := func(cols, rows int) protocol.Size { return protocol.Size{Cols: cols, Rows: rows} }
	s, v := ready(t, "stty -echo; echo READY; while read x; do stty size; done")
	for _, tt := range []struct {
		name   string
		resize func(protocol.Size) error
		size   protocol.Size
		want   protocol.Size
	}{
		{"both", s.Resize, size(100, 40), size(100, 40)},
		{"no columns", s.Resize, size(0, 50), size(80, 50)},
		{"no rows", s.Resize, size(132, 0), size(132, 24)},
		{"neither", s.Resize, size(0, 0), size(80, 24)},
		{"beyond any display", s.Resize, size(1<<20, 1<<20), size(protocol.MaxCols, protocol.MaxRows)},
		{"by a viewer that attaches", attachSized(t, s, nil), size(0, 33), size(80, 33)},
		{"by a viewer that attaches without a size", attachSized(t, s, nil), size(0, 0), size(80, 33)},
		{"by a viewer that resumes", attachSized(t, s, &protocol.Resume{Instance: s.Instance()}), size(10, 10), size(80, 33)},
		{"by a viewer that does not decide", v.a.Resize, size(90, 0), size(80, 33)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testkit.Must(t, tt.resize(tt.size))
			if got := info(t, s).Size; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			v.seen = nil
			if _, err := s.Type("", 0, []byte("\n")); err != nil {
				t.Fatal(err)
			}
			v.until(t, fmt.Sprintf("%d %d\r\n", tt.want.Rows, tt.want.Cols))
			if v.size != tt.want {
				t.Errorf("the viewer received the size %v, want %v", v.size, tt.want)
			}
		})
	}
}

func attachSized(t *testing.T, s *Session, resume *protocol.Resume) func(protocol.Size) error {
	return func(size protocol.Size) error {
		a, info, err := s.Attach(t.Context(), protocol.AttachSpec{Cols: size.Cols, Rows: size.Rows, Resume: resume})
		if err == nil {
			t.Cleanup(a.Close)
			if want := s.ring.SizeAt(info.Session.OutputOffset); info.Session.Size != want {
				t.Errorf("the attach returned the size %v, want %v", info.Session.Size, want)
			}
		}
		return err
	}
}

// If the ring overtakes a viewer while the size changes, the viewer receives the size before the snapshot that was
// made at it, even if the session is forgotten by then.
func TestResync(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tb, by := fakeTable(t, Config{RingBytes: ring.MinBytes})
			s := create(t, tb, bash(""))
			big, small := info(t, s).Size, protocol.Size{Cols: 40, Rows: 10}
			m := &model{printed: []byte(numbers(50_000)), sizes: []sizeAt{{0, big}, {100_000, small}}}
			print := func(from, end int) { by(s).print(m.printed[from:end]); synctest.Wait() }
			v, err := attach(s, protocol.AttachSpec{}, m)
			testkit.Must(t, err)
			defer v.a.Close()
			print(0, 100)
			if _, err := v.drain(); err != nil || v.pos != 100 {
				t.Fatalf("read up to offset %d, %v", v.pos, err)
			}
			print(100, 100_000)
			testkit.Must(t, s.Resize(small))
			print(100_000, len(m.printed))
			start := info(t, s).RingStart
			if forgotten {
				by(s).exit(pty.Status{Code: 3})
				<-s.Exited()
				testkit.Must(t, tb.Forget(s.ID(), ""))
				<-s.gone
			}
			var kinds []ItemKind
			for range 3 {
				item, err := v.next(t)
				testkit.Must(t, err)
				kinds = append(kinds, item.Kind)
			}
			if want := []ItemKind{ItemResync, ItemResized, ItemSnapshot}; !slices.Equal(kinds, want) {
				t.Errorf("got items %v, want %v", kinds, want)
			}
			over, err := v.drain()
			if err != nil || over != forgotten || v.exited != forgotten || v.pos != uint64(len(m.printed)) || v.from < start || v.missed != v.from-100 || v.size != small {
				t.Errorf("over %v, %v at %d of %d, %v, missed %d up to %d, lost %d", over, err, v.pos, len(m.printed), v.size, v.missed, v.from, start)
			}
		})
	}
}

// A viewer receives each size at the offset where it begins: while it reads, when it attaches anew, and when it
// resumes, even if no output followed.
func TestResizedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		size := func(cols int) protocol.Size { return protocol.Size{Cols: cols, Rows: 24} }
		resize := func(cols int) {
			testkit.Must(t, s.Resize(size(cols)))
		}
		v := look(t, s, protocol.AttachSpec{})
		gone := look(t, s, protocol.AttachSpec{})
		gone.a.Close()
		resize(10)
		resize(20)
		by(s).print([]byte("abc"))
		synctest.Wait()
		resize(30)
		by(s).print([]byte("def"))
		synctest.Wait()
		resize(40)
		back := look(t, s, protocol.AttachSpec{Resume: &protocol.Resume{Instance: s.Instance(), Offset: gone.pos}})
		anew := look(t, s, protocol.AttachSpec{Cols: 50, Rows: 24})
		atEnd := look(t, s, protocol.AttachSpec{Resume: &protocol.Resume{Instance: s.Instance(), Offset: 6}})
		for name, tt := range map[string]struct {
			v    *viewer
			seen string
			want []sizeAt
		}{
			"while it reads":     {v, "abcdef", []sizeAt{{0, size(20)}, {3, size(30)}, {6, size(50)}}},
			"back":               {back, "abcdef", []sizeAt{{6, size(40)}, {6, size(50)}}},
			"resumed at the end": {atEnd, "", []sizeAt{{6, size(50)}}},
			"anew":               {anew, "abcdef", nil},
		} {
			if _, err := tt.v.drain(); err != nil || !slices.Equal(tt.v.sizes, tt.want) || !shows(tt.v.seen, tt.seen) || tt.v.size != size(50) {
				t.Errorf("%s: the viewer received the sizes %v, and shows %q, %v; want %v", name, tt.v.sizes, tt.v.seen, err, tt.want)
			}
		}
		if got := by(s).sizes; got[len(got)-1] != size(50) {
			t.Errorf("the sizes of the terminal were %v", got)
		}
	})
}

// shows reports whether output, or a snapshot, shows a text and no other.
func shows(seen []byte, text string) bool {
	s := screen.New(protocol.Size{Cols: 80, Rows: 24}, 0)
	s.Write(seen)
	return strings.Join(s.Text(100), "\n") == text
}

// linesIn returns how many lines a terminal with cols columns shows after a snapshot.
func linesIn(snapshot string, cols int) int {
	s := screen.New(protocol.Size{Cols: cols, Rows: 24}, 10_000)
	s.Write([]byte(snapshot))
	c, _ := s.View(10_000).Content(protocol.ScreenSpec{Lines: 10_000, Scrollback: 10_000})
	return len(c.Lines)
}

// Sizes change while the child prints and viewers read. Each viewer receives every size at the offset that the ring
// has for it.
func TestResizeWhilePrinting(t *testing.T) {
	tb, by := fakeTable(t, Config{RingBytes: 16 << 20})
	s := create(t, tb, bash(""))
	polled := make(chan error)
	viewers := []*viewer{look(t, s, protocol.AttachSpec{}), look(t, s, protocol.AttachSpec{})}
	for _, v := range viewers {
		go func() { polled <- v.poll() }()
	}
	for i := range 1000 { // the ring remembers this many sizes
		testkit.Must(t, s.Resize(protocol.Size{Cols: 1 + i, Rows: 24}))
		by(s).print([]byte("0123456789"))
	}
	by(s).exit(pty.Status{})
	for range viewers {
		testkit.Must(t, <-polled)
	}
	want := map[uint64]protocol.Size{} // if several sizes have one offset, the last one counts
	for m, ok := s.ring.NextMark(0); ok; m, ok = s.ring.NextMark(m.Offset) {
		want[m.Offset] = m.Size
	}
	for _, v := range viewers {
		got := map[uint64]protocol.Size{}
		for _, s := range v.sizes {
			got[s.offset] = s.size
		}
		delete(got, 0)
		if !maps.Equal(got, want) {
			t.Errorf("received %d sizes, want the %d sizes of the ring at their offsets", len(got), len(want))
		}
	}
}
