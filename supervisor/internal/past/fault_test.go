//go:build unix

package past

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// A brokenDisk fails at random, and then writes only a part of the data.
type brokenDisk struct {
	disk
	*rand.Rand
	isBroken bool
	failed   int
}

func (d *brokenDisk) fail() error {
	if !d.isBroken || d.IntN(3) > 0 {
		return nil
	}
	d.failed++
	return []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS}[d.IntN(3)]
}

func (d *brokenDisk) Create(path string) (file, error) {
	if err := d.fail(); err != nil {
		return nil, err
	}
	f, err := d.disk.Create(path)
	return brokenFile{f, d}, err
}

func (d *brokenDisk) Rename(from, to string) error {
	return errors.Join(d.fail(), d.disk.Rename(from, to))
}

func (d *brokenDisk) Remove(path string) error { return errors.Join(d.fail(), d.disk.Remove(path)) }

func (d *brokenDisk) SyncDir(path string) error {
	return errors.Join(d.fail(), d.disk.SyncDir(path))
}

type brokenFile struct {
	file
	disk *brokenDisk
}

func (f brokenFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.disk.fail(); err != nil {
		n, _ := f.file.WriteAt(p[:f.disk.IntN(len(p))], at)
		return n, err
	}
	return f.file.WriteAt(p, at)
}

func (f brokenFile) Truncate(n int64) error {
	if err := f.disk.fail(); err != nil {
		return err
	}
	return f.file.Truncate(n)
}

func (f brokenFile) Sync() error { return errors.Join(f.disk.fail(), f.file.Sync()) }

// A forgetfulDisk cannot write a part of a file, and its kernel reports that once, for the next sync. It then returns that part
// from its memory, and syncs the file without an error.
type forgetfulDisk struct {
	disk
	isBroken bool
	synced   int64       // the length of the file at its last sync
	lost     os.FileInfo // the file of which the part from synced up to its length is not on the disk
}

func (d *forgetfulDisk) Create(path string) (file, error) {
	f, err := d.disk.Create(path)
	return forgetfulFile{f, d}, err
}

func (d *forgetfulDisk) OpenToWrite(path string) (file, error) {
	f, err := d.disk.OpenToWrite(path)
	return forgetfulFile{f, d}, err
}

type forgetfulFile struct {
	file
	disk *forgetfulDisk
}

func (f forgetfulFile) Sync() error {
	info, err := f.file.(systemFile).Stat()
	if f.disk.isBroken && err == nil {
		f.disk.isBroken, f.disk.lost = false, info
		return syscall.EIO
	}
	if f.disk.lost == nil && err == nil {
		f.disk.synced = info.Size()
	}
	return err
}

// Output that a kernel could not write is written again, although it reports that only once. Otherwise a power cut would
// damage the segment there, and hide all that was stored behind it.
func TestSyncFailsOnce(t *testing.T) {
	for _, mode := range []Mode{Screen, Full} {
		s := New(t.TempDir(), nil)
		d := &forgetfulDisk{disk: s.disk}
		s.disk = d
		w := open(t, s, mode)
		testkit.Must(t, w.Append(0, []byte("durable, ")))
		testkit.Must(t, w.Sync())
		testkit.Must(t, w.Append(w.End(), []byte("written again, ")))
		d.isBroken = true
		if err := w.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: the sync on a broken disk: %v", mode, err)
		}
		_ = w.Close() // the recorder does so after an error
		w = open(t, s, mode)
		testkit.Must(t, w.Append(w.End(), []byte("and continued")))
		testkit.Must(t, w.Close())

		path := filepath.Join(s.path(aLife), openName(0))
		info, err := os.Stat(path)
		testkit.Must(t, err)
		if os.SameFile(info, d.lost) { // a power cut: the memory of the kernel is gone
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			testkit.Must(t, err)
			_, err = f.WriteAt(make([]byte, d.lost.Size()-d.synced), d.synced)
			testkit.Must(t, errors.Join(err, f.Close()))
		}
		if got := outputOf(t, reader(t, s)); got != "durable, written again, and continued" {
			t.Errorf("%s: the output is %q", mode, got)
		}
	}
}

// However a disk fails, the output that was written stays exact. The caller handles errors as the comment of Writer
// says. If the disk works again, the writer does, too.
func TestBrokenDisk(t *testing.T) {
	seeds := uint64(4)
	if os.Getenv("HOLDFAST_LONG") != "" {
		seeds = 100
	}
	for _, mode := range []Mode{Full, Screen} {
		for seed := range seeds {
			r := rand.New(rand.NewPCG(seed, 7))
			s, c := newStore(t)
			broken := &brokenDisk{disk: s.disk, Rand: r}
			s.disk = broken
			d := &driver{Rand: r, w: open(t, s, mode), truth: &truth{}, clock: c, big: 200_000}
			testkit.Must(t, d.begin())
			for i := range 200 {
				broken.isBroken = i > 20 && i < 150 && i/20%2 == 1
				failed := broken.failed
				err := d.step()
				if err == nil {
					continue
				}
				if broken.failed == failed {
					t.Fatalf("%s, seed %d: an error without a cause: %v", mode, seed, err)
				}
				if d.w.End() > d.truth.end {
					t.Fatalf("%s, seed %d: the writer ends at %d, behind the output %d", mode, seed, d.w.End(), d.truth.end)
				}
				d.resume()
			}
			broken.isBroken = false
			d.resume()
			testkit.Must(t, d.keyframe(), d.w.Sync())
			rd := reader(t, s)
			b, err := rd.Bounds()
			testkit.Must(t, err)
			if b.End != d.truth.end || b.Exact != b.End {
				t.Fatalf("%s, seed %d: bounds %+v, want the end %d", mode, seed, b, d.truth.end)
			}
			d.checkExact(t, rd, b, seed)
			testkit.Must(t, d.w.Close())
			d.w = open(t, s, mode)
			if d.w.End() != b.End || d.w.KeyframeDue() {
				t.Fatalf("%s, seed %d: the next writer continues at %d, want %d", mode, seed, d.w.End(), b.End)
			}
		}
	}
}

// resume does as a caller does after an error: it appends the output from End on that the ring
// still has, with its size changes, or leaves a gap. Errors are ignored here; resume is called
// again after the next one.
func (d *driver) resume() {
	end := d.w.End()
	if end >= d.truth.end || d.IntN(2) == 0 {
		_ = d.w.Resize(max(end, d.truth.end), d.truth.now.Size)
		return
	}
	for _, r := range d.truth.resizes {
		if r.Offset > end {
			if d.w.Append(end, textAt(end, int(r.Offset-end))) != nil || d.w.Resize(r.Offset, r.Size) != nil {
				return
			}
			end = r.Offset
		} else if r.Offset == end {
			_ = d.w.Resize(end, r.Size)
		}
	}
	_ = d.w.Append(end, textAt(end, int(d.truth.end-end)))
}

// checkExact checks the screens that a reader reports as exact.
func (d *driver) checkExact(t *testing.T, r *Reader, b Bounds, seed uint64) {
	t.Helper()
	for range 50 {
		offset := b.Start + d.Uint64N(b.End-b.Start+1)
		v, err := r.At(offset)
		if errors.Is(err, ErrNoKeyframe) || err == nil && !v.Exact {
			continue
		}
		testkit.Must(t, err)
		s, err := restore(v)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		_ = s // a size change at an offset where a write failed may be appended twice
	}
}

// The directory may be removed while a life is written. It is made again with the next segment.
func TestRemovedDirectory(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	testkit.Must(t, w.SetMeta(Meta{Title: "t"}), w.Append(0, textAt(0, 1000)), w.Sync(), os.RemoveAll(w.dir), w.Append(1000, textAt(1000, 10)))
	if err := w.Sync(); !errors.Is(err, ErrRemoved) {
		t.Fatalf("sync: %v", err)
	}
	if !w.KeyframeDue() {
		t.Error("no keyframe is due")
	}
	testkit.Must(t, w.Keyframe(1010, []byte("k")), w.Append(1010, textAt(1010, 90)), w.Sync())
	r := reader(t, s)
	if b, err := r.Bounds(); b != (Bounds{1010, 1100, 1100}) || err != nil {
		t.Errorf("bounds %+v, %v", b, err)
	}
	if m, err := r.Meta(); m.Title != "t" || err != nil {
		t.Errorf("meta %+v, %v", m, err)
	}
	if _, err := s.OpenWriter(aLife, Full); !errors.Is(err, ErrInUse) {
		t.Errorf("a second writer: %v", err)
	}
}

// A file that is damaged anywhere gives an error or less output, and never other output.
func TestDamage(t *testing.T) {
	s, c := newStore(t)
	d := &driver{Rand: rand.New(rand.NewPCG(11, 12)), w: open(t, s, Full), truth: &truth{}, clock: c, big: 50_000}
	testkit.Must(t, d.begin())
	for range 60 {
		testkit.Must(t, d.step())
	}
	testkit.Must(t, d.w.Close())
	dir := d.w.dir
	for i := range 300 {
		all := names(t, dir)
		path := filepath.Join(dir, all[d.IntN(len(all))])
		whole, err := os.ReadFile(path)
		testkit.Must(t, err)
		torn := append([]byte{}, whole...)
		if i%2 == 0 {
			torn = torn[:d.IntN(len(torn))]
		} else {
			torn[d.IntN(len(torn))] ^= byte(1 + d.IntN(255))
		}
		testkit.Must(t, os.WriteFile(path, torn, 0o600))
		readAll(t, s)
		testkit.Must(t, os.WriteFile(path, whole, 0o600))
	}
	r := reader(t, s)
	checkAll(t, d, r, Full)
}

// unread lets the disk refuse reads of a byte of a file, until the test ends or the returned function is called.
func unread(t *testing.T, path string, place int) (end func()) {
	t.Helper()
	before := readAt
	readAt = func(f *os.File, p []byte, at int64) (int, error) {
		if f.Name() == path && at <= int64(place) && int64(place) < at+int64(len(p)) {
			return 0, &os.PathError{Op: "read", Path: path, Err: syscall.EIO}
		}
		return before(f, p, at)
	}
	end = func() { readAt = before }
	t.Cleanup(end)
	return end
}

// A part of a closed segment that is damaged, or that the disk does not return, is a gap. All other output, times and marks
// can be read.
func TestDamageIsGap(t *testing.T) {
	const part = 100_000 // shorter blocks would be packed into one
	s, c := newStore(t)
	w := open(t, s, Full)
	testkit.Must(t, w.Resize(0, protocol.Size{Cols: 80, Rows: 24}))
	times := make(map[uint64]time.Time)
	for at := uint64(0); at < 6*part; at += part { // three closed segments of two blocks of output, and an open one
		if at%(2*part) == 0 && at > 0 {
			testkit.Must(t, w.Keyframe(at, []byte("k")))
		}
		times[at] = c.now()
		testkit.Must(t, w.Append(at, textAt(at, part)), w.Mark(at, 'D', "mark"), w.Sync())
		c.advance(time.Second)
	}
	testkit.Must(t, w.Keyframe(6*part, []byte("k")), w.Append(6*part, textAt(6*part, 100)), w.Close())
	path := filepath.Join(w.dir, closedName(2*part, 4*part))
	whole, err := os.ReadFile(path)
	testkit.Must(t, err)
	first, second := -1, -1 // places of the payloads of output
	walk, err := openWalk(path, nil, true)
	testkit.Must(t, err)
	for {
		b, err := walk.next()
		if err == io.EOF {
			break
		}
		testkit.Must(t, err)
		if b.kind == kindOutput && first < 0 {
			first = int(walk.place)
		} else if b.kind == kindOutput {
			second = int(walk.place)
		}
	}
	walk.Close()
	type test struct {
		name     string
		byte     int
		from, to uint64 // the gap
		entries  uint64 // the times and marks are known up to this offset
	}
	tests := []test{
		{"header", 3, 2 * part, 4 * part, 2 * part},
		{"first output", first, 2 * part, 3 * part, 4 * part},
		{"second output", second, 3 * part, 4 * part, 4 * part},
		{"header of the second output", second - 1, 3 * part, 4 * part, 3 * part},
		{"entries of the second output", second - blockHeadBytes - 1, 3 * part, 4 * part, 3 * part},
	}
	for i, tt := range append(tests, tests...) {
		torn, end := bytes.Clone(whole), func() {}
		if i < len(tests) {
			torn[tt.byte] ^= 1
		} else {
			tt.name += ", not returned"
			end = unread(t, path, tt.byte)
		}
		testkit.Must(t, os.WriteFile(path, torn, 0o600))
		r := reader(t, s)
		at := uint64(0)
		for p, err := range r.Range(0, 6*part+100) {
			testkit.Must(t, err)
			if p.Missing > 0 && (p.Offset != tt.from || p.Offset+p.Missing != tt.to || !errors.Is(p.Damage, ErrDamaged)) || p.Offset != at {
				t.Errorf("%s: piece %+v at %d", tt.name, p, at)
			}
			if string(p.Output) != string(textAt(p.Offset, len(p.Output))) {
				t.Errorf("%s: wrong output at %d", tt.name, p.Offset)
			}
			at += p.Missing + uint64(len(p.Output))
		}
		if at != 6*part+100 {
			t.Errorf("%s: the output ends at %d", tt.name, at)
		}
		var marked []uint64
		for n, err := range r.Notes(0, 6*part+100) {
			testkit.Must(t, err)
			if n.Kind != 0 {
				marked = append(marked, n.Offset)
			}
			if n.Missing > 0 && (n.Offset != tt.entries || n.Missing != 4*part-tt.entries) {
				t.Errorf("%s: note %+v", tt.name, n)
			}
		}
		for offset, printed := range times {
			isKnown := offset < tt.entries || offset >= 4*part
			if isKnown && !slices.Contains(marked, offset) {
				t.Errorf("%s: marks %v", tt.name, marked)
			}
			if got, err := r.TimeAt(offset); isKnown != (err == nil) || isKnown && got.Sub(printed).Abs() > timeEvery {
				t.Errorf("%s: the time at %d is %v, %v; want %v", tt.name, offset, got, err, printed)
			}
			want := offset + part
			if !isKnown {
				want = tt.entries
			}
			if got, err := r.OffsetAt(printed.Add(timeEvery)); got != want || err != nil {
				t.Errorf("%s: %d was printed last, %v; want %d", tt.name, got, err, want)
			}
		}
		end()
	}
}

// If the file system becomes read-only under an open segment, the kernel may accept writes and syncs that never reach the disk.
// Sync fails nevertheless, and what it has not confirmed is stored when the disk can be written to again.
func TestReadOnly(t *testing.T) {
	s := New(t.TempDir(), nil)
	w := open(t, s, Full)
	testkit.Must(t, w.Append(0, textAt(0, 1000)), w.Sync())
	before := checkWritable
	defer func() { checkWritable = before }()
	checkWritable = func(path string) error { return &os.PathError{Op: "sync", Path: path, Err: syscall.EROFS} }
	testkit.Must(t, w.Append(1000, textAt(1000, 1000)))
	if err := w.Sync(); !errors.Is(err, syscall.EROFS) {
		t.Errorf("the sync on a read-only file system: %v", err)
	}
	checkWritable = before
	_ = w.Close() // the segment is given up
	w = open(t, s, Full)
	testkit.Must(t, w.Append(w.End(), textAt(w.End(), int(2000-w.End()))), w.Close())
	at := uint64(0)
	for p, err := range reader(t, s).Range(0, 2000) {
		testkit.Must(t, err)
		if at += uint64(len(p.Output)); p.Missing > 0 {
			t.Errorf("output is missing at %d", p.Offset)
		}
	}
	if at != 2000 {
		t.Errorf("the store has %d bytes, want 2000", at)
	}
}

// A segment that cannot be opened, as after ESTALE of a network file system, is a gap. If the process has too many open files, the
// reader fails instead, because the next attempt returns the output.
func TestUnopenedSegment(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	for at := uint64(0); at < 3000; at += 1000 {
		testkit.Must(t, w.Append(at, textAt(at, 1000)), w.Keyframe(at+1000, []byte("k")))
	}
	testkit.Must(t, w.Close())
	path := filepath.Join(w.dir, closedName(1000, 2000))
	var why error
	before := openToRead
	defer func() { openToRead = before }()
	openToRead = func(p string) (*os.File, error) {
		if p == path {
			return nil, &os.PathError{Op: "open", Path: p, Err: why}
		}
		return before(p)
	}
	r := reader(t, s)
	why = syscall.ESTALE
	at := uint64(0)
	for p, err := range r.Range(0, 3000) {
		testkit.Must(t, err)
		if isGap := p.Offset == 1000; p.Offset != at || isGap != (p.Missing == 1000 && errors.Is(p.Damage, ErrDamaged) && errors.Is(p.Damage, why) && strings.Contains(p.Damage.Error(), path)) {
			t.Fatalf("piece %+v at %d", p, at)
		}
		at += uint64(len(p.Output)) + p.Missing
	}
	if _, err := r.OffsetAt(s.now()); err != nil || at != 3000 {
		t.Errorf("%v; the output ends at %d", err, at)
	}
	if v, err := r.At(1500); err != nil || v.KeyframeAt != 0 {
		t.Errorf("view %+v, %v", v, err)
	}
	why = syscall.EMFILE
	if err := lastPiece(r.Range(0, 3000)); !errors.Is(err, why) || errors.Is(err, ErrDamaged) {
		t.Errorf("too many open files: %v", err)
	}
}

// If the disk does not return a part of an open segment, a writer that continues the life does not change its file, and continues
// before that part, or one byte behind the beginning. Afterwards nothing is missing.
func TestUnreadOpenSegment(t *testing.T) {
	const part = 1000
	for _, mode := range []Mode{Full, Screen} {
		for _, first := range []uint64{0, part} {
			s, _ := newStore(t)
			w := open(t, s, mode)
			testkit.Must(t, w.SetMeta(Meta{}))
			if first > 0 {
				testkit.Must(t, w.Append(0, textAt(0, int(first))), w.Keyframe(first, []byte("keyframe")))
			}
			for at := first; at < 4*part; at += part {
				testkit.Must(t, w.Append(at, textAt(at, part)), w.Sync())
			}
			testkit.Must(t, w.Close())
			before := make(map[string][]byte)
			for _, name := range names(t, w.dir) {
				content, err := os.ReadFile(filepath.Join(w.dir, name))
				testkit.Must(t, err)
				before[name] = content
			}
			path := filepath.Join(w.dir, openName(first))
			whole := before[openName(first)]
			isKept := func() bool {
				return slices.ContainsFunc(names(t, w.dir), func(name string) bool {
					content, err := os.ReadFile(filepath.Join(w.dir, name))
					return err == nil && bytes.Equal(content, whole)
				})
			}
			for place := range whole {
				for _, name := range names(t, w.dir) {
					testkit.Must(t, os.Remove(filepath.Join(w.dir, name)))
				}
				for name, content := range before {
					testkit.Must(t, os.WriteFile(filepath.Join(w.dir, name), content, 0o600))
				}
				end := unread(t, path, place)
				next, err := s.OpenWriter(aLife, mode)
				end()
				if err != nil || !isKept() || !next.KeyframeDue() {
					t.Fatalf("%v, byte %d: %v, or the file was changed, or no keyframe is due", mode, place, err)
				}
				from, start := next.End(), uint64(0)
				testkit.Must(t, next.Keyframe(from, []byte("next")), next.Append(from, textAt(from, int(5*part-from))), next.Sync(), next.Close())
				if mode == Screen { // the newer segment has replaced the file
					start = from
				} else if !isKept() {
					t.Fatalf("byte %d: the file was changed when the writer continued", place)
				}
				at := start
				for p, err := range reader(t, s).Range(start, 5*part) {
					testkit.Must(t, err)
					if p.Missing > 0 || string(p.Output) != string(textAt(at, len(p.Output))) {
						t.Fatalf("%v, byte %d, continued at %d: piece %+v at %d", mode, place, from, p, at)
					}
					at += uint64(len(p.Output))
				}
				if at != 5*part {
					t.Fatalf("%v, byte %d: the output ends at %d", mode, place, at)
				}
			}
		}
	}
}

// In the mode Screen, the older of two keyframes that a kill has left stays while the newer one cannot be read.
func TestUnreadNewerKeyframe(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Screen)
	testkit.Must(t, w.Keyframe(1000, []byte("older")), w.Sync(), w.Keyframe(2000, []byte("newer")))
	w.lock.Close() // the process was killed
	end := unread(t, filepath.Join(w.dir, openName(2000)), headBytes+blockHeadBytes)
	next, err := s.OpenWriter(aLife, Screen)
	testkit.Must(t, err)
	if v, err := reader(t, s).At(1000); err != nil || string(v.Keyframe) != "older" {
		t.Errorf("view %+v, %v", v, err)
	}
	end()
	testkit.Must(t, next.Close())
	testkit.Must(t, open(t, s, Screen).Close())
	if got := names(t, w.dir); !slices.Equal(got, []string{openName(2000)}) {
		t.Errorf("files %v", got)
	}
}

// A read error behind damage changes no file, either.
func TestUnreadBehindDamage(t *testing.T) {
	const part = 1000
	for _, mode := range []Mode{Full, Screen} {
		s, _ := newStore(t)
		w := open(t, s, mode)
		testkit.Must(t, w.Keyframe(part, []byte("keyframe")))
		var ends []int64 // of the blocks
		path := filepath.Join(w.dir, openName(part))
		for at := uint64(part); at < 4*part; at += part {
			testkit.Must(t, w.Append(at, textAt(at, part)), w.Sync())
			n, err := size(path)
			testkit.Must(t, err)
			ends = append(ends, n)
		}
		testkit.Must(t, w.Close())
		torn, err := os.ReadFile(path)
		testkit.Must(t, err)
		torn[ends[0]+2] ^= 1 // in the header of the second block
		testkit.Must(t, os.WriteFile(path, torn, 0o600))
		unread(t, path, int(ends[1])-1)
		next, err := s.OpenWriter(aLife, mode)
		testkit.Must(t, err)
		if next.End() != 2*part || !next.KeyframeDue() {
			t.Errorf("%s: the writer continues at %d", mode, next.End())
		}
		if mode == Full {
			path = filepath.Join(w.dir, closedName(part, 2*part))
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, torn) {
			t.Errorf("%s: the file was changed: %v", mode, err)
		}
		testkit.Must(t, next.Close())
	}
}

// A writer that continues a life destroys no whole block of a damaged open segment, wherever its file is
// damaged, and continues behind it, or before it if a reader reads nothing behind it. A torn end is still cut off.
func TestDamagedOpenSegment(t *testing.T) {
	const part = 1000
	for i, mode := range []Mode{Full, Screen, Full} {
		s, _ := newStore(t)
		if i == 2 {
			s.key = ownKey
		}
		w := open(t, s, mode)
		testkit.Must(t, w.SetMeta(Meta{}), w.Append(0, textAt(0, part)), w.Keyframe(part, []byte("keyframe")))
		for at := uint64(part); at < 4*part; at += part {
			testkit.Must(t, w.Append(at, textAt(at, part)), w.Sync())
		}
		testkit.Must(t, w.Close())
		path := filepath.Join(w.dir, openName(part))
		whole, err := os.ReadFile(path)
		testkit.Must(t, err)
		var places []int // ends of the blocks
		ends := make([]uint64, headBytes)
		for at := range ends { // where the writer continues if this byte is damaged
			ends[at] = part
		}
		walk, err := openWalk(path, w.key, true)
		testkit.Must(t, err)
		for {
			before := walk.end
			b, err := walk.next()
			if err == io.EOF {
				break
			}
			testkit.Must(t, err)
			for at := len(ends); at < int(walk.at); at++ {
				if b.kind == kindEntries || at < int(walk.place) {
					ends = append(ends, before)
				} else {
					ends = append(ends, 4*part)
				}
			}
			places = append(places, int(walk.at))
		}
		walk.Close()
		lastBlock := places[len(places)-2]
		for at := 0; at < len(whole); at += 7 {
			torn := bytes.Clone(whole)
			torn[at] ^= 1
			if at == 6 || at == 7 {
				continue // another version
			}
			testkit.Must(t, os.WriteFile(path, torn, 0o600))
			w := open(t, s, mode)
			want := ends[at]
			if mode == Full {
				want = max(want, part+1)
			}
			if at >= lastBlock { // no whole block follows
				want = 3 * part
			}
			if w.End() != want || w.KeyframeDue() != (at < lastBlock) {
				t.Fatalf("%s, byte %d: the writer continues at %d, want %d; a keyframe is due: %v", mode, at, w.End(), want, w.KeyframeDue())
			}
			kept := path
			if mode == Full && at < lastBlock {
				kept = filepath.Join(w.dir, closedName(part, want))
			}
			if got, err := os.ReadFile(kept); err != nil || at < lastBlock && !bytes.Equal(got, torn) {
				t.Fatalf("%s, byte %d: the damaged file has changed, %v", mode, at, err)
			}
			testkit.Must(t, w.Keyframe(want, []byte("next")), w.Append(want, textAt(want, part)), w.Sync())
			if v, err := reader(t, s).At(want + part); err != nil || string(v.Keyframe) != "next" {
				t.Fatalf("%s, byte %d: the screen at the end: %+v, %v", mode, at, v, err)
			}
			if got := names(t, w.dir); mode == Screen && len(got) != 2 {
				t.Fatalf("byte %d: files %v", at, got)
			}
			testkit.Must(t, w.Close())
			for _, name := range names(t, w.dir) {
				if g, ok := parseSegment(name); ok && g.start >= part {
					testkit.Must(t, os.Remove(filepath.Join(w.dir, name)))
				}
			}
		}
	}
}

// A segment of another session that a user has printed does not look like blocks of the segment in which its output is, if the header
// of the block with that output is damaged: the writer does not continue behind the output of the session.
func TestDamagedHeaderOfPrintedSegment(t *testing.T) {
	const part = 1000
	random := rand.NewChaCha8([32]byte{})
	noise := func(n int) []byte { // it is not compressed, so that the blocks in it can be found
		p := make([]byte, n)
		_, _ = random.Read(p)
		return p
	}
	printed := appendBlock(nil, nil, kindOutput, 2_000_000, noise(part))
	for _, isLast := range []bool{false, true} {
		s, _ := newStore(t)
		w := open(t, s, Full)
		path := filepath.Join(w.dir, openName(0))
		testkit.Must(t, w.Append(0, noise(part)), w.Sync())
		before, err := size(path)
		testkit.Must(t, err)
		testkit.Must(t, w.Append(part, append(noise(part), printed...)), w.Sync())
		if !isLast {
			testkit.Must(t, w.Append(w.End(), noise(part)), w.Sync())
		}
		end := w.End()
		testkit.Must(t, w.Close())
		torn, err := os.ReadFile(path)
		testkit.Must(t, err)
		torn[before+2] ^= 1
		testkit.Must(t, os.WriteFile(path, torn, 0o600))
		next := open(t, s, Full)
		if got := next.End(); got < part || got > end {
			t.Errorf("the writer continues at %d, the output ends at %d", got, end)
		}
		if got, err := os.ReadFile(filepath.Join(w.dir, closedName(0, next.End()))); err != nil || !bytes.Equal(got, torn) {
			t.Errorf("the file was changed: %v", err)
		}
	}
}

// A file with many headers whose payloads overlap and are damaged is not read again for each of them. It stays.
func TestManyDamagedBlocks(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	testkit.Must(t, w.Append(0, textAt(0, 1000)), w.Close())
	path := filepath.Join(w.dir, openName(0))
	content, err := os.ReadFile(path)
	testkit.Must(t, err)
	content = append(content, make([]byte, blockHeadBytes)...) // a damaged header
	b := block{kind: kindOutput, stored: maxOutput, raw: maxOutput, from: 1000, sum: 1}.appendBound(nil)
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	content = append(content, bytes.Repeat(b, 40_000)...)
	testkit.Must(t, os.WriteFile(path, content, 0o600))
	total, before := 0, readAt
	defer func() { readAt = before }()
	readAt = func(f *os.File, p []byte, at int64) (int, error) {
		total += len(p)
		return before(f, p, at)
	}
	w = open(t, s, Full)
	if total > 4*maxKeyframe || w.End() != 1000 {
		t.Errorf("the writer has read %d bytes of a file of %d, and continues at %d", total, len(content), w.End())
	}
	if got, err := os.ReadFile(filepath.Join(w.dir, closedName(0, 1000))); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file was changed: %v", err)
	}
}

// readAll calls all methods of a reader, and fails if it returns output that is not true.
func readAll(t *testing.T, s *Store) {
	r, err := s.Open(aLife)
	if err != nil {
		return
	}
	b, err := r.Bounds()
	if err != nil {
		return
	}
	for _, offset := range []uint64{b.Start, (b.Start + b.End) / 2, b.Exact, b.End} {
		if v, err := r.At(offset); err == nil {
			for p, err := range v.Replay {
				if err == nil && string(p.Output) != string(textAt(p.Offset, len(p.Output))) {
					t.Fatalf("wrong output at %d", p.Offset)
				}
			}
		}
		if at, err := r.TimeAt(offset); err == nil {
			_, _ = r.OffsetAt(at)
		}
	}
	for range marks(r, 0, b.End) {
	}
	_, _ = r.Gaps()
	_, _ = s.List()
}

// Files that are not segments are ignored or refused: other names, directories, pipes, other versions.
func TestStrangeFiles(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	testkit.Must(t, w.Append(0, textAt(0, 1000)), w.Close())
	for _, name := range []string{"x", "-", "1-2", openName(5) + "-", closedName(7, 7), "meta.json~", openName(3) + "~"} {
		testkit.Must(t, os.WriteFile(filepath.Join(w.dir, name), []byte("x"), 0o600))
	}
	if b, err := reader(t, s).Bounds(); b != (Bounds{0, 1000, 1000}) || err != nil {
		t.Errorf("bounds %+v, %v", b, err)
	}
	path := filepath.Join(w.dir, closedName(2000, 3000))
	testkit.Must(t, syscall.Mkfifo(path, 0o600))
	if err := lastPiece(reader(t, s).Range(0, 3000)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a pipe: %v", err)
	}
	testkit.Must(t, os.Remove(path))
	future := head{start: 2000}.append(nil)
	future[6]++
	copy(future[28:], head{}.append(nil)[28:])
	p := future[:28]
	sum := checksum(p)
	future = append(p, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
	testkit.Must(t, os.WriteFile(filepath.Join(w.dir, openName(2000)), future, 0o600))
	if _, err := reader(t, s).Bounds(); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
	if _, err := s.OpenWriter(aLife, Full); !errors.Is(err, ErrVersion) {
		t.Errorf("a writer behind another version: %v", err)
	}

	meta := filepath.Join(w.dir, metaName)
	testkit.Must(t, os.Remove(filepath.Join(w.dir, openName(2000))), os.WriteFile(meta, []byte(`{"version": 2, "new": 1}`), 0o600))
	if _, err := s.OpenWriter(aLife, Full); !errors.Is(err, ErrVersion) {
		t.Errorf("a writer beside a meta.json of another version: %v", err)
	}
	if data, err := os.ReadFile(meta); err != nil || string(data) != `{"version": 2, "new": 1}` {
		t.Errorf("the meta.json of another version is %q, %v", data, err)
	}
}

// lastPiece returns the error or the damage of the last piece.
func lastPiece(pieces func(func(Piece, error) bool)) (err error) {
	for p, e := range pieces {
		err = errors.Join(e, p.Damage)
	}
	return err
}

// Arguments that no segment can hold are refused.
func TestArguments(t *testing.T) {
	s, _ := newStore(t)
	w := open(t, s, Full)
	for name, err := range map[string]error{
		"append":          w.Append(maxOffset, []byte("ab")),
		"resize":          w.Resize(0, protocol.Size{Cols: 1 << 16, Rows: 1}),
		"resize at":       w.Resize(maxOffset+1, protocol.Size{Cols: 1, Rows: 1}),
		"keyframe":        w.Keyframe(0, nil),
		"keyframe at":     w.Keyframe(maxOffset+1, []byte("k")),
		"keyframe length": w.Keyframe(0, make([]byte, maxKeyframe+1)),
		"meta":            w.SetMeta(Meta{Title: string(make([]byte, maxMetaBytes))}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	long := string(make([]byte, MaxMark+10))
	testkit.Must(t, w.Append(0, []byte("text")), w.Mark(4, 'A', long), w.Sync())
	for m, err := range marks(reader(t, s), 0, 4) {
		if len(m.Text) != MaxMark || err != nil {
			t.Errorf("the text of the mark has %d bytes, %v", len(m.Text), err)
		}
	}
	if _, err := s.OpenWriter(Life{"a", "b"}, "none"); err == nil {
		t.Error("an unknown mode was accepted")
	}
}

// A forgotten life is never listed again, wherever its erasure was interrupted, and one whose
// erasure has not begun is whole. Sweep erases the remaining files.
func TestForgetInterrupted(t *testing.T) {
	for seed := range uint64(200) {
		s, _ := newStore(t)
		w := open(t, s, Full)
		testkit.Must(t, w.SetMeta(Meta{Argv: []string{"sh"}}), w.Append(0, textAt(0, 1000)), w.Keyframe(1000, []byte("k")), w.Close())
		d := &brokenDisk{disk: s.disk, Rand: rand.New(rand.NewPCG(seed, 1)), isBroken: true}
		s.disk = d
		forgotten := s.Forget(aLife)
		if forgotten == nil {
			_ = s.Sweep() // it may fail at any step
		}
		again := New(s.dir, nil)
		entries, err := again.List()
		testkit.Must(t, err)
		switch {
		case len(entries) == 0:
		case forgotten == nil:
			t.Fatalf("seed %d: a forgotten life is listed: %+v", seed, entries)
		default:
			testkit.Must(t, entries[0].Err)
			readAll(t, again)
			testkit.Must(t, again.Forget(aLife))
		}
		testkit.Must(t, again.Sweep())
		if left, err := os.ReadDir(s.dir); len(left) > 0 || err != nil {
			t.Fatalf("seed %d: %v is left, %v", seed, left, err)
		}
	}
}

// A life that is written again after it was forgotten can be forgotten again.
func TestForgetAgain(t *testing.T) {
	s, _ := newStore(t)
	for range 3 {
		w := open(t, s, Full)
		testkit.Must(t, w.SetMeta(Meta{}), w.Append(0, textAt(0, 1000)))
		w.Abandon()
		testkit.Must(t, s.Forget(aLife))
	}
	if entries, err := s.List(); len(entries) > 0 || err != nil {
		t.Errorf("forgotten lives are listed: %v, %v", entries, err)
	}
	testkit.Must(t, s.Sweep())
	if left, err := os.ReadDir(s.dir); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
}

// After Renew, no file has anything that was stored before: no output, keyframe, mark or time. That
// holds wherever it is interrupted, if it is repeated.
func TestRenew(t *testing.T) {
	for _, mode := range []Mode{Full, Screen} {
		for _, same := range []bool{false, true} {
			for seed := range uint64(40) {
				s, _ := newStore(t)
				w := open(t, s, mode)
				secret := []byte("a secret ")
				end := uint64(0)
				for range 3 { // closed segments, an open one, and pending output
					testkit.Must(t, w.Append(end, secret), w.Mark(end, 'C', string(secret)), w.Sync())
					end = w.End()
					testkit.Must(t, w.Keyframe(end, bytes.Clone(secret)), w.Sync(), w.Append(end, secret), w.Mark(end, 'C', string(secret)))
					end = w.End()
				}
				if same { // at the offset of a keyframe
					testkit.Must(t, w.Keyframe(end, bytes.Clone(secret)), w.Mark(end, 'C', string(secret)))
				}
				d := &brokenDisk{disk: s.disk, Rand: rand.New(rand.NewPCG(seed, 1)), isBroken: seed > 0}
				s.disk = d
				size := protocol.Size{Cols: 80, Rows: 24}
				for w.Renew(max(end, w.End()), size, []byte("cleared")) != nil {
				}
				d.isBroken = false
				testkit.Must(t, w.Append(end, []byte("after")), w.Sync())
				if stored := decoded(t, s.path(aLife)); bytes.Contains(stored, secret) {
					t.Fatalf("mode %s, seed %d: the files have %q", mode, seed, stored)
				}
				v, err := reader(t, s).At(end + 5)
				testkit.Must(t, err)
				if string(v.Keyframe) != "cleared" || v.KeyframeAt != end || v.Size != size {
					t.Fatalf("mode %s, seed %d: view %+v", mode, seed, v)
				}
				testkit.Must(t, w.Close())
			}
		}
	}
}

// decoded returns the payloads of all blocks in a directory.
func decoded(t *testing.T, dir string) (all []byte) {
	t.Helper()
	for _, name := range names(t, dir) {
		if name == metaName {
			continue
		}
		w, err := openWalk(filepath.Join(dir, name), nil, true)
		testkit.Must(t, err)
		for {
			_, err := w.next()
			if err == io.EOF {
				break
			}
			testkit.Must(t, err)
			p, err := w.payload()
			testkit.Must(t, err)
			all = append(all, p...)
		}
		w.Close()
	}
	return all
}
