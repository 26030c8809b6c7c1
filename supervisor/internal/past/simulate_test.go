package past

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// A recorder is a disk that records each change, so that a test can make the directory that a
// power cut after any of the changes would leave.
type recorder struct {
	disk
	changes []change
	inodes  map[string]int // from a path to the file that it names now
	count   int
}

// A change is a change of a file, or of an entry of a directory.
type change struct {
	kind  changeKind
	path  string // of an entry
	to    string // of a rename
	inode int    // of a file
	at    int64  // of a write; the length of a truncation
	data  []byte
	end   uint64 // of synced: the offset up to which the writer promises durability
	start uint64 // of synced: the oldest offset that was not deleted
}

type changeKind int

const (
	makeDir changeKind = iota
	create
	rename
	remove
	syncEntries
	write
	truncate
	syncFile
	synced
)

func (d *recorder) note(c change, err error) error {
	if err == nil {
		d.changes = append(d.changes, c)
	}
	return err
}

func (d *recorder) MakeDir(path string) error {
	return d.note(change{kind: makeDir, path: path}, d.disk.MakeDir(path))
}

func (d *recorder) Create(path string) (file, error) {
	f, err := d.disk.Create(path)
	if err != nil {
		return nil, err
	}
	d.count++
	d.inodes[path] = d.count
	return &recorded{f, d, d.count}, d.note(change{kind: create, path: path, inode: d.count}, nil)
}

func (d *recorder) OpenToWrite(path string) (file, error) {
	f, err := d.disk.OpenToWrite(path)
	if err != nil {
		return nil, err
	}
	return &recorded{f, d, d.inodes[path]}, nil
}

func (d *recorder) Rename(from, to string) error {
	if err := d.disk.Rename(from, to); err != nil {
		return err
	}
	d.inodes[to] = d.inodes[from]
	delete(d.inodes, from)
	return d.note(change{kind: rename, path: from, to: to}, nil)
}

func (d *recorder) Remove(path string) error {
	return d.note(change{kind: remove, path: path}, d.disk.Remove(path))
}

func (d *recorder) SyncDir(path string) error {
	return d.note(change{kind: syncEntries, path: path}, nil)
}

// A recorded file does not sync, because a power cut happens only in the copy.
type recorded struct {
	file
	disk  *recorder
	inode int
}

func (f *recorded) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.file.WriteAt(p, at)
	return n, f.disk.note(change{kind: write, inode: f.inode, at: at, data: slices.Clone(p)}, err)
}

func (f *recorded) Truncate(n int64) error {
	return f.disk.note(change{kind: truncate, inode: f.inode, at: n}, f.file.Truncate(n))
}

func (f *recorded) Sync() error { return f.disk.note(change{kind: syncFile, inode: f.inode}, nil) }

// A diskState is the state of a disk: its durable content, and the changes that are not durable.
type diskState struct {
	*rand.Rand
	content map[int][]byte      // durable content of a file
	written map[int][]change    // changes of a file since it was synced
	names   map[string]int      // durable entries; 0 is a directory
	renamed map[string][]change // changes of a directory's entries since it was synced
}

// cut makes the directory at to that a power cut leaves at from after the changes.
func cut(changes []change, r *rand.Rand, from, to string) error {
	m := diskState{r, map[int][]byte{}, map[int][]change{}, map[string]int{}, map[string][]change{}}
	for _, c := range changes {
		switch c.kind {
		case write, truncate:
			m.written[c.inode] = append(m.written[c.inode], c)
		case syncFile:
			for _, w := range m.written[c.inode] {
				m.content[c.inode] = w.apply(m.content[c.inode])
			}
			m.written[c.inode] = nil
		case syncEntries:
			for _, e := range m.renamed[c.path] {
				e.rename(m.names)
			}
			m.renamed[c.path] = nil
		case synced:
		default:
			dir := filepath.Dir(c.path)
			m.renamed[dir] = append(m.renamed[dir], c)
		}
	}
	m.losePower()
	for _, path := range slices.Sorted(maps.Keys(m.names)) {
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		path, inode := filepath.Join(to, rel), m.names[path]
		if inode == 0 {
			err = os.MkdirAll(path, 0o700)
		} else if err = os.WriteFile(path, m.content[inode], 0o600); errors.Is(err, fs.ErrNotExist) {
			err = nil // its directory was lost
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c change) apply(content []byte) []byte {
	if c.kind == truncate {
		return append(content, make([]byte, max(0, int(c.at)-len(content)))...)[:c.at]
	}
	if need := int(c.at) + len(c.data); len(content) < need {
		content = append(content, make([]byte, need-len(content))...)
	}
	copy(content[c.at:], c.data)
	return content
}

func (c change) rename(names map[string]int) {
	switch c.kind {
	case makeDir:
		names[c.path] = 0
	case create:
		names[c.path] = c.inode
	case remove:
		delete(names, c.path)
	case rename:
		if inode, ok := names[c.path]; ok {
			names[c.to] = inode
			delete(names, c.path)
		}
	}
}

// losePower keeps some of the changes that were not synced. Of each file it keeps all, none, a
// part that ends at any byte, or some of the sectors, of which the others are zero. Of the
// entries of a directory it keeps the first ones, or any of them.
func (m *diskState) losePower() {
	for _, inode := range slices.Sorted(maps.Keys(m.written)) { // in order, so that a seed repeats the same cut
		changes := m.written[inode]
		content := slices.Clone(m.content[inode])
		way, kept := m.IntN(4), m.IntN(len(changes)+1)
		for i, c := range changes {
			if c.kind == truncate || way == 0 || way == 1 && i < kept {
				content = c.apply(content)
				continue
			}
			if way == 1 && i == kept && c.kind == write {
				c.data = c.data[:m.IntN(len(c.data)+1)]
				content = c.apply(content)
			}
			if way == 2 {
				content = m.sectors(content, c)
			}
		}
		if way == 2 && m.IntN(2) == 0 && len(content) > len(m.content[inode]) {
			content = content[:len(m.content[inode])+m.IntN(len(content)-len(m.content[inode])+1)]
		}
		m.content[inode] = content
	}
	for _, dir := range slices.Sorted(maps.Keys(m.renamed)) {
		changes := m.renamed[dir]
		isOrdered, kept := m.IntN(2) == 0, m.IntN(len(changes)+1)
		for i, c := range changes {
			if isOrdered && i < kept || !isOrdered && m.IntN(2) == 0 {
				c.rename(m.names)
			}
		}
	}
}

// sectors applies some sectors of a write.
func (m *diskState) sectors(content []byte, c change) []byte {
	const sector = 512
	for len(c.data) > 0 {
		n := min(len(c.data), sector-int(c.at%sector))
		part := c
		part.data = c.data[:n]
		if m.IntN(2) == 0 {
			content = part.apply(content)
		} else {
			part.data = nil
			part.at = c.at + int64(n)
			content = part.apply(content) // only longer
		}
		c.data, c.at = c.data[n:], c.at+int64(n)
	}
	return content
}

// sealings are the keys of a life that is never sealed, that is sealed, and that is sealed from
// the second writer on.
var sealings = [][3]*Key{{}, {ownKey, ownKey, ownKey}, {nil, ownKey, ownKey}}

// A simulation is a life that is written with power cuts.
type simulation struct {
	*driver
	recorder *recorder
	store    *Store
	mode     Mode
	keys     [3]*Key // of the three writers
	start    uint64  // offset before which budgets have deleted output
}

// simulate writes a life, cuts the power at random instants, and returns an error if a restored
// directory lacks output that was promised. faulty changes the disk.
func simulate(t *testing.T, seed uint64, mode Mode, faulty func(disk) disk) error {
	sim := newSimulation(t, seed, mode, faulty)
	if sim.IntN(4) == 0 {
		sim.big = 3 * CapsuleBytes
	}
	if err := sim.write(); err != nil {
		return err
	}
	for range 6 {
		if err := sim.cutAfter(t, sim.IntN(len(sim.recorder.changes)+1)); err != nil {
			return err
		}
	}
	return nil
}

func newSimulation(t *testing.T, seed uint64, mode Mode, faulty func(disk) disk) *simulation {
	t.Helper()
	rec := &recorder{disk: systemDisk{}, inodes: map[string]int{}}
	s := New(filepath.Join(t.TempDir(), "store"), nil)
	s.disk = faulty(rec)
	c := &clock{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.now = c.now
	r := rand.New(rand.NewPCG(seed, 1))
	return &simulation{&driver{Rand: r, truth: &truth{}, clock: c, big: 30_000, isRing: true}, rec, s, mode, sealings[seed%3], 0}
}

// cutAfter cuts the power after the first n changes, and checks the directory that is left.
func (s *simulation) cutAfter(t *testing.T, n int) error {
	t.Helper()
	changes, to := s.recorder.changes[:n], t.TempDir()
	if err := cut(changes, s.Rand, s.store.dir, to); err != nil {
		return err
	}
	if err := s.check(changes, to); err != nil {
		return fmt.Errorf("power cut after change %d: %w; files %s", n, err, listing(to))
	}
	return nil
}

func listing(dir string) (names []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n, _ := size(path)
			names = append(names, fmt.Sprint(d.Name(), ":", n))
		}
		return nil
	})
	return names
}

// write writes the life, with several writers one after the other.
func (s *simulation) write() error {
	for _, s.store.key = range s.keys {
		w, err := s.store.OpenWriter(aLife, s.mode)
		if err != nil {
			return err
		}
		s.w = w
		if err := s.begin(); err != nil {
			return err
		}
		for range 10 + s.IntN(40) {
			if err := s.step(); err != nil {
				return err
			}
			if s.IntN(20) == 0 && s.mode == Full {
				if _, err := s.store.Trim(Policy{PerLife: 20_000}); err != nil {
					return err
				}
				b, err := (&Reader{w.dir, w.key}).Bounds()
				if err != nil {
					return err
				}
				s.start = b.Start
			}
			if err := s.recorder.note(change{kind: synced, end: w.syncedTo(), start: s.start}, nil); err != nil {
				return err
			}
		}
		if s.IntN(2) == 0 { // otherwise the process was killed
			if err := w.Close(); err != nil {
				return err
			}
		} else {
			w.lock.Close()
		}
	}
	return nil
}

// check compares a directory with the promises that were made before the power cut.
func (s *simulation) check(changes []change, dir string) error {
	var promised change
	for _, c := range changes {
		if c.kind == synced {
			promised = c
		}
	}
	if promised.end == 0 {
		return nil
	}
	store := New(dir, s.keys[2])
	store.disk = quickDisk{store.disk}
	before, err := s.checkOutput(store, promised)
	if err != nil {
		return fmt.Errorf("%w; promised %d", err, promised.end)
	}
	// A writer continues there.
	w, err := store.OpenWriter(aLife, s.mode)
	if err != nil {
		return err
	}
	defer w.Close()
	end := w.End()
	if end < before.End || end > before.End && !w.KeyframeDue() { // whole blocks that were not synced may follow lost ones
		return fmt.Errorf("the writer continues at %d, want %d", end, before.End)
	}
	r := &Reader{store.path(aLife), w.key}
	for p, err := range r.Range(before.End, end) {
		if err != nil || string(p.Output) != string(textAt(p.Offset, len(p.Output))) {
			return fmt.Errorf("wrong output at %d behind lost blocks: %w", p.Offset, err)
		}
	}
	const more = 1000
	if err := errors.Join(w.Append(end, textAt(end, more)), w.Sync()); err != nil {
		return err
	}
	for p, err := range r.Range(end, end+more) {
		if s.mode == Full && (err != nil || p.Missing > 0 || string(p.Output) != string(textAt(p.Offset, len(p.Output)))) {
			return fmt.Errorf("wrong output at %d after the writer has continued: %w", p.Offset, err)
		}
	}
	v, err := r.At(end + more)
	if w.KeyframeDue() { // the capsule was full
		return nil
	}
	if err == nil {
		_, err = restore(v)
	}
	if err != nil {
		return fmt.Errorf("after the writer has continued: %w", err)
	}
	return nil
}

func (s *simulation) checkOutput(store *Store, promised change) (Bounds, error) {
	entries, err := store.List()
	if err != nil || len(entries) != 1 {
		return Bounds{}, fmt.Errorf("the life is not listed: %v, %w", entries, err)
	}
	r, err := store.Open(aLife)
	if err != nil {
		return Bounds{}, err
	}
	b, err := r.Bounds()
	if err != nil {
		return b, err
	}
	if b.End < promised.end || b.Exact != b.End {
		return b, fmt.Errorf("bounds are %+v", b)
	}
	if err := s.truth.checkAt(r, b.End); err != nil {
		return b, err
	}
	if s.mode == Screen {
		return b, nil
	}
	// All output that was promised is present, and all output that is present is true.
	at := promised.start
	for p, err := range r.Range(at, b.End) {
		if err != nil {
			return b, err
		}
		if p.Missing > 0 && p.Offset >= s.start && p.Offset < promised.end && !s.isGap(Gap{p.Offset, p.Offset + p.Missing}) {
			return b, fmt.Errorf("%d bytes are missing at %d", p.Missing, p.Offset)
		}
		if string(p.Output) != string(textAt(p.Offset, len(p.Output))) {
			return b, fmt.Errorf("wrong output at %d", p.Offset)
		}
	}
	for range 5 {
		start := max(b.Start, promised.start, s.start)
		if offset := start + s.Uint64N(max(1, b.End-min(start, b.End))); offset <= promised.end {
			if slices.ContainsFunc(s.gaps, func(g Gap) bool { return g.From < offset && offset < g.To }) {
				continue
			}
			if err := s.truth.checkAt(r, offset); err != nil && !errors.Is(err, ErrNoKeyframe) {
				return b, err
			}
		}
	}
	return b, nil
}

// isGap reports whether all of g was appended to a writer as gaps. Between two of them there may have been a keyframe
// without output, which is deleted.
func (s *simulation) isGap(g Gap) bool {
	for _, told := range s.gaps { // in ascending order
		if told.From <= g.From && g.From < told.To {
			g.From = told.To
		}
	}
	return g.From >= g.To
}

// TestPowerCuts cuts the power at random instants. HOLDFAST_SEED repeats one seed.
func TestPowerCuts(t *testing.T) {
	count, seeds := uint64(8), []uint64{11} // with 11, a power cut leaves whole blocks behind lost ones
	if os.Getenv("HOLDFAST_LONG") != "" {
		count = 2000
	}
	for i := range count {
		seeds = append(seeds, i)
	}
	if one := os.Getenv("HOLDFAST_SEED"); one != "" {
		seed, err := strconv.ParseUint(one, 10, 64)
		testkit.Must(t, err)
		seeds = []uint64{seed}
	}
	for _, mode := range []Mode{Full, Screen} {
		for _, seed := range seeds {
			if err := simulate(t, seed, mode, func(d disk) disk { return d }); err != nil {
				t.Fatalf("%s, HOLDFAST_SEED=%d: %v", mode, seed, err)
			}
		}
	}
}

// A writer that continues after a kill deletes no keyframe that is durable before a newer one is.
func TestPowerCutsAfterKill(t *testing.T) {
	for _, mode := range []Mode{Full, Screen} {
		for _, length := range []int{0, 1000} { // of the output behind each keyframe
			sim := newSimulation(t, 0, mode, func(d disk) disk { return d })
			open := func() {
				w, err := sim.store.OpenWriter(aLife, mode)
				testkit.Must(t, err)
				sim.w = w
				testkit.Must(t, sim.begin())
			}
			add := func() {
				testkit.Must(t, sim.output(500), sim.keyframe(), sim.output(length))
			}
			open()
			for range 3 {
				add()
				testkit.Must(t, sim.w.Sync())
				testkit.Must(t, sim.recorder.note(change{kind: synced, end: sim.w.syncedTo()}, nil))
			}
			promised := len(sim.recorder.changes)
			add()
			testkit.Must(t, sim.w.flush())
			sim.w.lock.Close() // the process was killed
			open()
			for n := promised; n <= len(sim.recorder.changes); n++ {
				for range 10 {
					if err := sim.cutAfter(t, n); err != nil {
						t.Fatalf("%s, %d bytes behind a keyframe: %v", mode, length, err)
					}
				}
			}
			testkit.Must(t, sim.w.Close())
		}
	}
}

// The simulation finds a writer that does not sync.
func TestPowerCutsFindBugs(t *testing.T) {
	for name, faulty := range map[string]func(disk) disk{
		"files are not synced":       func(d disk) disk { return lazyFiles{d} },
		"directories are not synced": func(d disk) disk { return lazyDirs{d} },
	} {
		for _, mode := range []Mode{Full, Screen} {
			isFound := false
			for seed := uint64(0); seed < 20 && !isFound; seed++ {
				isFound = simulate(t, seed, mode, faulty) != nil
			}
			if !isFound {
				t.Errorf("%s, %s: not found", name, mode)
			}
		}
	}
}

type lazyDirs struct{ disk }

func (lazyDirs) SyncDir(string) error { return nil }

type lazyFiles struct{ disk }

func (d lazyFiles) Create(path string) (file, error) {
	f, err := d.disk.Create(path)
	return quickFile{f}, err
}

func (d lazyFiles) OpenToWrite(path string) (file, error) {
	f, err := d.disk.OpenToWrite(path)
	return quickFile{f}, err
}
