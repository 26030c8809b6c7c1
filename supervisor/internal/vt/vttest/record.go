package vttest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"holdfast/supervisor/internal/pty"
)

const (
	// patience is the time in which a program must print the text that an Act waits for.
	patience = 20 * time.Second
	// quiet is the time without output after which a program is taken to wait for input. If it
	// is too short, the recording differs, but it is still valid.
	quiet = 200 * time.Millisecond
	// ignored is the time without output after which a program is taken to ignore the keys.
	ignored = 2 * time.Second
)

// A Program is a program to be recorded, and its script. It runs on a terminal of its own. The
// recording is finished when the script is finished and the program has ended.
type Program struct {
	Argv       []string
	Dir        string
	Env        []string
	Cols, Rows int
	Script     []Act

	// Answer receives all output and returns the answers of a terminal to it; it may be nil.
	Answer func(output []byte) (reply []byte)
}

// An Act waits for the program and then sends keys to it.
type Act struct {
	Wait string // text that the program must print since the last act; if "", the act waits until the program is quiet
	Send string // keys
}

// Record runs a program and returns its output. It ends all processes of the program. If the
// program is not installed, the test is skipped.
func Record(t testing.TB, p Program) []byte {
	t.Helper()
	child, err := pty.Start(pty.Spec{Argv: p.Argv, Dir: p.Dir, Env: p.Env, Cols: p.Cols, Rows: p.Rows})
	if errors.Is(err, os.ErrNotExist) {
		Unavailable(t, "nothing to record: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		child.Hangup(syscall.SIGKILL, 0)
		if err := child.Close(); err != nil {
			t.Error(err)
		}
	}()
	r := &recorder{t: t, child: child, answer: p.Answer}
	for _, act := range p.Script {
		r.wait(act.Wait)
		r.send(act.Send)
	}
	r.readToEnd()
	return r.output
}

type recorder struct {
	t      testing.TB
	child  *pty.PTY
	answer func([]byte) []byte
	output []byte
	seen   int // bytes of output when keys were sent last
}

// read reads output once. If there is none before the deadline, it returns the error of the
// read.
func (r *recorder) read(deadline time.Time) error {
	if err := r.child.SetReadDeadline(deadline); err != nil {
		r.t.Fatal(err)
	}
	var b [32 << 10]byte
	n, err := r.child.Read(b[:])
	r.output = append(r.output, b[:n]...)
	if r.answer != nil && n > 0 {
		r.write(r.answer(b[:n]))
	}
	return err
}

func (r *recorder) wait(text string) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		until := deadline
		if text != "" && bytes.Contains(r.output[r.seen:], []byte(text)) {
			return
		}
		switch {
		case text != "":
		case len(r.output) > r.seen:
			until = time.Now().Add(quiet)
		default:
			until = time.Now().Add(ignored)
		}
		err := r.read(until)
		if errors.Is(err, os.ErrDeadlineExceeded) && until != deadline {
			return
		}
		if err != nil {
			r.t.Fatalf("waiting for %q after %q: %v", text, r.output[r.seen:], err)
		}
	}
}

func (r *recorder) send(keys string) {
	r.seen = len(r.output)
	r.write([]byte(keys))
}

func (r *recorder) write(b []byte) {
	if len(b) == 0 {
		return
	}
	if err := r.child.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.child.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// readToEnd reads all remaining output.
func (r *recorder) readToEnd() {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := r.read(deadline)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.t.Fatalf("waiting for the end after %q: %v", r.output[r.seen:], err)
		}
	}
}
