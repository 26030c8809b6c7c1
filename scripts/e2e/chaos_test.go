package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// TestChaos uses rooms sessions with rings of chaosRing bytes. In a session that prints fast, a ring of this
// size overtakes a viewer that does not read for a second.
const (
	rooms     = 20
	chaosRing = 256 << 10
	killEvery = 300 * time.Millisecond
	// chaosKept is the size of a ring: its configured size and the room of one read; see package ring.
	chaosKept = chaosRing + chaosRing/8
)

// A chaos is 20 sessions that print and read input all the time, 60 clients that read and type, and a proxy
// that is killed repeatedly. The test accounts for each byte printed and each line typed.
//
//	main    starts everything, ends everything, and then checks what each client and each child received
//	kills   kills the proxy, until over is closed
//	guests  for each guest one goroutine reads and one types; see guest
type chaos struct {
	t      *testing.T
	w      *world
	seed   uint64
	c      *client.Client // used by main
	rooms  []*room
	guests []*guest
	over   chan struct{} // closed by end; then all goroutines finish their work
	enough chan struct{} // if not nil, the chaos also lasts until it is closed
	behind atomic.Bool   // a client has missed output; the chaos also lasts until this happened
	ending sync.Once
	wg     sync.WaitGroup // all goroutines
	proxy  *daemon        // the current proxy; owned by kills until all goroutines have ended
	killed int            // number of killed proxies; owned as proxy
	harsh  bool           // supervisors die too
}

// A room is a session. Its output is a function of the offset. Its child writes its input to a file.
type room struct {
	number  int
	id      protocol.SessionID
	rate    int    // bytes per second
	path    string // the file with the input of the child
	spawned *client.Spawned
	printed uint64 // the length of the output; set when the session has ended
}

// Whatever happens between a session and its clients, a client must receive each byte once and in order. If a
// client is too slow, it must be told the number of bytes that it missed, and its snapshot must be right.
// Each line that a client typed must arrive once.
// demand: S8, R6
func TestChaos(t *testing.T) {
	lasts := 5 * time.Second
	if s := os.Getenv("HOLDFAST_CHAOS"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	x := newChaos(t)
	held := x.w.Only("supervisor")
	x.play(lasts, x.kills)
	if now := x.w.Only("supervisor"); now != held {
		t.Errorf("the supervisor was %v; now it is %v", held, now)
	}
	x.shown()
}

// newChaos starts the programs with a random seed.
func newChaos(t *testing.T, env ...string) *chaos {
	t.Helper()
	x := &chaos{t: t, seed: rand.Uint64(), over: make(chan struct{})}
	t.Logf("seed %d", x.seed)
	x.w = newWorld(t, append(env, fmt.Sprint("HOLDFAST_RING_BYTES=", chaosRing))...)
	x.proxy = x.serve()
	x.c = x.w.connect(client.Options{Name: "main"})
	t.Cleanup(func() { x.end(); x.wg.Wait() })
	return x
}

// play runs the chaos for a while, together with kills, and then checks the results.
func (x *chaos) play(lasts time.Duration, kills func()) {
	x.t.Helper()
	x.open()
	x.wg.Go(kills)
	<-time.After(lasts) // this is the duration of the chaos, not a wait for an event
	// On a busy machine no client may have missed output yet.
	eventually(x.behind.Load)
	if x.enough != nil {
		select {
		case <-x.enough:
		case <-x.over:
		case <-time.After(limit):
		}
	}
	x.end()
	x.close()
	x.wg.Wait()
	x.check()
}

// shown compares the screens of overtaken clients with the sessions' screens, unless the test has failed
// already.
func (x *chaos) shown() {
	if !x.t.Failed() {
		x.t.Run("screens", x.screens)
	}
	if x.t.Failed() {
		x.t.Logf("seed %d", x.seed)
	}
}

func (x *chaos) end() { x.ending.Do(func() { close(x.over) }) }

// serve starts a proxy and waits until its socket exists.
func (x *chaos) serve() *daemon {
	proxy := x.w.Start(x.w.Command("proxy", "serve"))
	testkit.Eventually(x.t, limit, func() bool { _, err := os.Stat(x.w.Path("proxy.sock")); return err == nil }, "the proxy serves")
	return proxy
}

// kills kills the proxy and starts the next one, as a user's next command would. It does not kill a proxy that
// does not serve yet, because on a slow machine no proxy would ever serve.
func (x *chaos) kills() {
	x.every(killEvery, x.killProxy)
}

// every calls do each time d has passed, until over is closed or do returns false.
func (x *chaos) every(d time.Duration, do func() bool) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-x.over:
			return
		case <-tick.C:
		}
		if !do() {
			return
		}
	}
}

func (x *chaos) killProxy() bool {
	if x.w.Holder("proxy.sock") != x.proxy.PID {
		return true
	}
	x.proxy.Signal(syscall.SIGKILL)
	<-x.proxy.Ended
	x.killed++
	var err error
	if x.proxy, err = x.w.Launch(x.w.Command("proxy", "serve")); err != nil {
		x.t.Error(err)
	}
	return err == nil
}

// open starts the sessions and attaches the clients, each before the first byte that counts. 5 sessions print
// so fast that a client that reads slowly is overtaken; each has 2 slow clients and 1 that reads all the
// time. 5 sessions print so much that a client that was away may find its offset lost. 10 sessions print less
// than that, and the last one so little that its clients keep up on any machine.
func (x *chaos) open() {
	for i := range rooms {
		r := &room{number: i, id: protocol.SessionID(fmt.Sprint("room", i)), path: x.w.Path(fmt.Sprint("room", i, ".heard"))}
		kinds := []kind{reader, reader, reader}
		switch {
		case i < 5:
			r.rate, kinds = 600<<10, []kind{slow, reader, slow}
		case i < 10:
			r.rate, kinds[1] = 200<<10, roamer
		default:
			r.rate = 30 << 10
			if i < 15 {
				kinds[1] = roamer
			}
			if i == rooms-1 {
				r.rate = 1 << 10
			}
		}
		r.spawned = x.w.spawn(x.c, string(r.id), role("chatter", r.path, strconv.Itoa(i), strconv.Itoa(r.rate), strconv.FormatUint(x.seed, 10)))
		x.rooms = append(x.rooms, r)
		ready := func() bool {
			info, err := x.c.SessionInfo(x.w.ctx(), r.id)
			return err == nil && info.OutputOffset == lineLen
		}
		testkit.Eventually(x.t, limit, ready, "the child has printed its first line")
		for j, k := range kinds {
			x.guests = append(x.guests, x.guest(r, j, k))
		}
	}
	for _, r := range x.rooms {
		x.say(r, "go\n")
	}
	for _, g := range x.guests {
		g.start()
	}
}

// say types a line that belongs to no guest.
func (x *chaos) say(r *room, line string) {
	x.t.Helper()
	if err := x.c.Type(x.w.ctx(), r.id, []byte(line)); err != nil {
		x.t.Fatalf("%s, %q: %v", r.id, line, err)
	}
}

// close ends the sessions after all input was accepted.
func (x *chaos) close() {
	x.t.Helper()
	for _, g := range x.guests {
		<-g.settled
	}
	for _, r := range x.rooms {
		x.say(r, "stop\n")
	}
	for _, r := range x.rooms { // all in parallel, because with -race each takes a second
		exit, err := x.c.Wait(x.w.ctx(), r.id, -1)
		if err != nil || exit.ExitCode != 0 {
			x.t.Fatalf("%s: %+v, %v", r.id, exit, err)
		}
		info, err := x.c.SessionInfo(x.w.ctx(), r.id)
		testkit.Must(x.t, err)
		r.printed = info.OutputOffset
	}
}

// check compares what each client and each child received with what was printed and typed.
func (x *chaos) check() {
	x.t.Helper()
	var printed, read, missed uint64
	var typed, exact, snapshots, resyncs, overtaken, whole int
	for _, g := range x.guests {
		if err := g.check(); err != nil {
			x.t.Errorf("%s, %v in %s: %v", g.name, g.kind, g.room.id, err)
		}
		read, missed, typed = read+g.read, missed+g.missed, typed+g.lines
		exact, snapshots, resyncs = exact+g.exact, snapshots+g.snapshots, resyncs+g.resyncs
		if g.snapshot != nil {
			overtaken++
		} else {
			whole++
		}
	}
	for _, r := range x.rooms {
		printed += r.printed
		if err := r.check(x.guests, x.harsh); err != nil {
			x.t.Errorf("%s: %v", r.id, err)
		}
	}
	x.t.Logf("%d kills; %d bytes printed, %d read by %d clients; %d lines typed", x.killed, printed, read, len(x.guests), typed)
	x.t.Logf("%d resumes at the exact offset, %d with a snapshot; %d other snapshots; %d clients were never overtaken, %d at least once; %d bytes missed",
		exact, snapshots, resyncs, whole, overtaken, missed)
	if x.killed == 0 || typed == 0 || whole == 0 && !x.harsh || overtaken == 0 {
		x.t.Error("the chaos was too short: no proxy was killed, no line was typed, or no client was overtaken or kept up")
	}
}

// check compares the input that the child of a room has written to its file with the lines that the clients
// typed. Each client's lines must arrive once and in order. If cut is true, because supervisors died, lines
// of different clients may be mixed within a line.
func (r *room) check(guests []*guest, cut bool) error {
	b, err := os.ReadFile(r.path)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	end := fmt.Sprintf("printed %d", r.printed)
	if k := len(lines); k < 3 || lines[0] != "go" || lines[k-2] != "stop" || lines[k-1] != end {
		return fmt.Errorf("the input begins with %q and ends with %q; want go, and stop with %q", lines[:min(k, 2)], lines[max(0, k-2):], end)
	}
	if cut {
		all := strings.TrimSuffix(strings.TrimPrefix(string(b), "go\n"), "stop\n"+end+"\n")
		var scripts []string
		for _, g := range guests {
			if g.room == r {
				scripts = append(scripts, script(g.name, 0, g.lines))
			}
		}
		return interleaved(all, scripts...)
	}
	heard := map[string]int{}
	for i, line := range lines[1 : len(lines)-2] {
		name, _, _ := strings.Cut(line, " ")
		heard[name]++
		if want := typedLine(name, heard[name]); line+"\n" != want {
			return fmt.Errorf("line %d is %q, want %q", i+1, line, want)
		}
	}
	for _, g := range guests {
		if g.room == r && heard[g.name] != g.lines {
			return fmt.Errorf("%s typed %d lines; the child received %d", g.name, g.lines, heard[g.name])
		}
		if g.room == r {
			delete(heard, g.name)
		}
	}
	if len(heard) > 0 {
		return fmt.Errorf("the child received lines that no client typed: %v", heard)
	}
	return nil
}

// interleaved checks that all is an interleaving of the scripts, with each byte of each script once and in
// order.
func interleaved(all string, scripts ...string) error {
	type state [3]int // possible offsets in the scripts
	states := map[state]bool{{}: true}
	for n := range len(all) {
		next := map[state]bool{}
		for at := range states {
			for i, s := range scripts {
				if at[i] < len(s) && s[at[i]] == all[n] {
					then := at
					then[i]++
					next[then] = true
				}
			}
		}
		if len(next) == 0 {
			return fmt.Errorf("after %q comes %.60q, which no script continues with at the offsets %v", last(all[:n], 60), all[n:], states)
		}
		states = next
	}
	end := state{}
	for i, s := range scripts {
		end[i] = len(s)
	}
	if !states[end] {
		return fmt.Errorf("%v bytes were typed; the child received %v", end, states)
	}
	return nil
}

// A kind of client.
type kind int

const (
	reader kind = iota // reads all the time
	slow               // reads more slowly than the session prints
	roamer             // detaches and attaches again
)

func (k kind) String() string { return []string{"reader", "slow reader", "roamer"}[k] }

// A guest is one client of one session.
//
//	stay  reads until the session has ended; for a roamer it also types
//	chat  types until over is closed, if the guest is not a roamer
type guest struct {
	x    *chaos
	room *room
	name string // also the name of its writer
	kind kind
	c    *client.Client
	rnd  *rand.Rand

	settled chan struct{} // closed when all its input was accepted, or when the guest has failed
	lines   int           // number of typed lines; read after settled is closed

	// Owned by stay until it has ended.
	a         *client.Attachment
	pos       uint64 // offset of the next byte; earlier bytes were read, missed, or are part of a snapshot
	read      uint64
	missed    uint64 // bytes reported as missed
	here      uint64 // bytes reported as missed to this attachment
	snapshot  []byte // the last snapshot
	stands    uint64 // the offset of the last snapshot
	due       int    // the length of the last snapshot if it was announced, else 0
	began     uint64 // the start of the ring when the snapshot was made
	last      client.MessageKind
	exact     int // number of resumes at the exact offset
	snapshots int
	resyncs   int
	err       error
}

// guest attaches a client at the start of a session's output.
func (x *chaos) guest(r *room, j int, k kind) *guest {
	name := fmt.Sprintf("g%02d-%d", r.number, j)
	g := &guest{
		exact: -1, // the first attachment is not a resume
		x:     x, room: r, name: name, kind: k, c: x.w.connect(client.Options{Name: name}),
		rnd:     rand.New(rand.NewPCG(x.seed, uint64(3*r.number+j))),
		settled: make(chan struct{}),
	}
	if err := g.attach(protocol.Resume{Instance: r.spawned.Session.Instance}); err != nil {
		x.t.Fatalf("%s: %v", name, err)
	}
	return g
}

// start starts the goroutines. Two of three clients of a room type.
func (g *guest) start() {
	a := g.a
	switch {
	case g.kind == roamer:
	case strings.HasSuffix(g.name, "2"):
		close(g.settled)
	default:
		rnd := rand.New(rand.NewPCG(g.x.seed, g.rnd.Uint64()))
		g.x.wg.Go(func() { g.chat(a, rnd) })
	}
	g.x.wg.Go(g.stay)
}

// attach resumes at a position.
func (g *guest) attach(at protocol.Resume) error {
	a, err := g.c.Attach(g.x.t.Context(), g.room.id, client.AttachOptions{Resume: &at, Writer: g.name})
	if err != nil {
		return err
	}
	g.a, g.here, g.last = a, 0, client.Output
	info := a.Info()
	switch {
	case info.InputOffset > uint64(g.lines*len(typedLine(g.name, 1))):
		return fmt.Errorf("%d bytes of input were accepted of %d lines typed", info.InputOffset, g.lines)
	case info.Replay == protocol.ReplaySnapshot:
		g.last = client.Missed
		err := g.overtaken(info.Offset, info.BytesMissed)
		g.due = info.SnapshotBytes
		return err
	case info.Offset != g.pos || info.BytesMissed != 0:
		return fmt.Errorf("resumed at offset %d with %d bytes missed, want offset %d", info.Offset, info.BytesMissed, g.pos)
	}
	return nil
}

// stay reads until the session has ended.
func (g *guest) stay() {
	if g.kind == roamer {
		g.err = g.roam()
		if g.err != nil {
			close(g.settled)
			return
		}
		g.x.wg.Go(func() {
			defer close(g.settled)
			g.flush(g.a)
		})
	}
	for ended := false; !ended && g.err == nil; {
		ended, g.err = g.next(limit)
		if g.kind == slow && g.rnd.IntN(2) == 0 {
			g.rest(g.rnd, 150*time.Millisecond)
		}
	}
	if g.err == nil && g.here != g.a.Missed() {
		g.err = fmt.Errorf("the messages report %d missed bytes, Missed returns %d", g.here, g.a.Missed())
	}
}

// next receives one message, and reports whether it was the exit.
func (g *guest) next(timeout time.Duration) (ended bool, err error) {
	m, err := g.a.Receive(timeout)
	if err != nil {
		return false, fmt.Errorf("at offset %d: %w", g.pos, err)
	}
	if err = g.take(m); err != nil {
		err = fmt.Errorf("at offset %d: message of kind %d, offset %d, %d bytes, %v: %w", g.pos, m.Kind, m.Offset, len(m.Data), m.Err, err)
	}
	return m.Kind == client.Exited, err
}

var errUnexpected = errors.New("unexpected message")

func (g *guest) take(m *client.Message) error {
	before := g.last
	g.last = m.Kind
	// The size is the first message after a resume.
	if before == client.Missed && m.Kind == client.Snapshot {
		g.resyncs++
	}
	switch m.Kind {
	case client.Output:
		if m.Offset != g.pos {
			return errors.New("the output does not continue at this offset")
		}
		if want := transcript(g.room.number, m.Offset, len(m.Data)); !bytes.Equal(m.Data, want) {
			return fmt.Errorf("the session printed %.200q, not %.200q", want, m.Data)
		}
		g.pos += uint64(len(m.Data))
		g.read += uint64(len(m.Data))
	case client.Missed:
		return g.overtaken(m.Offset, m.Missed)
	case client.Snapshot:
		if m.Offset != g.stands || g.pos != g.stands || g.snapshot == nil {
			return errors.New("a snapshot that was not announced")
		}
		g.snapshot = append(g.snapshot, m.Data...)
	case client.Resized:
		if m.Size != g.room.spawned.Session.Size {
			return fmt.Errorf("the size is %v", m.Size)
		}
		if before == client.Missed {
			g.snapshots++
		} else {
			g.exact++
		}
	case client.Exited:
	default:
		return errUnexpected
	}
	return nil
}

// overtaken processes the report that missed bytes are lost and that a snapshot of an offset follows. The
// report counts the bytes that the ring had lost when the snapshot was made, so pos+missed is the start of
// the ring at that moment. The test cannot read the ring at that moment. But the snapshot's offset is at most
// a ring's length after this start, and the ring's start now is not before it.
//
// If the previous snapshot did not arrive completely, the client has no screen, so the missed bytes count
// from where that snapshot's ring began.
func (g *guest) overtaken(offset, missed uint64) error {
	if g.snapshot != nil && g.pos == g.stands && g.a.Position().Offset != g.pos {
		g.pos = g.began
	}
	began := g.pos + missed
	if offset < began || offset-began > chaosKept {
		return fmt.Errorf("at offset %d: %d bytes reported as missed, snapshot at %d, which does not fit a ring of %d bytes", g.pos, missed, offset, chaosKept)
	}
	info, err := g.c.SessionInfo(g.x.t.Context(), g.room.id)
	if err != nil {
		return err
	}
	if missed > 0 && began > info.RingStart || offset > info.OutputOffset {
		return fmt.Errorf("at offset %d: %d bytes reported as missed, snapshot at %d, but the ring has %d to %d",
			g.pos, missed, offset, info.RingStart, info.OutputOffset)
	}
	g.missed, g.here = g.missed+missed, g.here+missed
	g.pos, g.stands, g.snapshot, g.due, g.began = offset, offset, []byte{}, 0, began
	g.x.behind.Store(true)
	return nil
}

// roam detaches and attaches again until the chaos is over. When it returns, the guest is attached and has
// typed all its lines.
func (g *guest) roam() error {
	for !g.isOver() {
		if err := g.talk(g.a, g.rnd); err != nil {
			return err
		}
		for stays := time.Now().Add(upTo(g.rnd, 500*time.Millisecond)); time.Now().Before(stays); {
			if _, err := g.next(max(0, time.Until(stays))); err != nil && !errors.Is(err, client.ErrTimeout) {
				return err
			}
		}
		for !g.whole() {
			if _, err := g.next(limit); err != nil {
				return err
			}
		}
		if err := g.talk(g.a, g.rnd); err != nil {
			return err
		}
		at := g.a.Position()
		if err := g.a.Detach(); err != nil || at.Offset != g.pos {
			return fmt.Errorf("the position is offset %d at the detach, want %d: %w", at.Offset, g.pos, err)
		}
		g.rest(g.rnd, 1500*time.Millisecond)
		if err := g.attach(at); err != nil {
			return err
		}
		// If no proxy runs during a detach, the unsent input is lost with the attachment, so it is typed
		// again.
		if err := g.write(g.a, g.a.Info().InputOffset); err != nil {
			return err
		}
	}
	return nil
}

// whole reports whether the last snapshot was received completely. A client cannot resume after a part of a
// snapshot.
func (g *guest) whole() bool {
	return g.a.Position().Offset == g.pos && len(g.snapshot) >= g.due
}

func (g *guest) isOver() bool {
	select {
	case <-g.x.over:
		return true
	default:
		return false
	}
}

func upTo(rnd *rand.Rand, d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }

// rest waits for a random time up to d, or until the chaos is over.
func (g *guest) rest(rnd *rand.Rand, d time.Duration) {
	select {
	case <-time.After(upTo(rnd, d)):
	case <-g.x.over:
	}
}

// chat types lines until the chaos is over.
func (g *guest) chat(a *client.Attachment, rnd *rand.Rand) {
	defer close(g.settled)
	for !g.isOver() {
		if err := g.talk(a, rnd); err != nil {
			g.x.t.Errorf("%s: %v", g.name, err)
			return
		}
		g.rest(rnd, 100*time.Millisecond)
	}
	g.flush(a)
}

func (g *guest) flush(a *client.Attachment) {
	ctx, cancel := context.WithTimeout(g.x.t.Context(), limit)
	defer cancel()
	if err := a.Flush(ctx); err != nil {
		g.x.t.Errorf("%s: flush of %d lines: %v", g.name, g.lines, err)
	}
}

// talk types 1 to 10 lines.
func (g *guest) talk(a *client.Attachment, rnd *rand.Rand) error {
	from := g.lines * len(typedLine(g.name, 1))
	g.lines += 1 + rnd.IntN(10)
	return g.write(a, uint64(from))
}

// write types all lines from an input offset on.
func (g *guest) write(a *client.Attachment, offset uint64) error {
	size := uint64(len(typedLine(g.name, 1)))
	typed := script(g.name, int(offset/size), g.lines)
	if typed == "" {
		return nil
	}
	if _, err := a.Write([]byte(typed[offset%size:])); err != nil {
		return fmt.Errorf("type from offset %d on: %w", offset, err)
	}
	return nil
}

// script returns the lines that a client types, from line number from+1 up to to.
func script(name string, from, to int) string {
	var lines strings.Builder
	for n := from; n < to; n++ {
		lines.WriteString(typedLine(name, n+1))
	}
	return lines.String()
}

// typedLine returns the n-th line that a client types, from 1. All lines of a client have the same length.
func typedLine(name string, n int) string { return fmt.Sprintf("%s %08d\n", name, n) }

// check returns an error if the guest did not account for each byte of the output.
func (g *guest) check() error {
	if g.err != nil {
		return g.err
	}
	if g.pos != g.room.printed {
		return fmt.Errorf("%d bytes were printed; the client is at offset %d", g.room.printed, g.pos)
	}
	if g.snapshot == nil && (g.read != g.room.printed || g.missed != 0) {
		return fmt.Errorf("without a snapshot, the client has read %d bytes of %d, and missed %d", g.read, g.room.printed, g.missed)
	}
	return nil
}

// shapes are different kinds of lines, each lineLen bytes long, with a place for the room's number and the
// line's number.
var shapes = makeShapes(
	"\x1b[0m## plain words, as a program prints them that says what it does",
	"\x1b[0;1;33m##\x1b[0m \x1b[38;5;208mwarning:\x1b[39m 漢字, ñ, é, e\u0301 and 👍",
	"\x1b[0m## a line that is wider than the screen, whoever looks at it, and goes on for a while until it comes to its end",
	"  0%\r 50%\r\x1b[2K\x1b[38;2;10;200;30m## done\x1b[0m",
	"\x1b[0m##\ta tab\tanother \x1b[4munderlined\x1b[24m, \x1b[7mreverse\x1b[27m",
	"\x1b[?1049h\x1b[2J\x1b[5;5Hfull screen\x1b[?1049l\x1b[0m## and back",
	"\x1b]2;title ##\a\x1b[0mthe title is set",
	"\x1b[2A\r\x1b[K## above\x1b[2B\r\x1b[44mbelow",
)

const lineLen = 128

// numberLen is the length of "12:00345678".
const numberLen = 11

// A shape is a line without its number.
type shape struct {
	line []byte
	at   int // the index of the number
}

func makeShapes(lines ...string) (all []shape) {
	for _, l := range lines {
		s := shape{at: strings.Index(l, "##")}
		l = strings.Replace(l, "##", strings.Repeat("#", numberLen), 1)
		l += strings.Repeat("\x1b[0m", max(0, (lineLen-2-len(l))/4)) // prints no character
		s.line = fmt.Appendf(nil, "%s%s\r\n", l, strings.Repeat(".", lineLen-2-len(l)))
		all = append(all, s)
	}
	return all
}

// transcript returns n bytes of the output of a room from an offset on.
func transcript(room int, offset uint64, n int) []byte {
	line, skip := offset/lineLen, int(offset%lineLen)
	out := make([]byte, 0, skip+n+lineLen)
	for ; len(out) < skip+n; line++ {
		s := &shapes[line%uint64(len(shapes))]
		at := len(out) + s.at
		out = append(out, s.line...)
		digits(out[at:at+2], uint64(room))
		out[at+2] = ':'
		digits(out[at+3:at+numberLen], line)
	}
	return out[skip : skip+n]
}

// digits writes n in decimal. It is faster than fmt; all output that the test compares goes through it.
func digits(p []byte, n uint64) {
	for i := len(p) - 1; i >= 0; i-- {
		p[i] = '0' + byte(n%10)
		n /= 10
	}
}

// chatter is the child of a room. It prints one line when it is ready. Between the input lines "go" and
// "stop" it prints the room's transcript in pieces of random length. It writes each input line to a file at
// once.
func chatter(args []string) error {
	if err := raw(os.Stdin); err != nil {
		return err
	}
	heard, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	number, err2 := strconv.Atoi(args[1])
	rate, err3 := strconv.Atoi(args[2])
	seed, err4 := strconv.ParseUint(args[3], 10, 64)
	if err := cmp.Or(err, err2, err3, err4); err != nil {
		return err
	}
	// The first line says that the child is ready.
	if _, err := os.Stdout.Write(transcript(number, 0, lineLen)); err != nil {
		return err
	}
	lines := make(chan string, 1)
	go listen(heard, lines)
	if <-lines != "go" {
		return errors.New("the first input line is not go")
	}
	rnd := rand.New(rand.NewPCG(seed, uint64(number)))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	offset := uint64(lineLen)
	print := func(n int) error {
		_, err := os.Stdout.Write(transcript(number, offset, n))
		offset += uint64(n)
		return err
	}
	for begun := time.Now(); ; {
		select {
		case <-tick.C:
		case <-lines: // stop
			if err := print(int((lineLen - offset%lineLen) % lineLen)); err != nil {
				return err
			}
			_, err := fmt.Fprintf(heard, "printed %d\n", offset)
			return err
		}
		// If the child is behind its rate because no viewer read, it does not print the missing part after
		// "stop".
		for due := uint64(time.Since(begun).Seconds() * float64(rate)); offset < due && len(lines) == 0; {
			if err := print(burst(rnd, rate)); err != nil {
				return err
			}
		}
	}
}

// burst returns the length of the next piece: mostly small, now and then large.
func burst(rnd *rand.Rand, rate int) int {
	if rnd.IntN(20) == 0 {
		return 1 + rnd.IntN(max(32<<10, rate/8))
	}
	return 1 + rnd.IntN(200)
}

// listen writes each input line to the file, and sends "go" and "stop" to lines.
func listen(heard *os.File, lines chan<- string) {
	typed := bufio.NewScanner(os.Stdin)
	for typed.Scan() {
		if _, err := fmt.Fprintf(heard, "%s\n", typed.Text()); err != nil {
			panic(err)
		}
		if line := typed.Text(); line == "go" || line == "stop" {
			lines <- line
		}
	}
}

// screens feeds xterm.js, which most clients use, with the last snapshot of each overtaken client and the
// output after it. The result must equal the session's screen.
func (x *chaos) screens(t *testing.T) {
	xterm := newXterm(t)
	seen := 0
	for _, r := range x.rooms {
		shown, err := x.c.Screen(x.w.ctx(), r.id, client.ScreenOptions{Scrollback: historySeen})
		if err != nil || shown.Offset != r.printed {
			t.Fatalf("%s: the screen has the offset %d, want %d, %v", r.id, shown.Offset, r.printed, err)
		}
		for _, g := range x.guests {
			if g.room != r || g.snapshot == nil {
				continue
			}
			seen++
			xterm.new(shown.Cols, shown.Rows)
			xterm.write(g.snapshot)
			xterm.write(transcript(r.number, g.stands, int(r.printed-g.stands)))
			if err := xterm.shows(shown); err != nil {
				t.Errorf("%s, %v in %s, after a snapshot of %d bytes for offset %d, up to %d: %v",
					g.name, g.kind, r.id, len(g.snapshot), g.stands, r.printed, err)
			}
		}
	}
	t.Logf("%d screens are right", seen)
}

// historySeen is the number of history lines that are compared, of the 1,000 lines of a snapshot.
const historySeen = 200
