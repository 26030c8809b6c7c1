package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
)

// Config tunes all sessions. A zero field means its default.
type Config struct {
	RingBytes       int           // output kept for replay; default 1 MiB
	ScrollbackLines int           // history of a screen; default 10,000
	InputBytes      int           // input a session holds for a child that does not read; default 8 MiB
	ExitKeep        time.Duration // how long an exited session is remembered; default 10 min
	ExitRecords     int           // how many exited sessions are remembered; default 256
	Files           int           // that this process may have open; 0 is no limit
	MaxSessions     int           // that have not ended; default 4,096, the kernel's PTYs
	Grace           time.Duration // between the soft signal and SIGKILL; default 250 ms

	// Of one originator.
	OriginatorSessions int // that have not ended; default half of MaxSessions, or 1,024
	SpawnBurst         int // started at once; default 1,024
	SpawnRate          int // started a second, beyond that; default 128

	Env       []string         // what children inherit, K=V; default nothing
	Cages     Cages            // makes each session's control group; nil makes none
	Vault     Vault            // holds what must outlive this process; nil is nobody
	Published func(seq uint64) // told each event's number, so that a successor goes on after it; nil is nobody
	Program   string           // its version: another one tries again what this one gave up
	ReportDir string           // for what a mistake in the terminal core needs to be found; "" is none
	Log       zerolog.Logger

	frames   *frameBudget // of all sessions of a table
	courtesy *courtesy    // of all sessions of a table
	suspects *suspects    // the same
	counts   *counts      // the same

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
	c.OriginatorSessions = cmp.Or(c.OriginatorSessions, min(c.MaxSessions, max(1024, c.MaxSessions/2)))
	c.SpawnBurst = cmp.Or(c.SpawnBurst, 1024)
	c.SpawnRate = cmp.Or(c.SpawnRate, 128)
	c.suspects = &suspects{from: time.Now().Add(cmp.Or(c.suspectAfter, suspectAfter))}
	c.courtesy, c.counts, c.frames = &courtesy{}, &counts{}, newFrameBudget()
	if c.Start == nil {
		c.Start = func(s pty.Spec) (PTY, error) { return pty.Start(s) }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// A Table holds all sessions by id.
type Table struct {
	cfg Config
	hub *Hub

	mu       sync.Mutex
	sessions map[protocol.SessionID]*Session
	opening  map[protocol.SessionID]*opening
	exited   []*Session                      // in the order of their ends
	aside    map[protocol.SessionID]*Session // see before.go
	limits   limits
	closing  bool
	frozen   bool           // another program takes over
	opens    sync.WaitGroup // the entries of opening
	closed   chan struct{}  // closed once every session has ended after closing
}

// opening is an id whose child is being started.
type opening struct {
	token   string
	account string
	early   time.Duration // within which its opener removes it if it ends
	done    chan struct{}

	defaults protocol.Limits
}

// NewTable returns a table without sessions.
func NewTable(cfg Config) *Table {
	cfg = cfg.withDefaults()
	hub := NewHub(cfg.Now)
	hub.noted = cfg.Published
	return &Table{
		cfg: cfg, hub: hub,
		sessions: make(map[protocol.SessionID]*Session),
		opening:  make(map[protocol.SessionID]*opening),
		aside:    make(map[protocol.SessionID]*Session),
		limits:   limits{burst: cfg.SpawnBurst, perSecond: cfg.SpawnRate},
		closed:   make(chan struct{}),
	}
}

// Events returns the hub on which the table's sessions publish.
func (t *Table) Events() *Hub { return t.hub }

// Create starts a session; an empty id makes one. A token, where given, makes
// it repeatable: if the session exists and was made with the same token, it is
// returned.
//
// Errors: closed, session_exists, limit_exceeded, invalid_argument, and
// spawn_failed with its cause.
func (t *Table) Create(id protocol.SessionID, spec protocol.SpawnSpec, token string) (*Session, error) {
	return t.CreateFor(spec.Originator, id, spec, protocol.Limits{}, token)
}

// CreateFor is Create for a session that counts for another one than its
// originator, in all its lives. The limits that spec does not name are defaults', as
// far as they can be set.
func (t *Table) CreateFor(account string, id protocol.SessionID, spec protocol.SpawnSpec, defaults protocol.Limits, token string) (*Session, error) {
	if id == "" {
		id = protocol.SessionID(protocol.NewToken(6))
	}
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	old, op, err := t.reserve(id, token, func(old *Session) (string, error) {
		if old == nil {
			return account, nil
		}
		e := protocol.Errorf(protocol.CodeSessionExists, fmt.Sprintf("session %s exists", id))
		if isClosed(old.exited) {
			e.Message = fmt.Sprintf("session %s has exited; reopen it or forget it", id)
		}
		return "", e
	})
	if op == nil {
		return old, err
	}
	op.defaults = defaults
	return t.open(id, spec, op)
}

// Reopen starts an exited session again under its id, as a new instance; of the
// life named alone, unless instance is empty. Errors are those of Create,
// session_not_found, instance_mismatch and session_running.
func (t *Table) Reopen(id protocol.SessionID, instance protocol.Instance, change protocol.RespawnSpec, token string) (*Session, error) {
	return t.ReopenFor(id, instance, change, token, 0)
}

// ReopenFor is Reopen for an opener that removes the new life with ForgetFailed if it ends
// within early after its start.
func (t *Table) ReopenFor(id protocol.SessionID, instance protocol.Instance, change protocol.RespawnSpec, token string, early time.Duration) (*Session, error) {
	var spec protocol.SpawnSpec
	old, op, err := t.reserve(id, token, func(old *Session) (string, error) {
		if old == nil {
			return "", notFound(id)
		}
		if err := old.lives(instance); err != nil {
			return "", err
		}
		if !isClosed(old.exited) {
			return "", protocol.Errorf(protocol.CodeSessionRunning, fmt.Sprintf("session %s has not ended", id))
		}
		spec = old.spec
		spec.Labels = old.Labels()
		spec.Cols, spec.Rows = old.size.Cols, old.size.Rows // final with exited
		spec = change.Apply(spec)
		return old.account, spec.Validate()
	})
	if op == nil {
		return old, err
	}
	op.early = early
	return t.open(id, spec, op)
}

// reserve keeps an id for the caller, who must call open. It returns the
// session that is there in place of a reservation where token names it, and an
// error where the id cannot be had; allow says so of the session that has it,
// and else who starts the new one.
func (t *Table) reserve(id protocol.SessionID, token string, allow func(old *Session) (string, error)) (*Session, *opening, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.closing {
			return nil, nil, protocol.Errorf(protocol.CodeClosed, "the supervisor is shutting down")
		}
		if t.frozen {
			return nil, nil, Upgrading()
		}
		op := t.opening[id]
		if op == nil {
			break
		}
		if token == "" || op.token != token {
			return nil, nil, protocol.Errorf(protocol.CodeSessionExists, fmt.Sprintf("session %s is being started", id))
		}
		t.mu.Unlock()
		<-op.done
		t.mu.Lock()
	}
	old := t.sessions[id]
	if old != nil && token != "" && old.token == token {
		return old, nil, nil
	}
	account, err := allow(old)
	if err != nil {
		return nil, nil, err
	}
	if live := len(t.sessions) - len(t.exited) + len(t.opening); live >= t.cfg.MaxSessions {
		return nil, nil, protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("%d sessions are running, no more are allowed", live))
	}
	if live := t.liveOf(account); live >= t.cfg.OriginatorSessions {
		return nil, nil, protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("%d sessions of this originator are running, no more are allowed", live))
	}
	if err := t.makeFileRoom(); err != nil {
		return nil, nil, err
	}
	if err := t.limits.spawn(account, t.cfg.Now()); err != nil {
		return nil, nil, err
	}
	op := &opening{token: token, account: account, done: make(chan struct{})}
	t.opening[id] = op
	t.opens.Add(1)
	return nil, op, nil
}

// liveOf returns how many sessions that count for one have not ended. mu is
// held.
func (t *Table) liveOf(account string) int {
	n := 0
	for _, s := range t.sessions {
		if s.account == account && !isClosed(s.exited) {
			n++
		}
	}
	for _, op := range t.opening {
		if op.account == account {
			n++
		}
	}
	return n
}

// open starts the child of a reserved id and puts it in the place of what had
// the id.
func (t *Table) open(id protocol.SessionID, spec protocol.SpawnSpec, op *opening) (*Session, error) {
	defer t.opens.Done()
	defer close(op.done)
	s, err := start(id, spec, op, &t.cfg, t.hub, t.onExit)
	t.mu.Lock()
	delete(t.opening, id)
	if err != nil {
		t.mu.Unlock()
		t.cfg.counts.spawnsFailed.Add(1)
		return nil, err
	}
	if t.closing {
		t.mu.Unlock()
		s.abandon()
		return nil, protocol.Errorf(protocol.CodeClosed, "the supervisor is shutting down")
	}
	old := t.sessions[id]
	t.sessions[id] = s
	t.cfg.counts.spawns.Add(1)
	t.drop(old)
	giveUp := t.setAside(old)
	t.mu.Unlock()
	if old != nil && giveUp != old { // one life ends before the next begins, in the events too
		_ = old.try(old.putAside) // exited, as reserve made sure
	}
	if giveUp != nil {
		_ = giveUp.try(giveUp.leave)
	}
	s.run()
	return s, nil
}

// onExit is called by a session's loop, once.
func (t *Table) onExit(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[s.id] != s {
		return // reopened in the meantime
	}
	t.exited = append(t.exited, s)
	for _, e := range t.exited[:max(0, len(t.exited)-t.cfg.ExitRecords)] {
		go t.expire(e.id, e.instance) // not here: it needs e's loop, and may be asked twice
	}
	t.expireLater(s, t.cfg.ExitKeep)
	t.watchOpener(s)
}

// expireLater forgets an exited session after a while.
func (t *Table) expireLater(s *Session, after time.Duration) {
	id, instance := s.id, s.instance // not s, which may be forgotten long before
	time.AfterFunc(after, func() { t.expire(id, instance) })
}

func (t *Table) expire(id protocol.SessionID, instance protocol.Instance) {
	t.remove(id, instance, false)
}

// Get returns a session, or session_not_found.
func (t *Table) Get(id protocol.SessionID) (*Session, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[id]; s != nil {
		return s, nil
	}
	return nil, notFound(id)
}

// GetInstance is Get, for one life of the id alone unless instance is empty.
func (t *Table) GetInstance(id protocol.SessionID, instance protocol.Instance) (*Session, error) {
	s, err := t.Get(id)
	if err != nil {
		return nil, err
	}
	if err := s.lives(instance); err != nil {
		return nil, err
	}
	return s, nil
}

// lives returns instance_mismatch where a life was named and it is another one.
func (s *Session) lives(instance protocol.Instance) error {
	if instance == "" || s.instance == instance {
		return nil
	}
	return protocol.Errorf(protocol.CodeInstanceMismatch, fmt.Sprintf("session %s lives as %s, not as %s", s.id, s.instance, instance))
}

// List returns what is known of every session, oldest first, or of those of
// one originator.
func (t *Table) List(originator string) []protocol.SessionInfo {
	list := []protocol.SessionInfo{}
	for _, s := range t.all() {
		if originator != "" && s.spec.Originator != originator {
			continue
		}
		if i, err := s.Info(); err == nil { // else forgotten since
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b protocol.SessionInfo) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// useTime bounds how long WithUse reads; a session takes some 20 µs.
const useTime = 200 * time.Millisecond

// WithUse adds to a list what each session uses now. If that takes too long, the last
// ones are left without.
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

func (t *Table) all() []*Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*Session, 0, len(t.sessions))
	for _, s := range t.sessions {
		all = append(all, s)
	}
	return all
}

// everyLife is all, with those that were set aside.
func (t *Table) everyLife() []*Session {
	all := t.all()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.aside {
		all = append(all, s)
	}
	return all
}

// Live returns how many sessions have not ended.
func (t *Table) Live() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sessions) - len(t.exited) + len(t.opening)
}

// Forget removes an exited session. Errors: session_not_found, instance_mismatch,
// session_running, busy.
func (t *Table) Forget(id protocol.SessionID, instance protocol.Instance) error {
	return t.forget(id, instance, false)
}

// drop has a session count as exited no more. mu is held.
func (t *Table) drop(s *Session) {
	t.exited = slices.DeleteFunc(t.exited, func(e *Session) bool { return e == s })
}

// Shutdown ends every session, all at the same time, and opens no more. It
// returns, to each of several callers, when the last has ended and been
// reaped, or with ctx's error while the end goes on.
func (t *Table) Shutdown(ctx context.Context) error {
	return t.ShutdownFor(ctx, protocol.Asker{})
}

// ShutdownFor is Shutdown for one whom the exit records are to name, if it is the
// first who asked.
func (t *Table) ShutdownFor(ctx context.Context, asker protocol.Asker) error {
	t.mu.Lock()
	first := !t.closing
	t.closing = true
	t.mu.Unlock()
	if first {
		go t.shutdown(asker)
	}
	select {
	case <-t.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CloseIfIdle opens no more sessions if none runs and none is being opened, and reports
// whether that is so. With records set, a kept exit record also counts as a session. It
// looks and closes in one step, so that no session is opened in between and then ended.
func (t *Table) CloseIfIdle(records bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := len(t.sessions) + len(t.opening)
	if !records {
		left -= len(t.exited)
	}
	if left > 0 {
		return false
	}
	if !t.closing {
		t.closing = true
		go t.shutdown(protocol.Asker{})
	}
	return true
}

func (t *Table) shutdown(asker protocol.Asker) {
	defer close(t.closed)
	t.opens.Wait()
	all := t.everyLife()
	for _, s := range all {
		_ = s.Terminate(End{Asker: asker, Soft: syscall.SIGHUP, Reason: protocol.ReasonShutdown}) // it may have ended before
	}
	for _, s := range all {
		<-s.exited
		_ = s.try(s.leave)
		<-s.gone
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
