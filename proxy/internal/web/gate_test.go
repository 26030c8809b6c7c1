package web

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/gobwas/ws"

	"holdfast/protocol/frame"
)

// A sink is the connection of a client that stores what it receives.
type sink struct {
	net.Conn
	got bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) { return s.got.Write(p) }

// frames returns the messages that the client has received as frames.
func (s *sink) frames(t *testing.T) (all []byte) {
	t.Helper()
	for s.got.Len() > 0 {
		head, err := ws.ReadHeader(&s.got)
		if err != nil {
			t.Fatal(err)
		}
		payload := make([]byte, head.Length)
		if _, err := io.ReadFull(&s.got, payload); err != nil {
			t.Fatal(err)
		}
		kind := frame.Control
		if head.OpCode == ws.OpBinary {
			kind, payload = frame.Kind(payload[0]), payload[1:]
		}
		all = frame.Append(all, kind, payload)
	}
	return all
}

// FuzzGateConn checks that a client receives all whole frames before the first invalid one, whatever bytes a host
// sends, and however they are cut.
func FuzzGateConn(f *testing.F) {
	two := frame.Append(frame.Append(nil, frame.Control, []byte(`{"type":"error","code":"bad_frame"}`)), frame.Output, []byte("all bytes \x00\xff"))
	f.Add(two, byte(1))
	f.Add(append(two, 0, 0), byte(7))
	f.Add(append(two, 0, 0, 0, 0, 1), byte(3))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1}, byte(4))
	f.Fuzz(func(t *testing.T, wire []byte, size byte) {
		client := &sink{}
		c := &GateConn{transport: newTransport(t.Context(), newSocket(client, nil))}
		var err error
		for rest := wire; len(rest) > 0 && err == nil; {
			n := min(int(size)+1, len(rest))
			_, err = c.Write(rest[:n])
			rest = rest[n:]
		}
		if err != nil && !errors.Is(err, errFrame) {
			t.Errorf("the error is %v", err)
		}
		got := client.frames(t)
		if !bytes.HasPrefix(wire, got) {
			t.Fatalf("the client has received % x of % x", got, wire)
		}
		raw, next := frame.NewReader(bytes.NewReader(wire[len(got):]), frame.Max).NextRaw()
		if next == nil {
			t.Errorf("the client has not received % x", raw)
		}
	})
}
