// Package session owns the terminals: a child on a PTY, what it printed, who
// looks, who typed, and how it ended.
//
// Invariant: one goroutine, loop, owns a session's state; others change it only
// through ask and do, and read what loop has published. Output does not pass through loop on its way to a viewer: each
// attachment reads the ring at its own offset, so no viewer can hold up the
// child, loop, or another viewer.
//
// Never from doubt: a session ends because its child ended or because Terminate
// or Shutdown was called, and for no other reason.
//
// Not here: escape sequences (package screen), wires (package linkserver), and
// what labels mean (the proxy).
package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/shared/rawio"
	"holdfast/supervisor/internal/cage"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/slate"
)

// PTY is a child on a terminal; *pty.PTY is the real one.
type PTY interface {
	PID() int
	ReadEach(b []byte, each func(n int)) (int, error)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	TryWrite([]byte) (int, error)
	SpliceFrom(pipe uintptr, n int) (typed int, err error)
	AwaitWritable() error
	Resize(cols, rows, width, height int) error
	LineMode() bool
	Echoes() bool
	Interrupt() error
	Signal(syscall.Signal) error
	Done() <-chan struct{}
	Status() pty.Status
	Hangup(soft syscall.Signal, grace time.Duration) (hard bool, survivors []int)
	Close() error
}

// After its child has ended, a session reads on until its terminal is closed
// by all, or silent for drainQuiet, or drainMax has passed: a grandchild may
// hold the terminal open for ever, and may print for ever.
const (
	drainQuiet = 50 * time.Millisecond
	drainMax   = time.Second
	// A child may close its terminal and open it again; until it ends we look
	// this often.
	reopenPoll = 100 * time.Millisecond
)

// A Session owns one child and all that derives from it.
//
//	read   reads the PTY into the ring; sends to and closes chunks
//	await  waits until the PTY takes input; receives from full, sends to takes
//	loop   owns the fields below the line; closes exited, full and gone
//
// The ring outlives them until the last attachment is closed: a viewer gets the
// last byte and the exit of a session that was forgotten meanwhile.
type Session struct {
	id       protocol.SessionID
	instance protocol.Instance
	spec     protocol.SpawnSpec
	token    string
	account  string        // for whose limits it counts
	early    time.Duration // within which its opener removes it if it ends; see before.go
	created  time.Time
	begun    time.Time // the same by the real clock
	cfg      *Config
	hub      *Hub
	onExit   func(*Session)
	log      zerolog.Logger

	pty     PTY
	ring    *ring.Ring
	chunks  chan chunk
	asks    chan func()
	full    chan struct{}                     // the terminal takes no more input
	takes   chan error                        // it takes some again, or why it never will
	exited  chan struct{}                     // closed once the exit record stands
	gone    chan struct{}                     // closed once nothing of the session runs
	running sync.WaitGroup                    // read, await, and signals that nothing else waits for
	holders atomic.Int64                      // of the ring: loop and each attachment until its Close
	answers answers                           // who answers the child's questions; changed by loop
	late    sync.Mutex                        // takes loop's place once that is gone, for what viewers still want
	kept    atomic.Bool                       // the vault holds the files
	pacer   atomic.Pointer[Attachment]        // whom the child waits for; changed by loop
	unpaced bool                              // the pacer was waited for in vain; owned by read
	halting atomic.Pointer[halt]              // read and await are to rest; changed by loop
	poke    chan struct{}                     // has read look whether it is
	labels  atomic.Pointer[map[string]string] // replaced by loop, and never changed
	orders  orders                            // for the child, from any goroutine; see ending.go

	limits  atomic.Pointer[protocol.Limits] // replaced under orders.mu, and never changed
	cage    *cage.Cage                      // nil if it has none
	stopped atomic.Bool                     // all of its cage is frozen; set under orders.mu

	published atomic.Pointer[protocol.SessionInfo] // what others read of the session; see publish.go
	lastIO    instant                              // set by loop

	// Owned by loop.
	state       protocol.State
	size        protocol.Size
	screen      *screen.Screen // see core.go: not to be used but within core
	received    uint64         // the end of the last chunk
	lastBudget  int            // what may be spent on output once the child has ended; see lastCost
	thawing     *halt          // read waits for loop to catch up after a rest
	adopted     bool           // it was begun by a supervisor before this one
	restoring   *restoration   // until there is a screen
	degraded    bool           // there is none worth looking at
	givenUpBy   string         // Config.Program that found so
	tries       uint64         // of restoring it, in vain
	title, cwd  string         // while there is no screen to ask
	framed      uint64         // what the keyframe stands for
	framedWhole bool           // it has all lines
	framedCost  int            // of showing what was printed since the keyframe
	cleared     uint64         // what the screen stood for when it was last cleared; 0 before
	changed     bool           // something of saved has, since it was written down
	unpublished bool           // the same, since it was published
	awaits      map[*awaited]struct{}
	printedAt   time.Time // when it printed last
	attachments map[*Attachment]struct{}
	shadows     int    // of them are no viewers
	overhearing int    // of them are told what is typed
	attached    uint64 // attachments so far
	sizing      sizing
	appearance  protocol.Appearance
	focus       focus
	input       input
	idle        idle
	toldFrozen  bool  // of stopped, by the last event
	news        alarm // runs for newsEvery after something was told
	commands    commands
	quiet       quiet
	away        away
	viewerEnv   []string         // of the last viewer that told it; replaced, and never changed
	held        []byte           // our answers to questions that are nobody's yet
	heldAlone   []byte           // of held, what a viewer cannot answer
	claimed     <-chan time.Time // then they are ours
	seen        postmortem.Seen  // of the child, for its exit record
	childEnded  bool
	isAside     bool // another life has taken its place
	outputOver  bool
	exit        *protocol.ExitRecord // set before exited is closed, then read by all

	// What outlives this process, beside the ring (saved.go, keyframe.go).
	savedSpec  json.RawMessage
	stateSlate *slate.Slate
	keyframe   *slate.Slate
}

// chunk says that n bytes at offset are in the ring.
type chunk struct {
	offset uint64
	n      int
}

// start starts a child, which the vault holds before it runs.
func start(id protocol.SessionID, spec protocol.SpawnSpec, op *opening, cfg *Config, hub *Hub, onExit func(*Session)) (*Session, error) {
	size := spec.Size()
	now := cfg.Now()
	s := &Session{
		id: id, instance: protocol.NewInstance(), spec: spec, token: op.token, account: op.account, early: op.early, created: now, begun: time.Now(),
		cfg: cfg, hub: hub, onExit: onExit,
		state: protocol.StateStarting, size: size,
	}
	s.lastIO.set(now)
	s.log = cfg.Log.With().Str(logging.Session, string(id)).Str(logging.Instance, string(s.instance)).Logger()
	lines := min(max(cmp.Or(spec.ScrollbackLines, cfg.ScrollbackLines), 0), protocol.MaxScrollback)
	s.spec.ScrollbackLines, s.spec.Labels = lines, nil
	s.labels.Store(&spec.Labels)
	s.makeChannels()
	s.sizing.policy = cmp.Or(spec.SizePolicy, protocol.SizeLatest)
	s.screen = screen.New(size, lines)
	s.answers.change(0, unclaimed)
	s.away.open = true
	s.holders.Store(1)
	if err := s.makeFiles(size); err != nil {
		return nil, spawnError(errors.Join(err, s.closeFiles()))
	}
	p, err := s.startChild(pty.Spec{
		Argv: spec.Argv, Dir: workDir(spec), Env: childEnv(cfg.Env, id, spec),
		Cols: size.Cols, Rows: size.Rows, Opened: s.opened, Ended: s.childHasEnded,
	}, op.defaults)
	if err != nil {
		if s.pty != nil {
			s.letGo()
		}
		return nil, spawnError(errors.Join(err, s.closeFiles()))
	}
	s.pty = p
	s.storeLimits(s.spec.Limits)
	s.named()
	s.notice()
	s.enter(protocol.StateRunning)
	s.note()
	s.publish()
	return s, nil
}

func (s *Session) makeChannels() {
	// At most this many reads, one in loop's hands and one reserved lie
	// between loop and the end of the ring, which holds eight: what loop
	// views is never overwritten.
	s.chunks = make(chan chunk, 4)
	s.asks = make(chan func())
	s.full = make(chan struct{}, 1)
	s.takes = make(chan error, 1)
	s.poke = make(chan struct{}, 1)
	s.exited = make(chan struct{})
	s.gone = make(chan struct{})
	s.attachments = make(map[*Attachment]struct{})
}

// makeFiles makes all that a session has beside its terminal.
func (s *Session) makeFiles(size protocol.Size) (err error) {
	if err = s.newSavedSpec(); err != nil {
		return err
	}
	if s.ring, err = ring.New(s.cfg.RingBytes, size); err != nil {
		return err
	}
	if err = s.newSlates(); err != nil {
		return err
	}
	s.input = input{max: s.cfg.InputBytes}
	s.input.journal, err = journal.New(s.ring.Room(), s.journalConfig())
	return err
}

func (s *Session) journalConfig() journal.Config {
	return journal.Config{Max: s.cfg.InputBytes, Made: func(journal.Files) { s.put() }}
}

// closeFiles undoes makeFiles, as far as that has come.
func (s *Session) closeFiles() (err error) {
	if s.input.journal != nil {
		err = s.input.journal.Close()
	}
	if s.stateSlate != nil {
		err = errors.Join(err, s.stateSlate.Close(), s.keyframe.Close())
	}
	if s.ring != nil {
		err = errors.Join(err, s.ring.Close())
	}
	return err
}

// opened has the vault hold the terminal while nothing runs on it yet.
func (s *Session) opened(p *pty.PTY) error {
	s.pty = p
	if err := s.writeState(); err != nil {
		return err
	}
	s.put()
	return nil
}

// run starts the goroutines. Whoever has found the session before waits in do.
func (s *Session) run() {
	s.log.Info().Int(logging.PID, s.pty.PID()).Msg("session started")
	s.settle()
	info := s.info()
	s.hub.Publish(protocol.EventCreated, &info, nil)
	s.running.Go(s.read)
	s.running.Go(s.await)
	go s.loop()
}

// abandon ends a child that never became a session, and reaps it.
func (s *Session) abandon() {
	s.pty.Hangup(syscall.SIGHUP, 0)
	<-s.pty.Done()
	s.letGo()
	if err := errors.Join(s.pty.Close(), s.closeFiles()); err != nil {
		s.log.Warn().Err(err).Msg("abandoned session not closed cleanly")
	}
}

func (s *Session) read() {
	defer close(s.chunks)
	var ended time.Time // when the child was first seen to have ended
	// Nothing came since the last deadline. The first one is loop's, and may
	// have passed before we came to read what is there.
	quiet := false
	for {
		s.pace()
		last := isClosed(s.pty.Done())
		n, err := s.pty.ReadEach(s.ring.Reserve(), s.took)
		if n > 0 {
			s.ring.Wake()
			quiet = false
		}
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if h := s.halting.Load(); h != nil {
				h.rest()
				continue
			}
			// Else it was set by loop when the child ended.
			if ended.IsZero() {
				ended = time.Now()
			}
			if !quiet && time.Since(ended) < drainMax {
				quiet = true
				_ = s.pty.SetReadDeadline(time.Now().Add(drainQuiet)) // fails as Read will
				continue
			}
			return
		}
		if last { // before that it may have opened its terminal once more
			return
		}
		select {
		case <-s.pty.Done():
		case <-s.poke:
		case <-time.After(reopenPoll):
		}
	}
}

// aPiece is what the kernel gives of a terminal's output at once where there is
// more.
const aPiece = 4095

// took hands n bytes that have come to loop. Where more are to come it lets loop
// see to these first: meanwhile the kernel fills what was emptied, which holds
// no more than that. Viewers are told when all has come, so that each message
// to them is a long one; but none of them waits for a loop that is busy.
func (s *Session) took(n int) {
	s.cfg.counts.printed.Add(uint64(n))
	c := chunk{s.ring.Commit(n), n}
	select {
	case s.chunks <- c:
	default:
		s.ring.Wake()
		s.chunks <- c
	}
	if n >= aPiece {
		runtime.Gosched()
	}
}

func (s *Session) await() {
	for range s.full {
		s.takes <- s.pty.AwaitWritable()
	}
}

func (s *Session) loop() {
	defer close(s.gone)
	defer s.news.stop()
	defer s.idle.stop()
	defer s.quiet.stop()
	defer s.commands.stop()
	defer s.sizing.stop()
	chunks, childDone := s.chunks, s.pty.Done()
	s.printedAt = s.lastIO.get() // or before that, of one that was adopted
	if s.adopted {
		s.went() // whoever looked is lost
	}
	if s.exit != nil { // adopted so
		chunks, childDone = nil, nil
	} else if s.adopted {
		s.takeUp()
		s.settle()
	}
	always := make(chan struct{})
	close(always)
	for s.state != protocol.StateForgotten {
		// The next chunk is received when all of the last one is on the screen:
		// until then the child waits.
		next, rest := chunks, (<-chan struct{})(nil)
		if s.behind() {
			next, rest = nil, always
		}
		select {
		case c, ok := <-next:
			if !ok {
				chunks, s.outputOver = nil, true
				s.finishIfOver()
				continue
			}
			s.receive(c)
		case <-rest:
			rawio.Yield() // others than this session's clients wait, too
			s.show(s.received, pieceCost)
			s.wakeReader()
			s.finishIfOver()
		case f := <-s.asks:
			f() // and settles
		case err := <-s.takes:
			s.typeOn(err)
		case <-s.claimed:
			s.claim(nil)
		case <-s.idle.c:
			s.becomeIdle()
		case <-s.sizing.c:
			s.expireLost()
		case <-s.quiet.c:
			s.becomeQuiet()
		case <-s.commands.c:
			s.tellCommand()
		case <-s.news.c:
			s.news.rang()
			s.tellNews()
		case <-childDone:
			childDone, s.childEnded, s.lastBudget = nil, true, lastCost
			s.enter(protocol.StateDraining)
			if !s.outputOver {
				_ = s.pty.SetReadDeadline(time.Now().Add(drainQuiet)) // fails only where Read ends by itself
			}
			s.finishIfOver()
		}
		s.settle()
	}
	close(s.full)
	s.running.Wait() // the terminal is closed: nothing holds them up
	s.letGo()
	if err := errors.Join(s.stateSlate.Close(), s.keyframe.Close()); err != nil {
		s.log.Warn().Err(err).Msg("state not closed")
	}
	s.releaseRing()
}

// receive writes a chunk to the screen, or its first part if it is dear.
func (s *Session) receive(c chunk) {
	s.printed()
	s.received = c.offset + uint64(c.n)
	s.lastBudget += lastPerByte * c.n
	s.show(s.received, pieceCost)
}

func (s *Session) releaseRing() {
	if s.holders.Add(-1) > 0 {
		return
	}
	if err := s.ring.Close(); err != nil {
		s.log.Warn().Err(err).Msg("ring not closed")
	}
}

// answerTime is how long a request waits for a loop that is busy. What loop does between
// two answers is bounded, so that one that does not answer for so long has lost its way.
const answerTime = 5 * time.Second

// ask is do for a request, which does not wait without a bound.
//
// Errors: session_not_found; busy if loop does not begin with f within limit. f was not run
// then, and will not be.
func (s *Session) ask(limit time.Duration, f func()) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	done := make(chan struct{})
	select {
	case s.asks <- func() { defer close(done); f(); s.settle() }:
		<-done
		return nil
	case <-s.gone:
		return notFound(s.id)
	case <-timer.C:
		return busyError(s.id)
	}
}

// do runs f in loop and reports whether there was a loop to run it.
func (s *Session) do(f func()) bool {
	done := make(chan struct{})
	select {
	case s.asks <- func() { defer close(done); f(); s.settle() }:
		<-done
		return true
	case <-s.gone:
		return false
	}
}

// request is ask, within answerTime, for what may fail.
func (s *Session) request(f func() error) (err error) {
	if unanswered := s.ask(answerTime, func() { err = f() }); unanswered != nil {
		return unanswered
	}
	return err
}

// try is do for what may fail; without a loop it is session_not_found.
func (s *Session) try(f func() error) error {
	err := notFound(s.id)
	s.do(func() { err = f() })
	return err
}

// finishIfOver makes the session exited once the child has ended, its output
// has been read, and nobody sends it signals any more.
//
// The order is the contract: the record stands, then the ring's end is final,
// so that every viewer gets the last byte and then the exit; then the terminal
// is closed and the table no longer counts the session, and only then does
// anybody see exited.
func (s *Session) finishIfOver() {
	if s.exit != nil || !s.outputOver || s.behind() || !s.childEnded || !s.orders.seal() {
		return
	}
	s.news.rang()
	s.tellNews()
	s.exit = s.exitRecord()
	s.cfg.counts.exited(s.exit.Outcome)
	if err := errors.Join(s.input.journal.Drop(), s.input.journal.Close()); err != nil {
		s.log.Warn().Err(err).Msg("input not closed")
	}
	s.enter(protocol.StateExited)
	s.frame(allLines)
	s.note()
	s.write()
	s.ring.Finish()
	if err := s.pty.Close(); err != nil {
		s.log.Warn().Err(err).Msg("terminal not closed")
	}
	s.put() // without the terminal, which would stay open there
	s.cage.Remove()
	s.onExit(s)
	s.publish()
	s.log.Info().Int(logging.ExitCode, s.exit.ExitCode).Str("outcome", string(s.exit.Outcome)).
		Str(logging.Reason, string(s.exit.Reason)).Msg("session exited")
	close(s.exited)
	info := s.info()
	s.hub.Publish(protocol.EventExited, &info, nil)
}

// notice notes of the child what can be seen only while it lives.
func (s *Session) notice() {
	if seen, ok := s.lookAtChild(); ok {
		s.saw(seen)
	}
}

func (s *Session) saw(seen postmortem.Seen) {
	seen.Cwd = cmp.Or(seen.Cwd, s.seen.Cwd)
	s.seen = seen
	s.note()
}

func (s *Session) exitRecord() *protocol.ExitRecord {
	status := s.pty.Status()
	rec := &protocol.ExitRecord{
		ExitCode: status.Code, Signal: status.Signal,
		Outcome: protocol.OutcomeNatural, Reason: protocol.ReasonExited,
		StartedAt: s.created, ExitedAt: s.cfg.Now(),
		CoreDumped: status.Core, Usage: protocol.Usage(status.Usage),
	}
	s.core(func() {
		rec.Cwd = s.screen.Cwd()
		rec.Tail, rec.LastLines = s.screen.Text(protocol.TailLines), s.screen.NonEmpty(protocol.LastLines)
	})
	rec.Cwd = cmp.Or(rec.Cwd, s.seen.Cwd)
	if status.Err != nil {
		rec.Reason = protocol.ReasonWaitError
	}
	sig := s.orders.signalled.Load()
	switch e := s.orders.ending.Load(); {
	case e != nil:
		rec.Reason, rec.TimedOut, rec.Survivors = e.reason, e.timedOut, e.survivors
		rec.Outcome = protocol.OutcomeSoft
		if e.hard {
			rec.Outcome = protocol.OutcomeHard
		}
		rec.EndedBy, rec.EndedByUser = e.asker.By, e.asker.ByUser
	case status.Signal != "" && sig != nil && status.Signal == sig.name:
		rec.EndedBy, rec.EndedByUser = sig.asker.By, sig.asker.ByUser
	case status.Signal == pty.SignalName(syscall.SIGKILL):
		rec.OOM = s.seen.OutOfMemory(s.pty.PID(), rec.ExitedAt.Sub(rec.StartedAt))
	case status.Code == 128+int(syscall.SIGKILL): // as a shell ends by what ended its last program
		rec.OOM = s.seen.OutOfMemory(0, 0)
	}
	rec.Cage = s.usedUp()
	return rec
}

// info is called in loop, or before it runs.
func (s *Session) info() protocol.SessionInfo {
	start, end, _ := s.ring.Bounds()
	title, cwd := s.titles()
	i := protocol.SessionInfo{
		ID: s.id, Instance: s.instance, PID: s.pty.PID(), State: s.state, Size: s.size,
		Argv: slices.Clone(protocol.CutArgv(s.spec.Argv)), Cwd: workDir(s.spec), CurrentCwd: cwd, Title: title, Labels: maps.Clone(s.Labels()), Originator: s.spec.Originator,
		CreatedAt: s.created, LastIOAt: s.lastIO.get(), OutputOffset: end, RingStart: start,
		ScrollbackLines: s.spec.ScrollbackLines, SizePolicy: s.sizing.policy, Attachments: len(s.attachments) - s.shadows, Degraded: s.degraded, Frozen: s.stopped.Load(),
		Viewers: s.viewers(), Left: s.away.left(), Command: s.commands.info,
	}
	if s.exit != nil {
		exit := copyExit(s.exit)
		i.ExitCode, i.Exit = &exit.ExitCode, exit
	}
	return i
}

// Show returns what spec asks for of the screen. Only the picture is taken in
// loop: a long one costs its reader time, and the session little.
func (s *Session) Show(spec protocol.ScreenSpec) (protocol.ScreenContent, error) {
	for rows := screen.Rows(spec); ; {
		var v *screen.View
		if err := s.look(func() { v = s.screen.View(rows) }); err != nil {
			return protocol.ScreenContent{}, err
		}
		c, next := v.Content(spec)
		if next == 0 {
			c.Instance = s.instance
			return c, nil
		}
		rows = next
	}
}

// Read returns up to n bytes printed from offset on, or from the oldest kept,
// with the offset of the first and of the end.
func (s *Session) Read(offset uint64, n int) (data []byte, from, end uint64, err error) {
	for {
		if isClosed(s.gone) {
			return nil, 0, 0, notFound(s.id)
		}
		start, end, _ := s.ring.Bounds()
		from := min(max(offset, start), end)
		data := make([]byte, min(uint64(n), end-from))
		k, err := s.ring.ReadAt(data, from)
		switch {
		case errors.Is(err, ring.ErrGone): // overtaken since Bounds
		case err != nil:
			return nil, 0, 0, notFound(s.id)
		default:
			return data[:k], from, end, nil
		}
	}
}

// Resize changes the terminal's size, until the policy decides again; zeroes
// mean 80 and 24, each on its own.
func (s *Session) Resize(size protocol.Size) error {
	return s.request(func() error {
		if err := s.open(); err != nil {
			return err
		}
		return s.resize(size.Normalize())
	})
}

func (s *Session) resize(size protocol.Size) error {
	s.lastIO.set(s.cfg.Now())
	if size == s.size {
		return nil
	}
	if err := s.setSize(size); err != nil {
		return err
	}
	s.size = size
	s.ring.MarkSize(size) // what came before it came at the old size
	s.feed()
	if s.restoring != nil {
		s.restoring.resized = true
	}
	s.idle.touch()
	for a := range s.attachments {
		a.renew()
	}
	s.chooseAnswerer() // one who sees a view of its own cannot answer
	info := s.info()
	s.hub.Publish(protocol.EventResized, &info, nil)
	return nil
}

// Exited is closed once the exit record stands.
func (s *Session) Exited() <-chan struct{} { return s.exited }

// Exit returns the exit record; it may be called once Exited is closed.
func (s *Session) Exit() *protocol.ExitRecord { return s.exit }

// ID and Instance never change, nor does what Labels returns.
func (s *Session) ID() protocol.SessionID      { return s.id }
func (s *Session) Instance() protocol.Instance { return s.instance }
func (s *Session) Labels() map[string]string   { return *s.labels.Load() }

// forget ends an exited session's loop. Errors: session_running, session_not_found, busy.
func (s *Session) forget() error { return s.request(s.leave) }

// leave is forget in loop.
func (s *Session) leave() error {
	if s.state != protocol.StateExited {
		return protocol.Errorf(protocol.CodeSessionRunning, fmt.Sprintf("session %s has not ended", s.id))
	}
	s.enter(protocol.StateForgotten)
	if info := s.info(); !s.isAside { // else it was told
		s.hub.Publish(protocol.EventForgotten, &info, nil)
	}
	return nil
}

func notFound(id protocol.SessionID) error {
	return protocol.Errorf(protocol.CodeSessionNotFound, fmt.Sprintf("no session %s", id))
}

// busyError is of a session whose loop does not answer. Nothing was done.
func busyError(id protocol.SessionID) error {
	return &protocol.Error{
		Code: protocol.CodeBusy, Retryable: true, RetryAfterMS: 1000,
		Message: fmt.Sprintf("session %s is busy with what its program prints and does not answer; nothing was done, try again", id),
	}
}

func exitedError(id protocol.SessionID, exit *protocol.ExitRecord) error {
	how := fmt.Sprintf("with code %d", exit.ExitCode)
	if exit.Signal != "" {
		how = "by " + exit.Signal
	}
	return &protocol.Error{Code: protocol.CodeSessionExited, Message: fmt.Sprintf("session %s has exited %s", id, how), Exit: exit}
}

// spawnError says that nothing was started and, where a peer can act on it,
// why.
func spawnError(err error) error {
	if said := protocol.AsError(err); said.Code == protocol.CodeUnsupported { // limits that cannot be set
		return said
	}
	e := &protocol.Error{Code: protocol.CodeSpawnFailed, Message: err.Error()}
	switch {
	case errors.Is(err, pty.ErrUnsupported):
		e.Cause = protocol.CodeUnsupportedOS
	case errors.Is(err, pty.ErrExhausted), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE): // also for the ring
		e.Cause, e.Retryable = protocol.CodePTYExhausted, true
	case errors.Is(err, os.ErrNotExist):
		e.Cause = protocol.CodeNotFound
	case errors.Is(err, os.ErrPermission):
		e.Cause = protocol.CodePermissionDenied
	}
	return e
}
