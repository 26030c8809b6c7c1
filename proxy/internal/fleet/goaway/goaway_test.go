package goaway

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// A buffer is a connection that keeps the bytes that are written.
type buffer struct {
	net.Conn
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { return b.Buffer.Write(p) }
func (b *buffer) Read(p []byte) (int, error)  { return b.Buffer.Read(p) }

// Wherever the bytes of a host are cut, goaway comes between two frames, once, and no byte is changed. It does
// not come into a stream that has no frames.
func TestGoawayBetweenFrames(t *testing.T) {
	goaway, err := protocol.Encode(api.Goaway{Reason: "replaced"})
	testkit.Must(t, err)
	added := frame.Append(nil, frame.Control, goaway)
	frames := [][]byte{
		frame.Append(nil, frame.Control, []byte("first")), frame.Append(nil, frame.Output, nil), frame.Append(nil, frame.Output, bytes.Repeat([]byte("x"), 300)),
	}
	all := bytes.Join(frames, nil)
	for first := range len(all) + 1 {
		for _, size := range []int{1, 3, len(all)} {
			out := &buffer{}
			w := NewWriter(out, "replaced", t.FailNow)
			write := func(p []byte) {
				if n, err := w.Write(p); n != len(p) || err != nil {
					t.Fatal(n, err)
				}
			}
			write(all[:first])
			w.Ask()
			for rest := all[first:]; len(rest) > 0; {
				n := min(size, len(rest))
				write(rest[:n])
				rest = rest[n:]
			}
			at := 0
			for _, f := range frames {
				if at >= first {
					break
				}
				at += len(f)
			}
			if want := string(all[:at]) + string(added) + string(all[at:]); out.String() != want {
				t.Fatalf("after %d bytes, in pieces of %d: %q", first, size, out.String())
			}
		}
	}
	out := &buffer{}
	w := NewWriter(out, "replaced", t.FailNow)
	odd := "\xff\xff\xff\xffno frame"
	_, _ = w.Write([]byte(odd[:6]))
	w.Ask()
	_, _ = w.Write([]byte(odd[6:]))
	if out.String() != odd {
		t.Errorf("%q", out.String())
	}
}

// Drain asks each client once, also one that comes meanwhile, and returns when all have left.
func TestDrain(t *testing.T) {
	t.Parallel()
	var set Set
	var wg sync.WaitGroup
	const clients = 2*groupSize + 1
	arrived := make(chan int, clients+1)
	// enter adds a client, which leaves when it is asked.
	enter := func(i int) {
		here, there := net.Pipe()
		leave := set.Add(NewWriter(here, "replaced", func() { _ = here.Close() }))
		wg.Go(func() {
			defer leave()
			_, payload, err := frame.NewReader(there, frame.Max).Next()
			if err == nil {
				if m, _, err := api.Messages.Decode(payload); err != nil || m.MessageType() != (api.Goaway{}).MessageType() {
					t.Errorf("client %d receives %v, %v", i, m, err)
				}
			}
			_ = there.Close()
			arrived <- i
		})
	}
	for i := range clients {
		enter(i)
	}
	isLate := false
	remaining := func() int {
		set.mu.Lock()
		n := len(set.isAsked)
		set.mu.Unlock()
		if n == 0 && !isLate {
			isLate = true
			enter(clients)
			return 1
		}
		return n
	}
	if asked := set.Drain(testkit.Soon(t), wg.Go, remaining); asked != clients+1 {
		t.Errorf("%d clients were asked", asked)
	}
	wg.Wait()
	if len(arrived) != clients+1 {
		t.Errorf("%d clients have left", len(arrived))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	set.Drain(ctx, wg.Go, func() int { return 1 }) // a client that does not leave delays nothing
}
