package past

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// text is output that repeats with a long period, so that bytes at a wrong offset differ.
var text = func() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"go", "build", "compile", "internal/past", "ok", "FAIL", "0.31s", "\x1b[32m", "\x1b[0m", "warning:", "unused"}
	var p []byte
	for len(p) < 1<<20+7 {
		for range 3 + r.IntN(8) {
			p = append(append(p, words[r.IntN(len(words))]...), ' ')
		}
		p = fmt.Appendf(p, "%d\r\n", r.IntN(1000))
	}
	return p
}()

func textAt(offset uint64, n int) []byte {
	p := make([]byte, 0, n)
	for len(p) < n {
		rest := text[(offset+uint64(len(p)))%uint64(len(text)):]
		p = append(p, rest[:min(len(rest), n-len(p))]...)
	}
	return p
}

// A terminal stands for a screen: it depends on each size change and its offset.
type terminal struct {
	Offset uint64
	Size   protocol.Size
	Hash   uint64
}

func (s *terminal) resize(offset uint64, size protocol.Size) {
	h := fnv.New64a()
	fmt.Fprint(h, s.Hash, offset, size)
	s.Size, s.Hash = size, h.Sum64()
}

// keyframe returns the saved screen. Its length differs from that of every other offset.
func (s terminal) keyframe(offset uint64) []byte {
	s.Offset = offset
	p, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return append(append(p, '\n'), textAt(offset, int(100+offset%5000))...)
}

// A truth has all output of a session, and its sizes.
type truth struct {
	end     uint64
	now     terminal
	resizes []terminal // the screen after each size change, at its offset
}

func (tr *truth) resize(size protocol.Size) {
	tr.now.resize(tr.end, size)
	tr.now.Offset = tr.end
	tr.resizes = append(tr.resizes, tr.now)
}

// check fails if s is not the screen at its offset. Size changes at the last offset may be
// missing, because they may not have been stored.
func (tr *truth) check(s terminal) error {
	var before terminal
	for _, r := range tr.resizes {
		if r.Offset < s.Offset {
			before = r
		}
		if r.Offset == s.Offset && r.Hash == s.Hash {
			return nil
		}
	}
	if before.Hash != s.Hash || before.Size != s.Size {
		return fmt.Errorf("the screen at %d is %+v, want %+v", s.Offset, s, before)
	}
	return nil
}

var errMissing = errors.New("bytes are missing")

// restore returns the screen of a view.
func restore(v *View) (terminal, error) {
	var s terminal
	if v.Keyframe != nil {
		head, rest, _ := bytes.Cut(v.Keyframe, []byte("\n"))
		if err := json.Unmarshal(head, &s); err != nil {
			return s, err
		}
		if s.Offset != v.KeyframeAt || !bytes.Equal(v.Keyframe, s.keyframe(s.Offset)) || len(rest) == 0 {
			return s, fmt.Errorf("the keyframe at %d differs from the stored one", v.KeyframeAt)
		}
	}
	if s.Size != v.Size {
		s.resize(0, v.Size) // of a blank screen
	}
	for p, err := range v.Replay {
		if err != nil {
			return s, err
		}
		if p.Offset != s.Offset {
			return s, fmt.Errorf("piece at %d, want %d", p.Offset, s.Offset)
		}
		switch {
		case p.Missing > 0:
			return s, fmt.Errorf("%w: %d at %d", errMissing, p.Missing, p.Offset)
		case p.Size != protocol.Size{}:
			s.resize(p.Offset, p.Size)
		default:
			if !bytes.Equal(p.Output, textAt(p.Offset, len(p.Output))) {
				return s, fmt.Errorf("wrong output at %d", p.Offset)
			}
			s.Offset += uint64(len(p.Output))
		}
	}
	if s.Offset != v.Offset {
		return s, fmt.Errorf("the replay ends at %d, want %d", s.Offset, v.Offset)
	}
	return s, nil
}

// checkAt fails unless the screen at an offset is exact.
func (tr *truth) checkAt(r *Reader, offset uint64) error {
	v, err := r.At(offset)
	if err != nil {
		return err
	}
	if !v.Exact {
		return fmt.Errorf("the screen at %d is not exact", offset)
	}
	s, err := restore(v)
	if err != nil {
		return err
	}
	return tr.check(s)
}

// A driver writes a life as a session would, with random output.
type driver struct {
	*rand.Rand
	w     *Writer
	truth *truth
	clock *clock
	big   int // bytes of the longest output
	gaps  []Gap

	// The size changes once at an offset, as in the marks of a ring. Otherwise a new writer could
	// not be told which changes the writer before it has not stored.
	isRing bool
}

// step does one thing to the session, and tells the writer.
func (d *driver) step() error {
	d.clock.advance(time.Duration(d.IntN(200)) * time.Millisecond)
	switch n := d.IntN(100); {
	case n < 60:
		length := 1 + d.IntN(200)
		if n < 20 {
			length = 1 + d.IntN(d.big)
		}
		return d.output(length)
	case n < 70:
		size := protocol.Size{Cols: 20 + d.IntN(4), Rows: 10 + d.IntN(4)}
		if size == d.truth.now.Size || d.isRing && d.truth.now.Offset == d.truth.end {
			return nil
		}
		d.truth.resize(size)
		return d.w.Resize(d.truth.end, size)
	case n < 75:
		return d.w.Mark(d.truth.end, 'C', fmt.Sprint("command ", d.truth.end))
	case n < 90:
		if err := d.w.Sync(); err != nil || d.IntN(4) > 0 && !d.w.KeyframeDue() {
			return err
		}
		return d.keyframe()
	case n < 92 || d.w.KeyframeDue() && d.w.mode == Full:
		return d.keyframe()
	}
	return nil
}

// output makes the session print so many bytes, and tells the writer.
func (d *driver) output(length int) error {
	from := d.truth.end
	d.truth.end += uint64(length)
	return d.w.Append(from, textAt(from, length))
}

func (d *driver) keyframe() error {
	return d.w.Keyframe(d.truth.end, d.truth.now.keyframe(d.truth.end))
}

// begin tells a new writer the size. If the writer before it was killed, output that was not
// stored is appended again, or is a gap if the size has changed in it.
func (d *driver) begin() error {
	if d.truth.now.Size == (protocol.Size{}) {
		d.truth.resize(protocol.Size{Cols: 80, Rows: 24})
	}
	if end := d.w.End(); end < d.truth.end {
		isResized := slices.ContainsFunc(d.truth.resizes, func(s terminal) bool { return s.Offset >= end })
		if !isResized && d.w.mode == Full {
			return d.w.Append(end, textAt(end, int(d.truth.end-end)))
		}
		d.gaps = append(d.gaps, Gap{end, d.truth.end})
		return errors.Join(d.w.Resize(d.truth.end, d.truth.now.Size), d.keyframe())
	}
	return d.w.Resize(d.truth.end, d.truth.now.Size)
}

// A clock is set by tests, also while a writer reads it in another goroutine.
type clock struct {
	mu sync.Mutex
	time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Time
}

func (c *clock) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Time = c.Add(by)
}

// newStore returns a store with a clock.
func newStore(t testing.TB) (*Store, *clock) {
	t.Helper()
	c := &clock{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s := New(t.TempDir(), nil)
	began := c.now()
	s.now, s.disk = c.now, quickDisk{s.disk}
	s.age.Now, s.age.Uptime = c.now, func() time.Duration { return c.now().Sub(began) }
	return s, c
}

// A quickDisk syncs nothing, because a disk may be slow, and only a power cut would show it.
type quickDisk struct{ disk }

func (d quickDisk) SyncDir(string) error { return nil }
func (d quickDisk) Create(path string) (file, error) {
	f, err := d.disk.Create(path)
	return quickFile{f}, err
}
func (d quickDisk) OpenToWrite(path string) (file, error) {
	f, err := d.disk.OpenToWrite(path)
	return quickFile{f}, err
}

type quickFile struct{ file }

func (quickFile) Sync() error { return nil }

var aLife = Life{"build", "0123456789abcdef"}

// open returns a writer of aLife.
func open(t testing.TB, s *Store, mode Mode) *Writer {
	t.Helper()
	w, err := s.OpenWriter(aLife, mode)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func reader(t testing.TB, s *Store) *Reader {
	t.Helper()
	r, err := s.Open(aLife)
	testkit.Must(t, err)
	return r
}
