package replay

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/vt/vttest"
)

const lines = 100

// A tape is a session whose output the test prints: to a ring, to a screen, and to a store.
type tape struct {
	t      testing.TB
	dir    string // of store
	store  *past.Store
	life   past.Life
	writer *past.Writer // nil if nothing is stored
	ring   *ring.Ring
	live   *screen.Screen
	frame  Keyframe // the keyframe in memory

	printed []byte
	sizes   []past.Piece // changes of size
}

func newTape(t testing.TB, mode past.Mode) *tape {
	t.Helper()
	size := protocol.Size{Cols: 80, Rows: 24}
	r, err := ring.New(ring.MinBytes, size)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	dir := t.TempDir()
	p := &tape{t: t, dir: dir, store: past.New(dir, nil), life: past.Life{ID: "a", Instance: "1"}, ring: r, live: screen.New(size, lines)}
	p.sizes = []past.Piece{{Size: size}}
	if mode != "" {
		p.writer, err = p.store.OpenWriter(p.life, mode)
		testkit.Must(t, err, p.writer.Resize(0, size))
		t.Cleanup(func() { _ = p.writer.Close() })
	}
	return p
}

// print prints output. The store receives it as well, unless it is late.
func (p *tape) print(out []byte, isLate bool) {
	p.t.Helper()
	at := uint64(len(p.printed))
	p.printed = append(p.printed, out...)
	p.live.Write(out)
	drop(p.live)
	if p.writer != nil && !isLate {
		testkit.Must(p.t, p.writer.Append(at, out))
	}
	for len(out) > 0 {
		n := copy(p.ring.Reserve(), out)
		p.ring.Commit(n)
		out = out[n:]
	}
}

func (p *tape) resize(size protocol.Size, isLate bool) {
	p.t.Helper()
	at := uint64(len(p.printed))
	if size == p.live.Size() || at == p.sizes[len(p.sizes)-1].Offset { // a ring has one size at an offset
		return
	}
	p.ring.MarkSize(size)
	p.live.Resize(size)
	drop(p.live)
	p.sizes = append(p.sizes, past.Piece{Offset: at, Size: size})
	if p.writer != nil && !isLate {
		testkit.Must(p.t, p.writer.Resize(at, size))
	}
}

// keyframe stores the screen, in the store or in memory.
func (p *tape) keyframe(inStore bool) {
	p.t.Helper()
	f := Keyframe{Offset: p.live.Offset(), Data: saved(p.t, p.live)}
	if inStore {
		testkit.Must(p.t, p.writer.Keyframe(f.Offset, f.Data))
	} else {
		p.frame = f
	}
}

func saved(t testing.TB, s *screen.Screen) []byte {
	t.Helper()
	var b buffer
	testkit.Must(t, s.Save(&b, -1))
	return b
}

// A buffer is an io.WriterAt.
type buffer []byte

func (b *buffer) WriteAt(p []byte, at int64) (int, error) {
	if need := int(at) + len(p); need > len(*b) {
		*b = append(*b, make([]byte, need-len(*b))...)
	}
	return copy((*b)[at:], p), nil
}

func drop(s *screen.Screen) { s.Replies(); s.Events(); s.Heard() }

// past returns the past as a session would.
func (p *tape) past() *Past {
	p.t.Helper()
	q := &Past{
		Mode: protocol.DurableOff, Ring: p.ring, Keyframe: func() (Keyframe, error) { return p.frame, nil }, IsBlank: true, Lines: lines,
		Created: time.Unix(1000, 0), LastOutput: time.Now(), Now: time.Now(),
	}
	if p.writer != nil {
		testkit.Must(p.t, p.writer.Sync())
		r, err := p.store.Open(p.life)
		testkit.Must(p.t, err)
		q.Mode, q.Reader = protocol.DurableFull, r
	}
	return q
}

// check compares the screens at some offsets with those that show all output from 0 on.
func (p *tape) check(offsets []uint64) {
	p.t.Helper()
	q := p.past()
	slices.Sort(offsets)
	want := screen.New(p.sizes[0].Size, lines)
	sizes := p.sizes[1:]
	for _, offset := range offsets {
		for at := want.Offset(); ; at = want.Offset() {
			next := offset
			if len(sizes) > 0 {
				next = min(next, sizes[0].Offset)
			}
			want.Write(p.printed[at:next])
			if len(sizes) == 0 || sizes[0].Offset > offset {
				break
			}
			want.Resize(sizes[0].Size)
			sizes = sizes[1:]
		}
		drop(want)
		got, err := q.Screen(p.t.Context(), offset)
		if err != nil || !got.IsExact {
			p.t.Fatalf("the screen at %d is exact: %v, error %v", offset, got.IsExact, err)
		}
		if got.Offset() != offset || !bytes.Equal(saved(p.t, got.Screen), saved(p.t, want)) {
			p.t.Fatalf("the screen at %d is another one", offset)
		}
	}
}

// The screen at any offset equals the one that shows all output from 0 on, whether the offset is in
// the store or only in the ring. HOLDFAST_LONG=1 compares 10,000 offsets.
// demand: D7
func TestAnyOffset(t *testing.T) {
	count := 200
	if os.Getenv("HOLDFAST_LONG") != "" {
		count = 10_000
	}
	r := rand.New(rand.NewPCG(21, 22))
	p := newTape(t, past.Full)
	var in []byte
	for _, w := range append(vttest.Inputs, vttest.Listing) {
		made := w.Make()
		in = append(in, made[:min(len(made), 20<<10)]...)
	}
	late := len(in) - 10<<10 // the store does not have the rest yet
	for len(in) > 0 {
		n := min(1+r.IntN(5_000), len(in))
		isLate := len(p.printed)+n > late
		p.print(in[:n], isLate)
		in = in[n:]
		switch k := r.IntN(20); {
		case k < 4 && !isLate:
			p.keyframe(true)
		case k < 6:
			p.resize(protocol.Size{Cols: 60 + r.IntN(60), Rows: 10 + r.IntN(30)}, isLate)
		}
	}
	offsets := []uint64{0, uint64(len(p.printed))}
	for range count {
		offsets = append(offsets, r.Uint64N(uint64(len(p.printed))+1))
	}
	p.check(offsets)
}

// A session that is not stored has the screens from its keyframe in memory on, or from 0 on as long as the ring has
// all output. Earlier screens are not stored.
func TestNotStored(t *testing.T) {
	p := newTape(t, "")
	for i := range 100 {
		p.print(bytes.Repeat([]byte{'a' + byte(i%26)}, 79), false)
		p.print([]byte("\r\n"), false)
	}
	p.check([]uint64{0, 50, 4000, 8100})
	for range 1000 {
		p.print(bytes.Repeat([]byte("x"), 120), false)
	}
	p.keyframe(false)
	base := p.frame.Offset
	p.print([]byte("after\r\n"), false)
	p.check([]uint64{base, base + 3, base + 7})
	_, err := p.past().Screen(t.Context(), base-1)
	if protocol.CodeOf(err) != protocol.CodeNotStored {
		t.Errorf("the screen before the keyframe: %v", err)
	}
	if _, err = p.past().Offset(t.Context(), protocol.Moment{Offset: new(base + 8)}); protocol.CodeOf(err) != protocol.CodeNotStored {
		t.Errorf("an offset behind the end: %v", err)
	}
	if _, err = p.past().Offset(t.Context(), protocol.Moment{AgoMS: new(int64(3_600_000))}); protocol.CodeOf(err) != protocol.CodeNotStored {
		t.Errorf("a time before the record begins: %v", err)
	}
	c, err := p.past().Describe(t.Context(), protocol.PastSpec{})
	if err != nil || c.Start != base || c.End != base+7 || c.Mode != protocol.DurableOff {
		t.Errorf("the past is %+v, %v; want offsets %d to %d", c, err, base, base+7)
	}
}

// A screen after missing output is inexact, until the next keyframe.
func TestInexact(t *testing.T) {
	p := newTape(t, past.Full)
	p.print([]byte("first\r\n"), false)
	p.print(bytes.Repeat([]byte("missing\r\n"), 20_000), true)
	from := uint64(len(p.printed))
	p.print([]byte("last\r\n"), false)
	q := p.past()
	s, err := q.Screen(t.Context(), from+2)
	if err != nil || s.IsExact {
		t.Errorf("the screen after the gap is exact: %v, error %v", s.IsExact, err)
	}
	c, err := q.Describe(t.Context(), protocol.PastSpec{})
	if err != nil || len(c.Gaps) != 1 || c.Gaps[0] != (protocol.PastGap{From: 7, To: from}) {
		t.Errorf("gaps %+v, %v; want one from 7 to %d", c.Gaps, err, from)
	}
	p.keyframe(true)
	p.print([]byte("more\r\n"), false)
	p.check([]uint64{3, 7, from + 6, from + 8, uint64(len(p.printed))})
}

// A damaged segment is a gap. The description, the output and the moments of all other segments stay.
func TestDamagedSegment(t *testing.T) {
	p := newTape(t, past.Full)
	p.print([]byte("first\r\n"), false)
	for _, text := range []string{"second\r\n", "third\r\n"} {
		p.keyframe(true)
		p.print([]byte(text), false)
		testkit.Must(t, p.writer.Sync())
	}
	p.keyframe(true)
	q := p.past()
	var err error
	q.Ring, err = ring.NewAt(ring.MinBytes, p.live.Size(), p.live.Offset()) // as if it had overwritten this output
	testkit.Must(t, err)
	defer func() { _ = q.Ring.Close() }()
	path := filepath.Join(p.dir, p.life.String(), "0000000000000000007-0000000000000000015")
	content, err := os.ReadFile(path)
	testkit.Must(t, err)
	content[20] ^= 1
	testkit.Must(t, os.WriteFile(path, content, 0o600))
	c, err := q.Describe(t.Context(), protocol.PastSpec{})
	if err != nil || len(c.Gaps) != 1 || c.Gaps[0] != (protocol.PastGap{From: 7, To: 15}) || len(c.Times) == 0 {
		t.Errorf("description %+v, %v; want a gap from 7 to 15", c, err)
	}
	for offset, want := range map[uint64]string{0: "first\r\n", 7: "third\r\n"} {
		if o, err := q.Read(t.Context(), offset, 100); string(o.Data) != want || err != nil {
			t.Errorf("output from %d: %q, %v", offset, o.Data, err)
		}
	}
	for offset, isExact := range map[uint64]bool{7: true, 12: false, 15: true, 22: true} {
		if s, err := q.Screen(t.Context(), offset); err != nil || s.IsExact != isExact {
			t.Errorf("the screen at %d is exact: %v, error %v", offset, s.IsExact, err)
		}
	}
	q.LastOutput = q.Now.Add(time.Hour)
	if got, err := q.Offset(t.Context(), protocol.Moment{Time: q.Now.Add(time.Minute)}); got != 22 || err != nil {
		t.Errorf("a time after the output: offset %d, %v", got, err)
	}
}

// A replay ends with its context, and if the output costs too much.
func TestBounds(t *testing.T) {
	p := newTape(t, past.Full)
	p.print(bytes.Repeat([]byte("text\r\n"), 10_000), false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.past().Screen(ctx, 50_000); !errors.Is(err, context.Canceled) {
		t.Errorf("a replay without a client: %v", err)
	}
	if _, err := p.past().Describe(ctx, protocol.PastSpec{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a description without a client: %v", err)
	}
	s := Screen{Screen: screen.New(protocol.Size{Cols: 80, Rows: 24}, 0)}
	if _, err := s.apply(t.Context(), past.Piece{Output: []byte("text")}, 0); protocol.CodeOf(err) != protocol.CodeLimitExceeded {
		t.Errorf("output that costs too much: %v", err)
	}
}

// A moment is found by its time, and by the commands that have ended.
func TestMoments(t *testing.T) {
	p := newTape(t, past.Full)
	code := 2
	commands := []protocol.PastCommand{
		{Line: "make", Cwd: "/src", Start: 3, End: 7, ExitCode: &code},
		{Line: "ls", Start: 10, End: 14},
		{Line: "pwd", Start: 15, End: 18},
	}
	p.print([]byte("0123456789 0123456789"), false)
	for _, c := range commands[:2] {
		testkit.Must(t, p.writer.Mark(c.End, MarkCommand, EncodeCommand(c, past.MaxMark)))
	}
	testkit.Must(t, p.writer.Mark(5, MarkCommand, "no command"), p.writer.Mark(6, 'X', "{}"))
	q := p.past()
	q.Recent = func() []protocol.PastCommand { return commands[1:] } // the store does not have the last one yet
	for n, want := range map[int]uint64{-1: 18, -2: 14, -3: 7} {
		if got, err := q.Offset(t.Context(), protocol.Moment{Command: n}); got != want || err != nil {
			t.Errorf("command %d ended at %d, %v; want %d", n, got, err, want)
		}
	}
	if _, err := q.Offset(t.Context(), protocol.Moment{Command: -4}); protocol.CodeOf(err) != protocol.CodeNotStored {
		t.Errorf("a command before the first one: %v", err)
	}
	c, err := q.Describe(t.Context(), protocol.PastSpec{})
	if err != nil || len(c.Commands) != 3 || c.Commands[0].Line != "make" || *c.Commands[0].ExitCode != 2 || c.Commands[0].Cwd != "/src" {
		t.Errorf("commands %+v, %v", c.Commands, err)
	}
	if c, err = q.Describe(t.Context(), protocol.PastSpec{From: 12, To: 16}); err != nil || len(c.Commands) != 1 || c.Commands[0].Line != "ls" {
		t.Errorf("commands from 12 to 16: %+v, %v", c.Commands, err)
	}
	q.LastOutput = q.Now.Add(-time.Hour)
	for ago, want := range map[int64]uint64{0: 21, 1000: 21} {
		if got, err := q.Offset(t.Context(), protocol.Moment{AgoMS: &ago}); got != want || err != nil {
			t.Errorf("%d ms ago the output ended at %d, %v; want %d", ago, got, err, want)
		}
	}
	ago := int64(1 << 62)
	if _, err := q.Offset(t.Context(), protocol.Moment{AgoMS: &ago}); protocol.CodeOf(err) != protocol.CodeNotStored {
		t.Errorf("a time before the session: %v", err)
	}
}

// The lists in a description are bounded.
func TestDescriptionBounds(t *testing.T) {
	p := newTape(t, past.Full)
	line := string(bytes.Repeat([]byte{'x'}, protocol.MaxTitle))
	for i := range uint64(3 * protocol.MaxPastCommands) {
		p.print([]byte("x"), false)
		c := protocol.PastCommand{Line: line, Start: i, End: i + 1, Cwd: string(bytes.Repeat([]byte("d"), 2000))}
		testkit.Must(t, p.writer.Mark(c.End, MarkCommand, EncodeCommand(c, past.MaxMark)))
	}
	c, err := p.past().Describe(t.Context(), protocol.PastSpec{})
	testkit.Must(t, err)
	if n := len(c.Commands); n == 0 || n > protocol.MaxPastCommands || !c.MoreCommands || c.Commands[n-1].End != 3*protocol.MaxPastCommands {
		t.Errorf("%d commands, more %v", n, c.MoreCommands)
	}
	var s samples
	for i := range uint64(100_000) {
		s.add(i, time.Unix(int64(i), 0))
	}
	if n := len(s.list()); n > protocol.MaxPastTimes || n < protocol.MaxPastTimes/2 {
		t.Errorf("%d samples", n)
	}
	var gaps []protocol.PastGap
	for i := range uint64(1000) {
		gaps = append(gaps, protocol.PastGap{From: i * 1000, To: i*1000 + i})
	}
	if some, more := largest(gaps); len(some) != protocol.MaxPastGaps || !more || some[0].From != 900_000 {
		t.Errorf("%d gaps from %d, more %v", len(some), some[0].From, more)
	}
}

// FuzzCommand checks that a description has only valid commands, even if a mark in a file on disk has arbitrary
// content.
func FuzzCommand(f *testing.F) {
	f.Add(EncodeCommand(protocol.PastCommand{Line: "make", Start: 1, End: 2}, past.MaxMark))
	f.Add(`{"start":5,"end":3}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := parseCommand(text)
		if !ok {
			return
		}
		again, ok := parseCommand(EncodeCommand(c, 1<<20))
		if !ok || again.Start != c.Start || again.End != c.End || again.Line != c.Line {
			t.Errorf("%+v became %+v, %v", c, again, ok)
		}
	})
}
