package recorder

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
)

// A full disk interrupts only the recording, which resumes when there is room.
// demand: D4
func TestFullDisk(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	p := newTape(t, "a") // before the limit is set, because the ring is a file, too
	lift := testkit.LimitFiles(t, 10)
	store := past.New(t.TempDir(), nil)
	r := New(Config{Store: store, Sync: 10 * time.Millisecond, Retry: 10 * time.Millisecond, Log: zerolog.Nop()})
	r.Add(p, past.Full)
	p.print(bytes.Repeat([]byte("no room "), 1000))
	if err := <-p.failed; err == nil {
		t.Error("the failure is reported without its error")
	}
	if c, err := r.Counts(); c.Failing != 1 || err == nil {
		t.Errorf("counts %+v, error %v; want one recording that fails", c, err)
	}
	lift()
	if err := <-p.failed; err != nil {
		t.Errorf("the recording does not resume: %v", err)
	}
	p.print([]byte("room again"))
	await(t, store, p)
	testkit.Eventually(t, limit, func() bool { c, err := r.Counts(); return c.Failing == 0 && err == nil }, "the recording has recovered")
	testkit.Must(t, r.Close(limit))
}

// Marks that come while the disk is full are stored when there is room.
// demand: D4
func TestFullDiskKeepsMarks(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	p := newTape(t, "a")
	store := past.New(t.TempDir(), nil)
	r := New(Config{Store: store, Sync: time.Millisecond, Retry: 10 * time.Millisecond, Log: zerolog.Nop()})
	r.Add(p, past.Full)
	p.print([]byte("first"))
	await(t, store, p)
	lift := testkit.LimitFiles(t, 10)
	r.Mark(p.life, past.Note{Offset: 5, Kind: 'D', Text: "one"})
	if err := <-p.failed; err == nil {
		t.Error("the recording does not fail")
	}
	r.Mark(p.life, past.Note{Offset: 5, Kind: 'D', Text: "two"})
	lift()
	if err := <-p.failed; err != nil {
		t.Errorf("the recording does not resume: %v", err)
	}
	var marks []string
	for _, n := range marksOf(t, r, store, p, 5) {
		marks = append(marks, n.Text)
	}
	if !slices.Equal(marks, []string{"one", "two"}) {
		t.Errorf("marks %q", marks)
	}
}

// If a part of the marks fits on a full disk, they are stored in their order later: a reader takes a command that ended
// before the one that was stored last for a repetition.
// demand: D4
func TestFullDiskKeepsOrder(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	p := newTape(t, "a")
	store := past.New(t.TempDir(), nil)
	r := New(Config{Store: store, Sync: time.Millisecond, Retry: 10 * time.Millisecond, Log: zerolog.Nop()})
	p.print(bytes.Repeat([]byte("o"), maxMarks))
	r.Add(p, past.Full)
	await(t, store, p)
	lift := testkit.LimitFiles(t, 16<<10)
	for n := range uint64(40) { // too many for one block, and the remaining ones have room
		text := make([]byte, 1500)
		_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(text) // it cannot be compressed
		r.Mark(p.life, past.Note{Offset: n + 1, Kind: 'D', Text: string(text)})
	}
	if err := <-p.failed; err == nil {
		t.Error("the recording does not fail")
	}
	lift()
	if err := <-p.failed; err != nil {
		t.Errorf("the recording does not resume: %v", err)
	}
	var stored []uint64
	for _, n := range marksOf(t, r, store, p, maxMarks) {
		if k := len(stored); k == 0 || n.Offset > stored[k-1] {
			stored = append(stored, n.Offset)
		}
	}
	if len(stored) != 40 {
		t.Errorf("a reader finds the marks %d", stored)
	}
}

// While a recording fails because the disk is full, older recordings are deleted if they exceed the budgets.
// demand: D4
func TestFullDiskIsTrimmed(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	store := past.New(t.TempDir(), nil)
	w, err := store.OpenWriter(past.Life{ID: "old", Instance: "1"}, past.Full)
	if err == nil {
		err = w.SetMeta(past.Meta{})
	}
	for n := range uint64(5) { // each screen closes a segment
		err = errors.Join(err, w.Keyframe(n, []byte("screen")), w.Append(n, []byte("o")))
	}
	testkit.Must(t, errors.Join(err, w.Close()))
	size := func() (n int64) {
		t.Helper()
		all, err := store.List()
		testkit.Must(t, err)
		for _, e := range all {
			n += e.Bytes
		}
		return n
	}
	before := size()
	p := newTape(t, "a")
	p.print([]byte("no room"))
	lift := testkit.LimitFiles(t, 10)
	r := New(Config{Store: store, Sync: time.Millisecond, Retry: 10 * time.Millisecond, Budgets: past.Policy{Total: 1}, Log: zerolog.Nop()})
	r.Add(p, past.Full)
	if err := <-p.failed; err == nil {
		t.Error("the recording does not fail")
	}
	testkit.Eventually(t, limit, func() bool { return size() < before }, "older recordings are deleted")
	lift()
	if err := <-p.failed; err != nil {
		t.Errorf("the recording does not resume: %v", err)
	}
	testkit.Must(t, r.Close(limit))
}

// If the disk is full when a silent session's recording is completed, it is completed when there is room.
// demand: D4
func TestFullDiskInSilence(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	store := past.New(t.TempDir(), nil)
	r := New(Config{Store: store, Sync: time.Millisecond, Retry: 10 * time.Millisecond, Idle: 100 * time.Millisecond, Log: zerolog.Nop()})
	p := newTape(t, "a")
	var wholes int
	var lift func()
	p.whole = func() { // the recorder completes the recording
		if wholes++; wholes == 1 {
			lift = testkit.LimitFiles(t, 10)
		}
	}
	r.Add(p, past.Screen)
	p.print([]byte("silent from here on"))
	if err := <-p.failed; err == nil {
		t.Error("the recording does not fail")
	}
	lift()
	if err := <-p.failed; err != nil {
		t.Errorf("the recording does not resume: %v", err)
	}
	testkit.Eventually(t, limit, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return wholes > 1
	}, "the recording is completed")
	testkit.Must(t, r.Close(limit))
}
