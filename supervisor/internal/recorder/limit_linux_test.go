package recorder

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
)

const limitVariable = "HOLDFAST_RECORDER_LIMIT"

// A full disk costs the recording alone, which begins again when there is room. The kernel's limit of
// the length of a file stands for the full disk.
// demand: D4
func TestFullDisk(t *testing.T) {
	dir := os.Getenv(limitVariable)
	if dir == "" {
		dir = t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run", "^TestFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), limitVariable+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ)
	p := newTape(t, "a") // its ring is a file, too
	var room syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &room); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 10, Max: room.Max}); err != nil {
		t.Fatal(err)
	}
	store := past.New(dir)
	r := New(Config{Store: store, Sync: 10 * time.Millisecond, Retry: 10 * time.Millisecond, Log: zerolog.Nop()})
	r.Add(p, past.Full)
	p.print(bytes.Repeat([]byte("no room "), 1000))
	if err := <-p.failed; err == nil {
		t.Error("the failure is reported without its error")
	}
	if c, err := r.Counts(); c.Failing != 1 || err == nil {
		t.Errorf("counts %+v, error %v; want one recording that fails", c, err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &room); err != nil {
		t.Fatal(err)
	}
	if err := <-p.failed; err != nil {
		t.Errorf("it does not resume: %v", err)
	}
	p.print([]byte("room again"))
	await(t, store, p)
	testkit.Eventually(t, limit, func() bool { c, err := r.Counts(); return c.Failing == 0 && err == nil }, "the recording has recovered")
	if err := r.Close(limit); err != nil {
		t.Fatal(err)
	}
}
