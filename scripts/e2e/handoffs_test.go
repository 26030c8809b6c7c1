package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// In many handoffs in a row, HOLDFAST_HANDOFFS of them, none of 100 connections (in the long mode 200) is
// closed, no byte is lost or doubled in either direction, and the proxy keeps no memory and no descriptor
// of a connection that has ended.
// demand: S9
func TestManyHandoffs(t *testing.T) {
	streams, typists, fickle, large, others := 25, 25, 5, 3, 42
	if isLong {
		streams, typists, fickle, large, others = 2*streams, 2*typists, 2*fickle, 2*large, 2*others
	}
	handoffs := number(t, "HOLDFAST_HANDOFFS", 4)
	w := newWorld(t, bigRing)
	m := w.movers()
	proxy, held := w.Only("proxy"), w.Only("supervisor")
	w.spawn(m.c, "flow", trickling)
	w.spawn(m.c, "waited", shell(`read x; exit 7`))
	w.echoAlone(m.c, "quiet")
	for range streams {
		m.follow(anyWay(m.count))
	}
	longest := make([]time.Duration, typists)
	for i := range typists {
		id := fmt.Sprint("echo-", i)
		w.echoAlone(m.c, id)
		m.typist(anyWay(m.count), id, 100*time.Millisecond, &longest[i])
	}
	var times atomic.Int64
	for range fickle {
		m.run("fickle", apiWay(m.count), func(p *peer) error { return p.comesAndGoes("quiet", &m.over, &times) })
	}
	var halved []*halves
	for i := range large {
		id := fmt.Sprint("large-", i)
		w.echoAlone(m.c, id)
		h := &halves{turns: make(chan struct{}), begun: make(chan struct{}, 1)}
		halved = append(halved, h)
		m.run("large", apiWay(m.count), func(p *peer) error { return h.send(p, id, i) })
	}
	done := sync.OnceFunc(func() {
		for _, h := range halved {
			close(h.turns)
		}
	})
	defer done()
	for i := range others {
		switch i / 2 % 8 {
		case 0:
			m.run("subscriber", apiWay(m.count), (*peer).hearsAll)
		case 1, 2:
			m.run("waiter", apiWay(m.count), func(p *peer) error { return p.waitsFor("waited") })
		case 3, 4:
			m.view("onlooker", anyWay(m.count), "quiet", protocol.ModeReadOnly, onlooks)
		default:
			m.run("idler", apiWay(m.count), func(p *peer) error {
				<-m.ended
				return p.list()
			})
		}
	}
	m.begin()
	var first, last, firstHeld, lastHeld usage
	look := func() bool {
		last, lastHeld = usageOf(proxy.PID), usageOf(held.PID)
		return last.FDs <= first.FDs && last.RSS <= first.RSS+moreRSS() && besideQueues(lastHeld) <= besideQueues(firstHeld)
	}
	for i := range handoffs {
		m.step()
		for _, h := range halved {
			m.wait(t, h.turns, h.begun)
		}
		proxy = w.replaceProxy(proxy)
		for _, h := range halved {
			m.wait(t, h.turns, nil)
		}
		if i == 0 {
			look()
			first, firstHeld = last, lastHeld
		}
	}
	m.step()
	if !eventually(look) {
		t.Errorf("the proxy had %+v after the first handoff; after the last it has %+v: %v", first, last, fds(proxy.PID))
		t.Errorf("the supervisor had %+v; now it has %+v: %v", firstHeld, lastHeld, fds(held.PID))
	}
	done()
	testkit.Must(t, m.c.Type(w.ctx(), "quiet", []byte("over")))
	m.end()
	slices.Sort(longest)
	t.Logf("%d handoffs under %d connections; %d attaches meanwhile; the longest echo: %v (median of the typists), %v at most; the proxy had %+v, then %+v",
		handoffs, m.count, times.Load(), longest[typists/2], longest[typists-1], first, last)
	if err := m.c.Close(); err != nil {
		t.Error(err)
	}
	w.leavesNothing(proxy)
}

// besideQueues counts the descriptors of a supervisor without the input queues of sessions. A session gets at
// most one queue, when its input first has to wait.
func besideQueues(u usage) int { return u.FDs - min(u.Queues, u.PTYs) }

// trickling is like flowing, but slow enough for many readers.
var trickling = shell(`stty -opost -echo; echo ready; read go; i=0; while :; do
	printf 'line %d\n' $((i+1)) $((i+2)) $((i+3)) $((i+4)) $((i+5)); i=$((i+5)); sleep 0.1
done`)

// wait sends to to, and then receives from from unless that is nil. It fails the test if a connection fails
// meanwhile.
func (m *movers) wait(t *testing.T, to chan<- struct{}, from <-chan struct{}) {
	t.Helper()
	select {
	case to <- struct{}{}:
	case <-m.failed:
		t.Fatal("a connection has failed")
	}
	if from == nil {
		return
	}
	select {
	case <-from:
	case <-m.failed:
		t.Fatal("a connection has failed")
	}
}

// halves is a client that writes the first half of a large message at one turn, and the second half at the
// next turn, so that a handoff between them finds the message incomplete.
type halves struct {
	turns chan struct{}
	begun chan struct{} // receives a value when the first half is written
}

// send sends status requests and input in turns, both as large as a frame may be, and checks the answer or
// the echo.
func (h *halves) send(p *peer, id string, n int) error {
	a, err := p.attach(protocol.AttachSpec{SessionID: protocol.SessionID(id)})
	if err != nil {
		return err
	}
	if err := begins(a); err != nil {
		return err
	}
	data := text(frame.Max - 1 - frame.DataHeadLen)
	for range h.turns {
		n++
		isInput := n/2%2 == 0 // of two messages of one kind, a WebSocket sends one in fragments
		f := []byte(nil)
		if isInput {
			f = a.input(data)
		} else {
			message := fmt.Sprintf(`{"type":"status","request_id":"r-%d","more":"`, n)
			message += strings.Repeat("x", frame.Max-1-len(message)-len(`"}`)) + `"}`
			f = frame.Append(nil, frame.Control, []byte(message))
		}
		if _, err := p.Write(f[:len(f)/2]); err != nil {
			return err
		}
		h.begun <- struct{}{}
		<-h.turns
		if _, err := p.Write(f[len(f)/2:]); err != nil {
			return err
		}
		if isInput {
			err = readsLarge(a, data)
		} else {
			err = p.answered(fmt.Sprint("r-", n))
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
	}
	return nil
}

// readsLarge checks that the output is data.
func readsLarge(s terminal, data []byte) error {
	for got := 0; got < len(data); {
		p, err := s.printed()
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", got, err)
		}
		if !bytes.HasPrefix(data[got:], p) {
			return fmt.Errorf("wrong output %q after %d bytes", last(string(p), 100), got)
		}
		got += len(p)
	}
	return nil
}

// answered receives the answer to a status request.
func (p *peer) answered(requestID string) error {
	for {
		m, err := p.receive()
		if err != nil {
			return err
		}
		if _, ok := m.(*api.Accepted); ok {
			continue
		}
		if r, ok := m.(*api.StatusReport); !ok || r.RequestID != requestID {
			return fmt.Errorf("the answer to %s is %+v", requestID, m)
		}
		return nil
	}
}

// comesAndGoes attaches and detaches repeatedly, and checks that only the expected messages come.
func (p *peer) comesAndGoes(id protocol.SessionID, over *atomic.Bool, times *atomic.Int64) error {
	for n := 0; !over.Load() || n < 10; n++ {
		a, err := p.attach(protocol.AttachSpec{SessionID: id, Mode: protocol.ModeReadOnly})
		if err != nil {
			return fmt.Errorf("attach %d: %w", n, err)
		}
		for a.snapshot > 0 && n%2 == 0 { // every other time it detaches before the snapshot is complete
			kind, payload, err := p.frames.Next()
			if err != nil || kind != frame.Snapshot && kind != frame.Control {
				return fmt.Errorf("a frame of kind %d instead of the snapshot of attach %d: %w", n, kind, err)
			}
			if kind == frame.Snapshot {
				a.snapshot -= len(payload) - frame.DataHeadLen
			}
		}
		r := protocol.Request{RequestID: fmt.Sprint("d-", n)}
		if err := p.send(api.Detach{Request: r, Attachment: 1}); err != nil {
			return err
		}
		for gone := false; !gone; {
			m, err := p.receive()
			if err != nil {
				return fmt.Errorf("detach %d: %w", n, err)
			}
			switch m := m.(type) {
			case *api.Detached:
				if gone = true; m.RequestID != r.RequestID {
					return fmt.Errorf("the answer to detach %d is %+v", n, m)
				}
			case *api.Accepted, *api.Resync: // after a handoff
			default:
				return fmt.Errorf("the answer to detach %d is %+v", n, m)
			}
		}
		times.Add(1)
		time.Sleep(200 * time.Millisecond) // each is two events for each subscriber
	}
	return nil
}

// onlooks reads a session that prints one word.
func onlooks(s terminal) error {
	rest, err := until(s, "over")
	if len(rest) > 0 {
		err = errors.Join(err, fmt.Errorf("unexpected output %q after the word", rest))
	}
	return err
}

// leavesNothing fails the test if a proxy without clients has more resources than a proxy that never had
// clients.
func (w *world) leavesNothing(proxy process) {
	w.T.Helper()
	fresh := newWorld(w.T)
	fresh.webProxy()
	other := fresh.Only("proxy")
	testkit.Eventually(w.T, limit, func() bool {
		b, _ := os.ReadFile(fresh.Path("proxy.log"))
		return bytes.Contains(b, []byte("proxy serves"))
	}, "another proxy serves")
	w.holdsAsLittle("proxy", proxy, fresh, other)
}

// holdsAsLittle fails the test if an unused program has more descriptors or goroutines than the same program
// of a fresh world. It kills both to read their goroutines.
func (w *world) holdsAsLittle(name string, p process, fresh *world, other process) {
	w.T.Helper()
	was, is := usageOf(other.PID), usage{}
	if !eventually(func() bool { is = usageOf(p.PID); return is.FDs <= was.FDs }) {
		w.T.Errorf("a fresh %s has %+v, this one has %+v: %v", name, was, is, fds(p.PID))
	}
	want, got := fresh.goroutines(name, other), w.goroutines(name, p)
	for _, begun := range slices.Sorted(maps.Keys(got)) {
		if len(got[begun]) > len(want[begun]) && !strings.HasPrefix(begun, "runtime.") {
			w.T.Errorf("goroutines started by %q: %d, and %d in a fresh %s; one of them is\n%s",
				begun, len(got[begun]), len(want[begun]), name, got[begun][0])
		}
	}
	w.T.Logf("%d descriptors and %d kinds of goroutines are left, %d and %d in a fresh %s", is.FDs, len(got), was.FDs, len(want), name)
}

var (
	goroutine = regexp.MustCompile(`(?ms)^goroutine [1-9]\d* [^\n]*\[.*?(\n\n|\z)`)
	createdBy = regexp.MustCompile(`(?m)^created by (.*?)( in goroutine \d+)?$`)
)

// goroutines kills a program with SIGQUIT, and returns its goroutines by the function that started them.
func (w *world) goroutines(name string, p process) map[string][]string {
	w.T.Helper()
	p.Signal(syscall.SIGQUIT)
	w.Gone(p)
	crash := w.Path(name + ".crash")
	b, err := os.ReadFile(crash)
	if err = errors.Join(err, os.Remove(crash)); err != nil {
		w.T.Fatal(err)
	}
	all := map[string][]string{}
	for _, g := range goroutine.FindAllString(string(b), -1) {
		by := "main"
		if m := createdBy.FindStringSubmatch(g); m != nil {
			by = m[1]
		}
		all[by] = append(all[by], g)
	}
	if len(all["main"]) != 1 {
		w.T.Errorf("the crash file of process %d has no main goroutine:\n%s", p.PID, last(string(b), 4<<10))
	}
	return all
}
