package recorder

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/ring"
)

const limit = 30 * time.Second

// A tape is a source whose output the test writes. Its frames are texts that name their offset.
type tape struct {
	life past.Life
	ring *ring.Ring

	masker *mask.Masker

	mu       sync.Mutex
	text     []byte // all output
	meta     past.Meta
	isBusy   bool
	whole    func() // not nil: called when the history is asked for
	released bool

	isDoubted bool
	failed    chan error // receives the errors of Failed
}

func newTape(t *testing.T, id string) *tape {
	t.Helper()
	r, err := ring.New(ring.MinBytes, protocol.Size{Cols: 80, Rows: 24})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return &tape{life: past.Life{ID: protocol.SessionID(id), Instance: "1"}, ring: r, failed: make(chan error, 16)}
}

func (p *tape) Life() past.Life  { return p.life }
func (p *tape) Ring() *ring.Ring { return p.ring }

func (p *tape) Masker() *mask.Masker { return p.masker }

func (p *tape) Meta() past.Meta {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.meta
}

func (p *tape) Clears() uint64 { return p.Meta().Clears }

func (p *tape) Failed(err error) { p.failed <- err }

func (p *tape) SetDoubted(isDoubted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isDoubted = isDoubted
}

func (p *tape) IsDoubted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isDoubted
}

func (p *tape) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
}

func (p *tape) Frame(after uint64, lines bool) (Frame, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lines && p.whole != nil {
		p.whole()
	}
	if p.isBusy {
		return Frame{}, errors.New("busy")
	}
	if after == 0 { // a keyframe is not needed, because the recording has all output
		return Frame{}, nil
	}
	end := uint64(len(p.text))
	return Frame{Offset: end, Data: fmt.Appendf(nil, "screen at %d", end), IsWhole: lines || p.whole == nil}, nil
}

// print writes output.
func (p *tape) print(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = append(p.text, text...)
	for len(text) > 0 {
		n := copy(p.ring.Reserve(), text)
		p.ring.Commit(n)
		text = text[n:]
	}
	p.ring.Wake()
}

func newRecorder(t *testing.T, dir string) (*Recorder, *past.Store) {
	t.Helper()
	store := past.New(dir, nil)
	r := New(Config{Store: store, Sync: 10 * time.Millisecond, Log: zerolog.Nop()})
	t.Cleanup(func() {
		if err := r.Close(limit); err != nil {
			t.Error(err)
		}
	})
	return r, store
}

// newRecording returns a tape of which the recorder has stored text.
func newRecording(t *testing.T, mode past.Mode, text string) (*Recorder, *past.Store, *tape) {
	t.Helper()
	r, store := newRecorder(t, t.TempDir())
	p := newTape(t, "a")
	r.Add(p, mode)
	p.print([]byte(text))
	await(t, store, p)
	return r, store, p
}

// stored returns the output that the store has from the keyframe before offset on, and its offset.
func stored(t *testing.T, s *past.Store, l past.Life, offset uint64) (from uint64, text []byte, err error) {
	t.Helper()
	r, err := s.Open(l)
	if err != nil {
		return 0, nil, err
	}
	v, err := r.At(offset)
	if err != nil {
		return 0, nil, err
	}
	if want := fmt.Sprintf("screen at %d", v.KeyframeAt); v.Keyframe != nil && string(v.Keyframe) != want {
		t.Fatalf("the keyframe is %q, want %q", v.Keyframe, want)
	}
	for p, err := range v.Replay {
		if err != nil {
			return 0, nil, err
		}
		text = append(text, p.Output...)
	}
	return v.KeyframeAt, text, nil
}

// await waits until the store has all output of a tape, exactly.
func await(t *testing.T, s *past.Store, p *tape) {
	t.Helper()
	testkit.Eventually(t, limit, func() bool {
		p.mu.Lock()
		want := p.text
		p.mu.Unlock()
		from, got, err := stored(t, s, p.life, uint64(len(want)))
		return err == nil && bytes.Equal(got, want[from:])
	}, "the store has the output of "+p.life.String())
}

// marksOf closes the recorder, and returns the marks of kind D that are stored up to an offset.
func marksOf(t *testing.T, r *Recorder, store *past.Store, p *tape, to uint64) (marks []past.Note) {
	t.Helper()
	testkit.Must(t, r.Close(limit))
	reader, err := store.Open(p.life)
	testkit.Must(t, err)
	for n, err := range reader.Notes(0, to) {
		testkit.Must(t, err)
		if n.Kind == 'D' {
			marks = append(marks, n)
		}
	}
	return marks
}

// Output is stored in both modes, whatever the sizes of its pieces, and a flood of output of which
// the ring overwrites a part leaves the last screen exact.
func TestStored(t *testing.T) {
	for _, mode := range []past.Mode{past.Screen, past.Full} {
		t.Run(string(mode), func(t *testing.T) {
			r, store := newRecorder(t, t.TempDir())
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 1))
			p := newTape(t, "a")
			r.Add(p, mode)
			for range 20 {
				p.print(bytes.Repeat([]byte{byte('a' + random.IntN(26))}, 1<<random.IntN(19)))
				await(t, store, p)
			}
		})
	}
}

// A resize is stored at its offset, also if the output before it was stored long before.
func TestResizes(t *testing.T) {
	r, store := newRecorder(t, t.TempDir())
	p := newTape(t, "a")
	r.Add(p, past.Full)
	p.print([]byte("wide"))
	p.ring.MarkSize(protocol.Size{Cols: 20, Rows: 5})
	p.print([]byte("narrow"))
	await(t, store, p)
	p.ring.MarkSize(protocol.Size{Cols: 30, Rows: 6})
	p.print([]byte("last"))
	await(t, store, p)
	reader, err := store.Open(p.life)
	testkit.Must(t, err)
	v, err := reader.At(uint64(len("widenarrowlast")))
	testkit.Must(t, err)
	var got []string
	for piece, err := range v.Replay {
		testkit.Must(t, err)
		if piece.Size != (protocol.Size{}) {
			got = append(got, piece.Size.String())
		} else {
			got = append(got, string(piece.Output))
		}
	}
	if want := []string{"wide", "20x5", "narrow", "30x6", "last"}; fmt.Sprint(got) != fmt.Sprint(want) || v.Size.String() != "80x24" {
		t.Errorf("the recording has %v after %s, want %v after 80x24", got, v.Size, want)
	}
}

// awaitStep waits until no recording is in the middle of a step.
func awaitStep(r *Recorder) {
	var turns [diskTurns][]byte
	for i := range turns {
		turns[i] = <-r.turns
	}
	for _, turn := range turns {
		r.turns <- turn
	}
}

// No file is written or synced while a session prints no output, also when the files are closed and the
// session is looked at.
// demand: D5
func TestSilence(t *testing.T) {
	store := past.New(t.TempDir(), nil)
	r := New(Config{Store: store, Sync: 10 * time.Millisecond, Idle: 20 * time.Millisecond, Log: zerolog.Nop()})
	p := newTape(t, "a")
	r.Add(p, past.Screen)
	for _, text := range []string{"text", "more"} {
		p.print([]byte(text))
		await(t, store, p)
		testkit.Eventually(t, limit, func() bool { // the writer is closed
			w, err := store.OpenWriter(p.life, past.Screen)
			if err == nil {
				w.Abandon()
			}
			return err == nil
		}, "the files are closed")
		awaitStep(r)
		before, _ := r.Counts()
		if before.Syncs == 0 {
			t.Error("the counters show no sync")
		}
		for range 20 { // each would be stored after 10 ms
			r.Poke(p.life)
			time.Sleep(5 * time.Millisecond) // a test that nothing is written has to wait
		}
		if after, _ := r.Counts(); after != before {
			t.Errorf("counters went from %+v to %+v although the session printed no output", before, after)
		}
	}
	testkit.Must(t, r.Close(limit))
}

// A disk that fails costs the recording alone, is reported once, and the recording begins again by
// itself.
// demand: D4
func TestFailingDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file in the place of the directory
		t.Fatal(err)
	}
	store := past.New(dir, nil)
	r := New(Config{Store: store, Sync: 10 * time.Millisecond, Retry: 10 * time.Millisecond, Log: zerolog.Nop()})
	p := newTape(t, "a")
	r.Add(p, past.Screen)
	p.print([]byte("first "))
	select {
	case err := <-p.failed:
		if err == nil {
			t.Error("the failure is reported without its error")
		}
	case <-time.After(limit):
		t.Fatal("the failure is not reported")
	}
	if c, err := r.Counts(); c.Failing != 1 || c.Failures != 1 || err == nil {
		t.Errorf("counts %+v, error %v; want one recording that fails", c, err)
	}
	testkit.Must(t, os.Remove(dir))
	p.print([]byte("second"))
	await(t, store, p)
	testkit.Eventually(t, limit, func() bool { c, err := r.Counts(); return c.Failing == 0 && err == nil }, "the recording has recovered")
	testkit.Must(t, r.Close(limit))
	if err := <-p.failed; err != nil || len(p.failed) > 0 {
		t.Errorf("after the failure, the recording reports %v and %d more; want that it has resumed", err, len(p.failed))
	}
}

// A forgotten session leaves no files, whether its recording runs or has ended.
func TestForget(t *testing.T) {
	r, store, p := newRecording(t, past.Screen, "text")
	r.Forget(p.life)
	gone := func() bool {
		all, err := store.List()
		return err == nil && len(all) == 0
	}
	testkit.Eventually(t, limit, gone, "the files are erased")
	p.mu.Lock()
	if !p.released {
		t.Error("the ring is not released")
	}
	p.mu.Unlock()
	ended := newTape(t, "b")
	r.Add(ended, past.Screen)
	ended.print([]byte("text"))
	ended.mu.Lock()
	ended.meta.Exit = &protocol.ExitRecord{}
	ended.mu.Unlock()
	ended.ring.Finish()
	await(t, store, ended)
	r.Forget(ended.life)
	testkit.Eventually(t, limit, gone, "the files of the ended session are erased")
}

// The erasure of a forgotten life is tried again until it succeeds.
func TestForgetIsRetried(t *testing.T) {
	store := past.New(t.TempDir(), nil)
	r := New(Config{Store: store, Retry: time.Millisecond, Log: zerolog.Nop()})
	l := past.Life{ID: "a", Instance: "1"}
	w, err := store.OpenWriter(l, past.Screen) // prevents the erasure, as a disk that fails would
	testkit.Must(t, err)
	testkit.Must(t, w.SetMeta(past.Meta{}))
	all := func(past.Life) bool { return true }
	r.Forget(l)
	if left := r.AwaitErased(10*time.Millisecond, all); len(left) != 1 || left[0] != l || !r.IsForgotten(l) {
		t.Errorf("%v is left, want %v", left, l)
	}
	testkit.Must(t, w.Close())
	if left := r.AwaitErased(limit, all); len(left) > 0 || r.IsForgotten(l) {
		t.Errorf("%v is left", left)
	}
	if all, err := store.List(); len(all) > 0 || err != nil {
		t.Errorf("the store has %v, %v", all, err)
	}
	testkit.Must(t, r.Close(limit))
}

// A recorder of another process continues where the last one has stopped.
func TestContinues(t *testing.T) {
	dir := t.TempDir()
	p := newTape(t, "a")
	for range 3 {
		r, store := newRecorder(t, dir)
		r.Add(p, past.Full)
		p.print([]byte("some more "))
		await(t, store, p)
		testkit.Must(t, r.Close(limit))
	}
}

// A session that cannot save its screen is recorded without one.
func TestBusySession(t *testing.T) {
	r, store := newRecorder(t, t.TempDir())
	p := newTape(t, "a")
	p.isBusy = true
	r.Add(p, past.Full)
	p.print(bytes.Repeat([]byte("text "), 1000))
	await(t, store, p)
}

// Renew returns an error if the last step of the recording has not renewed the files.
func TestRenewAtEnd(t *testing.T) {
	r, _, p := newRecording(t, past.Full, "text")
	awaitStep(r)
	recording, renewed := r.tracks[p.life], make(chan error)
	p.mu.Lock()
	p.isBusy, p.meta.Clears = true, 1
	p.whole = func() { // the last step asks for the screen
		go func() { renewed <- r.Renew(p.life, limit) }()
		<-recording.wake // by Renew, which waits from now on
	}
	p.mu.Unlock()
	if err := r.Close(limit); err != nil {
		t.Error(err)
	}
	if err := <-renewed; !errors.Is(err, errNotRenewed) {
		t.Errorf("Renew returns %v, want %v", err, errNotRenewed)
	}
}

// Renew succeeds although another client clears lines during it, because that client renews the files itself.
func TestClearDuringRenewal(t *testing.T) {
	r, _, p := newRecording(t, past.Full, "cleared")
	p.mu.Lock()
	p.meta.Clears = 1
	p.whole = func() { p.meta.Clears = 2 }
	p.mu.Unlock()
	for range 2 {
		if err := r.Renew(p.life, limit); err != nil {
			t.Error(err)
		}
	}
}

// A clear keeps the mark of a command that ends while the screen is being saved.
func TestMarkDuringRenewal(t *testing.T) {
	r, store, p := newRecording(t, past.Full, "cleared")
	p.mu.Lock()
	p.meta.Clears = 1
	p.whole = func() {
		for _, at := range []uint64{5, 12} {
			r.Mark(p.life, past.Note{Offset: at, Kind: 'D', Text: fmt.Sprint(at)})
		}
	}
	p.mu.Unlock()
	testkit.Must(t, r.Renew(p.life, limit))
	p.print([]byte("later"))
	await(t, store, p)
	if marks := marksOf(t, r, store, p, 12); len(marks) != 1 || marks[0].Text != "12" {
		t.Errorf("marks %+v, want only that behind the screen", marks)
	}
}

// A lateEnd is a tape that has its exit record only after some calls of Meta.
type lateEnd struct {
	*tape
	without atomic.Int64 // calls that return no exit record
}

func (l *lateEnd) Meta() past.Meta {
	m := l.tape.Meta()
	if l.without.Add(-1) < 0 {
		m.Exit = &protocol.ExitRecord{}
	}
	return m
}

func (l *lateEnd) Clears() uint64 { return l.tape.Clears() }

// The exit record is stored, at whichever moment of a step the session gets it.
func TestExitDuringStep(t *testing.T) {
	for without := range int64(12) {
		store := past.New(t.TempDir(), nil)
		r := New(Config{Store: store, Sync: time.Millisecond, Idle: time.Millisecond, Log: zerolog.Nop()})
		l := &lateEnd{tape: newTape(t, "a")}
		l.without.Store(without)
		l.print([]byte("the end"))
		l.ring.Finish()
		r.Add(l, past.Full)
		testkit.Eventually(t, limit, func() bool {
			r.Poke(l.life)
			reader, err := store.Open(l.life)
			if err != nil {
				return false
			}
			m, err := reader.Meta()
			return err == nil && m.Exit != nil
		}, fmt.Sprintf("the exit record that comes after %d calls of Meta is stored", without))
		if err := r.Close(limit); err != nil {
			t.Error(err)
		}
	}
}

// The description of a session whose recording is complete is stored again.
func TestMetaAfterEnd(t *testing.T) {
	r, store := newRecorder(t, t.TempDir())
	p := newTape(t, "a")
	describe := func(m past.Meta) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.meta = m
	}
	describe(past.Meta{Exit: &protocol.ExitRecord{}})
	p.print([]byte("the end"))
	p.ring.Finish()
	for i := range 100 {
		title := fmt.Sprint("title ", i)
		describe(past.Meta{Exit: &protocol.ExitRecord{}, Title: title})
		r.Add(p, past.Full) // the track of the Add before may be ending
		if i%10 != 9 {
			continue
		}
		testkit.Eventually(t, limit, func() bool {
			reader, err := store.Open(p.life)
			if err != nil {
				return false
			}
			m, err := reader.Meta()
			return err == nil && m.Title == title
		}, "the store has the "+title)
	}
}
