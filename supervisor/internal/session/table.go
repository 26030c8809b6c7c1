package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/session/event"
)

// Config configures all sessions of a table. A zero field means its default.
type Config struct {
	RingBytes       int           // bytes of output kept for replay; default 1 MiB
	ScrollbackLines int           // lines of history of a screen; default 10,000
	InputBytes      int           // bytes of input queued for a child that does not read; default 8 MiB
	ExitKeep        time.Duration // how long an exited session is kept; default 10 min
	ExitRecords     int           // how many exited sessions are kept; default 256
	Files           int           // how many files this process may open; 0 means no limit
	MaxSessions     int           // sessions that have not ended; default 4,096, the kernel's number of PTYs
	Grace           time.Duration // time between the soft signal and SIGKILL; default 250 ms

	// Limits of one originator.
	OriginatorSessions int // sessions that have not ended; default half of MaxSessions, but at least 1,024
	SpawnBurst         int // sessions started at once; default 1,024
	SpawnRate          int // sessions started per second beyond the burst; default 128

	Env        []string                                // environment that children inherit, as K=V; default empty
	Cages      Cages                                   // makes each session's control group; if nil, sessions have none
	Vault      Vault                                   // keeps the files that must outlive this process; may be nil
	Published  func(seq uint64)                        // called with each event's number, so that a successor continues the numbers; may be nil
	Program    string                                  // version of this program; another version tries again to restore a screen that this one gave up
	ReportDir  string                                  // directory for reports about panics of the terminal core; "" means none
	Recorder   *recorder.Recorder                      // stores sessions on disk; nil means that none is stored
	Supervisor protocol.Instance                       // identity of this supervisor, and of the successors that take its sessions over; "" means that there are none
	IsRunning  func(supervisor protocol.Instance) bool // whether another supervisor runs, whose recordings belong to it; nil if none can
	Durable    protocol.Durable                        // how much is stored of a session if its spec does not tell it; default screen
	SecretEnv  []string                                // names of variables with secret values, besides those that a session names
	Mask       []*regexp.Regexp                        // patterns of text that is masked
	Log        zerolog.Logger

	// Shared by all sessions of a table.
	frames      *frameBudget
	courtesy    *courtesy
	suspects    *suspects
	remainders  *remainders
	counts      *counts
	trimmer     *trimmer
	packFrom    time.Time     // from then on sessions are packed; see packDelay
	costlyTurns chan struct{} // turns of sessions with costly output; see newCostlyTurns

	// For tests; the defaults are the real ones.
	suspectAfter time.Duration
	Start        func(pty.Spec) (PTY, error)
	Now          func() time.Time
}

func (c Config) withDefaults() Config {
	c.RingBytes = cmp.Or(c.RingBytes, ring.DefaultBytes)
	c.ScrollbackLines = cmp.Or(c.ScrollbackLines, 10_000)
	c.InputBytes = cmp.Or(c.InputBytes, 8<<20)
	c.ExitKeep = cmp.Or(c.ExitKeep, 10*time.Minute)
	c.ExitRecords = cmp.Or(c.ExitRecords, 256)
	c.MaxSessions = cmp.Or(c.MaxSessions, 4096)
	c.Grace = cmp.Or(c.Grace, 250*time.Millisecond)
	c.Durable = cmp.Or(c.Durable, protocol.DurableScreen)
	c.OriginatorSessions = cmp.Or(c.OriginatorSessions, min(c.MaxSessions, max(1024, c.MaxSessions/2)))
	c.SpawnBurst = cmp.Or(c.SpawnBurst, 1024)
	c.SpawnRate = cmp.Or(c.SpawnRate, 128)
	c.suspects = &suspects{startAt: time.Now().Add(cmp.Or(c.suspectAfter, suspectAfter))}
	c.remainders = &remainders{}
	c.courtesy, c.counts, c.trimmer, c.frames, c.costlyTurns = &courtesy{}, &counts{}, &trimmer{}, newFrameBudget(), newCostlyTurns()
	if c.Start == nil {
		c.Start = func(s pty.Spec) (PTY, error) { return pty.Start(s) }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Table holds all sessions by id.
type Table struct {
	cfg      Config
	hub      *event.Hub
	registry *registry[*Session]
	closed   chan struct{} // closed once all sessions have ended after the registry was closed
}

// NewTable returns a table without sessions.
func NewTable(cfg Config) *Table {
	cfg = cfg.withDefaults()
	hub := event.NewHub(cfg.Now, cfg.Published)
	return &Table{
		cfg: cfg, hub: hub, closed: make(chan struct{}),
		registry: newRegistry[*Session](
			bounds{sessions: cfg.MaxSessions, perAccount: cfg.OriginatorSessions, exited: cfg.ExitRecords, files: cfg.Files},
			limits{burst: cfg.SpawnBurst, perSecond: cfg.SpawnRate}),
	}
}

// Events returns the hub on which the table's sessions publish their events.
func (t *Table) Events() *event.Hub { return t.hub }

// Create starts a session. An empty id means one that follows from the token, or a random one if there is no token. A token
// makes the request repeatable: if the session exists and was created with the same token, Create returns it, also if the
// machine has lost it or if it was started again. The session and all its later instances count towards the limits of account.
// Limits that spec does not name are taken from defaults, as far as the system can set them.
//
// Errors: closed, upgrading, session_exists, limit_exceeded, invalid_argument, and spawn_failed
// with its cause.
func (t *Table) Create(account string, id protocol.SessionID, spec protocol.SpawnSpec, defaults protocol.Limits, token string) (*Session, error) {
	if id == "" {
		id = newID(account, token)
	}
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	var created *Session // by the same request
	old, op, err := t.reserve(id, token, func(old *Session) (string, error) {
		if old == nil {
			return account, nil
		}
		if token != "" && old.origin == token {
			created = old
		}
		e := protocol.Errorf(protocol.CodeSessionExists, "session %s exists; attach to it or choose another id", id)
		if old.hasExited() {
			e.Message = fmt.Sprintf("session %s exists and has exited; reopen it or forget it", id)
		}
		return "", e
	})
	if created != nil {
		return created, nil
	}
	if op == nil {
		return old, err
	}
	op.defaults = defaults
	return t.open(id, spec, op)
}

// idBytes is the number of bytes of an id that a client has not chosen.
const idBytes = 6

// newID returns an id for a session that a client has not named. With a token, a repetition of the request must find the
// session, so the id is a hash of the token. It depends on the account as well, because clients of other users may choose the same token.
func newID(account, token string) protocol.SessionID {
	if token == "" {
		return protocol.SessionID(protocol.NewToken(idBytes))
	}
	sum := sha256.Sum256([]byte(account + "\x00" + token))
	return protocol.SessionID(hex.EncodeToString(sum[:idBytes]))
}

// Reopen starts an exited session again under its id, as a new instance. If instance is not
// empty, it must be the exited one. The caller promises to call ForgetFailed if the new instance ends within early after its
// start. Errors: those of Create, session_not_found, instance_mismatch and session_running, and invalid_argument if the
// command of a lost session must be named, because a secret in it was not stored.
func (t *Table) Reopen(id protocol.SessionID, instance protocol.Instance, change protocol.RespawnSpec, token string, early time.Duration) (*Session, error) {
	var spec protocol.SpawnSpec
	var replaces protocol.Instance
	var origin string
	var present *Session // the exited instance; another request may forget it at any time
	old, op, err := t.reserve(id, token, func(old *Session) (string, error) {
		if old == nil {
			return "", notFound(id)
		}
		if err := old.checkInstance(instance); err != nil {
			return "", err
		}
		if !old.hasExited() {
			return "", protocol.Errorf(protocol.CodeSessionRunning, "session %s has not ended; end it first", id)
		}
		if old.recording.isLocked {
			return "", protocol.Errorf(protocol.CodeNotStored, "session %s is sealed, and its key is not available; see its screen", id)
		}
		if old.isLost() && len(change.Argv) == 0 && mask.MayHide(old.spec.Argv) { // a client sees only the first part of a long command
			return "", protocol.Errorf(protocol.CodeInvalidArgument, "the command of session %s contains a secret, which is not stored: name the command in argv", id)
		}
		spec, replaces, origin = old.spec, old.instance, old.origin
		spec.Labels, spec.Limits = old.Labels(), *old.cage.limits.Load()
		spec.Cols, spec.Rows = old.size.Cols, old.size.Rows // the size cannot change any more after the exit
		spec, present = change.Apply(spec), old
		return old.account, spec.Validate()
	})
	if op == nil {
		return old, err
	}
	op.early, op.replaces, op.origin = early, replaces, origin
	if change.KeepScreen {
		op.above, op.lost = screenOf(present)
	}
	return t.open(id, spec, op)
}

// screenOf returns the saved screen of an exited session, or nil if it cannot be saved.
func screenOf(old *Session) ([]byte, *protocol.Lost) {
	var f recorder.Frame
	err := old.askScreen(func(sc *screen.Screen) (err error) { f, err = old.display.frame(sc.Offset(), true); return err })
	if err == nil {
		f.Data, err = screen.MaskRecord(f.Data, old.masker) // the new instance may have other secrets
	}
	if err != nil {
		f.Data = nil
		old.log.Warn().Err(err).Msg("screen not saved; the new instance begins with an empty one")
	}
	return f.Data, old.recording.lost
}

// reserve reserves an id for the caller, which must call open then. If the session exists and
// token names it, reserve returns the session instead. allow decides whether old, the present
// session of the id or nil, permits a new instance, and returns the account of the new one.
func (t *Table) reserve(id protocol.SessionID, token string, allow func(old *Session) (string, error)) (*Session, *opening, error) {
	old, op, surplus, err := t.registry.reserve(id, token, t.cfg.Now(), allow)
	t.expireAll(surplus)
	return old, op, err
}

// open starts the child of a reserved id, and replaces the session that had the id.
func (t *Table) open(id protocol.SessionID, spec protocol.SpawnSpec, op *opening) (*Session, error) {
	defer t.registry.finish(op)
	s, err := t.start(id, spec, op)
	if err != nil {
		t.registry.cancel(id)
		t.cfg.counts.spawnsFailed.Add(1)
		return nil, err
	}
	r, err := t.registry.enter(s)
	if err != nil {
		s.abandon()
		return nil, err
	}
	t.cfg.counts.spawns.Add(1)
	if r.old != nil && r.giveUp != r.old { // the end of the old instance must be published before the start of the new one
		_ = r.old.try(r.old.publishForgotten) // it has exited, because reserve has checked that
	}
	t.forgetReplaced(r)
	s.run()
	return s, nil
}

// onExit keeps the exit record of a session for a while. The session's loop calls it once.
func (t *Table) onExit(s *Session) {
	surplus, isPresent := t.registry.noteExit(s)
	if !isPresent {
		return // another instance was reopened meanwhile
	}
	t.expireAll(surplus)
	t.expireLater(s, t.cfg.ExitKeep)
	t.watchOpener(s)
}

// expireAll forgets exited sessions. It does not wait for them, because the caller may be the loop
// of one of them, or hold up others. Expiring a session twice is harmless.
func (t *Table) expireAll(exited []*Session) {
	for _, e := range exited {
		go t.expire(e.id, e.instance)
	}
}

// expireLater forgets an exited session after some time.
func (t *Table) expireLater(s *Session, after time.Duration) {
	id, instance := s.id, s.instance // the timer must not keep s in memory, which may be forgotten long before
	time.AfterFunc(after, func() { t.expire(id, instance) })
}

func (t *Table) expire(id protocol.SessionID, instance protocol.Instance) {
	t.remove(id, instance, false)
}

// Get returns the session of an id. Errors: invalid_argument, session_not_found.
func (t *Table) Get(id protocol.SessionID) (*Session, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if s := t.registry.get(id); s != nil {
		return s, nil
	}
	return nil, notFound(id)
}

// GetInstance returns the session of an id. If instance is not empty, it must be the session's
// instance. Errors: those of Get, instance_mismatch.
func (t *Table) GetInstance(id protocol.SessionID, instance protocol.Instance) (*Session, error) {
	s, err := t.Get(id)
	if err != nil {
		return nil, err
	}
	if err := s.checkInstance(instance); err != nil {
		return nil, err
	}
	return s, nil
}

// List returns the info of all sessions, the oldest first. If originator is not empty, it
// returns only the sessions of that originator.
func (t *Table) List(originator string) []protocol.SessionInfo {
	list := []protocol.SessionInfo{}
	all, _ := t.registry.all()
	for _, s := range all {
		if originator != "" && s.spec.Originator != originator {
			continue
		}
		if i, err := s.Info(); err == nil { // otherwise the session was forgotten meanwhile
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b protocol.SessionInfo) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// useTime bounds how long WithUse reads. One session takes some 20 µs.
const useTime = 200 * time.Millisecond

// WithUse adds to each info of a list the resources that the session uses now. If useTime is over,
// the remaining infos are left without them.
func (t *Table) WithUse(list []protocol.SessionInfo) []protocol.SessionInfo {
	end := time.Now().Add(useTime)
	for i := range list {
		if s, err := t.GetInstance(list[i].ID, list[i].Instance); err == nil {
			list[i].Cage = s.Use()
		}
		if time.Now().After(end) {
			break
		}
	}
	return list
}

// Live returns how many sessions have not ended.
func (t *Table) Live() int { return t.registry.live() }

// Forget removes an exited session. Errors: session_not_found, instance_mismatch, session_running, busy; internal if the
// session is removed, but its files are not erased yet.
func (t *Table) Forget(id protocol.SessionID, instance protocol.Instance) error {
	return t.forgetWithin(id, instance, renewTime)
}

// forgetWithin is Forget, which waits for the disk at most for the given time.
func (t *Table) forgetWithin(id protocol.SessionID, instance protocol.Instance, within time.Duration) error {
	if err := t.forget(id, instance, false); err != nil {
		return err
	}
	if left := t.awaitErased(within, id); len(left) > 0 {
		return protocol.Errorf(protocol.CodeInternal, "session %s is forgotten, but its files are still on disk: %v", id, errNotErased)
	}
	return nil
}

// Shutdown ends all sessions at the same time, and permits no new ones. If it is the first call, the exit records name
// asker. It returns when all have ended and were reaped, or with ctx's error while the ends continue. Several callers may wait.
func (t *Table) Shutdown(ctx context.Context, asker protocol.Asker) error {
	if t.registry.close() {
		go t.shutdown(asker, asker.By != StopRequest)
	}
	select {
	case <-t.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CloseIfIdle permits no new sessions if no session runs or is being opened, and reports
// whether that is so. If records is true, a kept exit record counts as a session, too. It
// checks and closes in one step, so that no session can be opened in between and then be ended.
func (t *Table) CloseIfIdle(records bool) bool {
	closed, isFirst := t.registry.closeIfIdle(records)
	if isFirst {
		go t.shutdown(protocol.Asker{}, false)
	}
	return closed
}

// shutdown ends all sessions. isSignal tells that no user has requested it.
func (t *Table) shutdown(asker protocol.Asker, isSignal bool) {
	defer close(t.closed)
	begun := t.cfg.Now()
	t.registry.awaitBegun(haltTime) // a session that is started later ends at once, because the registry is closed
	all := t.registry.everyLife()
	for _, s := range all {
		_ = s.Terminate(End{Asker: asker, Soft: syscall.SIGHUP, Reason: protocol.ReasonShutdown}) // fails only if the session has ended before
	}
	for _, s := range all {
		<-s.exited
		end := s.leave
		switch {
		case s.isLost():
		case isSignal && endedWithMachine(s.exit, begun):
			end = s.leaveWithMachine
		case isOver(s.exit):
			end = s.discard
		}
		_ = s.try(end)
		<-s.gone
	}
	t.cfg.remainders.finish(t.cfg.Grace)
	t.awaitErased(eraseTime, "")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
