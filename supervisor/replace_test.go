//go:build linux || darwin

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"holdfast/shared/socket"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/keeper/message"
	"holdfast/supervisor/internal/linkserver"
	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/vault"
)

// If the keeper has not confirmed a leave, it may have read it, or read it later. The supervisor, which continues, must
// report that it serves, because the keeper would end it otherwise.
func TestReadyAfterFailedLeave(t *testing.T) {
	end, file, err := message.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	end.Now = false
	ops := make(chan string, 8)
	go fakeKeeper(end, ops)
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the vault owns its descriptor
	if err != nil {
		t.Fatal(err)
	}
	v, _, _, err := vault.Connect(fd, nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := socket.Listen(testkit.Dir(t)+"/s.sock", socket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s, err := newSelf()
	if err != nil {
		t.Fatal(err)
	}
	s.ln = ln
	sessions := session.NewTable(session.Config{})
	r := &replacer{
		before: &before{vault: v}, self: s, sessions: sessions,
		server: linkserver.New(linkserver.Config{Sessions: sessions, Log: zerolog.Nop()}), log: zerolog.Nop(),
	}
	if err := r.execute(nil); err == nil { // the program is not used, because the leave fails before
		t.Error("the program was executed although the keeper refused the leave")
	}
	var got []string
	for want := []string{message.OpLeave, message.OpReady}; len(got) < len(want); {
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
