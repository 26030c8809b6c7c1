// Package session owns the terminals. A session is a child process on a PTY together with its
// output, its viewers, its input and its exit record.
//
// Invariant: one goroutine, loop, owns the state of a session. Other goroutines change the
// state only through ask and do, and read the state that loop has published. Output does not pass through
// loop on its way to a viewer. Each attachment reads the ring at its own offset, so that no
// viewer can delay the child, loop, or another viewer. README.md describes the rules for
// viewers.
//
// Never on doubt: a session ends only because its child has ended, or because Terminate or
// Shutdown was called.
//
// Not here: escape sequences (package screen), wires (package linkserver), and the meaning of
// labels (the proxy).
package session

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/session/event"
)

// PTY is a child process on a terminal. Package pty has the implementation, *pty.PTY.
type PTY interface {
	PID() int
	ReadEach(to pty.Memory, each func(n int)) (int, error)
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

// After its child has ended, a session still reads output until all processes have closed the
// terminal, or no output has come for drainQuiet, or drainMax has passed. Without these limits,
// a grandchild that keeps the terminal open, or prints without end, would keep the session.
const (
	drainQuiet = 50 * time.Millisecond
	drainMax   = time.Second
	// reopenPoll is the pause between two reads while no process has the terminal open and the
	// child still runs. The child may open its terminal again.
	reopenPoll = 100 * time.Millisecond
)

// Session owns one child and the state that derives from it. Two goroutines run for it, and a third one while
// the PTY takes no input:
//
//	reader.run   reads the PTY into the ring; sends to reader.chunks and closes it
//	input.await  waits until the PTY takes input; sends to input.writable
//	loop         owns the fields below "Owned by loop"; closes exited and gone
//
// The ring is closed later than loop ends, namely when the last attachment is closed. Therefore
// each viewer receives the last byte and the exit, even if the session was forgotten meanwhile.
type Session struct {
	identity
	cfg    *Config
	hub    *event.Hub
	onExit func(*Session)
	log    zerolog.Logger

	child
	sessionFiles
	reader reader
	mailbox
	running     sync.WaitGroup // reader.run and input.await
	ringHolders atomic.Int64   // loop, and each attachment until its Close; the last one closes the ring
	answers     answering      // which writer answers the child's terminal queries
	afterLoop   sync.Mutex     // after loop has ended, viewers hold it while they use the screen
	labels
	recording recording

	published atomic.Pointer[protocol.SessionInfo] // the info that other goroutines read; see publish.go
	activity  activity
	held      heldSnapshots
	reading

	// Owned by loop.
	saved   savedState // the part of the state that a successor needs; see saved.go
	size    protocol.Size
	display display
	adopted bool // a previous supervisor, or this process before an exec, started the session
	outdated
	awaits     awaiters
	viewers    viewers
	input      input
	hold       hold
	idle       idle
	eventAlarm alarm // runs for screenEventInterval after an event of the program was published
	childEnded bool
	isAside    bool // a later instance has taken the session's place; see before.go

	entry vaultEntry // holds duplicates of sessionFiles, which outlive this process
}

// start starts a child and returns its session. The vault holds the terminal before the child
// runs, so that a crash in between does not lose a running child. Errors: those of spawnError.
func (t *Table) start(id protocol.SessionID, spec protocol.SpawnSpec, op *opening) (*Session, error) {
	cfg, size, now := &t.cfg, spec.Size(), t.cfg.Now()
	s := &Session{
		identity: identity{id: id, instance: protocol.NewInstance(), spec: spec, token: op.token, origin: op.origin, account: op.account, early: op.early, continues: op.above != nil, replaces: op.replaces, created: now, dir: workDir(spec)},
		cfg:      cfg, hub: t.hub, onExit: t.onExit,
		saved: newSavedState(), size: size,
	}
	s.findSecrets(cfg)
	s.recording.use(&s.identity, cfg)
	s.entry.cfg, s.entry.id, s.entry.log = cfg, entryOf(s.instance), &s.log
	s.activity.last.set(now)
	s.log = s.logger(cfg.Log)
	lines := min(max(cmp.Or(spec.ScrollbackLines, cfg.ScrollbackLines), 0), protocol.MaxScrollback)
	s.spec.ScrollbackLines, s.spec.Labels = lines, nil
	s.connect()
	s.labels.present.Store(&spec.Labels)
	s.cage.limits.Store(&s.spec.Limits)
	s.saved.SizePolicy = cmp.Or(spec.SizePolicy, protocol.SizeLatest)
	s.answers.startedAt, s.answers.held = time.Now(), &s.saved.heldReplies
	responder := unclaimed
	if spec.Unattended {
		responder = ""
	} else {
		s.reader.expectViewer()
	}
	s.answers.setFrom(0, responder)
	s.ringHolders.Store(1)
	if err := s.newSavedSpec(); err != nil {
		return nil, spawnError(err)
	}
	var err error
	if s.sessionFiles, err = makeFiles(cfg.RingBytes, size, s.journalConfig()); err != nil {
		return nil, spawnError(err)
	}
	s.useFiles()
	s.saved.Appearance = spec.Appearance()
	s.display.screen, s.display.isFromRing = screen.New(size, lines), op.above == nil
	if op.above != nil {
		s.continueFrom(op)
	}
	s.display.screen.SetAppearance(s.saved.Appearance)
	p, err := s.child.start(pty.Spec{
		Argv: spec.Argv, Dir: s.dir, Env: childEnv(cfg.Env, &s.identity),
		Cols: size.Cols, Rows: size.Rows, Opened: s.opened, Ended: s.childHasEnded,
	}, op.defaults)
	if err != nil {
		if s.pty != nil {
			s.entry.delete()
		}
		return nil, spawnError(errors.Join(err, s.closeFiles()))
	}
	s.pty = p
	s.openTerminal()
	s.entry.setPID(s.pty.PID())
	s.inspectChild()
	s.saved.setState(protocol.StateRunning)
	s.noteChange()
	s.publish()
	return s, nil
}

// connect makes the channels, and connects the parts that need no files.
func (s *Session) connect() {
	s.reader.makeChannels()
	s.input.makeChannels(&s.running)
	s.mailbox = newMailbox(&s.identity)
	s.child = child{
		identity: &s.identity, mailbox: &s.mailbox, outdated: &s.outdated, cfg: s.cfg, log: &s.log, activity: &s.activity,
		hasOutput: func() bool { return len(s.reader.chunks) > 0 }, publishFrozen: s.publishFrozen, exited: make(chan struct{}),
	}
	s.activity.outdated, s.labels.identity = &s.outdated, &s.identity
	s.reading = reading{&s.identity, s.askScreen, &s.saved.commands, s.cfg.Now}
}

// continueFrom shows the lines of the old instance above the output. If they cannot be restored,
// the screen begins empty.
func (s *Session) continueFrom(op *opening) {
	shown, err := continueScreen(op.above, s.size, s.spec.ScrollbackLines, op.lost)
	if err == nil {
		err = s.display.keyframe.write(shown, allLines)
	}
	if err != nil {
		s.log.Error().Err(err).Msg("screen of the earlier instance not restored; the session begins with an empty one")
		return
	}
	s.display.screen = shown
}

// useFiles connects display and input with the session's files.
func (s *Session) useFiles() {
	s.input.journal, s.sessionID = s.journal, s.id
	d := &s.display
	d.keyframe.Slate = s.keyframeSlate
	d.identity, d.cfg, d.log, d.saved = &s.identity, s.cfg, &s.log, &s.saved.displayState
	d.ring, d.words = s.ring, s.stateSlate
	d.outdated, d.appearance = &s.outdated, &s.saved.Appearance
	d.answer, d.onLost, d.onRestored = s.sendReplies, s.noteScreenLost, s.noteScreenRestored
}

func (s *Session) journalConfig() journal.Config {
	return journal.Config{Max: s.cfg.InputBytes, Made: func(journal.Files) { s.entry.put(&s.sessionFiles, s.pty.PID()) }}
}

// openTerminal connects reader and input with the terminal.
func (s *Session) openTerminal() {
	s.reader.source, s.reader.ring, s.reader.counter = s.pty, s.ring, &s.cfg.counts.outputBytes
	s.input.identity, s.input.log, s.input.terminal, s.input.line = &s.identity, &s.log, s.pty, &s.saved.PendingLine
	s.input.max = s.cfg.InputBytes
}

// opened stores the new terminal in the vault. Package pty calls it before the child is
// started.
func (s *Session) opened(p *pty.PTY) error {
	s.pty, s.terminal = p, p
	if err := s.setSize(s.size); err != nil { // with the size in pixels, of which the child is notified if it changes later
		return err
	}
	if err := s.writeState(); err != nil {
		return err
	}
	s.entry.put(&s.sessionFiles, p.PID())
	return nil
}

// run starts the goroutines. A request that finds the session in the table before run is called
// waits in do until loop runs.
func (s *Session) run() {
	s.log.Info().Int(logging.PID, s.pty.PID()).Msg("session started")
	s.settle()
	s.publishEvent(protocol.EventCreated)
	s.record()
	s.running.Go(s.reader.run)
	go s.loop()
}

// abandon ends and reaps the child of a session that was never entered in the table.
func (s *Session) abandon() {
	s.pty.Hangup(syscall.SIGHUP, 0)
	<-s.pty.Done()
	s.entry.delete()
	if err := errors.Join(s.pty.Close(), s.closeFiles()); err != nil {
		s.log.Warn().Err(err).Msg("abandoned session not closed cleanly")
	}
}

func (s *Session) loop() {
	defer close(s.gone)
	defer s.eventAlarm.stop()
	defer s.idle.stop()
	defer s.entry.owed.stop()
	defer s.saved.quiet.stop()
	defer s.saved.commands.stop()
	defer s.viewers.stop()
	chunks, childDone := s.reader.chunks, s.pty.Done()
	s.activity.resume()
	if s.adopted {
		s.viewerLeft() // its former viewers are not attached any more
	}
	if s.exit != nil { // the adopted session had exited before
		chunks, childDone = nil, nil
	} else if s.adopted {
		s.resumeWork()
		s.settle()
	}
	for s.saved.State != protocol.StateForgotten {
		// loop receives the next chunk only when the last one is completely on the screen.
		// Until then the child has to wait.
		next, turn := chunks, (<-chan struct{})(nil)
		if s.display.isBehind() {
			next, turn = nil, s.cfg.costlyTurns
		} else {
			s.reader.release() // the last round or a request may have caught up
		}
		select {
		case c, ok := <-next:
			if !ok {
				chunks, s.reader.isOver = nil, true
				s.finishIfOver()
				continue
			}
			s.receive(c)
		case <-turn:
			s.catchUp()
			s.finishIfOver()
		case q := <-s.asks:
			s.serve(q, s.settle, func() bool { return s.saved.State == protocol.StateForgotten })
		case err := <-s.input.writable:
			s.input.resume(err)
		case <-s.answers.due:
			s.claim(nil)
		case <-s.idle.c:
			s.becomeIdle()
		case <-s.entry.owed.c:
			s.entry.putOwed(&s.sessionFiles, s.pty.PID())
		case <-s.viewers.c:
			s.expireLost()
		case <-s.saved.quiet.c:
			s.publishOutputIdle()
		case <-s.saved.commands.c:
			s.publishPendingCommand()
		case <-s.eventAlarm.c:
			s.eventAlarm.disarm()
			s.publishScreenEvents()
		case <-childDone:
			childDone, s.childEnded = nil, true
			s.display.expectEnd()
			s.saved.setState(protocol.StateDraining)
			s.reader.expectEnd()
			s.finishIfOver()
		}
		s.settle()
	}
	s.running.Wait() // the terminal is closed, so they end soon
	s.entry.delete()
	if err := s.closeSlates(); err != nil {
		s.log.Warn().Err(err).Msg("files of state and keyframe not closed")
	}
	s.releaseRing()
}

// receive writes a chunk to the screen. If the chunk is costly, receive writes only its first
// part; if the output before the chunk was costly, receive writes none of it. The remainder
// waits for a turn of costlyTurns.
func (s *Session) receive(c chunk) {
	now := s.cfg.Now()
	s.activity.lastOutput = now
	s.activity.noteUse(now)
	if s.saved.quiet.printed() {
		s.noteChange()
	}
	if end, now := s.display.receive(c); now {
		s.writeToScreen(end, cheapCost)
	}
}

func (s *Session) releaseRing() {
	if s.ringHolders.Add(-1) > 0 {
		return
	}
	if err := s.ring.Close(); err != nil {
		s.log.Warn().Err(err).Msg("ring not closed")
	}
}

// finishIfOver changes the state to exited when the child has ended, its output has been read
// and written to the screen, and no goroutine sends signals to it any more.
//
// The order of the steps is a contract. First the exit record is saved. Then the ring's end
// becomes final, so that each viewer receives the last byte and then the exit. Then the
// terminal is closed and the table no longer counts the session as running. Only then is exited
// closed.
func (s *Session) finishIfOver() {
	if s.exit != nil || !s.reader.isOver || s.display.isBehind() || !s.childEnded || !s.orders.seal() {
		return
	}
	s.thawForEnd() // the child of a frozen session may have been killed from outside
	s.publishFrozen()
	s.eventAlarm.disarm()
	s.publishScreenEvents()
	s.exit = s.exitRecord()
	s.saved.Programs.keepResults()
	s.cfg.counts.exited(s.exit.Outcome)
	if err := s.input.close(); err != nil {
		s.log.Warn().Err(err).Msg("journal of input not closed")
	}
	s.saved.setState(protocol.StateExited)
	s.display.writeKeyframe(allLines)
	s.noteChange()
	s.write()
	s.ring.Finish()
	if err := s.pty.Close(); err != nil {
		s.log.Warn().Err(err).Msg("terminal not closed")
	}
	s.endInput()
	s.entry.put(&s.sessionFiles, s.pty.PID())
	s.cage.Remove()
	s.onExit(s)
	s.log.Info().Int(logging.ExitCode, s.exit.ExitCode).Str("outcome", string(s.exit.Outcome)).
		Str(logging.Reason, string(s.exit.Reason)).Msg("session exited")
	s.publish()
	close(s.exited)       // at once, because a client that reads of the exit may start the session again
	s.recording.changed() // its description has the exit record from now on
	s.publishEvent(protocol.EventExited)
}

// inspectChild stores facts about the child that can only be read while it lives.
func (s *Session) inspectChild() {
	if seen, ok := readChildInfo(s.pty); ok {
		s.setChildInfo(seen)
	}
}

func (s *Session) setChildInfo(seen postmortem.Seen) {
	seen.Cwd = cmp.Or(seen.Cwd, s.saved.ChildInfo.Cwd)
	s.saved.ChildInfo = seen
	s.noteChange()
}

func (s *Session) exitRecord() *protocol.ExitRecord {
	d := death{status: s.pty.Status(), pid: s.pty.PID(), seen: s.saved.ChildInfo, startedAt: s.created, at: s.cfg.Now()}
	d.ending, d.signalled = s.orders.ending.Load(), s.orders.signalled.Load()
	rec := d.record()
	s.display.useRestored(func(sc *screen.Screen) {
		rec.Cwd = sc.Cwd()
		rec.Tail, rec.LastLines = sc.Text(protocol.TailLines), sc.NonEmpty(protocol.LastLines)
	})
	rec.Cwd = s.masker.Text(cmp.Or(rec.Cwd, d.seen.Cwd))
	rec.Cage = s.cage.useAtExit()
	return rec
}

// info returns the current info of the session. Only loop may call it, or start and loadSession
// before loop runs.
func (s *Session) info() protocol.SessionInfo {
	start, end, _ := s.ring.Bounds()
	title, cwd := s.display.titles()
	i := protocol.SessionInfo{
		ID: s.id, Instance: s.instance, PID: s.pty.PID(), State: s.saved.State, Size: s.size,
		Argv: slices.Clone(protocol.CutArgv(s.spec.Argv)), Cwd: s.dir, CurrentCwd: cwd, Title: title, Labels: maps.Clone(s.Labels()), Originator: s.spec.Originator,
		CreatedAt: s.created, LastIOAt: s.activity.lastIO(s.cfg.Now()), OutputOffset: end, RingStart: start,
		ScrollbackLines: s.spec.ScrollbackLines, SizePolicy: s.saved.SizePolicy, Attachments: s.viewers.count(), Degraded: s.saved.Degraded, Frozen: s.cage.frozen.Load(),
		Viewers: s.viewers.infos(), Left: s.saved.Away.left(), Command: s.saved.Command, Unmasked: s.unmasked, Program: s.saved.Programs.first(s.masker),
	}
	maskInfo(&i, s.masker)
	if s.exit != nil {
		exit := copyExit(s.exit)
		i.ExitCode, i.Exit = &exit.ExitCode, exit
	}
	if s.isLost() {
		i.ExitCode, i.Exit, i.Lost = nil, nil, s.recording.lost
	}
	return i
}

// Show returns the screen content that spec selects. loop only takes a view of the screen; the
// caller's goroutine converts it, so that a long answer costs the caller time and the session
// little.
//
// Errors: those of askScreen.
func (s *Session) Show(spec protocol.ScreenSpec) (protocol.ScreenContent, error) {
	c, err := contentOf(spec, s.askScreen)
	c.Instance = s.instance
	if err == nil {
		c.Input = s.inputMode()
	}
	return c, err
}

// inputMode returns how the terminal treats input now, or "" if the child has ended.
func (s *Session) inputMode() (mode protocol.InputMode) {
	if s.published.Load().State != protocol.StateRunning {
		return ""
	}
	switch isLine, echoes := s.pty.LineMode(), s.pty.Echoes(); {
	case isLine && echoes:
		mode = protocol.InputLine
	case isLine:
		mode = protocol.InputHidden
	default:
		mode = protocol.InputKeys
	}
	if s.published.Load().State != protocol.StateRunning { // a terminal that is closed has no modes
		return ""
	}
	return mode
}

// contentOf returns the content of a screen that use passes to a function. It may call use several times.
func contentOf(spec protocol.ScreenSpec, use func(func(*screen.Screen) error) error) (protocol.ScreenContent, error) {
	for rows := screen.Rows(spec); ; {
		var v *screen.View
		if err := use(func(sc *screen.Screen) error { v = sc.View(rows); return nil }); err != nil {
			return protocol.ScreenContent{}, err
		}
		c, next := v.Content(spec)
		switch {
		case next > 0:
			rows = next
		case spec.Format == protocol.ScreenState && c.State == nil:
			return protocol.ScreenContent{}, protocol.TooLarge("the state of this screen does not fit into one message; ask for cells")
		default:
			return c, nil
		}
	}
}

// Read returns up to n bytes of output that begin at offset, or at the oldest byte in the ring
// that was not cleared if that is later. Secrets are masked. from is the offset of the first byte
// returned, end the offset behind all output. Errors: session_not_found.
func (s *Session) Read(offset uint64, n int) (data []byte, from, end uint64, err error) {
	for {
		if s.isGone() {
			return nil, 0, 0, notFound(s.id)
		}
		start, end, _ := s.ring.Bounds()
		from := min(max(offset, start, s.recording.clearedTo.Load()), end)
		data := make([]byte, min(uint64(n), end-from))
		k, err := s.ring.ReadAt(data, from)
		switch {
		case errors.Is(err, ring.ErrGone): // the ring has overwritten from since Bounds
		case err != nil:
			return nil, 0, 0, notFound(s.id)
		default:
			return s.masker.Piece(s.ring, from, data[:k]), from, end, nil
		}
	}
}

// Resize sets the size of the terminal. It stays until the size policy decides again. If cols
// is 0 it becomes 80, and if rows is 0 it becomes 24. Errors: those of checkOpen and of ask.
func (s *Session) Resize(size protocol.Size) error {
	return s.request(func() error {
		if err := s.checkOpen(); err != nil {
			return err
		}
		return s.resize(size.Normalize())
	})
}

func (s *Session) resize(size protocol.Size) error {
	s.activity.noteUse(s.cfg.Now())
	if size == s.size {
		return nil
	}
	s.display.restoreDropped()
	if err := s.setSize(size); err != nil {
		return err
	}
	s.size = size
	s.display.noteResize(s.ring.MarkSize(size)) // output before this mark was printed at the old size
	s.feed()
	if r := s.display.restoring; r != nil {
		r.resized = true
	}
	s.idle.touch()
	for a := range s.viewers.attached {
		a.requestSnapshot()
	}
	s.chooseResponder() // a viewer with a view of its own cannot answer queries
	s.publishEvent(protocol.EventResized)
	return nil
}

// isLost reports whether the machine has lost the session.
func (s *Session) isLost() bool { return s.recording.lost != nil }

// discard ends the session as leave does, and erases its recording. Errors: those of leave.
func (s *Session) discard() error {
	err := s.leave()
	if err == nil {
		s.recording.erase()
	}
	return err
}

// leaveWithMachine ends the session as leave does. Its recording says that the machine has ended it.
func (s *Session) leaveWithMachine() error {
	if s.recording.isStored() {
		s.ringHolders.Add(1)
		s.recording.endWithMachine(source{s})
	}
	return s.leave()
}

// leave is called in loop and makes loop end, if the session has exited. Errors:
// session_running.
func (s *Session) leave() error {
	if s.saved.State != protocol.StateExited && s.saved.State != protocol.StateLost {
		return protocol.Errorf(protocol.CodeSessionRunning, "session %s has not ended; end it first", s.id)
	}
	s.saved.setState(protocol.StateForgotten)
	if info := s.info(); !s.isAside { // otherwise publishForgotten has published it before
		s.hub.Publish(protocol.EventForgotten, &info, nil)
	}
	return nil
}
