//go:build linux

package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/testkit"
	"holdfast/shared/testkit/world"
)

// A theatre has a host with a real proxy and supervisor, behind several gates. The test plays the agent of the
// host, and counts what the host sends.
type theatre struct {
	t     testing.TB
	gates []*bench
	host  *host
	world *world.World
	wg    sync.WaitGroup

	mu    sync.Mutex
	ways  map[net.Conn]string // connections of the host, with the address of the gate
	bytes uint64              // that the host has sent
}

func newTheatre(t *testing.T, gates int) *theatre {
	t.Helper()
	bin := testkit.Build(t, testkit.Programs...)
	b := newBench(t)
	f := &theatre{t: t, gates: []*bench{b}, ways: map[net.Conn]string{}}
	for len(f.gates) < gates {
		f.gates = append(f.gates, b.another())
	}
	f.host = b.join("red")
	for _, g := range f.gates {
		testkit.Eventually(t, limit, func() bool { return g.info("red").IsReachable }, "each gate knows the host")
	}
	f.world = world.New(t, testkit.Dir(t), "", bin, "PATH="+os.Getenv("PATH"))
	f.world.Must("proxy", "start")
	ended := make(chan struct{})
	f.wg.Go(func() {
		refresh := time.NewTicker(5 * time.Second) // of the record of the host, which expires
		defer refresh.Stop()
		for {
			select {
			case m := <-f.host.dials:
				f.wg.Go(func() { f.carry(m) })
			case <-refresh.C:
				f.host.say()
			case <-ended:
				return
			}
		}
	})
	t.Cleanup(func() {
		close(ended)
		f.cut("")
		f.wg.Wait()
		f.world.End()
	})
	return f
}

// carry connects a client that waits at a gate with the proxy, as an agent does.
func (f *theatre) carry(m record.Dial) {
	address := m.Gate
	if address == "" {
		address = f.gates[0].address
	}
	way, _, err := gate.Dial(context.Background(), []string{address}, f.gates[0].fingerprint)
	if err != nil {
		return // the gate refuses the client
	}
	defer func() { _ = way.Close() }()
	proxy, err := net.Dial("unix", f.world.Path("proxy.sock"))
	if err == nil {
		defer func() { _ = proxy.Close() }()
		err = gate.Write(way, gate.Arrive{Ticket: m.Ticket})
	}
	if err != nil {
		return
	}
	f.mu.Lock()
	f.ways[way] = address
	f.mu.Unlock()
	go func() {
		_, _ = io.Copy(proxy, way)
		_ = proxy.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := proxy.Read(buffer)
		if err == nil {
			_, err = way.Write(buffer[:n])
		}
		if err != nil {
			break
		}
		f.mu.Lock()
		f.bytes += uint64(n)
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ways, way)
}

// cut closes the connections of the host with a gate, or with all gates.
func (f *theatre) cut(address string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for way, of := range f.ways {
		if address == "" || address == of {
			n++
			_ = abort(way)
		}
	}
	return n
}

// sent returns the number of connections and of bytes that the host has sent.
func (f *theatre) sent() (connections int, bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ways), f.bytes
}

// awaitConnections returns when the host has as many connections with gates.
func (f *theatre) awaitConnections(want int) {
	f.t.Helper()
	got := 0
	if !testkit.Poll(limit, func() bool { got, _ = f.sent(); return got == want }) {
		f.t.Fatalf("the host has %d connections with the gates, want %d: %v", got, want, slices.Sorted(maps.Values(f.ways)))
	}
}

// A play is a session that prints what the test types, which is text.
type play struct {
	*theatre
	text     []byte
	instance protocol.Instance
	client   *client.Client
	typist   *client.Attachment // an ordinary client, through the first gate
	typed    int
}

func (f *theatre) play(length int) *play {
	f.t.Helper()
	p := &play{theatre: f, text: make([]byte, length)}
	r := rand.New(rand.NewPCG(1, 2))
	const distinct = 1 << 20 // what follows repeats it, because random numbers are slow
	for i := range p.text[:min(length, distinct)] {
		p.text[i] = 'a' + byte(r.IntN(26))
	}
	for i := distinct; i < length; i += distinct {
		copy(p.text[i:], p.text[:distinct])
	}
	o := client.GateOptions{Addresses: []string{f.gates[0].address}, Fingerprint: f.gates[0].fingerprint, Token: f.gates[0].client.Secret, Host: "red"}
	c, err := client.Dial(testkit.Soon(f.t), client.Options{Name: "typist", Gate: &o})
	testkit.Must(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	s, err := c.Spawn(testkit.Soon(f.t), client.SpawnRequest{ID: "play", SpawnSpec: protocol.SpawnSpec{
		Argv: []string{"/bin/sh", "-c", "stty raw -echo; printf ready; exec cat"}, Cols: 80, Rows: 24,
	}})
	testkit.Must(f.t, err)
	p.client, p.instance = c, s.Session.Instance
	if p.typist, err = c.Attach(testkit.Soon(f.t), "play", client.AttachOptions{Resume: &protocol.Resume{Instance: p.instance}, Cols: 80, Rows: 24}); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = p.typist.Close() })
	f.receive(p.typist, len("ready"))
	p.text = append([]byte("ready"), p.text...) // by output offset
	p.typed = len("ready")
	return p
}

// receive reads n bytes of output.
func (f *theatre) receive(a *client.Attachment, n int) {
	f.t.Helper()
	for n > 0 {
		m, err := a.Receive(limit)
		if err != nil || m.Kind != client.Output && m.Kind != client.Resized {
			f.t.Fatalf("%+v, %v", m, err)
		}
		n -= len(m.Data)
	}
}

// typeText lets the session print up to an offset, and returns when the typist has received it.
func (p *play) typeText(to int) {
	p.t.Helper()
	for p.typed < to {
		n := min(to-p.typed, 64<<10)
		if _, err := p.typist.Write(p.text[p.typed:][:n]); err != nil {
			p.t.Fatal(err)
		}
		p.typed += n
		p.receive(p.typist, n)
	}
}

// A spectator is a read-only viewer, which compares each byte with the text.
type spectator struct {
	conn   net.Conn
	text   []byte
	from   uint64     // offset of its first byte of output
	paused sync.Mutex // held by a test that lets the spectator not read

	at      atomic.Uint64 // offset of the next byte
	sizes   sync.Map      // offsets of changes of the size
	resyncs atomic.Int64
	missed  atomic.Uint64
	left    int
	ended   chan error // receives io.EOF after the end of the session
}

// spectate attaches a read-only viewer through a gate, at an offset, or at a snapshot if at is negative.
func (p *play) spectate(g *bench, at int) *spectator {
	p.t.Helper()
	s, err := enterPlay(g, p.text, p.instance, at)
	testkit.Must(p.t, err)
	p.t.Cleanup(func() { _ = abort(s.conn) })
	return s
}

func enterPlay(g *bench, text []byte, instance protocol.Instance, at int) (*spectator, error) {
	conn, _, err := gate.Dial(context.Background(), []string{g.address}, g.fingerprint)
	if err != nil {
		return nil, err
	}
	s := &spectator{conn: conn, text: text, ended: make(chan error, 1)}
	if _, err := gate.Ask[*gate.Entered](conn, gate.Enter{Token: g.client.Secret, Host: "red", Again: true}); err != nil {
		return nil, err
	}
	spec := protocol.AttachSpec{SessionID: "play", Mode: protocol.ModeReadOnly, Cols: 80, Rows: 24}
	if at >= 0 {
		spec.Resume = &protocol.Resume{Instance: instance, Offset: uint64(at)}
	}
	for _, m := range []protocol.Message{api.Hello{Protocol: protocol.Supported(), Client: "spectator"}, api.Attach{Attachment: 1, AttachSpec: spec}} {
		b, err := protocol.Encode(m)
		if err != nil {
			return nil, err
		}
		if _, err := conn.Write(frame.Append(nil, frame.Control, b)); err != nil {
			return nil, err
		}
	}
	attached := make(chan struct{})
	go func() { s.ended <- s.watch(attached) }()
	select {
	case <-attached:
		return s, nil
	case err := <-s.ended:
		return nil, err
	}
}

// errGoaway tells that the gate has asked a spectator to leave.
var errGoaway = errors.New("goaway")

// waitPaused returns when the spectator is not paused.
func (s *spectator) waitPaused() {
	s.paused.Lock()
	defer s.paused.Unlock()
}

// watch reads frames until the end of the session, which is io.EOF.
func (s *spectator) watch(attached chan struct{}) error {
	frames := frame.NewReader(s.conn, frame.Max)
	for {
		s.waitPaused()
		kind, payload, err := frames.Next()
		if err != nil {
			return fmt.Errorf("at %d: %w", s.at.Load(), err)
		}
		if kind == frame.Output || kind == frame.Snapshot {
			number, offset, data, err := frame.ParseData(payload)
			if err != nil || number != 1 {
				return fmt.Errorf("attachment %d, %w", number, err)
			}
			if kind == frame.Snapshot {
				s.left -= len(data)
				continue
			}
			if offset != s.at.Load() || s.left > 0 || !bytes.Equal(data, s.text[offset:][:len(data)]) {
				return fmt.Errorf("%d bytes at %d, after %d and with %d bytes of a snapshot missing, or not those of the session", len(data), offset, s.at.Load(), s.left)
			}
			s.at.Store(offset + uint64(len(data)))
			continue
		}
		m, _, err := api.Messages.Decode(payload)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *api.Attached:
			s.left, s.from = m.SnapshotBytes, m.Offset
			s.at.Store(m.Offset)
			close(attached)
		case *api.Resync:
			s.resyncs.Add(1)
			s.missed.Add(m.BytesMissed)
			s.left = m.SnapshotBytes
			s.at.Store(m.Offset)
		case *api.Resized:
			s.sizes.Store(protocol.Size{Cols: m.Cols, Rows: m.Rows}, s.at.Load())
		case *api.Goaway:
			return errGoaway
		case *api.PTYExited:
			return io.EOF
		case *api.Error:
			return &m.Error
		}
	}
}

// reaches returns when all spectators have received all output before an offset.
func (p *play) reaches(all []*spectator, offset int) {
	p.t.Helper()
	for i, s := range all {
		if !testkit.Poll(limit, func() bool { return s.at.Load() >= uint64(offset) || len(s.ended) > 0 }) || s.at.Load() < uint64(offset) {
			var err error
			if len(s.ended) > 0 {
				err = <-s.ended
			}
			p.t.Fatalf("viewer %d has come to %d of %d: %v", i, s.at.Load(), offset, err)
		}
	}
}

// Read-only viewers at three gates receive each byte of a session once, and the host sends it to each gate
// once. A viewer that comes later joins them, a change of the size and the end of the session come at their places, and
// the viewers survive the loss of the connection that they share.
func TestSharing(t *testing.T) {
	const piece = 128 << 10
	f := newTheatre(t, 3)
	p := f.play(8 * piece)
	var all []*spectator
	for i := range 50 {
		all = append(all, p.spectate(f.gates[i%3], -1))
	}
	p.awaitConnections(2 + 3) // of the typist's client, its attachment and each gate
	_, before := p.sent()
	p.typeText(2 * piece)
	p.reaches(all, 2*piece)
	_, after := p.sent()
	if copies := float64(after-before) / (2*piece - 5); copies > 4.5 { // three, that of the typist, and heads of frames
		t.Errorf("the host has sent %.2f copies", copies)
	}

	for i, viewers := range []int{17, 17, 16} {
		f.gates[i].expect("of shared output", map[string]any{"gate_crowds": 1, "gate_crowd_viewers": viewers, "gate_crowd_slow_total": 0})
		m := f.gates[i].metrics()
		from, errFrom := strconv.ParseFloat(m[`gate_crowd_bytes_total{direction="from_host"}`], 64)
		to, errTo := strconv.ParseFloat(m[`gate_crowd_bytes_total{direction="to_client"}`], 64)
		if least := 2*piece - 5; errFrom != nil || errTo != nil || from < float64(least) || to < float64(viewers*least) || to > float64(viewers)*from {
			t.Errorf("gate %d has received %.0f bytes, and sent %.0f to %d viewers: %v, %v", i, from, to, viewers, errFrom, errTo)
		}
	}

	all = append(all, p.spectate(f.gates[1], piece), p.spectate(f.gates[2], -1)) // they come in the middle
	p.typeText(3 * piece)
	p.awaitConnections(2 + 3)

	testkit.Must(t, p.typist.Resize(100, 30))
	for m := new(client.Message); m.Kind != client.Resized || m.Size.Cols != 100; {
		var err error
		if m, err = p.typist.Receive(limit); err != nil {
			t.Fatal(err)
		}
	}
	p.typeText(4 * piece)
	p.reaches(all, 4*piece)
	for i, s := range all {
		if at, ok := s.sizes.Load(protocol.Size{Cols: 100, Rows: 30}); !ok || at != uint64(3*piece) {
			t.Errorf("viewer %d learns the new size at %v, want %d", i, at, 3*piece)
		}
	}

	if n := p.cut(f.gates[1].address); n != 1 {
		t.Errorf("gate 1 has %d connections with the host", n)
	}
	p.typeText(6 * piece)
	p.reaches(all, 6*piece)
	p.awaitConnections(2 + 3)

	p.typeText(len(p.text))
	testkit.Must(t, p.client.Terminate(testkit.Soon(t), "play", client.End{}))
	for i, s := range all {
		if err := testkit.Within(t, limit, "the end of the session", s.ended); err != io.EOF || s.at.Load() != uint64(len(p.text)) || s.resyncs.Load() > 0 {
			t.Errorf("viewer %d ends at %d of %d after %d gaps: %v", i, s.at.Load(), len(p.text), s.resyncs.Load(), err)
		}
	}
}

// A viewer that does not read delays no other one. When it reads again, it learns the number of bytes that it
// has missed, and receives a snapshot and all output after that.
func TestSharingSlow(t *testing.T) {
	const piece = 256 << 10
	f := newTheatre(t, 1)
	p := f.play(48 * piece) // more than the buffers of the kernel and of the gate
	all := []*spectator{p.spectate(f.gates[0], -1), p.spectate(f.gates[0], -1), p.spectate(f.gates[0], -1)}
	p.awaitConnections(2 + 1)
	slow, others := all[0], all[1:]
	slow.paused.Lock()
	for to := piece; to < len(p.text); to += piece {
		p.typeText(to)
		p.reaches(others, to)
	}
	slow.paused.Unlock()
	p.typeText(len(p.text))
	p.reaches(all, len(p.text))
	if slow.resyncs.Load() == 0 || slow.missed.Load() == 0 {
		t.Errorf("the slow viewer was told of %d gaps with %d bytes", slow.resyncs.Load(), slow.missed.Load())
	}
	for i, s := range others {
		if s.resyncs.Load() > 0 {
			t.Errorf("viewer %d was told of a gap", i+1)
		}
	}
	if n := f.gates[0].metrics()["gate_crowd_slow_total"]; n == "" || n == "0" {
		t.Errorf("the gate has counted %q slow viewers", n)
	}
}

// A follower is a read-only viewer that enters the host again, at its offset, if its gate asks it to leave or dies.
type follower struct {
	gates  []*bench // in the order in which it tries them
	now    atomic.Pointer[spectator]
	enters atomic.Int64
	ended  chan error // receives io.EOF after the end of the session
}

func (p *play) follow(gates ...*bench) *follower {
	p.t.Helper()
	f := &follower{gates: gates, ended: make(chan error, 1)}
	first := p.spectate(gates[0], -1)
	f.now.Store(first)
	p.wg.Go(func() { f.ended <- f.run(p, first) })
	return f
}

func (f *follower) offset() uint64 { return f.now.Load().at.Load() }

func (f *follower) run(p *play, s *spectator) error {
	for {
		err := <-s.ended
		at := s.at.Load()
		if s.resyncs.Load() > 0 {
			return fmt.Errorf("before offset %d the viewer was told of a gap", at)
		}
		if err == io.EOF {
			return err
		}
		if !errors.Is(err, errGoaway) {
			f.gates = append(f.gates[1:], f.gates[0]) // the gate has died
		}
		next, again := (*spectator)(nil), error(nil)
		if !testkit.Poll(limit, func() bool {
			next, again = enterPlay(f.gates[0], p.text, p.instance, int(at))
			return again == nil
		}) {
			return fmt.Errorf("after %w: %w", err, again)
		}
		_ = abort(s.conn) // last, as clients do
		if next.from != at {
			return fmt.Errorf("the viewer continues at %d instead of %d", next.from, at)
		}
		f.enters.Add(1)
		f.now.Store(next)
		s = next
	}
}

// While a session prints, a gate with viewers that share its output is replaced twice, and another one dies. Each viewer
// continues at its offset, with no gap and no byte twice, and the viewers share the output again.
// demand: S9
func TestSharingHandoff(t *testing.T) {
	const handoffs, ahead, piece = 2, 256 << 10, 4 << 10
	f := newTheatre(t, 3)
	p := f.play(64 << 20)
	var all, moved, orphans []*follower
	for range 4 {
		moved = append(moved, p.follow(f.gates[1]))
		orphans = append(orphans, p.follow(f.gates[2], f.gates[1]))
	}
	all = append(slices.Clone(moved), orphans...)
	slowest := func() int {
		least := all[0].offset()
		for _, v := range all {
			least = min(least, v.offset())
		}
		return int(least)
	}
	var over atomic.Bool
	typed := make(chan error, 1)
	printed := len("ready")
	f.wg.Go(func() {
		for !over.Load() && !t.Failed() && printed+piece <= len(p.text) {
			if printed > slowest()+ahead { // so that no viewer is told of a gap
				time.Sleep(time.Millisecond)
				continue
			}
			if _, err := p.typist.Write(p.text[printed:][:piece]); err != nil {
				typed <- err
				return
			}
			printed += piece
			time.Sleep(time.Millisecond) // so that the text suffices
			for n := 0; n < piece; {
				m, err := p.typist.Receive(limit)
				if err != nil {
					typed <- err
					return
				}
				n += len(m.Data)
			}
		}
		typed <- nil
	})
	continues := func(after string) {
		t.Helper()
		from := slowest()
		if !testkit.Poll(limit, func() bool { return slowest() > from+ahead }) {
			for i, v := range all {
				t.Logf("viewer %d is at %d after %d returns, and has ended: %d", i, v.offset(), v.enters.Load(), len(v.ended))
			}
			t.Fatalf("not all viewers continue after %s", after)
		}
		t.Logf("after %s the slowest viewer is at %d", after, slowest())
	}
	p.awaitConnections(2 + 2)
	continues("the start")
	for n := range handoffs {
		if err := testkit.Within(t, limit, "the old gate ends", f.gates[1].handOver()); err != nil {
			t.Errorf("old gate %d: %v", n, err)
		}
		continues("a handoff")
		p.awaitConnections(2 + 2)
	}
	f.gates[2].stop()
	continues("the death of a gate")
	p.awaitConnections(2 + 1)
	over.Store(true)
	testkit.Must(t, testkit.Within(t, limit, "the last byte is typed", typed))
	testkit.Must(t, p.client.Terminate(testkit.Soon(t), "play", client.End{}))
	for i, v := range all {
		if err := testkit.Within(t, limit, "the end of the session", v.ended); err != io.EOF || v.offset() != uint64(printed) {
			t.Errorf("viewer %d ends at %d of %d: %v", i, v.offset(), printed, err)
		}
	}
	for i, v := range moved {
		if n := v.enters.Load(); n != handoffs {
			t.Errorf("viewer %d has entered the host %d times again, want %d", i, n, handoffs)
		}
	}
	for i, v := range orphans {
		if n := v.enters.Load(); n != 1 {
			t.Errorf("viewer %d of the gate that died has entered the host %d times again", i, n)
		}
	}
}

// 2,000 viewers at three gates receive each byte once, and the host sends at most three copies. All of them are in
// this process, which compares each byte, so the rate that the test logs is that of gates and viewers together.
// HOLDFAST_LONG=1
func TestSharingMany(t *testing.T) {
	if os.Getenv("HOLDFAST_LONG") == "" {
		t.Skip("long mode: set HOLDFAST_LONG=1")
	}
	const count, piece, pieces = 2000, 128 << 10, 16
	f := newTheatre(t, 3)
	p := f.play(pieces * piece)
	all, next := make([]*spectator, count), atomic.Int64{}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < count; i = next.Add(1) - 1 {
				var err error
				if all[i], err = enterPlay(f.gates[i%3], p.text, p.instance, -1); err != nil {
					t.Errorf("viewer %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, s := range all {
			if s != nil {
				_ = abort(s.conn)
			}
		}
	})
	if t.Failed() {
		return
	}
	p.awaitConnections(2 + 3)
	_, before := p.sent()
	begin := time.Now()
	for i := range pieces {
		p.typeText((i + 1) * piece)
		p.reaches(all, (i+1)*piece)
	}
	took := time.Since(begin)
	connections, after := p.sent()
	copies := float64(after-before)/float64(pieces*piece) - 1 // without that of the typist
	t.Logf("%d viewers received %.2f MB/s each, %.0f MB/s together; the host sent %.3f copies over %d connections",
		count, pieces*piece/took.Seconds()/1e6, count*pieces*piece/took.Seconds()/1e6, copies, connections-2)
	if copies > 3.2 { // the heads of frames
		t.Errorf("the host has sent %.2f copies", copies)
	}
	for i, s := range all {
		if s.resyncs.Load() > 0 {
			t.Errorf("viewer %d was told of a gap", i)
		}
	}
}
