package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/client"
)

// Connections that know of no reconnect are moved from proxy to proxy: of what
// they see no byte is missing or comes twice, what they type arrives once, what
// they wait for is answered.
// demand: S9
func TestConnectionsMove(t *testing.T) {
	const handoffs, each = 10, 10
	w := newWorld(t, bigRing)
	c := w.dial(client.Options{})
	w.spawn(c, "flow", shell(`stty -opost -echo; echo ready; read go; i=0; while :; do i=$((i+1)); echo line $i; [ $((i % 50)) = 0 ] && sleep 0.01; done`))
	w.spawn(c, "waited", shell(`read x; exit 7`))
	w.spawn(c, "flood", shell(`stty -opost; exec yes 0123456789abcde`))
	var over atomic.Bool
	var wg sync.WaitGroup
	errs := make(chan error, 8*each)
	run := func(name string, f func(*peer) error) {
		p := w.client(api.Hello{Protocol: protocol.Supported()})
		if err := p.SetDeadline(time.Now().Add(4 * limit)); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := f(p); err != nil {
				errs <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	var ready sync.WaitGroup
	var stalls [each]time.Duration
	for i := range each {
		ready.Add(3)
		run(fmt.Sprint("reader ", i), func(p *peer) error { return p.followsFlow(&over, ready.Done) })
		id := fmt.Sprint("echo-", i)
		w.echo(c, id)
		run(fmt.Sprint("typist ", i), func(p *peer) error { return p.typesAndReads(id, &over, ready.Done, &stalls[i]) })
		if i%5 == 0 { // two are enough
			text := fmt.Sprint("text-", i)
			w.echo(c, text)
			ready.Add(1)
			run(fmt.Sprint("text client ", i), func(p *peer) error { return p.typesText(text, &over, ready.Done) })
			run(fmt.Sprint("subscriber ", i), func(p *peer) error { return p.hearsAll(&over) })
		}
		run(fmt.Sprint("sleeper ", i), func(p *peer) error { return p.sleepsThrough(&over) })
		run(fmt.Sprint("waiter ", i), func(p *peer) error { return p.waitsFor("waited", ready.Done) })
	}
	ready.Wait()
	if err := c.Type(w.ctx(), "flow", []byte("\n")); err != nil {
		t.Fatal(err)
	}
	proxy := w.only("proxy")
	for range handoffs {
		w.must("proxy", "--handoff")
		w.gone(proxy)
		proxy = w.only("proxy")
	}
	over.Store(true)
	if err := c.Type(w.ctx(), "waited", []byte("\n")); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	close(errs)
	slices.Sort(stalls[:])
	t.Logf("the longest echo in %d handoffs: %v for half of the typists, %v at most", handoffs, stalls[each/2], stalls[each-1])
	for err := range errs {
		t.Error(err)
	}
}

// followsFlow reads a session that prints "line N" for each N.
func (p *peer) followsFlow(over *atomic.Bool, ready func()) error {
	if err := p.send(api.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "flow", Mode: protocol.ModeReadOnly}}); err != nil {
		return err
	}
	var pos uint64
	var seen []byte
	lines, begun := 0, false
	for !over.Load() || lines < 1000 {
		kind, payload, err := p.frames.Next()
		if err != nil {
			return fmt.Errorf("after line %d: %w", lines, err)
		}
		switch kind {
		case frame.Control:
			m, _, _ := api.Messages.Decode(payload)
			switch m := m.(type) {
			case *api.Attached:
				pos, begun = m.Offset, true
				ready()
			case *api.Welcome, *api.Accepted:
			default:
				return fmt.Errorf("told %+v after line %d", m, lines)
			}
		case frame.Output:
			_, offset, data, err := frame.ParseData(payload)
			if err != nil || !begun || offset != pos {
				return fmt.Errorf("output at %d, want %d: %w", offset, pos, err)
			}
			pos += uint64(len(data))
			seen = append(seen, data...)
			for {
				line, rest, ok := bytes.Cut(seen, []byte("\n"))
				if !ok {
					break
				}
				seen = rest
				if string(line) == "ready" {
					continue
				}
				if lines++; string(line) != fmt.Sprint("line ", lines) {
					return fmt.Errorf("line %d is %q", lines, line)
				}
			}
		}
	}
	return nil
}

// typesAndReads types numbers into a session that echoes, and reads them back.
// longest is how long that took at most.
func (p *peer) typesAndReads(id string, over *atomic.Bool, ready func(), longest *time.Duration) error {
	if err := p.send(api.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: protocol.SessionID(id)}}); err != nil {
		return err
	}
	var typed uint64
	var want []byte
	for n := 0; !over.Load() || n < 100; n++ {
		begun := time.Now()
		if n > 0 {
			want = fmt.Appendf(nil, "<%d>", n)
			f := frame.AppendData(nil, frame.Input, 1, typed, want)
			typed += uint64(len(want))
			// In two parts, so that a move finds half a frame now and then.
			if _, err := p.Write(f[:len(f)/2]); err != nil {
				return err
			}
			if _, err := p.Write(f[len(f)/2:]); err != nil {
				return err
			}
		}
		for len(want) > 0 || n == 0 {
			kind, payload, err := p.frames.Next()
			if err != nil {
				return fmt.Errorf("at %d: %w", n, err)
			}
			if kind == frame.Control {
				m, _, _ := api.Messages.Decode(payload)
				if _, ok := m.(*api.Attached); ok {
					ready()
					break
				}
				switch m.(type) {
				case *api.Accepted, *api.Welcome:
					continue
				}
				return fmt.Errorf("told %+v at %d", m, n)
			}
			if kind != frame.Output {
				continue
			}
			_, _, data, err := frame.ParseData(payload)
			if err != nil || !bytes.HasPrefix(want, data) {
				return fmt.Errorf("read %q at %d, want %q", data, n, want)
			}
			want = want[len(data):]
		}
		if n > 0 {
			*longest = max(*longest, time.Since(begun))
		}
	}
	return nil
}

// waitsFor asks for a session's end, once, and gets it, once.
func (p *peer) waitsFor(id protocol.SessionID, ready func()) error {
	if err := p.send(api.Wait{Request: protocol.Request{RequestID: "w"}, SessionID: id}); err != nil {
		return err
	}
	ready()
	for {
		m, err := p.receive()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *api.Welcome:
		case *api.Waited:
			if m.RequestID != "w" || m.Exit.ExitCode != 7 {
				return fmt.Errorf("answered by %+v", m)
			}
			if err := p.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				return err
			}
			if m, err := p.receive(); err == nil || errors.Is(err, io.EOF) {
				return fmt.Errorf("then came %+v, %w", m, err)
			}
			return nil
		default:
			return fmt.Errorf("answered by %+v", m)
		}
	}
}

// sleepsThrough attaches to a flood and reads nothing until all is over; then
// what it reads is right, and whole but for what it is told to have missed.
func (p *peer) sleepsThrough(over *atomic.Bool) error {
	if err := p.send(api.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "flood", Mode: protocol.ModeReadOnly, History: new(0)}}); err != nil {
		return err
	}
	for !over.Load() {
		time.Sleep(time.Millisecond) // that is what it does
	}
	const line = "0123456789abcde\n"
	var pos uint64
	left, read := 0, 0
	for read < 4<<20 {
		kind, payload, err := p.frames.Next()
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", read, err)
		}
		if kind == frame.Control {
			m, _, err := api.Messages.Decode(payload)
			switch m := m.(type) {
			case *api.Attached:
				pos, left = m.Offset, m.SnapshotBytes
			case *api.Resync:
				pos, left = m.Offset, m.SnapshotBytes
			case *api.Welcome, *api.Accepted:
			default:
				return fmt.Errorf("told %+v, %w", m, err)
			}
			continue
		}
		_, offset, data, err := frame.ParseData(payload)
		if err != nil || offset != pos {
			return fmt.Errorf("kind %d at %d, want %d: %w", kind, offset, pos, err)
		}
		if kind == frame.Snapshot {
			if left -= len(data); left < 0 {
				return errors.New("the snapshot is too long")
			}
			continue
		}
		if left != 0 {
			return fmt.Errorf("output with %d bytes of snapshot to come", left)
		}
		for i := range data {
			if want := line[(offset+uint64(i))%uint64(len(line))]; data[i] != want {
				return fmt.Errorf("byte %d is %q, want %q", offset+uint64(i), data[i], want)
			}
		}
		pos += uint64(len(data))
		read += len(data)
	}
	return nil
}

// typesText is typesAndReads for a client that knows neither frames nor offsets.
func (p *peer) typesText(id string, over *atomic.Bool, ready func()) error {
	attach := api.Attach{Attachment: 1, Text: true, AttachSpec: protocol.AttachSpec{SessionID: protocol.SessionID(id), History: new(0)}}
	if err := p.send(attach); err != nil {
		return err
	}
	var seen []byte
	n, snapshot := 0, 0
	for {
		m, err := p.receive()
		if err != nil {
			return fmt.Errorf("at %d: %w", n, err)
		}
		switch m := m.(type) {
		case *api.Welcome:
			continue
		case *api.Attached:
			snapshot = m.SnapshotBytes
			ready()
		case *api.TerminalData:
			if snapshot > 0 {
				snapshot -= len(m.Data)
				continue
			}
			seen = append(seen, m.Data...)
		default:
			return fmt.Errorf("told %+v at %d", m, n)
		}
		want := fmt.Appendf(nil, "<%d>", n)
		if n > 0 && !bytes.Equal(seen, want) {
			if !bytes.HasPrefix(want, seen) {
				return fmt.Errorf("read %q at %d", seen, n)
			}
			continue
		}
		if n++; over.Load() && n > 100 {
			return nil
		}
		seen = nil
		if err := p.send(api.TerminalData{SessionID: protocol.SessionID(id), Data: fmt.Appendf(nil, "<%d>", n)}); err != nil {
			return err
		}
	}
}

// hearsAll subscribes, and misses no event.
func (p *peer) hearsAll(over *atomic.Bool) error {
	if err := p.send(api.Events{Request: protocol.Request{RequestID: "e"}}); err != nil {
		return err
	}
	var last uint64
	for n := 0; !over.Load() || n < 10; {
		m, err := p.receive()
		if err != nil {
			return fmt.Errorf("after event %d: %w", last, err)
		}
		var seq uint64
		switch m := m.(type) {
		case *api.Welcome:
			continue
		case *api.Subscribed:
			last = m.Seq
			continue
		case *api.Event:
			seq = m.Seq
		case *api.PTYExited:
			seq = m.Seq
		}
		if seq != last+1 {
			return fmt.Errorf("told %+v after event %d", m, last)
		}
		last, n = seq, n+1
	}
	return nil
}
