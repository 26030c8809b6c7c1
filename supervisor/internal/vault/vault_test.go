//go:build linux || darwin

package vault

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/keeper/message"
)

// connected returns a vault and the keeper's end of its socket. Package message tests the connection with real
// processes.
func connected(t *testing.T, exited func(Exit)) (*Vault, *message.Conn) {
	t.Helper()
	testkit.CheckLeaks(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	testkit.Must(t, err)
	end, err := message.NewConn(fds[0])
	testkit.Must(t, err)
	t.Cleanup(func() { end.Close() })
	say(t, end, message.Message{Op: message.OpHello, Version: 1, Starts: 3, Last: "SIGKILL", Status: 9})
	say(t, end, message.Message{Op: message.OpRecord, ID: "a", PID: 7})
	say(t, end, message.Message{Op: message.OpExit, PID: 7, Status: 1 << 8})
	say(t, end, message.Message{Op: message.OpEnd})
	v, entries, exits, err := Connect(fds[1], exited)
	testkit.Must(t, err)
	t.Cleanup(func() { v.Close() })
	if len(entries) != 1 || entries[0].ID != "a" || len(exits) != 1 || exits[0] != (Exit{7, 1 << 8}) || v.Before() != (Before{3, "SIGKILL", 9}) {
		t.Errorf("got %+v, %+v, %+v", entries, exits, v.Before())
	}
	if m := hear(t, end); m.Op != message.OpHello {
		t.Errorf("the vault sent %+v", m)
	}
	return v, end
}

func say(t *testing.T, end *message.Conn, m message.Message) {
	t.Helper()
	frame, err := m.Frame()
	testkit.Must(t, err)
	if _, err := end.Send(frame, nil); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, end *message.Conn) message.Message {
	t.Helper()
	end.SetReadDeadline(time.Now().Add(20 * time.Second))
	m, fds, err := end.Receive()
	testkit.Must(t, err)
	message.Close(fds)
	return m
}

// TestStuckKeeper checks that calls end with their context. The next call completes a message that was written in
// part, so that the keeper understands all messages when it reads again.
func TestStuckKeeper(t *testing.T) {
	v, end := connected(t, nil)
	var err error
	begun := 0
	for ; begun < 1000; begun++ {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		err = v.Put(ctx, Entry{ID: "b", Meta: make([]byte, message.MaxMeta), FDs: []int{0}})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if v.remainder != nil {
			break
		}
	}
	done := make(chan error)
	go func() { done <- v.Delete(testkit.Soon(t), "b") }()
	m, heard := hear(t, end), 0
	for ; m.Op == message.OpPut; m = hear(t, end) { // at most begun+1, because on a slow machine some calls end before they write
		if heard++; len(m.Meta) != message.MaxMeta || heard > begun+1 {
			t.Errorf("received put %d of %d, of %d bytes", heard, begun+1, len(m.Meta))
		}
	}
	say(t, end, message.Message{Op: message.OpError, Seq: m.Seq, Message: "no such record"})
	if err := <-done; m.Op != message.OpDelete || err == nil {
		t.Errorf("received %+v; the result is %v", m, err)
	}
}

// TestRefusedFrame checks that the connection stays usable if the kernel refuses a frame: here because a descriptor is closed,
// and on a loaded machine because too many descriptors or bytes are in flight.
func TestRefusedFrame(t *testing.T) {
	v, end := connected(t, nil)
	if err := v.Put(testkit.Soon(t), Entry{ID: "b", FDs: []int{1 << 20}}); !errors.Is(err, unix.EBADF) {
		t.Fatalf("a closed descriptor: %v", err)
	}
	done := make(chan error)
	go func() { done <- v.Put(testkit.Soon(t), Entry{ID: "c", FDs: []int{0}}) }()
	select {
	case err := <-done:
		t.Fatalf("put after the refused one: %v", err)
	case m := <-heard(t, end):
		say(t, end, message.Message{Op: message.OpOK, Seq: m.Seq})
		if err := <-done; m.ID != "c" || err != nil {
			t.Errorf("received %+v; the result is %v", m, err)
		}
	}
}

// heard returns a channel that receives the next message.
func heard(t *testing.T, end *message.Conn) <-chan message.Message {
	c := make(chan message.Message, 1)
	go func() {
		if m, fds, err := end.Receive(); err == nil { // otherwise the test has ended
			message.Close(fds)
			c <- m
		}
	}()
	return c
}

func TestExitsAreTold(t *testing.T) {
	exits := make(chan Exit, 1)
	v, end := connected(t, func(e Exit) { exits <- e })
	say(t, end, message.Message{Op: message.OpExit, PID: 8, Status: 9})
	if got := <-exits; got != (Exit{8, 9}) {
		t.Errorf("got %+v", got)
	}
	if _, err := v.Detach(testkit.Soon(t)); err != nil {
		t.Fatal(err)
	}
	say(t, end, message.Message{Op: message.OpExit, PID: 9, Status: 9})
	v.Attach()
	if got := <-exits; got != (Exit{9, 9}) {
		t.Errorf("after Attach: %+v", got)
	}
}

func TestLost(t *testing.T) {
	v, end := connected(t, nil)
	end.Close()
	<-v.Lost()
	if err := v.Ready(testkit.Soon(t)); err == nil {
		t.Error("no error")
	}
}
