package recorder

import (
	"bytes"
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
	store := past.New(t.TempDir())
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
	if err := r.Close(limit); err != nil {
		t.Fatal(err)
	}
}
