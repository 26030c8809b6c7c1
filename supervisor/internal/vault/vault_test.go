//go:build linux || darwin

package vault

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/keeper"
)

// connected is a vault and the keeper's end of its socket, which the test has. The
// rest is tested with real processes, in package keeper.
func connected(t *testing.T, exited func(Exit)) (*Vault, *keeper.Conn) {
	t.Helper()
	testkit.CheckLeaks(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	end, err := keeper.NewConn(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end.Close() })
	say(t, end, keeper.Message{Op: keeper.OpHello, Version: 1, Starts: 3, Last: "SIGKILL", Status: 9})
	say(t, end, keeper.Message{Op: keeper.OpRecord, ID: "a", PID: 7})
	say(t, end, keeper.Message{Op: keeper.OpExit, PID: 7, Status: 1 << 8})
	say(t, end, keeper.Message{Op: keeper.OpEnd})
	v, records, exits, err := Connect(fds[1], exited)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	if len(records) != 1 || records[0].ID != "a" || len(exits) != 1 || exits[0] != (Exit{7, 1 << 8}) || v.Before() != (Before{3, "SIGKILL", 9}) {
		t.Errorf("got %+v, %+v, %+v", records, exits, v.Before())
	}
	if m := hear(t, end); m.Op != keeper.OpHello {
		t.Errorf("it said %+v", m)
	}
	return v, end
}

func say(t *testing.T, end *keeper.Conn, m keeper.Message) {
	t.Helper()
	frame, err := m.Frame()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := end.Send(frame, nil); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, end *keeper.Conn) keeper.Message {
	t.Helper()
	end.SetReadDeadline(time.Now().Add(20 * time.Second))
	m, fds, err := end.Receive()
	if err != nil {
		t.Fatal(err)
	}
	closeAll([]Record{{FDs: fds}})
	return m
}

// TestStuckKeeper: calls end with their context, and what they left half written
// is ended by the next, so that the keeper understands all when it reads again.
func TestStuckKeeper(t *testing.T) {
	v, end := connected(t, nil)
	var err error
	begun := 0
	for ; begun < 1000; begun++ {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		err = v.Put(ctx, Record{ID: "b", Meta: make([]byte, keeper.MaxMeta), FDs: []int{0}})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if v.rest != nil {
			break
		}
	}
	done := make(chan error)
	go func() { done <- v.Delete(testkit.Soon(t), "b") }()
	for range begun + 1 {
		if m := hear(t, end); m.Op != keeper.OpPut || len(m.Meta) != keeper.MaxMeta {
			t.Errorf("heard %s of %d bytes", m.Op, len(m.Meta))
		}
	}
	m := hear(t, end)
	say(t, end, keeper.Message{Op: keeper.OpError, Seq: m.Seq, Message: "no such record"})
	if err := <-done; m.Op != keeper.OpDelete || err == nil {
		t.Errorf("heard %+v; answer %v", m, err)
	}
}

func TestExitsAreTold(t *testing.T) {
	exits := make(chan Exit, 1)
	v, end := connected(t, func(e Exit) { exits <- e })
	say(t, end, keeper.Message{Op: keeper.OpExit, PID: 8, Status: 9})
	if got := <-exits; got != (Exit{8, 9}) {
		t.Errorf("got %+v", got)
	}
	if _, err := v.Detach(testkit.Soon(t)); err != nil {
		t.Fatal(err)
	}
	say(t, end, keeper.Message{Op: keeper.OpExit, PID: 9, Status: 9})
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
