package past

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// A life is written in both modes, by several writers one after the other. At every offset the
// screen is the exact one, and all output of a full life is there.
func TestLife(t *testing.T) {
	for _, name := range []string{"full", "screen", "full sealed", "screen sealed"} {
		word, _, isSealed := strings.Cut(name, " ")
		mode := Mode(word)
		t.Run(name, func(t *testing.T) {
			s, c := newStore(t)
			if isSealed {
				s.key = keyOf(ownIdentity)
			}
			d := &driver{Rand: rand.New(rand.NewPCG(3, 4)), truth: &truth{}, clock: c, big: 400_000}
			for range 3 {
				d.w = open(t, s, mode)
				if d.w.End() != d.truth.end && mode == Full {
					t.Fatalf("the writer continues at %d, want %d", d.w.End(), d.truth.end)
				}
				testkit.Must(t, d.begin())
				for range 100 {
					testkit.Must(t, d.step())
				}
				if d.w.KeyframeDue() {
					testkit.Must(t, d.keyframe())
				}
				testkit.Must(t, d.w.Sync())
				if got := d.w.syncedTo(); got != d.truth.end {
					t.Fatalf("the life is durable up to %d, want %d", got, d.truth.end)
				}
				testkit.Must(t, d.w.Close())
				checkAll(t, d, reader(t, s), mode)
			}
		})
	}
}

// checkAll compares all that is stored with the truth.
func checkAll(t *testing.T, d *driver, r *Reader, mode Mode) {
	t.Helper()
	b, err := r.Bounds()
	testkit.Must(t, err)
	if b.End != d.truth.end || b.Exact != b.End || b.Start != 0 && mode == Full {
		t.Fatalf("bounds are %+v, want 0 to %d", b, d.truth.end)
	}
	for i := range 40 {
		offset := b.Start + d.Uint64N(b.End-b.Start+1)
		if i == 0 {
			offset = b.End
		}
		err := d.truth.checkAt(r, offset)
		if mode == Screen && (errors.Is(err, ErrNoKeyframe) || err != nil && strings.Contains(err.Error(), "not exact")) {
			err = nil // of this offset no output was stored
		}
		testkit.Must(t, err)
	}
	if mode == Screen {
		if n := len(names(t, r.dir)); n > 3 {
			t.Errorf("%d files: %v", n, names(t, r.dir))
		}
		return
	}
	if gaps, err := r.Gaps(); len(gaps) > 0 || err != nil {
		t.Fatalf("gaps: %v, %v", gaps, err)
	}
	for range 10 {
		from := d.Uint64N(b.End)
		to := from + d.Uint64N(b.End-from+1)
		at := from
		for p, err := range r.Range(from, to) {
			testkit.Must(t, err)
			if p.Missing > 0 || p.Offset != at || !bytes.Equal(p.Output, textAt(at, len(p.Output))) {
				t.Fatalf("from %d to %d: wrong piece at %d: %d bytes at %d, %d missing", from, to, at, len(p.Output), p.Offset, p.Missing)
			}
			at += uint64(len(p.Output))
		}
		if at != to {
			t.Fatalf("from %d to %d: ends at %d", from, to, at)
		}
	}
	n := 0
	for m, err := range marks(r, 0, b.End) {
		testkit.Must(t, err)
		if n++; m.Text != fmt.Sprint("command ", m.Offset) || m.Kind != 'C' {
			t.Fatalf("mark %+v", m)
		}
	}
	if n == 0 {
		t.Error("no marks")
	}
}

// marks returns the shell marks from one offset to another.
func marks(r *Reader, from, to uint64) iter.Seq2[Note, error] {
	return func(yield func(Note, error) bool) {
		for n, err := range r.Notes(from, to) {
			if (n.Kind != 0 || err != nil) && !yield(n, err) {
				return
			}
		}
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testkit.Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Times are those of the output, to 100 ms.
func TestTimes(t *testing.T) {
	s, c := newStore(t)
	w := open(t, s, Full)
	began := c.Time
	for i := range uint64(100) { // 10 bytes each 50 ms
		testkit.Must(t, w.Append(10*i, textAt(10*i, 10)))
		if i%20 == 0 {
			testkit.Must(t, w.Keyframe(10*i+10, []byte("k")))
		}
		c.Time = c.Add(50 * time.Millisecond)
	}
	testkit.Must(t, w.Sync())
	r := reader(t, s)
	for i := range uint64(100) {
		at, err := r.TimeAt(10*i + 5)
		testkit.Must(t, err)
		if late := began.Add(time.Duration(i) * 50 * time.Millisecond).Sub(at); late < 0 || late > timeEvery {
			t.Errorf("the time at %d is %v, which is %v early", 10*i+5, at, late)
		}
		offset, err := r.OffsetAt(at)
		testkit.Must(t, err)
		if offset <= 10*i || offset > 10*i+30 {
			t.Errorf("the offset at %v is %d, want the end of the output then, after %d", at, offset, 10*i)
		}
	}
	if _, err := r.OffsetAt(began.Add(-time.Second)); !errors.Is(err, ErrGone) {
		t.Errorf("before the first output: %v", err)
	}
	if offset, err := r.OffsetAt(began.Add(time.Hour)); offset != 1000 || err != nil {
		t.Errorf("after the last output: %d, %v", offset, err)
	}
	if _, err := r.TimeAt(1001); !errors.Is(err, ErrAhead) {
		t.Errorf("behind the end: %v", err)
	}
}

// Output that was not appended is a gap, behind which the screen is not exact until the next
// keyframe.
func TestGap(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	testkit.Must(t, w.Append(0, textAt(0, 100)), w.Append(50, textAt(50, 60)), w.Append(20, textAt(20, 10)))
	if w.KeyframeDue() {
		t.Error("a keyframe is due although no output is missing")
	}
	testkit.Must(t, w.Append(200, textAt(200, 50)))
	if !w.KeyframeDue() {
		t.Error("no keyframe is due behind the gap")
	}
	testkit.Must(t, w.Sync())
	r := reader(t, s)
	if gaps, err := r.Gaps(); !slices.Equal(gaps, []Gap{{110, 200}}) || err != nil {
		t.Errorf("gaps %v, %v", gaps, err)
	}
	if b, err := r.Bounds(); b != (Bounds{0, 250, 110}) || err != nil {
		t.Errorf("bounds %v, %v", b, err)
	}
	if v, err := r.At(240); err != nil || v.Exact {
		t.Errorf("behind the gap: %+v, %v", v, err)
	}
	testkit.Must(t, w.Keyframe(300, []byte("k")), w.Sync())
	if b, err := r.Bounds(); b != (Bounds{0, 300, 300}) || err != nil {
		t.Errorf("bounds %v, %v", b, err)
	}
	var got []Piece
	for p, err := range r.Range(100, 400) {
		testkit.Must(t, err)
		p.Output, p.Time = nil, time.Time{}
		got = append(got, p)
	}
	if want := []Piece{{Offset: 100}, {Offset: 110, Missing: 90}, {Offset: 200}, {Offset: 250, Missing: 50}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("pieces %v, want %v", got, want)
	}
	if err := w.Keyframe(299, []byte("k")); !errors.Is(err, ErrBehind) {
		t.Errorf("keyframe of an earlier offset: %v", err)
	}
	if got := w.Stats().Missing; got != 140 {
		t.Errorf("%d bytes are missing, want 140", got)
	}
}

// A new keyframe at the same offset replaces the old one, whose screen may have been cleared
// because it must not be stored. Marks stay.
func TestReplacedKeyframe(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	testkit.Must(t, w.Append(0, textAt(0, 100)), w.Keyframe(100, []byte("a secret")), w.Mark(100, 'A', "prompt"),
		w.Resize(100, protocol.Size{Cols: 10, Rows: 10}), w.Sync(), w.Keyframe(100, []byte("cleared")), w.Sync())
	r := reader(t, s)
	v, err := r.At(100)
	testkit.Must(t, err)
	if string(v.Keyframe) != "cleared" || v.Size.Cols != 10 {
		t.Errorf("the keyframe is %q, %v", v.Keyframe, v.Size)
	}
	for p := range v.Replay {
		t.Errorf("replay has %+v", p)
	}
	for m, err := range marks(r, 0, 100) {
		if m.Text != "prompt" || err != nil {
			t.Errorf("mark %+v, %v", m, err)
		}
	}
	for _, name := range names(t, r.dir) {
		if p, err := os.ReadFile(filepath.Join(r.dir, name)); bytes.Contains(p, []byte("secret")) || err != nil {
			t.Errorf("%s has the secret, %v", name, err)
		}
	}
}

// Without keyframes a segment is closed at its limit, and the screen stays exact.
func TestNoKeyframes(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	tr := &truth{}
	tr.resize(protocol.Size{Cols: 80, Rows: 24})
	testkit.Must(t, w.Resize(0, tr.now.Size))
	for tr.end < maxSegment+1<<20 {
		testkit.Must(t, w.Append(tr.end, textAt(tr.end, 100_000)))
		tr.end += 100_000
	}
	if !w.KeyframeDue() {
		t.Error("no keyframe is due")
	}
	testkit.Must(t, w.Sync())
	r := reader(t, s)
	if got := names(t, r.dir); len(got) != 2 || !strings.Contains(got[0], "-") {
		t.Errorf("files %v", got)
	}
	testkit.Must(t, tr.checkAt(r, tr.end))
}

// An idle life causes no write and no sync.
func TestIdle(t *testing.T) {
	for _, mode := range []Mode{Full, Screen} {
		s, _ := newStore(t)
		w := open(t, s, mode)
		meta := Meta{Argv: []string{"sh"}}
		testkit.Must(t, w.Resize(0, protocol.Size{Cols: 80, Rows: 24}), w.Append(0, []byte("text")), w.SetMeta(meta), w.Sync())
		before := w.Stats()
		for range 10 {
			testkit.Must(t, w.Sync(), w.Append(4, nil), w.Append(0, []byte("text")), w.Resize(4, protocol.Size{Cols: 80, Rows: 24}), w.SetMeta(meta))
		}
		if after := w.Stats(); after != before {
			t.Errorf("%s: %+v, then %+v", mode, before, after)
		}
	}
}

// In the mode Screen a flood of output costs only one keyframe for each Sync.
func TestCapsuleIsBounded(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Screen)
	var end uint64
	for round := range 5 {
		for range 200 {
			testkit.Must(t, w.Append(end, textAt(end, 50_000)))
			end += 50_000
		}
		if !w.KeyframeDue() {
			t.Fatal("no keyframe is due")
		}
		if round%2 == 0 {
			testkit.Must(t, w.Sync()) // the screen is still exact, but old
		}
		testkit.Must(t, w.Keyframe(end, []byte(fmt.Sprint("screen at ", end))), w.Sync())
		if w.KeyframeDue() || w.syncedTo() != end {
			t.Errorf("the life is durable up to %d, want %d", w.syncedTo(), end)
		}
	}
	if got := w.Stats().Written; got > 5*CapsuleBytes {
		t.Errorf("%d bytes were written for %d", got, end)
	}
	v, err := reader(t, s).At(end)
	testkit.Must(t, err)
	if string(v.Keyframe) != fmt.Sprint("screen at ", end) {
		t.Errorf("the keyframe is %q", v.Keyframe)
	}
}

// A slow session has a small block for each Sync. They are packed when the segment is closed.
func TestPack(t *testing.T) {
	s, c := newStore(t)
	w := open(t, s, Full)
	d := &driver{Rand: rand.New(rand.NewPCG(5, 6)), w: w, truth: &truth{}, clock: c, big: 10}
	testkit.Must(t, d.begin())
	for i := 0; d.truth.end < 300_000; i++ {
		if i%20 == 0 {
			d.truth.resize(protocol.Size{Cols: 20 + i%3, Rows: 10})
			testkit.Must(t, w.Resize(d.truth.end, d.truth.now.Size), w.Mark(d.truth.end, 'C', fmt.Sprint("command ", d.truth.end)))
		}
		c.Time = c.Add(time.Second)
		testkit.Must(t, w.Append(d.truth.end, textAt(d.truth.end, 500)), w.Sync())
		d.truth.end += 500
	}
	before := files(t, reader(t, s).dir)
	testkit.Must(t, d.keyframe(), w.Sync())
	r := reader(t, s)
	after := files(t, r.dir)
	t.Logf("%d bytes of output, %d bytes before, %d after", d.truth.end, before, after)
	if after > before/2 {
		t.Errorf("%d bytes became %d", before, after)
	}
	checkAll(t, d, r, Full)
}

func files(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	for _, name := range names(t, dir) {
		n, err := size(filepath.Join(dir, name))
		testkit.Must(t, err)
		bytes += n
	}
	return bytes
}

// A caller that seldom syncs still makes blocks of a valid length.
func TestSeldomSynced(t *testing.T) {
	for _, mode := range []Mode{Full, Screen} {
		s, c := newStore(t)
		w := open(t, s, mode)
		tr := &truth{}
		tr.resize(protocol.Size{Cols: 80, Rows: 24})
		testkit.Must(t, w.Resize(0, tr.now.Size))
		for i := range 20_000 {
			c.Time = c.Add(timeEvery)
			testkit.Must(t, w.Append(tr.end, textAt(tr.end, 1)))
			tr.end++
			if i%10 == 0 {
				testkit.Must(t, w.Mark(tr.end, 'A', strings.Repeat("x", i%MaxMark)))
			}
			if i%3 == 0 {
				tr.resize(protocol.Size{Cols: 81 + i%7, Rows: 24})
				testkit.Must(t, w.Resize(tr.end, tr.now.Size))
			}
		}
		if w.KeyframeDue() {
			testkit.Must(t, w.Keyframe(tr.end, tr.now.keyframe(tr.end)))
		}
		testkit.Must(t, w.Sync())
		testkit.Must(t, tr.checkAt(reader(t, s), tr.end))
	}
}

// Only one writer has a life.
func TestInUse(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	if _, err := s.OpenWriter(aLife, Full); !errors.Is(err, ErrInUse) {
		t.Errorf("a second writer: %v", err)
	}
	if err := s.Forget(aLife); !errors.Is(err, ErrInUse) {
		t.Errorf("forget: %v", err)
	}
	testkit.Must(t, w.Close())
	for _, err := range []error{w.Append(0, []byte("a")), w.Keyframe(0, []byte("a")), w.Sync(), w.SetMeta(Meta{}), w.Mark(0, 0, ""), w.Resize(0, protocol.Size{})} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	open(t, s, Full)
}

// Lives are listed with their meta data, and damaged ones with an error.
func TestList(t *testing.T) {
	s, _ := newStore(t)
	if entries, err := s.List(); len(entries) > 0 || err != nil {
		t.Fatalf("an empty store has %v, %v", entries, err)
	}
	w := open(t, s, Full)
	meta := Meta{Mode: Full, Argv: []string{"make", "all"}, Cwd: "/src", Exit: &protocol.ExitRecord{ExitCode: 3}, Labels: map[string]string{"a": "b"}}
	testkit.Must(t, w.SetMeta(meta), w.Append(0, textAt(0, 1000)), w.Close())
	for name, content := range map[string]string{"bad@1": "{", "new@1": `{"version":2}`, "old@1": `{}`, "long@1": strings.Repeat(" ", maxMetaBytes+1)} {
		testkit.Must(t, os.Mkdir(filepath.Join(s.dir, name), 0o700), os.WriteFile(filepath.Join(s.dir, name, metaName), []byte(content), 0o600))
	}
	testkit.Must(t, os.Mkdir(filepath.Join(s.dir, "none@1"), 0o700), os.Mkdir(filepath.Join(s.dir, "lost+found"), 0o700), os.WriteFile(filepath.Join(s.dir, "file@1"), nil, 0o600))
	entries, err := s.List()
	testkit.Must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprint(e.Life, " ", errors.Is(e.Err, ErrDamaged), errors.Is(e.Err, ErrVersion), errors.Is(e.Err, fs.ErrNotExist)))
	}
	want := []string{"bad@1 true false false", "build@0123456789abcdef false false false", "long@1 true false false", "new@1 false true false", "none@1 false false true", "old@1 true false false"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	e := entries[1]
	meta.Version = metaVersion
	if fmt.Sprintf("%+v", e.Meta) == "" || e.Meta.Exit == nil || e.Meta.Exit.ExitCode != 3 || !slices.Equal(e.Meta.Argv, meta.Argv) || e.Bytes != files(t, s.path(aLife)) {
		t.Errorf("got %+v", e)
	}
	for _, e := range entries {
		testkit.Must(t, s.Forget(e.Life), s.Forget(e.Life))
	}
	if entries, err := s.List(); len(entries) > 0 || err != nil {
		t.Errorf("after all were forgotten: %v, %v", entries, err)
	}
	if _, err := s.Open(aLife); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	for _, l := range []Life{{"..", "x"}, {"a/b", "x"}, {"a", ""}, {"a@b", "c"}} {
		if _, err := s.OpenWriter(l, Full); err == nil {
			t.Errorf("%v was written", l)
		}
		if err := s.Forget(l); err == nil {
			t.Errorf("%v was forgotten", l)
		}
	}
}

// The description of each session that the protocol admits fits into meta.json.
func TestLargestSpec(t *testing.T) {
	bell := strings.Repeat("\a", protocol.MaxSpawnBytes) // JSON writes each as six bytes
	labels := make(map[string]string)
	for i := range protocol.MaxLabels {
		name := fmt.Sprintf("%02d", i)
		labels[name] = bell[:protocol.MaxLabelBytes/protocol.MaxLabels-len(name)]
	}
	many := slices.Repeat([]string{"\a"}, protocol.MaxArgs)
	cwd := "/" + bell[:protocol.MaxCwdBytes-1]
	size := protocol.MaxSpawnBytes - len(cwd)
	for name, spec := range map[string]protocol.SpawnSpec{
		"arguments":   {Argv: append(slices.Clone(many[1:]), bell[:size-2*len(many)+1]), Cwd: cwd},
		"environment": {Argv: []string{"sh"}, Env: []string{"LC_" + bell[:size-len("sh\x00LC_=\x00")] + "="}, Cwd: cwd}, // stored as a name, and with its value
	} {
		spec.Labels = labels
		testkit.Must(t, spec.Validate())
		encoded, err := json.Marshal(spec)
		testkit.Must(t, err)
		m := Meta{Argv: protocol.CutArgv(spec.Argv), Cwd: cwd, Labels: labels, Title: bell[:protocol.MaxTitle], Spec: encoded}
		for _, e := range spec.Env {
			m.EnvNames = append(m.EnvNames, strings.TrimSuffix(e, "="))
		}
		for _, key := range []*Key{nil, ownKey} {
			s, _ := newStore(t)
			s.key = key
			w := open(t, s, Full)
			if err := w.SetMeta(m); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got, err := reader(t, s).Meta(); err != nil || len(got.Spec) < size {
				t.Errorf("%s: a spec of %d bytes, %v", name, len(got.Spec), err)
			}
		}
	}
	s, _ := newStore(t)
	testkit.Must(t, open(t, s, Full).SetMeta(Meta{Cwd: "/a&b<c>"}))
	if file, err := os.ReadFile(filepath.Join(s.path(aLife), metaName)); err != nil || !strings.Contains(string(file), "/a&b<c>") {
		t.Errorf("meta.json is %s, %v", file, err)
	}
}

// Only the user can read the stored files.
func TestPermissions(t *testing.T) {
	s := New(filepath.Join(t.TempDir(), "state", "sessions"), nil)
	w := open(t, s, Full)
	testkit.Must(t, w.SetMeta(Meta{}), w.Append(0, textAt(0, 1000)), w.Keyframe(1000, []byte("k")), w.Close())
	testkit.Must(t, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if want := map[bool]fs.FileMode{true: 0o700 | fs.ModeDir, false: 0o600}[d.IsDir()]; err == nil && info.Mode() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
}

// Budgets delete the oldest segments; the last keyframe and meta.json stay.
func TestTrim(t *testing.T) {
	s, c := newStore(t)
	write := func(id protocol.SessionID, segments int) int64 {
		l := Life{id, "1"}
		w, err := s.OpenWriter(l, Full)
		testkit.Must(t, err)
		testkit.Must(t, w.SetMeta(Meta{}))
		for i := range uint64(segments) {
			testkit.Must(t, w.Keyframe(10_000*i, []byte("k")), w.Append(10_000*i, bytes.Repeat([]byte{byte(i)}, 10_000)))
		}
		testkit.Must(t, w.Close())
		for i, name := range names(t, s.path(l)) {
			at := c.Add(time.Duration(i) * time.Hour)
			testkit.Must(t, os.Chtimes(filepath.Join(s.path(l), name), at, at))
		}
		return files(t, s.path(l))
	}
	start := func(id protocol.SessionID) uint64 {
		r, err := s.Open(Life{id, "1"})
		testkit.Must(t, err)
		b, err := r.Bounds()
		testkit.Must(t, err)
		return b.Start
	}
	a, b := write("a", 10), write("b", 5)
	got, err := s.Trim(Policy{})
	testkit.Must(t, err)
	if got != (Trimmed{Left: a + b}) {
		t.Errorf("no limit: %+v", got)
	}
	got, err = s.Trim(Policy{PerLife: b})
	testkit.Must(t, err)
	if got.Segments != 5 || got.Bytes+got.Left != a+b || start("a") != 50_000 || start("b") != 0 {
		t.Errorf("per life: %+v, a begins at %d, b at %d", got, start("a"), start("b"))
	}
	c.Time = c.Add(100 * time.Hour)
	got, err = s.Trim(Policy{Age: 94*time.Hour + time.Minute})
	testkit.Must(t, err)
	if got.Segments != 4 || start("a") != 60_000 || start("b") != 30_000 {
		t.Errorf("age: %+v, a begins at %d, b at %d", got, start("a"), start("b"))
	}
	got, err = s.Trim(Policy{Total: 1})
	testkit.Must(t, err)
	if start("a") != 80_000 || start("b") != 30_000 { // the last closed segment and the open one remain
		t.Errorf("total: %+v, a begins at %d, b at %d", got, start("a"), start("b"))
	}
	if m, err := s.List(); err != nil || m[0].Err != nil || m[1].Err != nil {
		t.Errorf("meta: %v, %v", m, err)
	}
	// A damaged keyframe does not count.
	write("c", 5)
	dir := s.path(Life{"c", "1"})
	last := filepath.Join(dir, closedName(30_000, 40_000))
	p, err := os.ReadFile(last)
	testkit.Must(t, err)
	p[headBytes+blockHeadBytes] ^= 1
	testkit.Must(t, os.WriteFile(last, p, 0o600))
	_, err = s.Trim(Policy{Total: 1})
	testkit.Must(t, err)
	if start("c") != 20_000 {
		t.Errorf("c begins at %d", start("c"))
	}
}

// A reader finds whole blocks at every instant while a writer writes, syncs and closes.
func TestReadAndWriteAtOnce(t *testing.T) {
	s, c := newStore(t)
	d := &driver{Rand: rand.New(rand.NewPCG(7, 8)), w: open(t, s, Full), truth: &truth{}, clock: c, big: 300_000}
	testkit.Must(t, d.begin())
	done := make(chan error)
	stop := make(chan struct{})
	go func() { // only output is compared, because truth belongs to the writer
		r, last := reader(t, s), uint64(0)
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			b, err := r.Bounds()
			if err != nil || b.End < last {
				done <- fmt.Errorf("bounds %+v after %d, %w", b, last, err)
				return
			}
			last = b.End
			at := b.End - min(b.End, 500_000)
			for p, err := range r.Range(at, b.End) {
				if err != nil || p.Offset != at || p.Missing > 0 || !bytes.Equal(p.Output, textAt(at, len(p.Output))) {
					done <- fmt.Errorf("at %d: %d bytes at %d, %d missing, %w", at, len(p.Output), p.Offset, p.Missing, err)
					return
				}
				at += uint64(len(p.Output))
			}
			if at != b.End {
				done <- fmt.Errorf("the output ends at %d, want %d", at, b.End)
				return
			}
			if v, err := r.At(b.End); b.End > 0 && (err != nil || !v.Exact) {
				done <- fmt.Errorf("at the end %d: %w", b.End, err)
				return
			}
		}
	}()
	for range 500 {
		testkit.Must(t, d.step())
	}
	close(stop)
	testkit.Must(t, <-done)
}

// Sync may be called while another goroutine appends.
func TestSyncAndAppendAtOnce(t *testing.T) {
	for _, mode := range []Mode{Full, Screen} {
		s, c := newStore(t)
		d := &driver{Rand: rand.New(rand.NewPCG(9, 10)), w: open(t, s, mode), truth: &truth{}, clock: c, big: 300_000}
		testkit.Must(t, d.begin())
		done, stop := make(chan error), make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if err := d.w.Sync(); err != nil {
					done <- err
					return
				}
			}
		}()
		for range 200 {
			testkit.Must(t, d.step())
		}
		close(stop)
		testkit.Must(t, <-done, d.keyframe(), d.w.Sync())
		checkAll(t, d, reader(t, s), mode)
	}
}

// syncedTo returns the offset up to which the output survives a loss of power.
func (w *Writer) syncedTo() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced
}

// size returns the length of a file.
func size(path string) (int64, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// A keyframe without output stays until a newer one is durable, also if output is missing behind it.
func TestGapBehindKeyframe(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	testkit.Must(t, w.Append(0, textAt(0, 10)), w.Keyframe(100, []byte("keyframe")), w.Sync())
	exact := func(want uint64) {
		t.Helper()
		b, err := reader(t, s).Bounds()
		testkit.Must(t, err)
		if b.Exact != want {
			t.Errorf("the bounds are %+v; the last exact screen should be that at %d", b, want)
		}
	}
	exact(100)
	for range 2 { // the second writer continues after a kill
		testkit.Must(t, w.Append(w.End()+100, textAt(w.End()+100, 10)), w.Sync())
		exact(100)
		w.lock.Close()
		w = open(t, s, Full)
		exact(100)
	}
	testkit.Must(t, w.Keyframe(400, []byte("newer")), w.Append(400, textAt(400, 1)), w.Sync())
	exact(401)
	testkit.Must(t, w.Close())
	open(t, s, Full)
	if all := names(t, s.path(aLife)); slices.Contains(all, openName(100)) {
		t.Errorf("the files are %q, of which one has no output", all)
	}
}

// A life of which a power cut has left no output and no description is discarded. All others stay.
func TestDiscardUnbegun(t *testing.T) {
	for _, tt := range []struct {
		files string
		gone  bool
	}{{"", true}, {"key", true}, {"meta.json~ key", true}, {"meta.json", false}, {"0000000000000000000", false}, {"key other", false}} {
		s, _ := newStore(t)
		l := Life{"a", "1"}
		testkit.Must(t, os.MkdirAll(s.path(l), 0o700))
		for _, name := range strings.Fields(tt.files) {
			testkit.Must(t, os.WriteFile(filepath.Join(s.path(l), name), nil, 0o600))
		}
		lock, err := lockDir(s.path(l))
		testkit.Must(t, err)
		if gone, err := s.DiscardUnbegun(l); gone || err != nil {
			t.Errorf("%q, which a writer has: %v, %v", tt.files, gone, err)
		}
		lock.Close()
		if gone, err := s.DiscardUnbegun(l); gone != tt.gone || err != nil {
			t.Errorf("%q: %v, %v", tt.files, gone, err)
		}
		if all, err := s.List(); (len(all) == 0) != tt.gone || err != nil {
			t.Errorf("%q: the list is %v, %v", tt.files, all, err)
		}
	}
}
