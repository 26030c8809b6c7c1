package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/testkit"
	"holdfast/supervisor/terminal"
)

var testName = Name{"host", "build", "Uyy4"}

// A program is what a session prints, and how its size changes. It is the link of a recorder, which asks it for
// keyframes.
type program struct {
	Link
	t      *testing.T
	random *rand.Rand
	output []byte
	size   protocol.Size
	sizes  map[uint64]protocol.Size
	end    func() uint64 // what the session has printed so far
}

// newProgram returns a program that prints text, colours, and sequences that move, erase and scroll.
func newProgram(t *testing.T, seed uint64, n int) *program {
	t.Logf("seed %d", seed)
	p := &program{t: t, random: rand.New(rand.NewPCG(seed, 1)), size: protocol.Size{Cols: 40, Rows: 10}, sizes: map[uint64]protocol.Size{}}
	for len(p.output) < n {
		switch p.random.IntN(12) {
		case 0:
			p.output = fmt.Appendf(p.output, "\x1b[%d;%dH", 1+p.random.IntN(10), 1+p.random.IntN(40))
		case 1:
			p.output = fmt.Appendf(p.output, "\x1b[%dm", []int{0, 1, 31, 42, 7}[p.random.IntN(5)])
		case 2:
			p.output = append(p.output, "\x1b[K"...)
		case 3:
			p.output = append(p.output, []string{"\x1b[?1049h", "\x1b[?1049l", "\x1b[3;7r", "\x1b[r", "\x1b]0;title\x07", "\t", "é漢👩‍👩‍👧"}[p.random.IntN(7)]...)
		case 4:
			p.sizes[uint64(len(p.output))] = protocol.Size{Cols: 20 + p.random.IntN(40), Rows: 5 + p.random.IntN(10)}
		default:
			p.output = fmt.Appendf(p.output, "line %d\r\n", p.random.IntN(1000000))
		}
	}
	return p
}

// at returns the terminal after the output up to an offset.
func (p *program) at(offset uint64) *terminal.Terminal {
	t := terminal.New(p.size, protocol.DefaultHistory)
	p.play(t, 0, offset)
	return t
}

// play writes the output from..to to a terminal, and applies the sizes after from.
func (p *program) play(t *terminal.Terminal, from, to uint64) {
	for _, at := range append(slices.Sorted(maps.Keys(p.sizes)), to) {
		if at = min(at, to); at < from {
			continue
		}
		testkit.Must(p.t, t.Write(context.Background(), p.output[from:at]))
		if size, ok := p.sizes[at]; ok {
			_ = t.Resize(size)
		}
		from = at
	}
}

// state returns the state of the screen at an offset.
func (p *program) state(offset uint64) protocol.ScreenContent {
	c, err := p.at(offset).Content(protocol.ScreenSpec{Format: protocol.ScreenState, Scrollback: protocol.DefaultHistory})
	testkit.Must(p.t, err)
	return c
}

// content returns the cells at an offset, for a reader that begins with the state at keyframe. After a change of size, a
// screen can have what no state has, for example half of a wide character, or a saved cursor below the last row.
func (p *program) content(keyframe, offset uint64) protocol.ScreenContent {
	state := p.state(keyframe)
	t := terminal.New(protocol.Size{Cols: state.Cols, Rows: state.Rows}, protocol.DefaultHistory)
	testkit.Must(p.t, t.Write(context.Background(), state.State))
	p.play(t, keyframe, offset)
	c, err := t.Content(protocol.ScreenSpec{Format: protocol.ScreenCells})
	testkit.Must(p.t, err)
	return c
}

// Call answers a request for the screen with that of a place near the end, which the reader may not have reached.
func (p *program) Call(_ context.Context, request protocol.Message) (protocol.Message, error) {
	offset := p.end()
	if at := request.(wire.Screen).At; at != nil {
		offset = *at.Offset
	} else if p.random.IntN(2) == 0 {
		offset = min(offset+uint64(p.random.IntN(50)), uint64(len(p.output)))
	}
	c := p.state(offset)
	c.Offset = offset
	return &wire.ScreenContent{ScreenContent: c}, nil
}

// record records the whole program in small segments, as a session is recorded. missing are offsets at which output is
// missing, with the offset where it continues.
func (p *program) record(s Store, keys *Keys, missing map[uint64]uint64) {
	p.t.Helper()
	ctx := p.t.Context()
	r := &Recorder{Link: p, Host: testName.Host, Log: zerolog.Nop(), store: s, keys: keys}
	r.buffer.limit = maxBuffered
	session := newSession(r, &protocol.SessionInfo{ID: testName.ID, Instance: testName.Instance, Size: p.size, Argv: []string{"/bin/sh"}})
	p.end = func() uint64 { return session.pos }
	x, err := session.prepare(ctx)
	testkit.Must(p.t, err)
	session.puts = make(chan *Segment)
	uploaded := make(chan struct{})
	go func() {
		defer close(uploaded)
		session.upload(ctx)
	}()
	session.cur = session.firstSegment(ctx)
	for session.pos < uint64(len(p.output)) {
		at := session.pos
		if size, ok := p.sizes[at]; ok {
			session.handleMessage(nil, &wire.Resized{Cols: size.Cols, Rows: size.Rows})
		}
		if to, ok := missing[at]; ok {
			c := p.state(to)
			session.skip(to, 0)
			session.cur.Size, session.cur.Keyframe, session.cur.IsShown = protocol.Size{Cols: c.Cols, Rows: c.Rows}, c.State, true
			continue
		}
		end := min(at+1+uint64(p.random.IntN(60)), uint64(len(p.output)))
		for i := at + 1; i < end; i++ {
			_, isResized := p.sizes[i]
			_, isMissing := missing[i]
			if isResized || isMissing {
				end = i
			}
		}
		testkit.Must(p.t, session.add(ctx, p.output[at:end]))
		if p.random.IntN(6) == 0 && session.next == nil {
			session.endSegment(ctx, time.Now())
		}
	}
	session.cut()
	close(session.puts)
	<-uploaded
	code := 0
	x.IsComplete, x.End, x.Last, x.ExitCode = true, session.pos, session.last, &code
	testkit.Must(p.t, session.complete(ctx, x))
}

// report returns the report about the recording.
func report(t *testing.T, s Store, keys *Keys) *Report {
	t.Helper()
	for r, err := range Verify(t.Context(), s, keys, &testName) {
		testkit.Must(t, err)
		return r
	}
	return nil
}

// checkScreen checks the screen that the recording has at an offset. If the size changes there, the screen may have
// either size.
func (p *program) checkScreen(t *testing.T, s Store, keys *Keys, offset uint64) {
	t.Helper()
	if _, ok := p.sizes[offset]; ok {
		return
	}
	c, err := Show(t.Context(), s, keys, testName, &protocol.Moment{Offset: &offset}, protocol.ScreenSpec{Format: protocol.ScreenCells})
	if err != nil {
		t.Fatalf("offset %d: %v", offset, err)
	}
	stored, err := load(t.Context(), s, testName)
	testkit.Must(t, err)
	reader := &player{t.Context(), s, keys, stored}
	seg := &Segment{}
	for _, i, err := reader.findOffset(offset); !seg.IsShown; i-- {
		if err == nil {
			seg, err = reader.segment(i)
		}
		testkit.Must(t, err)
	}
	want := p.content(seg.Start, offset)
	if c.Instance != testName.Instance || c.Offset != offset || !reflect.DeepEqual(c.Cells, want.Cells) || c.Cursor != want.Cursor || c.Title != want.Title || c.Cols != want.Cols || c.Rows != want.Rows {
		t.Fatalf("offset %d shows\n%v\nwant\n%v", offset, c, want)
	}
}

// Each offset of a recording has the screen that the session had.
func TestShow(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateX25519Identity()
	testkit.Must(t, err)
	keys, err := ParseKeys(identity.String())
	testkit.Must(t, err)
	for _, k := range []*Keys{nil, keys} {
		p := newProgram(t, testkit.Seed(), 6000)
		s := OpenDir(t.TempDir())
		p.record(s, k, nil)
		if r := report(t, s, k); !r.IsComplete || len(r.Problems) > 0 || r.Segments < 5 || r.End != uint64(len(p.output)) {
			t.Errorf("report is %+v", r)
		}
		var out bytes.Buffer
		if missing, err := Output(t.Context(), s, k, testName, nil, &out); missing > 0 || err != nil || !bytes.Equal(out.Bytes(), p.output) {
			t.Errorf("Output wrote %d bytes of %d, %d are missing, %v", out.Len(), len(p.output), missing, err)
		}
		for range 60 {
			p.checkScreen(t, s, k, uint64(p.random.IntN(len(p.output)+1)))
		}
	}
	if _, err := Show(t.Context(), OpenDir(t.TempDir()), nil, testName, nil, protocol.ScreenSpec{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a recording that does not exist: %v", err)
	}
}

// A moment may be a time.
func TestShowAtTime(t *testing.T) {
	t.Parallel()
	s := OpenDir(t.TempDir())
	began := time.Date(2026, 1, 31, 14, 0, 0, 0, time.UTC)
	previous, at := "", uint64(0)
	for i := range 10 { // a line each second, two in a segment
		line := fmt.Sprintf("line %d\r\n", i)
		seg := &Segment{Name: testName, Start: at, Previous: previous, Size: protocol.Size{Cols: 20, Rows: 30}, IsShown: i == 0, Output: []byte(line),
			Times: []protocol.PastTime{{Offset: at, At: began.Add(time.Duration(i) * time.Second)}}}
		object := seg.Encode()
		testkit.Must(t, s.Put(t.Context(), testName.segmentKey(seg.Start, seg.End(), false), object))
		previous, at = hashOf(object), seg.End()
	}
	for i := range 10 {
		c, err := Show(t.Context(), s, nil, testName, &protocol.Moment{Time: began.Add(time.Duration(i)*time.Second + time.Millisecond)}, protocol.ScreenSpec{NonEmpty: true})
		if err != nil || len(c.Lines) != i+1 || !c.PrintedAt.Equal(began.Add(time.Duration(i)*time.Second)) {
			t.Errorf("second %d shows %q, printed at %v, %v", i, c.Lines, c.PrintedAt, err)
		}
	}
	if _, err := Show(t.Context(), s, nil, testName, &protocol.Moment{Time: began.Add(-time.Second)}, protocol.ScreenSpec{}); protocol.CodeOf(err) != protocol.CodeNotStored {
		t.Errorf("a time before the recording: %v", err)
	}
}

// Output that is missing is named, and the screens around it are right.
func TestMissing(t *testing.T) {
	t.Parallel()
	p := newProgram(t, testkit.Seed(), 3000)
	s := OpenDir(t.TempDir())
	p.record(s, nil, map[uint64]uint64{1000: 1500})
	r := report(t, s, nil)
	if len(r.Problems) != 1 || r.Problems[0].Kind != ProblemMissing || r.Problems[0].From != 1000 || r.Problems[0].To != 1500 || !r.IsComplete {
		t.Errorf("report is %+v", r)
	}
	for _, offset := range []uint64{999, 1500, 1501, 2000} {
		p.checkScreen(t, s, nil, offset)
	}
	offset := uint64(1200)
	if _, err := Show(t.Context(), s, nil, testName, &protocol.Moment{Offset: &offset}, protocol.ScreenSpec{}); protocol.CodeOf(err) != protocol.CodeNotStored {
		t.Errorf("a moment within the missing output: %v", err)
	}
}

// Verify names what was damaged.
func TestVerify(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		damage func(dir string, segments []string) error
		want   []string // kinds of problems
	}{
		"torn": {func(_ string, s []string) error { return os.Truncate(s[2], 100) }, []string{ProblemTorn}},
		"changed": {func(_ string, s []string) error {
			data, err := os.ReadFile(s[2])
			data[len(data)/2] ^= 1
			return errors.Join(err, os.WriteFile(s[2], data, 0o600))
		}, []string{ProblemTorn}},
		"lost":  {func(_ string, s []string) error { return os.Remove(s[2]) }, []string{ProblemLost}},
		"first": {func(_ string, s []string) error { return os.Remove(s[0]) }, []string{ProblemLost}},
		"tail":  {func(_ string, s []string) error { return os.Remove(s[len(s)-1]) }, []string{ProblemTail}},
		"index": {func(dir string, _ []string) error {
			return os.WriteFile(filepath.Join(dir, indexName), []byte("{"), 0o600)
		}, []string{ProblemTorn}},
		"no index": {func(dir string, _ []string) error { return os.Remove(filepath.Join(dir, indexName)) }, []string{ProblemLost}},
		"foreign":  {func(dir string, _ []string) error { return os.WriteFile(filepath.Join(dir, "note.txt"), nil, 0o600) }, []string{ProblemForeign}},
		"renamed": {func(_ string, s []string) error {
			data, err := os.ReadFile(s[1])
			return errors.Join(err, os.WriteFile(s[2], data, 0o600))
		}, []string{ProblemTorn}},
		"exchanged": {func(_ string, s []string) error { // a whole segment, but not that of this recording
			data, err := os.ReadFile(s[2])
			if err != nil {
				return err
			}
			seg, err := Decode(data)
			if err != nil {
				return err
			}
			seg.Output[0]++
			return os.WriteFile(s[2], seg.Encode(), 0o600)
		}, []string{ProblemForeign}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, testkit.Seed(), 3000)
			root := t.TempDir()
			p.record(OpenDir(root), nil, nil)
			dir := filepath.Join(root, "host", "build@Uyy4")
			segments, err := filepath.Glob(filepath.Join(dir, "0*"))
			if err != nil || len(segments) < 4 {
				t.Fatal(segments, err)
			}
			testkit.Must(t, tt.damage(dir, segments))
			r := report(t, OpenDir(root), nil)
			var kinds []string
			for _, problem := range r.Problems {
				kinds = append(kinds, problem.Kind)
			}
			if !slices.Equal(kinds, tt.want) {
				t.Errorf("problems are %+v, want %v", r.Problems, tt.want)
			}
		})
	}
}

// Without the key, an encrypted recording shows nothing, and Verify says why.
func TestLocked(t *testing.T) {
	t.Parallel()
	var keys [2]*Keys
	for i := range keys {
		identity, err := age.GenerateX25519Identity()
		if err == nil {
			keys[i], err = ParseKeys("# a comment\n" + identity.String())
		}
		testkit.Must(t, err)
	}
	p := newProgram(t, 1, 2000)
	root := t.TempDir()
	s := OpenDir(root)
	p.record(s, keys[0], nil)
	segments, _ := filepath.Glob(filepath.Join(root, "host", "build@Uyy4", "0*"))
	for _, path := range segments {
		if data, err := os.ReadFile(path); err != nil || bytes.Contains(data, []byte("line")) || !strings.HasSuffix(path, sealed) {
			t.Errorf("%s is not encrypted, %v", path, err)
		}
	}
	for _, k := range []*Keys{nil, keys[1]} {
		r := report(t, s, k)
		if len(r.Problems) != len(segments) || r.Problems[0].Kind != ProblemLocked {
			t.Errorf("problems are %+v", r.Problems)
		}
		if _, err := Show(t.Context(), s, k, testName, nil, protocol.ScreenSpec{}); !errors.Is(err, errNoKey) {
			t.Errorf("Show without the key: %v", err)
		}
	}
	if _, err := ParseKeys("AGE-SECRET-KEY-1TYPO"); err == nil || strings.Contains(err.Error(), "TYPO") {
		t.Errorf("an invalid key: %v", err)
	}
}

// A recorder that was killed, and another one that continues, store each byte once. A put that is repeated changes
// nothing.
func TestContinue(t *testing.T) {
	t.Parallel()
	p := newProgram(t, testkit.Seed(), 4000)
	whole := p.output
	root := t.TempDir()
	s := OpenDir(root)
	p.output = whole[:2500]
	p.record(s, nil, nil)
	dir := filepath.Join(root, "host", "build@Uyy4")
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil { // the first recorder was killed before the end
		t.Fatal(err)
	}
	p.output = whole
	p.record(s, nil, nil)
	r := report(t, s, nil)
	if !r.IsComplete || len(r.Problems) > 0 || r.End != uint64(len(whole)) {
		t.Errorf("report is %+v", r)
	}
	var out bytes.Buffer
	if _, err := Output(t.Context(), s, nil, testName, nil, &out); err != nil || !bytes.Equal(out.Bytes(), whole) {
		t.Errorf("the output has %d bytes, want %d, %v", out.Len(), len(whole), err)
	}
	segments, _ := filepath.Glob(filepath.Join(dir, "0*"))
	data, err := os.ReadFile(segments[0])
	testkit.Must(t, err)
	seg, err := Decode(data)
	testkit.Must(t, err)
	again := newSession(&Recorder{Log: zerolog.Nop(), Host: testName.Host, store: s}, &protocol.SessionInfo{ID: testName.ID, Instance: testName.Instance})
	seg.Times = nil // the repetition need not be the same object
	if err := again.put(t.Context(), seg); err != nil || again.last != hashOf(data) {
		t.Errorf("a repeated put: %v, hash %s", err, again.last)
	}
	if r := report(t, s, nil); len(r.Problems) > 0 {
		t.Errorf("after a repeated put the report is %+v", r)
	}
}

// Old segments are deleted from the front, and do not look lost.
func TestRetain(t *testing.T) {
	t.Parallel()
	p := newProgram(t, testkit.Seed(), 4000)
	s := OpenDir(t.TempDir())
	p.record(s, nil, nil)
	before := report(t, s, nil)
	c := &Config{Age: time.Hour}
	if err := c.Retain(t.Context(), s, "other", time.Now().Add(2*time.Hour)); err != nil || report(t, s, nil).Segments != before.Segments {
		t.Fatalf("segments of another host were deleted, %v", err)
	}
	c.Bytes = before.Bytes / 2
	testkit.Must(t, c.Retain(t.Context(), s, testName.Host, time.Now()))
	r := report(t, s, nil)
	if r.Bytes > c.Bytes || r.Segments == 0 || len(r.Problems) > 0 || !r.IsComplete || r.Start == 0 {
		t.Errorf("report is %+v", r)
	}
	testkit.Must(t, c.Retain(t.Context(), s, testName.Host, time.Now().Add(2*time.Hour)))
	for o := range s.List(t.Context(), "") {
		t.Errorf("%s is left", o.Key)
	}
}

// A store that does not answer delays the recorder, and no more output is held than the limit.
func TestBuffer(t *testing.T) {
	t.Parallel()
	b := buffer{limit: 100}
	if !b.take(200) {
		t.Error("a large piece is refused although nothing waits")
	}
	if b.take(1) {
		t.Error("the limit is exceeded")
	}
	b.give(200)
	if !b.take(60) || !b.take(40) || b.take(1) {
		t.Errorf("%d bytes are counted", b.used)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "a/b", "a/b@", "a/@c", "/b@c", "../b@c", "a/b/c@d", "a/b@c@d", "a b/c@d", ".a/b@c"} {
		if n, err := ParseName(text); err == nil {
			t.Errorf("%q is the name %v", text, n)
		}
	}
	if n, err := ParseName("host.example/build-1@Uyy_4"); err != nil || n.String() != "host.example/build-1@Uyy_4" {
		t.Error(n, err)
	}
	k, ok := parseKey(testName.segmentKey(5, 77, true))
	if want := (key{testName, false, 5, 77, true}); !ok || k != want {
		t.Errorf("key is %+v", k)
	}
	for _, text := range []string{"x", "host/build@Uyy4/x", "host/build@Uyy4/5-7.zst", testName.segmentKey(7, 5, false), testName.segmentKey(5, 7, false) + "x"} {
		if k, ok := parseKey(text); ok {
			t.Errorf("%q is the key %+v", text, k)
		}
	}
	for name, want := range map[string]string{"vm": "vm", "Jo's Mac": "Jo-s-Mac", "": "localhost", "-": "localhost", strings.Repeat("é", 99): "localhost"} {
		if got := HostName(name); got != want {
			t.Errorf("HostName(%q) = %q", name, got)
		}
	}
}

// No object makes Decode panic, need much memory, or return an inconsistent segment.
func FuzzDecode(f *testing.F) {
	seg := &Segment{Name: testName, Start: 5, Size: protocol.Size{Cols: 80, Rows: 24}, IsShown: true, Keyframe: []byte("key"), Output: []byte("output"),
		Times: []protocol.PastTime{{Offset: 6, At: time.Unix(1, 0).UTC()}}, Sizes: []protocol.PastSize{{Offset: 7, Size: protocol.Size{Cols: 10, Rows: 10}}}}
	object := seg.Encode()
	f.Add(object)
	f.Add(object[:len(object)/2])
	f.Add(append(bytes.Clone(object), object...))
	for _, raw := range []string{"", "{}\n", `{"format":1}` + "\n", `{"format":1,"recording":"a/b@c","end":-1}` + "\n", `{"format":1,"recording":"a/b@c","start":9,"end":18446744073709551615}` + "\n"} {
		f.Add(codecs().EncodeAll([]byte(raw), nil))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		s, err := Decode(object)
		if err != nil {
			return
		}
		if len(s.Output) > maxOutput || len(s.Keyframe) > maxKeyframe || s.Missing > s.Start {
			t.Errorf("segment %d-%d", s.Start, s.End())
		}
		again, err := Decode(s.Encode())
		if err != nil || !bytes.Equal(again.Output, s.Output) || !bytes.Equal(again.Keyframe, s.Keyframe) || again.Start != s.Start {
			t.Errorf("the segment cannot be encoded again: %v", err)
		}
	})
}
