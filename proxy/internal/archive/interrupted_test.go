package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/machine"
	"holdfast/shared/testkit"
)

// reading returns a session of which a recorder reads the output from offset 0 on, and a function that ends the recording.
func reading(t *testing.T, s Store) (*session, func()) {
	r := &Recorder{Host: testName.Host, Log: zerolog.Nop(), store: s}
	r.buffer.limit = maxBuffered
	x := newSession(r, &protocol.SessionInfo{ID: testName.ID, Instance: testName.Instance})
	testkit.Must(t, replaceIndex(t.Context(), s, testName, newIndex(testName, &x.info)))
	x.puts = make(chan *Segment)
	done := make(chan struct{})
	go func() { defer close(done); x.upload(t.Context()) }()
	x.cur = &Segment{Name: testName, Size: protocol.Size{Cols: 80, Rows: 24}}
	return x, func() { close(x.puts); <-done }
}

// snapshotFrame returns a part of a snapshot.
func snapshotFrame(offset uint64, n int) []byte {
	return frame.AppendData(nil, frame.Snapshot, 1, offset, bytes.Repeat([]byte{'x'}, n))
}

// If an attachment breaks within a snapshot, the output after it is stored without a keyframe.
func TestPartialSnapshot(t *testing.T) {
	s := OpenDir(t.TempDir())
	x, end := reading(t, s)
	testkit.Must(t, x.add(t.Context(), []byte("before\r\n")))
	x.handleMessage(nil, &wire.Resync{Offset: 1000, SnapshotBytes: 300 << 10})
	if _, err := x.handle(t.Context(), nil, snapshotFrame(1000, 32<<10)); err != nil { // the first of several frames
		t.Fatal(err)
	}
	x.snapshotLeft = 0 // the link breaks, and readOnce attaches again at x.pos, from which on the ring has the output
	testkit.Must(t, x.add(t.Context(), []byte("precious output\r\n")))
	x.cut()
	end()
	r := report(t, s, nil)
	for _, p := range r.Problems {
		if p.Kind != ProblemMissing {
			t.Errorf("problem: %+v", p)
		}
	}
	var out bytes.Buffer
	_, err := Output(t.Context(), s, nil, testName, nil, &out)
	if err != nil || !strings.Contains(out.String(), "precious") {
		t.Errorf("Output %q %v", out.String(), err)
	}
}

// If a snapshot is too long for a segment, the output after it is stored in time, without a keyframe.
func TestLongSnapshot(t *testing.T) {
	s := OpenDir(t.TempDir())
	x, end := reading(t, s)
	x.handleMessage(nil, &wire.Resync{Offset: 1000, SnapshotBytes: 9 << 20})
	for range 9 << 20 / (32 << 10) {
		if _, err := x.handle(t.Context(), nil, snapshotFrame(1000, 32<<10)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Must(t, x.add(t.Context(), []byte("precious output\r\n")))
	if x.snapshotLeft > 0 {
		t.Error("the segment does not end while the session is silent")
	}
	x.cut()
	end()
	for _, p := range report(t, s, nil).Problems {
		if p.Kind != ProblemMissing {
			t.Errorf("problem: %+v", p)
		}
	}
}

// If a segment is torn, the output of the others can be had.
func TestTornSegmentOfOutput(t *testing.T) {
	dir := t.TempDir()
	s := OpenDir(dir)
	p := newProgram(t, 1, 6000)
	p.record(s, nil, nil)
	all, _ := filepath.Glob(filepath.Join(dir, "host", "build@Uyy4", "0*"))
	data, err := os.ReadFile(all[1])
	testkit.Must(t, err)
	data[len(data)/2] ^= 1
	testkit.Must(t, os.WriteFile(all[1], data, 0o600))
	var out bytes.Buffer
	missing, err := Output(t.Context(), s, nil, testName, nil, &out)
	if !errors.Is(err, ErrTorn) || out.Len() < len(p.output)*3/4 || out.Len()+int(missing) != len(p.output) {
		t.Errorf("%d of %d bytes, %d are missing, %v", out.Len(), len(p.output), missing, err)
	}
}

// failSegments is a store in which some segments cannot be read.
type failSegments struct {
	Store
	fails map[string]error // by key
}

func (f *failSegments) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if err := f.fails[key]; err != nil {
		return nil, err
	}
	return f.Store.Get(ctx, key, limit)
}

// If segments are torn, locked or deleted, the output of all others can be had, and moments are found.
func TestUnreadableSegments(t *testing.T) {
	s := OpenDir(t.TempDir())
	began := time.Date(2026, 1, 31, 14, 0, 0, 0, time.UTC)
	var keys []string
	for i := range 8 {
		seg := &Segment{
			Name: testName, Size: protocol.Size{Cols: 20, Rows: 5}, Start: uint64(i * 3), IsShown: true, Output: fmt.Appendf(nil, "%d\r\n", i),
			Times: []protocol.PastTime{{Offset: uint64(i * 3), At: began.Add(time.Duration(10*i) * time.Second)}},
		}
		keys = append(keys, testName.segmentKey(seg.Start, seg.End(), false))
		testkit.Must(t, s.Put(t.Context(), keys[i], seg.Encode()))
	}
	for name, cause := range map[string]error{"torn": ErrTorn, "locked": errNoKey, "deleted": fs.ErrNotExist} {
		for i := range keys {
			f := &failSegments{s, map[string]error{keys[i]: cause}}
			var out bytes.Buffer
			missing, err := Output(t.Context(), f, nil, testName, nil, &out)
			want := strings.Replace("0\r\n1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n", fmt.Sprintf("%d\r\n", i), "", 1)
			if name != "deleted" && !errors.Is(err, cause) || name == "deleted" && err != nil || out.String() != want || missing != 3 {
				t.Errorf("%s %d: output %q, %d bytes are missing, %v", name, i, out.String(), missing, err)
			}
			for k := range keys {
				c, err := Show(t.Context(), f, nil, testName, &protocol.Moment{Time: began.Add(time.Duration(10*k+5) * time.Second)}, protocol.ScreenSpec{NonEmpty: true})
				want := uint64(3*k + 3)
				if k == i {
					want -= 3
				}
				if want == 0 { // the beginning cannot be read
					if err == nil {
						t.Errorf("%s %d: second %d shows %q", name, i, 10*k+5, c.Lines)
					}
				} else if err != nil || c.Offset != want {
					t.Errorf("%s %d: second %d shows offset %d, %v; want %d", name, i, 10*k+5, c.Offset, err, want)
				}
			}
			if _, err := Show(t.Context(), f, nil, testName, &protocol.Moment{Offset: new(uint64(3*i + 3))}, protocol.ScreenSpec{}); err == nil || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s %d: the screen of this segment: %v", name, i, err)
			}
		}
	}
	f := &failSegments{s, map[string]error{keys[3]: errors.New("the server answers 500")}}
	if _, err := Output(t.Context(), f, nil, testName, nil, io.Discard); err == nil {
		t.Error("the output is had from a store that fails")
	}
}

// An index that is torn when a recording is completed stays as it is, because its content is not known.
func TestCompleteKeepsTornIndex(t *testing.T) {
	dir := t.TempDir()
	s := OpenDir(dir)
	newProgram(t, 1, 4000).record(s, nil, nil)
	path := filepath.Join(dir, "host", "build@Uyy4", indexName)
	testkit.Must(t, os.WriteFile(path, []byte("torn"), 0o600))
	r := &Recorder{Host: testName.Host, Log: zerolog.Nop(), store: s}
	info := &protocol.SessionInfo{ID: testName.ID, Instance: testName.Instance}
	if err := newSession(r, info).complete(t.Context(), newIndex(testName, info)); !errors.Is(err, ErrTorn) {
		t.Errorf("complete: %v", err)
	}
	if got, err := os.ReadFile(path); string(got) != "torn" || err != nil {
		t.Errorf("the index is %q, %v", got, err)
	}
}

// A segment without output has no times, and does not change which one a time belongs to.
func TestTimeBesideEmptySegment(t *testing.T) {
	s := OpenDir(t.TempDir())
	began := time.Date(2026, 1, 31, 14, 0, 0, 0, time.UTC)
	put := func(seg *Segment) {
		seg.Name, seg.Size = testName, protocol.Size{Cols: 20, Rows: 5}
		testkit.Must(t, s.Put(t.Context(), testName.segmentKey(seg.Start, seg.End(), false), seg.Encode()))
	}
	at := func(o uint64, sec int) []protocol.PastTime {
		return []protocol.PastTime{{Offset: o, At: began.Add(time.Duration(sec) * time.Second)}}
	}
	put(&Segment{Start: 0, IsShown: true, Output: []byte("zero\r\n"), Times: at(0, 0)})
	put(&Segment{Start: 6, Output: []byte("one\r\n"), Times: at(6, 10)})
	put(&Segment{Start: 1000, Missing: 989, IsShown: true, Keyframe: []byte("later")}) // cut by tick, printed at second 60
	put(&Segment{Start: 1000, IsShown: true, Keyframe: []byte("later"), Output: []byte("100"), Times: at(1000, 100)})
	c, err := Show(t.Context(), s, nil, testName, &protocol.Moment{Time: began.Add(5 * time.Second)}, protocol.ScreenSpec{NonEmpty: true})
	if err != nil || c.Offset != 6 {
		t.Errorf("second 5 shows %q at offset %d, %v", c.Lines, c.Offset, err)
	}
	c, err = Show(t.Context(), s, nil, testName, &protocol.Moment{Time: began.Add(-time.Hour)}, protocol.ScreenSpec{NonEmpty: true})
	if protocol.CodeOf(err) != protocol.CodeNotStored {
		t.Errorf("an hour before the recording shows %q at offset %d, %v", c.Lines, c.Offset, err)
	}
}

// A put that the server has executed late leaves a segment that has all of another one, which a later recorder has stored meanwhile.
func TestSegmentWithinAnother(t *testing.T) {
	s := OpenDir(t.TempDir())
	for _, seg := range []Segment{{Start: 0, Output: []byte("abcdef")}, {Start: 2, Output: []byte("cd")}, {Start: 6, Output: []byte("ghij")}, {Start: 7, Output: []byte("h")}} {
		seg.Name, seg.Size, seg.IsShown = testName, protocol.Size{Cols: 20, Rows: 5}, seg.Start == 0
		testkit.Must(t, s.Put(t.Context(), testName.segmentKey(seg.Start, seg.End(), false), seg.Encode()))
	}
	const want = "abcdefghij"
	var out bytes.Buffer
	if missing, err := Output(t.Context(), s, nil, testName, nil, &out); missing > 0 || err != nil || out.String() != want {
		t.Errorf("the output is %q, of which %d bytes are missing, %v; want %q", &out, missing, err, want)
	}
	if c, err := Show(t.Context(), s, nil, testName, nil, protocol.ScreenSpec{NonEmpty: true}); err != nil || len(c.Lines) != 1 || c.Lines[0] != want {
		t.Errorf("the screen is %q, %v; want %q", c.Lines, err, want)
	}
}

// A store that fails once.
type failGet struct {
	Store
	fails int
}

func (f *failGet) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if f.fails > 0 {
		f.fails--
		return nil, errors.New("the server answers 500")
	}
	return f.Store.Get(ctx, key, limit)
}

// If the store fails when a recording is completed, what was removed before stays removed.
func TestCompleteAfterFailure(t *testing.T) {
	dir := OpenDir(t.TempDir())
	p := newProgram(t, 1, 4000)
	p.record(dir, nil, nil)
	x, err := readIndex(t.Context(), dir, testName)
	testkit.Must(t, err)
	final := *x
	x.IsComplete = false
	testkit.Must(t, replaceIndex(t.Context(), dir, testName, x))
	c := &Config{Bytes: report(t, dir, nil).Bytes / 2}
	testkit.Must(t, c.Retain(t.Context(), dir, testName.Host, time.Now()))
	f := &failGet{dir, 1}
	r := &Recorder{Host: testName.Host, Log: zerolog.Nop(), store: f}
	again := newSession(r, &protocol.SessionInfo{ID: testName.ID, Instance: testName.Instance})
	testkit.Must(t, r.persist(t.Context(), func(ctx context.Context) error { return again.complete(ctx, &final) }))
	for _, p := range report(t, dir, nil).Problems {
		t.Errorf("%+v", p)
	}
}

// The path of a store has any characters.
func TestSweepInOddPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disk [1]")
	s := OpenDir(dir)
	draft := filepath.Join(dir, "host", "a@b", machine.TemporaryPrefix+"x")
	testkit.Must(t, errors.Join(os.MkdirAll(filepath.Dir(draft), 0o700), os.WriteFile(draft, nil, 0o600)))
	testkit.Must(t, s.sweepDrafts("host", time.Now().Add(draftAge)))
	if _, err := os.Stat(draft); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old draft is still there: %v", err)
	}
}

// The segments of a recording whose index is torn are removed as those of others are.
func TestTornIndexHasLimits(t *testing.T) {
	dir := t.TempDir()
	s := OpenDir(dir)
	newProgram(t, 1, 4000).record(s, nil, nil)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "host", "build@Uyy4", indexName), nil, 0o600))
	before := report(t, s, nil)
	c := &Config{Age: time.Hour}
	err := c.Retain(t.Context(), s, testName.Host, time.Now().Add(2*time.Hour))
	after := report(t, s, nil)
	if err != nil || before.Segments == 0 || after.Segments > 0 {
		t.Errorf("%d of %d segments are left, %v", after.Segments, before.Segments, err)
	}
}
