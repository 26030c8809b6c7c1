//go:build linux

package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// messages has one message of each kind, with all fields that it may have.
var messages = map[string]Message{
	"hello":        {Op: OpHello, Version: 1},
	"put":          {Op: OpPut, Seq: 1, ID: "a", PID: 42, Meta: []byte{0, 1, 255}, FDs: 2},
	"pid":          {Op: OpPID, Seq: 2, ID: "a", PID: 43},
	"delete":       {Op: OpDelete, Seq: 3, ID: "a"},
	"ready":        {Op: OpReady, Seq: 4},
	"exec":         {Op: OpExec, Seq: 5, Argv: []string{"/bin/keeper", "--flag"}, FDs: 1},
	"quit":         {Op: OpQuit, Seq: 6},
	"keeper_hello": {Op: OpHello, Version: 1, Records: 3, Starts: 2, Last: "SIGKILL", Status: 9},
	"record":       {Op: OpRecord, ID: "a", PID: 42, Meta: []byte{0, 1, 255}, FDs: 2},
	"exit":         {Op: OpExit, PID: 42, Status: 7 << 8},
	"end":          {Op: OpEnd},
	"ok":           {Op: OpOK, Seq: 1},
	"error":        {Op: OpError, Seq: 1, Message: "no such record"},
}

// TestGolden checks the bytes of version 1, which never change.
func TestGolden(t *testing.T) {
	for name, m := range messages {
		t.Run(name, func(t *testing.T) {
			frame, err := m.Frame()
			testkit.Must(t, err)
			testkit.GoldenHex(t, "testdata/v1/"+name+".hex", frame)
			var back Message
			if err := json.Unmarshal(testkit.ReadHex(t, "testdata/v1/"+name+".hex")[4:], &back); err != nil || fmt.Sprint(back) != fmt.Sprint(m) {
				t.Errorf("read back %+v, %v", back, err)
			}
		})
	}
}

func conns(t *testing.T) (a, b *Conn) {
	t.Helper()
	a, f, err := Pair()
	testkit.Must(t, err)
	a.Now = false
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	testkit.Must(t, err)
	f.Close()
	b, err = NewConn(fd)
	testkit.Must(t, err)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// TestNonsense checks that the message after one that cannot be understood is received, and that no descriptor stays
// open.
func TestNonsense(t *testing.T) {
	long := append([]byte{0, 3, 0, 0}, bytes.Repeat([]byte("x"), 3<<16)...)
	for name, tt := range map[string]struct {
		bytes []byte
		fds   int
	}{
		"empty": {[]byte{0, 0, 0, 0}, 0}, "no JSON": {[]byte("\x00\x00\x00\x03{]}"), 0}, "too long": {long, 0},
		"too long, with descriptors": {long, 5}, "not announced": {[]byte("\x00\x00\x00\x02{}"), 3},
		"too many": {[]byte("\x00\x00\x00\x0b{\"fds\":100}"), 100}, "too few": {[]byte("\x00\x00\x00\x09{\"fds\":3}"), 2},
		"wrong types": {[]byte("\x00\x00\x00\x08{\"op\":1}"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.CheckLeaks(t)
			a, b := conns(t)
			go func() {
				a.Send(tt.bytes, make([]int, tt.fds))
				frame, _ := messages["put"].Frame()
				a.Send(frame, []int{0, 1})
			}()
			_, fds, err := b.Receive()
			if bad := new(BadFrame); !errors.As(err, &bad) || fds != nil {
				t.Errorf("got %v, %v", fds, err)
			}
			m, fds, err := b.Receive()
			if err != nil || m.ID != "a" || len(fds) != 2 {
				t.Errorf("the message behind it: %+v, %v, %v", m, fds, err)
			}
			Close(fds)
		})
	}
}

// FuzzReceive checks that Receive does not panic, and ends with the connection.
func FuzzReceive(f *testing.F) {
	for _, m := range messages {
		frame, _ := m.Frame()
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := conns(t)
		go func() { a.Send(in, nil); a.Close() }()
		for bad := new(BadFrame); ; {
			if _, fds, err := b.Receive(); len(fds) > 0 || err != nil && !errors.As(err, &bad) {
				break
			}
		}
	})
}
