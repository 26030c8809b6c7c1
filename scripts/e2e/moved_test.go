package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// Connections whose clients cannot reconnect are moved from proxy to proxy. No byte of output may be missing
// or duplicated, each byte of input must arrive once, and each waiting request must be answered.
// demand: S9
func TestConnectionsMove(t *testing.T) {
	const handoffs, each = 10, 10
	w := newWorld(t, bigRing)
	m := w.movers()
	proxy := w.Only("proxy")
	w.spawn(m.c, "flow", flowing)
	w.spawn(m.c, "waited", shell(`read x; exit 7`))
	w.spawn(m.c, "flood", burstsOf("0123456789abcde"))
	var stalls [each]time.Duration
	for i := range each {
		m.follow(anyWay(i))
		id := fmt.Sprint("echo-", i)
		w.echo(m.c, id)
		m.typist(anyWay(i), id, 5*time.Millisecond, &stalls[i])
		if i%5 < 2 { // four clients of these two kinds are enough
			text := fmt.Sprint("text-", i)
			w.echo(m.c, text)
			m.run("text client", apiWay(i), func(p *peer) error { return p.typesText(text, &m.over) })
			m.run("subscriber", apiWay(i), (*peer).hearsAll)
		}
		m.run("sleeper", apiWay(i), func(p *peer) error { return p.sleepsThrough(m.ended) })
		m.run("waiter", apiWay(i), func(p *peer) error { return p.waitsFor("waited") })
	}
	m.begin()
	for range handoffs {
		m.step()
		proxy = w.replaceProxy(proxy)
	}
	m.end()
	slices.Sort(stalls[:])
	t.Logf("the longest echo in %d handoffs: %v (median of the typists), %v at most", handoffs, stalls[each/2], stalls[each-1])
}

// anyWay and apiWay distribute the transports: every other connection is a WebSocket.
func anyWay(i int) way { return dealt(i, webTCP, rawUnix, webUnix, rawTCP) }

func apiWay(i int) way { return dealt(i, webTCP, webUnix) }

func dealt(i int, web ...way) way {
	if i%2 == 0 {
		return framed
	}
	return web[i/2%len(web)]
}

// movers are connections that handoffs move. Each checks the messages that it receives until the test ends
// it.
type movers struct {
	*doors
	over  atomic.Bool   // the connections may end
	ended chan struct{} // closed when over is set
	stop  func()        // sets over and closes ended

	wg     sync.WaitGroup
	count  int           // number of connections
	failed chan struct{} // closed after the first error
	fail   sync.Once

	watchdog *time.Timer // calls giveUp if a step takes longer than stepLimit
	mu       sync.Mutex
	all      []mover
	gaveUp   bool
}

// stepLimit is the longest time of a step of a test with movers. A step is a new connection, a replacement
// with the checks after it, or the end of all connections. The number of steps has no influence on it.
const stepLimit = 4 * limit

// movers returns an empty group of connections.
func (w *world) movers() *movers {
	w.T.Helper()
	m := &movers{doors: w.doors(), ended: make(chan struct{}), failed: make(chan struct{})}
	m.stop = sync.OnceFunc(func() {
		m.over.Store(true)
		close(m.ended)
	})
	m.watchdog = time.AfterFunc(stepLimit, m.giveUp)
	w.T.Cleanup(func() { m.watchdog.Stop() })
	w.T.Cleanup(m.wg.Wait)
	w.T.Cleanup(m.stop)
	return m
}

// step begins the next step of the test, which may take stepLimit again.
func (m *movers) step() { m.watchdog.Reset(stepLimit) }

// giveUp makes each read and write of the connections fail with os.ErrDeadlineExceeded.
func (m *movers) giveUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gaveUp = true
	for _, s := range m.all {
		_ = s.SetDeadline(time.Unix(1, 0)) // it fails only if the connection is closed
	}
}

// register clears the deadline of a connection, because giveUp sets it. It fails after giveUp.
func (m *movers) register(s mover) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gaveUp {
		return fmt.Errorf("a step took longer than %v", stepLimit)
	}
	m.all = append(m.all, s)
	return s.SetDeadline(time.Time{})
}

// A mover is a connection that handoffs move.
type mover interface {
	SetDeadline(time.Time) error
	Close() error
}

// add runs f, which uses a connection until the test ends it.
func (m *movers) add(name string, by way, s mover, f func() error) {
	m.T.Helper()
	m.T.Cleanup(func() { _ = s.Close() })
	m.step()
	testkit.Must(m.T, m.register(s))
	m.count++
	n := m.count
	m.wg.Go(func() {
		if err := f(); err != nil && !errors.Is(err, net.ErrClosed) { // the cleanup of a failed test closes connections
			m.T.Errorf("connection %d, a %s by %v: %v", n, name, by, err)
			m.fail.Do(func() { close(m.failed) })
		}
		_ = s.Close()
	})
}

// run adds a connection of the api.
func (m *movers) run(name string, by way, f func(*peer) error) {
	m.T.Helper()
	p, err := m.greeted(by)
	if err != nil {
		m.T.Fatalf("%s by %v: %v", name, by, err)
	}
	m.add(name, by, p, func() error { return f(p) })
}

// view adds a connection that is attached to one session.
func (m *movers) view(name string, by way, id string, mode protocol.Mode, f func(terminal) error) {
	m.T.Helper()
	s, err := m.terminal(by, id, mode)
	if err != nil {
		m.T.Fatalf("%s by %v: %v", name, by, err)
	}
	m.add(name, by, s, func() error { return f(s) })
}

func (m *movers) follow(by way) {
	m.T.Helper()
	m.view("reader", by, "flow", protocol.ModeReadOnly, func(s terminal) error { return followsFlow(s, &m.over) })
}

func (m *movers) typist(by way, id string, pace time.Duration, longest *time.Duration) {
	m.T.Helper()
	m.view("typist", by, id, protocol.ModeShared, func(s terminal) error { return typesAndReads(s, pace, &m.over, longest) })
}

// begin makes the session flow print.
func (m *movers) begin() {
	m.T.Helper()
	testkit.Must(m.T, m.c.Type(m.ctx(), "flow", []byte("\n")))
}

// end ends all connections and waits for their goroutines.
func (m *movers) end() {
	m.T.Helper()
	m.step()
	m.stop()
	testkit.Must(m.T, m.c.Type(m.ctx(), "waited", []byte("\n")))
	m.spawn(m.c, lastSession, echoing)
	m.wg.Wait()
}

// lastSession is the id of a session that end starts, so that subscribers know the last event.
const lastSession = "last"

// replaceProxy runs a handoff, waits until the old proxy has ended, and returns the new one.
func (w *world) replaceProxy(old process) process {
	w.T.Helper()
	out := w.Must("proxy", "--handoff")
	var pid int
	if _, after, ok := strings.Cut(out, "serves as pid "); ok {
		_, _ = fmt.Sscan(after, &pid)
	}
	if !strings.Contains(out, fmt.Sprintf("took over from pid %d,", old.PID)) || pid == 0 || pid == old.PID {
		w.T.Fatalf("the handoff from pid %d printed %q", old.PID, out)
	}
	w.Gone(old)
	return lookup(pid)
}

// waitsFor requests a session's exit, and must receive exactly one answer.
func (p *peer) waitsFor(id protocol.SessionID) error {
	if err := p.send(api.Wait{Request: protocol.Request{RequestID: "w"}, SessionID: id}); err != nil {
		return err
	}
	for {
		m, err := p.receive()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *api.Welcome:
		case *api.Waited:
			if m.RequestID != "w" || m.Exit.ExitCode != 7 {
				return fmt.Errorf("the answer to wait is %+v", m)
			}
			if err := p.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				return err
			}
			if m, err := p.receive(); err == nil || errors.Is(err, io.EOF) {
				return fmt.Errorf("after the answer came %+v, %w", m, err)
			}
			return nil
		default:
			return fmt.Errorf("the answer to wait is %+v", m)
		}
	}
}

// sleepsThrough attaches to a flood and does not read until the test ends. The output that it then reads must
// be right, and complete apart from bytes that are reported as missed.
func (p *peer) sleepsThrough(ended <-chan struct{}) error {
	if err := p.send(api.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "flood", Mode: protocol.ModeReadOnly, History: new(0)}}); err != nil {
		return err
	}
	<-ended
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
				return fmt.Errorf("unexpected message %+v, %w", m, err)
			}
			continue
		}
		_, offset, data, err := frame.ParseData(payload)
		if err != nil || offset != pos {
			return fmt.Errorf("frame of kind %d at offset %d, want offset %d: %w", kind, offset, pos, err)
		}
		if kind == frame.Snapshot {
			if left -= len(data); left < 0 {
				return errors.New("the snapshot is longer than announced")
			}
			continue
		}
		if left != 0 {
			return fmt.Errorf("output before the last %d bytes of the snapshot", left)
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

// typesText is like typesAndReads, for a client of the text protocol, which has neither frames nor offsets.
func (p *peer) typesText(id string, over *atomic.Bool) error {
	attach := api.Attach{Attachment: 1, Text: true, AttachSpec: protocol.AttachSpec{SessionID: protocol.SessionID(id), History: new(0)}}
	if err := p.send(attach); err != nil {
		return err
	}
	var seen []byte
	n, snapshot := 0, 0
	for {
		m, err := p.receive()
		if err != nil {
			return fmt.Errorf("waiting for echo %d: %w", n, err)
		}
		switch m := m.(type) {
		case *api.Welcome:
			continue
		case *api.Attached:
			snapshot = m.SnapshotBytes
		case *api.TerminalData:
			if snapshot > 0 {
				snapshot -= len(m.Data)
				continue
			}
			seen = append(seen, m.Data...)
		default:
			return fmt.Errorf("unexpected message %+v while waiting for echo %d", m, n)
		}
		want := fmt.Appendf(nil, "<%d>", n)
		if n > 0 && !bytes.Equal(seen, want) {
			if !bytes.HasPrefix(want, seen) {
				return fmt.Errorf("output %q instead of echo %d", seen, n)
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

// hearsAll subscribes, and must miss no event until the event of the last session.
func (p *peer) hearsAll() error {
	if err := p.send(api.Events{Request: protocol.Request{RequestID: "e"}}); err != nil {
		return err
	}
	var last uint64
	for {
		m, err := p.receive()
		if err != nil {
			return fmt.Errorf("after event %d: %w", last, err)
		}
		var seq uint64
		ends := false
		switch m := m.(type) {
		case *api.Welcome:
			continue
		case *api.Subscribed:
			last = m.Seq
			continue
		case *api.Event:
			seq, ends = m.Seq, m.Session != nil && m.Session.ID == lastSession
		case *api.PTYExited:
			seq = m.Seq
		}
		if seq != last+1 {
			return fmt.Errorf("unexpected message %+v after event %d", m, last)
		}
		if last = seq; ends {
			return nil
		}
	}
}
