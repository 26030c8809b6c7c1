package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

// After goaway the client connects again, and sends input that was not acknowledged.
func TestGoaway(t *testing.T) {
	f, a, p := view(t)
	p.output(frame.Output, 0, "abc")
	if _, err := a.Write([]byte("typed")); err != nil {
		t.Fatal(err)
	}
	p.wantInput(0, "typed")
	p.send(api.Goaway{RetryAfterMS: 1, Reason: "upgrade"})
	p = f.accept()
	m := want[*api.Attach](p)
	equal(t, "resume", *m.Resume, protocol.Resume{Instance: "i", Offset: 3})
	equal(t, "writer", m.Writer, a.Writer())
	info := exact(3)
	info.InputOffset = 2
	p.answer(m, &api.Attached{Attachment: number, AttachInfo: info})
	p.output(frame.Output, 3, "def")
	p.wantInput(2, "ped")
	equal(t, "read", readFull(t, a, 6), "abcdef")
}

// The client does not resume within a snapshot, but requests a new one.
func TestHalfASnapshot(t *testing.T) {
	f, c, _ := dialed(t)
	info := exact(50)
	info.Replay, info.SnapshotBytes = protocol.ReplaySnapshot, 4
	_, p, _ := attached(t, f, c, AttachOptions{Cols: 80, Rows: 24}, info)
	p.output(frame.Snapshot, 50, "sn")
	_ = p.Close()
	m := want[*api.Attach](f.accept())
	if m.Resume == nil || !m.Snapshot {
		t.Errorf("got %+v, want to resume with a snapshot", m.AttachSpec)
	}
}

// An attachment whose proxy does not come back fails after Redial.
func TestRedialEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		var down atomic.Bool
		o := attachable(t, func(p *peer) {
			down.Store(true)
			_ = p.write(frame.AppendData(nil, frame.Output, number, 0, []byte("abc")))
		})
		o.Redial = 50 * time.Millisecond
		up := o.Dial
		o.Dial = func(ctx context.Context) (net.Conn, error) {
			if down.Load() {
				return nil, gone
			}
			return up(ctx)
		}
		a := attachedBy(t, o)
		begun := time.Now()
		equal(t, "read", string(receive(t, a).Data), "abc")
		m := receive(t, a)
		if m.Kind != Failed || !errors.Is(m.Err, ErrConnect) || !errors.Is(m.Err, gone) {
			t.Errorf("got %+v, want a failure to connect", m)
		}
		equal(t, "it was tried for", time.Since(begun), o.Redial)
		if _, err := a.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write: got %v, want closed pipe", err)
		}
	})
}

// TestSimulateResume plays proxies that break off connections anywhere, in both directions, send goaway, accept input
// in pieces, and request input again. Every byte of output is read once, and every byte of input arrives once and in
// order.
func TestSimulateResume(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			simulate(t, seed)
		})
	}
}

// A world is the session that all proxies of a simulation share.
type world struct {
	t       *testing.T
	rnd     *rand.Rand // used only by the goroutine that begins lives
	printed []byte
	typed   []byte // input that must arrive

	mu      sync.Mutex
	arrived []byte
}

func simulate(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := &world{t: t, rnd: rnd, printed: random(rnd, 150_000), typed: random(rnd, 150_000)}
	greet := rand.New(rand.NewPCG(seed, 1))
	f := newFake(t, func(h *api.Hello) protocol.Message {
		if greet.IntN(6) == 0 {
			return nil
		}
		return welcome(h)
	})
	c, err := Dial(t.Context(), f.options())
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	defer c.Close()
	requests := f.accept()
	defer requests.Close()
	served := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	lives := 0
	go func() {
		defer close(served)
		for ; ; lives++ {
			select {
			case p := <-f.peers:
				w.live(p)
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { stop(); <-served; t.Logf("seed %d: %d proxies", seed, lives) }()

	a, err := c.Attach(t.Context(), "s", AttachOptions{})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	defer a.Detach()
	wrote := startErr(t, func() error {
		rnd := rand.New(rand.NewPCG(seed, 2))
		for rest := w.typed; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(20_000))
			if k, err := a.Write(rest[:n]); k != n || err != nil {
				return fmt.Errorf("wrote %d of %d: %w", k, n, err)
			}
			rest = rest[n:]
		}
		return nil
	})
	got, err := start(t, func() ([]byte, error) { return io.ReadAll(a) })()
	if err != nil {
		t.Errorf("seed %d: read: %v", seed, err)
	}
	if err := wrote(); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	if !bytes.Equal(got, w.printed) {
		t.Errorf("seed %d: read %d bytes, which differ from the %d printed", seed, len(got), len(w.printed))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !bytes.Equal(w.arrived, w.typed) {
		t.Errorf("seed %d: %d bytes arrived, which differ from the %d sent", seed, len(w.arrived), len(w.typed))
	}
}

func random(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// live plays one proxy, which breaks off after a number of bytes in either direction.
func (w *world) live(p *peer) {
	defer p.Close()
	out := &limited{w: p, left: w.rnd.IntN(80_000)}
	outRnd, inRnd := rand.New(rand.NewPCG(w.rnd.Uint64(), 0)), rand.New(rand.NewPCG(w.rnd.Uint64(), 0))
	r := frame.NewReader(io.LimitReader(io.MultiReader(bytes.NewReader(p.r.Buffered()), p), int64(w.rnd.IntN(120_000))), frame.Max)
	_, payload, err := r.Next()
	if err != nil {
		return
	}
	m, _, err := api.Messages.Decode(payload)
	attach, ok := m.(*api.Attach)
	if !ok {
		w.t.Errorf("got %T, %v, want an attach", m, err)
		return
	}
	if w.rnd.IntN(5) == 0 {
		_ = out.write(p.control(api.Error{Request: attach.Request, Error: unreachable}))
		return
	}
	var offset uint64
	if attach.Resume != nil {
		offset = attach.Resume.Offset
	}
	info := exact(offset)
	w.mu.Lock()
	info.InputOffset = uint64(len(w.arrived))
	w.mu.Unlock()
	if out.write(p.control(api.Attached{Request: attach.Request, Attachment: number, AttachInfo: info})) != nil {
		return
	}
	typed := make(chan struct{}) // closed when all input has arrived
	over := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		defer close(over)
		defer p.Close()
		w.take(p, r, out, inRnd, typed)
	})
	for at := int(offset); at < len(w.printed); {
		n := min(len(w.printed)-at, 1+outRnd.IntN(9000))
		if out.write(frame.AppendData(nil, frame.Output, number, uint64(at), w.printed[at:at+n])) != nil {
			_ = p.Close()
			return
		}
		if at += n; outRnd.IntN(12) == 0 {
			_ = out.write(p.control(api.Goaway{RetryAfterMS: 1, Reason: "simulated"}))
			return // the client has closed
		}
	}
	select {
	case <-typed:
		_ = out.write(p.control(api.PTYExited{SessionID: "s", ExitCode: 1}))
	case <-over:
	}
}

// take accepts input as a session does: in order, in pieces, and never twice.
func (w *world) take(p *peer, r *frame.Reader, out *limited, rnd *rand.Rand, typed chan struct{}) {
	told := false
	n := uint32(number)
	for {
		w.mu.Lock()
		whole := len(w.arrived) == len(w.typed)
		w.mu.Unlock()
		if whole && !told {
			told = true
			close(typed)
		}
		kind, payload, err := r.Next()
		if err != nil {
			return
		}
		if kind != frame.Input {
			continue
		}
		_, offset, data, err := frame.ParseData(payload)
		if err != nil {
			w.t.Error(err)
			return
		}
		answer := w.accept(offset, data, rnd)
		if answer == nil {
			continue
		}
		if e, ok := answer.(api.Error); ok {
			e.Attachment = &n
			answer = e
		}
		if out.write(p.control(answer)) != nil {
			return
		}
	}
}

func (w *world) accept(offset uint64, data []byte, rnd *rand.Rand) protocol.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := uint64(len(w.arrived))
	if offset > have {
		return api.Error{Error: protocol.Error{Code: protocol.CodeInputGap, Offset: &have}}
	}
	if have-offset >= uint64(len(data)) {
		return nil
	}
	data = data[have-offset:]
	n := len(data)
	full := rnd.IntN(10) == 0
	if full {
		n = rnd.IntN(n)
	}
	w.arrived = append(w.arrived, data[:n]...)
	have += uint64(n)
	switch {
	case full:
		return api.Error{Error: protocol.Error{Code: protocol.CodeInputFull, Offset: &have}}
	case rnd.IntN(10) == 0: // loses the remainder, and requests it although the client has not sent more
		return api.Error{Error: protocol.Error{Code: protocol.CodeInputGap, Offset: &have}}
	case rnd.IntN(3) == 0:
		return nil
	}
	accepted := uint32(number)
	return api.Accepted{Attachment: &accepted, Offset: have}
}

// limited breaks off a connection after a number of bytes, even within a frame.
type limited struct {
	mu   sync.Mutex
	w    net.Conn
	left int
}

func (l *limited) write(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(b), l.left)
	l.left -= n
	if _, err := l.w.Write(b[:n]); err != nil {
		return err
	}
	if n < len(b) {
		_ = l.w.Close()
		return io.ErrShortWrite
	}
	return nil
}

// The missed bytes of a resume count from the offset up to which the client has everything, or was told how much it
// missed, even if several snapshots were cut off.
func TestResumeWithinSnapshots(t *testing.T) {
	f, c, _ := dialed(t)
	a, p, _ := attached(t, f, c, AttachOptions{}, exact(50))
	for _, step := range []struct{ from, missed uint64 }{{50, 100}, {150, 0}, {150, 30}, {180, 7}} {
		_ = p.Close()
		p = f.accept()
		m := want[*api.Attach](p)
		if m.Resume.Offset != step.from {
			t.Fatalf("resumed at %d, want %d", m.Resume.Offset, step.from)
		}
		info := exact(900)
		info.Replay, info.SnapshotBytes, info.BytesMissed = protocol.ReplaySnapshot, 4, step.missed
		p.answer(m, &api.Attached{Attachment: number, AttachInfo: info})
		p.output(frame.Snapshot, 900, "sn")
		for {
			if m := receive(t, a); m.Kind == Snapshot {
				break
			}
		}
	}
	if a.Missed() != 137 {
		t.Errorf("missed %d", a.Missed())
	}
}
