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

// What TestChaos is made of. A ring this small is overtaken by a loud session
// within a second of not reading.
const (
	rooms     = 20
	chaosRing = 256 << 10
	killEvery = 300 * time.Millisecond
	// A ring keeps what it is told to and room for one read; see package ring.
	chaosKept = chaosRing + chaosRing/8
)

// A chaos is twenty sessions that print and listen all the time, sixty clients
// that read and type, and a proxy that is killed over and over. Each byte
// printed and each line typed is accounted for.
//
//	main    starts all, ends all, and then looks at what each has seen
//	kills   kills the proxy, until over
//	guests  one goroutine reads for each, and one types; see guest
type chaos struct {
	t      *testing.T
	w      *world
	seed   uint64
	c      *client.Client // of main
	rooms  []*room
	guests []*guest
	over   chan struct{} // closed by end when what is under way is to end
	enough chan struct{} // if set, the chaos lasts until it is closed, too
	behind atomic.Bool   // a client has missed output; the chaos lasts until then, too
	ending sync.Once
	wg     sync.WaitGroup // all goroutines
	proxy  *daemon        // owned by kills until all have ended
	killed int            // proxies; the same
	harsh  bool           // supervisors die, too
}

// A room is a session: what it prints is known beforehand, what it hears
// stands in a file.
type room struct {
	number  int
	id      protocol.SessionID
	rate    int    // bytes a second
	path    string // what it has heard
	spawned *client.Spawned
	printed uint64 // once it has ended
}

// Whatever happens between a session and its clients, each byte comes once and
// in order, or is counted as missed by who was too slow, whose screen is right
// all the same; and each line that was typed arrives once.
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
		t.Errorf("the supervisor was %v, and is %v", held, now)
	}
	x.shown()
}

// newChaos starts the programs.
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

// play has all go on for a while in which kills does what it does.
func (x *chaos) play(lasts time.Duration, kills func()) {
	x.t.Helper()
	x.open()
	x.wg.Go(kills)
	<-time.After(lasts) // nothing is waited for: this is how long the chaos lasts
	// On a busy machine a part of it has not happened yet.
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

// shown holds the screens against those of a real terminal, unless there is a
// mistake already.
func (x *chaos) shown() {
	if !x.t.Failed() {
		x.t.Run("screens", x.screens)
	}
	if x.t.Failed() {
		x.t.Logf("seed %d", x.seed)
	}
}

func (x *chaos) end() { x.ending.Do(func() { close(x.over) }) }

// serve starts a proxy and waits until it serves.
func (x *chaos) serve() *daemon {
	proxy := x.w.Start(x.w.Command("proxy", "serve"))
	testkit.Eventually(x.t, limit, func() bool { _, err := os.Stat(x.w.Path("proxy.sock")); return err == nil }, "the proxy serves")
	return proxy
}

// kills kills the proxy and starts the next, which is what a user's next
// command would do. One that does not serve yet is let be: else, on a machine
// that is slow today, none ever would.
func (x *chaos) kills() {
	x.every(killEvery, x.killProxy)
}

// every does something until over; do returns false when it cannot go on.
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

// open starts the sessions and lets the clients in, each before the first byte
// that counts. 5 sessions are loud, each with 2 clients that read too slowly
// and 1 that reads; 5 print more than an absent client can be sure to find
// again; 10 do not.
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
		}
		r.spawned = x.w.spawn(x.c, string(r.id), role("chatter", r.path, strconv.Itoa(i), strconv.Itoa(r.rate), strconv.FormatUint(x.seed, 10)))
		x.rooms = append(x.rooms, r)
		ready := func() bool {
			info, err := x.c.SessionInfo(x.w.ctx(), r.id)
			return err == nil && info.OutputOffset == lineLen
		}
		testkit.Eventually(x.t, limit, ready, "the first line is printed")
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

// say types a line that is no client's.
func (x *chaos) say(r *room, line string) {
	x.t.Helper()
	if err := x.c.Type(x.w.ctx(), r.id, []byte(line)); err != nil {
		x.t.Fatalf("%s, %q: %v", r.id, line, err)
	}
}

// close ends the sessions, once all that was typed has been accepted.
func (x *chaos) close() {
	x.t.Helper()
	for _, g := range x.guests {
		<-g.settled
	}
	for _, r := range x.rooms {
		x.say(r, "stop\n")
	}
	for _, r := range x.rooms { // all go at once: with -race each takes a second
		exit, err := x.c.Wait(x.w.ctx(), r.id, -1)
		if err != nil || exit.ExitCode != 0 {
			x.t.Fatalf("%s: %+v, %v", r.id, exit, err)
		}
		info, err := x.c.SessionInfo(x.w.ctx(), r.id)
		if err != nil {
			x.t.Fatal(err)
		}
		r.printed = info.OutputOffset
	}
}

// check holds what each has seen against what there was to see.
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
	x.t.Logf("resumed %d times where it was, %d times with a snapshot; %d times overtaken without that; %d clients never, %d at least once, by %d bytes",
		exact, snapshots, resyncs, whole, overtaken, missed)
	if x.killed == 0 || typed == 0 || whole == 0 && !x.harsh || overtaken == 0 {
		x.t.Error("there is a part of this that did not happen")
	}
}

// check holds the file of what a room has heard against what was typed: the
// lines of each client once, and in order. Where supervisors die, one client's may
// be cut by another's.
func (r *room) check(guests []*guest, cut bool) error {
	b, err := os.ReadFile(r.path)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	end := fmt.Sprintf("printed %d", r.printed)
	if k := len(lines); k < 3 || lines[0] != "go" || lines[k-2] != "stop" || lines[k-1] != end {
		return fmt.Errorf("it begins with %q and ends with %q, and the supervisor has %s", lines[:min(k, 2)], lines[max(0, k-2):], end)
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
			return fmt.Errorf("line %d is %q and not %q", i+1, line, want)
		}
	}
	for _, g := range guests {
		if g.room == r && heard[g.name] != g.lines {
			return fmt.Errorf("%s typed %d lines, and %d were heard", g.name, g.lines, heard[g.name])
		}
		if g.room == r {
			delete(heard, g.name)
		}
	}
	if len(heard) > 0 {
		return fmt.Errorf("nobody has typed %v", heard)
	}
	return nil
}

// interleaved says where all stops being what several have typed, each byte of each
// once and in order.
func interleaved(all string, scripts ...string) error {
	type state [3]int // how far each may have come
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
			return fmt.Errorf("nobody has typed what comes behind %q: %.60q; they may have come to %v", last(all[:n], 60), all[n:], states)
		}
		states = next
	}
	end := state{}
	for i, s := range scripts {
		end[i] = len(s)
	}
	if !states[end] {
		return fmt.Errorf("%v bytes were typed, and %v were heard", end, states)
	}
	return nil
}

// A kind of client.
type kind int

const (
	reader kind = iota // reads all the time
	slow               // reads less than is printed
	roamer             // comes and goes
)

func (k kind) String() string { return []string{"reader", "slow reader", "roamer"}[k] }

// A guest is one client of one session.
//
//	stay  reads, until the session has ended; a roamer types in it, too
//	chat  types, until over, where the guest is no roamer
type guest struct {
	x    *chaos
	room *room
	name string // the writer's, too
	kind kind
	c    *client.Client
	rnd  *rand.Rand

	settled chan struct{} // closed when all it types was accepted, or it has failed
	lines   int           // typed; read once settled is closed

	// Owned by stay until it has ended.
	a         *client.Attachment
	pos       uint64 // of the next byte: what is before was read, missed, or is in a snapshot
	read      uint64
	missed    uint64 // as told
	here      uint64 // the same, by this attachment
	snapshot  []byte // the last one
	stands    uint64 // what that stands for
	due       int    // how long it is, where that was told
	began     uint64 // where the ring did, when it was made
	last      client.MessageKind
	exact     int // resumes
	snapshots int
	resyncs   int
	err       error
}

// guest attaches a client to all of a session.
func (x *chaos) guest(r *room, j int, k kind) *guest {
	name := fmt.Sprintf("g%02d-%d", r.number, j)
	g := &guest{
		exact: -1, // the first attachment is no resume
		x:     x, room: r, name: name, kind: k, c: x.w.connect(client.Options{Name: name}),
		rnd:     rand.New(rand.NewPCG(x.seed, uint64(3*r.number+j))),
		settled: make(chan struct{}),
	}
	if err := g.attach(protocol.Resume{Instance: r.spawned.Session.Instance}); err != nil {
		x.t.Fatalf("%s: %v", name, err)
	}
	return g
}

// start starts the goroutines. Two of three type.
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

// attach goes on at a position.
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
		return fmt.Errorf("goes on at offset %d, %d bytes missed, and was at %d", info.Offset, info.BytesMissed, g.pos)
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
		g.err = fmt.Errorf("it was told to have missed %d bytes, and the library counts %d", g.here, g.a.Missed())
	}
}

// next takes in one message, and reports whether it was the last.
func (g *guest) next(timeout time.Duration) (ended bool, err error) {
	m, err := g.a.Receive(timeout)
	if err != nil {
		return false, fmt.Errorf("at offset %d: %w", g.pos, err)
	}
	if err = g.take(m); err != nil {
		err = fmt.Errorf("at offset %d comes kind %d, offset %d, %d bytes, %v: %w", g.pos, m.Kind, m.Offset, len(m.Data), m.Err, err)
	}
	return m.Kind == client.Exited, err
}

var errUnexpected = errors.New("nothing like this should come")

func (g *guest) take(m *client.Message) error {
	before := g.last
	g.last = m.Kind
	// A resume tells the size first thing.
	if before == client.Missed && m.Kind == client.Snapshot {
		g.resyncs++
	}
	switch m.Kind {
	case client.Output:
		if m.Offset != g.pos {
			return errors.New("it is not the next")
		}
		if want := transcript(g.room.number, m.Offset, len(m.Data)); !bytes.Equal(m.Data, want) {
			return fmt.Errorf("%.200q was printed, and not %.200q", want, m.Data)
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

// overtaken is told that so many bytes are missed, and that a snapshot stands
// for all before an offset. Missed is what the ring had lost when the snapshot
// was made, so pos+missed is where the ring began. We cannot look at it in that
// moment, but the offset is one at most a ring's length from there, and a later
// look sees it begin there or later.
//
// Half a snapshot is nothing: what is missed then goes on from where it began.
func (g *guest) overtaken(offset, missed uint64) error {
	if g.snapshot != nil && g.pos == g.stands && g.a.Position().Offset != g.pos {
		g.pos = g.began
	}
	began := g.pos + missed
	if offset < began || offset-began > chaosKept {
		return fmt.Errorf("from offset %d on %d bytes are missed up to %d, in a ring of %d", g.pos, missed, offset, chaosKept)
	}
	info, err := g.c.SessionInfo(g.x.t.Context(), g.room.id)
	if err != nil {
		return err
	}
	if missed > 0 && began > info.RingStart || offset > info.OutputOffset {
		return fmt.Errorf("from offset %d on %d bytes are missed up to %d, and the ring has %d to %d",
			g.pos, missed, offset, info.RingStart, info.OutputOffset)
	}
	g.missed, g.here = g.missed+missed, g.here+missed
	g.pos, g.stands, g.snapshot, g.due, g.began = offset, offset, []byte{}, 0, began
	g.x.behind.Store(true)
	return nil
}

// roam comes and goes until the chaos is over; it is there when it returns, and
// has typed all it will.
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
			return fmt.Errorf("detached at offset %d, and was at %d: %w", at.Offset, g.pos, err)
		}
		g.rest(g.rnd, 1500*time.Millisecond)
		if err := g.attach(at); err != nil {
			return err
		}
		// A detach while there is no proxy leaves behind what it could not send.
		if err := g.write(g.a, g.a.Info().InputOffset); err != nil {
			return err
		}
	}
	return nil
}

// whole reports whether the last snapshot has come in full: half of one is no
// place to leave at.
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

// rest does nothing for up to d, or until the chaos is over.
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
		g.x.t.Errorf("%s: %d lines are not all accepted: %v", g.name, g.lines, err)
	}
}

// talk types some lines.
func (g *guest) talk(a *client.Attachment, rnd *rand.Rand) error {
	from := g.lines * len(typedLine(g.name, 1))
	g.lines += 1 + rnd.IntN(10)
	return g.write(a, uint64(from))
}

// write types what is to be typed from an offset on.
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

// script is what a client types between so many lines and so many.
func script(name string, from, to int) string {
	var lines strings.Builder
	for n := from; n < to; n++ {
		lines.WriteString(typedLine(name, n+1))
	}
	return lines.String()
}

// typedLine is the n-th line that a client types, from 1; all of one client's
// are of one length.
func typedLine(name string, n int) string { return fmt.Sprintf("%s %08d\n", name, n) }

// check says what is wrong with what a guest has seen.
func (g *guest) check() error {
	if g.err != nil {
		return g.err
	}
	if g.pos != g.room.printed {
		return fmt.Errorf("%d bytes were printed, and it stands at %d", g.room.printed, g.pos)
	}
	if g.snapshot == nil && (g.read != g.room.printed || g.missed != 0) {
		return fmt.Errorf("it was never overtaken, and has read %d bytes of %d, and missed %d", g.read, g.room.printed, g.missed)
	}
	return nil
}

// shapes are lines of all sorts, each lineLen bytes long, with room for who
// prints it and the line's number.
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

// A shape is a line with its number left out.
type shape struct {
	line []byte
	at   int // where the number goes
}

func makeShapes(lines ...string) (all []shape) {
	for _, l := range lines {
		s := shape{at: strings.Index(l, "##")}
		l = strings.Replace(l, "##", strings.Repeat("#", numberLen), 1)
		l += strings.Repeat("\x1b[0m", max(0, (lineLen-2-len(l))/4)) // shows nothing
		s.line = fmt.Appendf(nil, "%s%s\r\n", l, strings.Repeat(".", lineLen-2-len(l)))
		all = append(all, s)
	}
	return all
}

// transcript is what a room prints: n bytes from an offset on.
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

// digits is quicker than fmt: every byte that anybody reads goes through it.
func digits(p []byte, n uint64) {
	for i := len(p) - 1; i >= 0; i-- {
		p[i] = '0' + byte(n%10)
		n /= 10
	}
}

// chatter is the child of a room. After the first line, from the line "go" to the line "stop" it
// prints the room's transcript, in pieces that are cut anywhere; each line that
// is typed goes into a file at once.
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
	// It says that it is ready with its first line.
	if _, err := os.Stdout.Write(transcript(number, 0, lineLen)); err != nil {
		return err
	}
	lines := make(chan string, 1)
	go listen(heard, lines)
	if <-lines != "go" {
		return errors.New("it does not begin with go")
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
		// What it owes, as while nobody read, is not printed once it is told to stop.
		for due := uint64(time.Since(begun).Seconds() * float64(rate)); offset < due && len(lines) == 0; {
			if err := print(burst(rnd, rate)); err != nil {
				return err
			}
		}
	}
}

// burst is how much is printed at once: mostly little, now and then much.
func burst(rnd *rand.Rand, rate int) int {
	if rnd.IntN(20) == 0 {
		return 1 + rnd.IntN(max(32<<10, rate/8))
	}
	return 1 + rnd.IntN(200)
}

// listen notes each line that is typed, and passes on those that are no
// client's.
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

// screens holds what the overtaken clients see against what the sessions show:
// the last snapshot each was given and the output behind it, in the real
// terminal of most clients.
func (x *chaos) screens(t *testing.T) {
	xterm := newXterm(t)
	seen := 0
	for _, r := range x.rooms {
		shown, err := x.c.Screen(x.w.ctx(), r.id, client.ScreenOptions{Scrollback: historySeen})
		if err != nil || shown.Offset != r.printed {
			t.Fatalf("%s: its screen stands for offset %d of %d, %v", r.id, shown.Offset, r.printed, err)
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

// historySeen is how many lines above the screen are compared, of the 1,000
// that a snapshot has.
const historySeen = 200
