//go:build linux || darwin

package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"holdfast/shared/socket"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/keeper/message"
	"holdfast/supervisor/internal/linkserver"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/vault"
)

// newReplacer returns a replacer without sessions whose keeper refuses each leave, and the operations that the keeper receives.
func newReplacer(t *testing.T) (*replacer, <-chan string) {
	t.Helper()
	end, file, err := message.Pair()
	testkit.Must(t, err)
	t.Cleanup(func() { _, _ = end.Close(), file.Close() })
	end.Now = false
	ops := make(chan string, 8)
	go fakeKeeper(end, ops)
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the vault owns its descriptor
	testkit.Must(t, err)
	v, _, _, err := vault.Connect(fd, nil)
	testkit.Must(t, err)
	ln, err := socket.Listen(testkit.Dir(t)+"/s.sock", socket.Options{})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	s, err := newSelf()
	testkit.Must(t, err)
	s.ln = ln
	sessions := session.NewTable(session.Config{})
	store := past.New(t.TempDir(), nil)
	return &replacer{
		before: &before{vault: v}, self: s, sessions: sessions, recording: recorder.New(recorder.Config{Store: store}), diskTime: time.Minute, isWaiting: func() bool { return false },
		server: linkserver.New(linkserver.Config{Sessions: sessions, Log: zerolog.Nop()}), log: zerolog.Nop(),
	}, ops
}

// checkOps checks that the keeper has received these operations.
func checkOps(t *testing.T, ops <-chan string, want ...string) {
	t.Helper()
	var got []string
	for len(got) < len(want) {
		select {
		case op := <-ops:
			if got = append(got, op); !slices.Equal(got, want[:len(got)]) {
				t.Fatalf("the keeper received %q, want %q", got, want)
			}
		case <-time.After(time.Second):
			t.Fatalf("the keeper received %q, want %q", got, want)
		}
	}
}

// If the keeper has not confirmed a leave, it may have read it, or read it later. The supervisor, which continues, must
// report that it serves, because the keeper would end it otherwise.
func TestReadyAfterFailedLeave(t *testing.T) {
	r, ops := newReplacer(t)
	if err := r.execute(nil); err == nil { // the program is not used, because the leave fails before
		t.Error("the program was executed although the keeper refused the leave")
	}
	checkOps(t, ops, message.OpLeave, message.OpReady)
}

// If a thread waits for a disk that does not answer, such as that of the log, the program must not be replaced either.
func TestHungThread(t *testing.T) {
	r, ops := newReplacer(t)
	r.diskTime, r.isWaiting = 10*time.Millisecond, func() bool { return true }
	if err := r.execute(nil); err == nil || !strings.Contains(err.Error(), "disk") {
		t.Errorf("a replacement while a thread waits: %v, want an error that names the disk", err)
	}
	checkOps(t, ops, message.OpReady)
	var looks int
	r.diskTime, r.isWaiting = time.Minute, func() bool { looks++; return looks < 3 }
	if err := r.execute(nil); err == nil {
		t.Error("the program was executed although the keeper refused the leave")
	}
	checkOps(t, ops, message.OpLeave, message.OpReady)
}

// If the disk does not answer a recording, the program must not be replaced: the kernel would wait for the disk while all
// sessions are frozen. Later, when the disk answers, it is replaced.
func TestHungDisk(t *testing.T) {
	r, ops := newReplacer(t)
	l := past.Life{ID: "a", Instance: "1"}
	w, err := r.recording.Store().OpenWriter(l, past.Full)
	testkit.Must(t, err)
	testkit.Must(t, errors.Join(w.SetMeta(past.Meta{}), w.Close()))
	waits, answers := make(chan struct{}), make(chan struct{})
	r.recording.ChangeMeta(l, func(*past.Meta) { close(waits); <-answers })
	<-waits
	r.diskTime = 10 * time.Millisecond
	if err := r.execute(nil); err == nil || !strings.Contains(err.Error(), "disk") {
		t.Errorf("a replacement during a recording: %v, want an error that names the disk", err)
	}
	checkOps(t, ops, message.OpReady)
	close(answers)
	r.diskTime = time.Minute
	if err := r.execute(nil); err == nil {
		t.Error("the program was executed although the keeper refused the leave")
	}
	checkOps(t, ops, message.OpLeave, message.OpReady)
	resumed := make(chan struct{})
	r.recording.ChangeMeta(l, func(*past.Meta) { close(resumed) })
	<-resumed
	if err := r.recording.Close(time.Minute); err != nil {
		t.Error(err)
	}
}

// fakeKeeper has no vault entry, refuses each leave, and confirms each other request. It sends the operations of the
// requests to ops.
func fakeKeeper(end *message.Conn, ops chan<- string) {
	send := func(m message.Message) error {
		frame, err := m.Frame()
		if err == nil {
			_, err = end.Send(frame, nil)
		}
		return err
	}
	err := send(message.Message{Op: message.OpHello, Version: message.Version})
	if err == nil {
		err = send(message.Message{Op: message.OpEnd})
	}
	for err == nil {
		var m message.Message
		if m, _, err = end.Receive(); err != nil {
			break // the test has ended
		}
		answer := message.Message{Op: message.OpOK, Seq: m.Seq}
		if m.Op == message.OpLeave {
			answer = message.Message{Op: message.OpError, Seq: m.Seq, Message: "it did not answer"}
		}
		if m.Op == message.OpLeave || m.Op == message.OpReady {
			ops <- m.Op
		}
		err = send(answer)
	}
}
