package session

import (
	"maps"
	"slices"
	"sync"
	"time"

	"holdfast/protocol"
)

// registry keeps the books of a table: which session has which id, which ids are being opened,
// which sessions have exited, which earlier instances are set aside, and whether one more session
// may start. It does not start, end or wait for a session; the table does so as the registry
// answers. Any goroutine may call its methods.
type registry[S registered] struct {
	bounds bounds

	mu       sync.Mutex
	sessions map[protocol.SessionID]S
	opening  map[protocol.SessionID]*opening
	begun    map[*opening]struct{}    // those that are not finished yet
	exited   []S                      // in the order of their ends
	lost     []S                      // that the machine has lost; they have exited, but are not in exited
	aside    map[protocol.SessionID]S // earlier instances that may be restored; see before.go
	limits   limits
	closing  bool // no session may start any more
	frozen   bool // another program is taking over
}

// registered is one instance of a session for a registry. The zero value stands for none.
type registered interface {
	comparable
	known() *identity
	hasExited() bool // the session has an exit record
	isLost() bool    // the machine has lost the session; it has exited as well
	isGone() bool    // the session was forgotten
}

// bounds are the limits of a registry.
type bounds struct {
	sessions   int // that have not ended
	perAccount int // sessions of one account that have not ended
	exited     int // sessions that have exited
	files      int // that this process may open; 0 means no limit
}

// opening is an id while its child is being started.
type opening struct {
	token   string
	origin  string // token of the request that created the session
	account string
	early   time.Duration // if the session ends within this time after its start, its opener removes it
	done    chan struct{}

	defaults protocol.Limits

	replaces protocol.Instance // the old instance; "" if there is none
	above    []byte            // the saved screen of the old instance, which the new one shows above its output; nil if it shows none
	lost     *protocol.Lost    // of the old instance
}

func newRegistry[S registered](b bounds, l limits) *registry[S] {
	return &registry[S]{
		bounds: b, limits: l,
		sessions: make(map[protocol.SessionID]S),
		opening:  make(map[protocol.SessionID]*opening),
		begun:    make(map[*opening]struct{}),
		aside:    make(map[protocol.SessionID]S),
	}
}

// reserve reserves an id, unless the session exists and token names it; then reserve returns the
// session. While another request with the same token opens the id, reserve waits for that. allow
// decides whether old, the present session of the id, permits a new instance, and returns the
// account of the new one.
//
// enter or cancel, and then finish, must follow a reservation. The sessions in surplus have exited
// and must be forgotten to make room, also if reserve returns an error.
func (r *registry[S]) reserve(id protocol.SessionID, token string, now time.Time, allow func(old S) (account string, err error)) (old S, op *opening, surplus []S, err error) {
	var none S
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.closing {
			return none, nil, nil, closedError()
		}
		if r.frozen {
			return none, nil, nil, Upgrading()
		}
		op := r.opening[id]
		if op == nil {
			break
		}
		if token == "" || op.token != token {
			return none, nil, nil, protocol.Errorf(protocol.CodeSessionExists, "another request is starting session %s", id)
		}
		r.mu.Unlock()
		<-op.done
		r.mu.Lock()
	}
	old = r.sessions[id]
	if old != none && token != "" && old.known().token == token {
		return old, nil, nil, nil
	}
	account, err := allow(old)
	if err != nil {
		return none, nil, nil, err
	}
	if surplus, err = r.admit(old, account, now); err != nil {
		return none, nil, surplus, err
	}
	op = &opening{token: token, origin: token, account: account, done: make(chan struct{})}
	r.opening[id] = op
	r.begun[op] = struct{}{}
	return none, op, surplus, nil
}

// admit returns limit_exceeded unless another session of an account may start, which replaces old if
// that is not zero. The sessions in surplus must be forgotten. mu must be held.
func (r *registry[S]) admit(old S, account string, now time.Time) (surplus []S, err error) {
	if live := r.liveCount(); live >= r.bounds.sessions {
		return nil, protocol.Errorf(protocol.CodeLimitExceeded, "sessions that run: %d, which is the limit (max_sessions); end one", live)
	}
	if live := r.liveOf(account); live >= r.bounds.perAccount {
		return nil, protocol.Errorf(protocol.CodeLimitExceeded, "sessions of this originator that run: %d, which is its limit; end one", live)
	}
	if surplus, err = r.fileRoom(old); err != nil {
		return nil, err
	}
	return surplus, r.limits.spawn(account, now)
}

// liveCount returns how many sessions have not ended. mu must be held.
func (r *registry[S]) liveCount() int {
	return len(r.sessions) - len(r.exited) - len(r.lost) + len(r.opening)
}

// liveOf returns how many sessions of an account have not ended. mu must be held.
func (r *registry[S]) liveOf(account string) int {
	n := 0
	for _, s := range r.sessions {
		if s.known().account == account && !s.hasExited() {
			n++
		}
	}
	for _, op := range r.opening {
		if op.account == account {
			n++
		}
	}
	return n
}

// cancel drops the reservation of a session that could not start.
func (r *registry[S]) cancel(id protocol.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opening, id)
}

// finish lets the requests continue that wait for a reservation.
func (r *registry[S]) finish(op *opening) {
	r.mu.Lock()
	delete(r.begun, op)
	r.mu.Unlock()
	close(op.done)
}

// awaitBegun waits until the reservations that exist are finished, at most for the given time, and reports whether they
// are. If the file system of its program or directory gives no answer, the start of a child fails after some seconds, but
// if that of the user's home gives none, the start lasts as long.
func (r *registry[S]) awaitBegun(within time.Duration) bool {
	r.mu.Lock()
	begun := slices.Collect(maps.Keys(r.begun))
	r.mu.Unlock()
	late := time.After(within)
	for _, op := range begun {
		select {
		case <-op.done:
		case <-late:
			return false
		}
	}
	return true
}

// replaced tells about the earlier instance that a new one has replaced.
type replaced[S registered] struct {
	old     S    // the earlier instance, if there was one
	isAside bool // it is set aside
	giveUp  S    // the instance that must be forgotten now: old, or the one that was aside before
}

// enter gives a reserved id to its session. Errors: closed if no session may start any more.
func (r *registry[S]) enter(s S) (replaced[S], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := s.known().id
	delete(r.opening, id)
	if r.closing {
		return replaced[S]{}, closedError()
	}
	old := r.sessions[id]
	r.sessions[id] = s
	r.drop(old)
	return r.setAside(old), nil
}

// adopt enters a session of a predecessor. If two instances of one id are adopted, the later one
// gets the id. adopt returns both; older is zero if there is only one.
func (r *registry[S]) adopt(s S) (newer, older S) {
	var none S
	r.mu.Lock()
	defer r.mu.Unlock()
	id := s.known().id
	newer, older = s, r.sessions[id]
	if older != none && isLater(older, s) {
		newer, older = older, s
	}
	r.sessions[id] = newer
	r.drop(older)
	if newer == s && s.hasExited() {
		r.exited = append(r.exited, s)
	}
	return newer, older
}

// isLater reports whether a is a later instance of a session than b. Their times of creation decide last, because the
// clock may have been set back: an instance is started only after the one before it has ended.
func isLater[S registered](a, b S) bool {
	switch {
	case a.known().replaces == b.known().instance:
		return true
	case b.known().replaces == a.known().instance:
		return false
	case a.hasExited() != b.hasExited():
		return b.hasExited()
	}
	return a.known().created.After(b.known().created)
}

// adoptLost enters a lost session. It counts as exited, but it is never surplus: it is not in the
// list of exited sessions. Errors: session_exists if another session has the id meanwhile.
func (r *registry[S]) adoptLost(s S) error {
	var none S
	r.mu.Lock()
	defer r.mu.Unlock()
	id := s.known().id
	if r.sessions[id] != none || r.opening[id] != nil {
		return protocol.Errorf(protocol.CodeSessionExists, "another session has the id %s", id)
	}
	r.sessions[id] = s
	r.lost = append(r.lost, s)
	return nil
}

// putAside sets an instance aside, if there is room.
func (r *registry[S]) putAside(old S) replaced[S] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.setAside(old)
}

// setAside sets old aside. If there is no room, old itself must be forgotten. mu must be held.
func (r *registry[S]) setAside(old S) replaced[S] {
	var none S
	if old == none || old.isGone() {
		return replaced[S]{old: old}
	}
	id := old.known().id
	before := r.aside[id]
	if before == none && len(r.aside) >= maxAside {
		return replaced[S]{old: old, giveUp: old}
	}
	r.aside[id] = old
	return replaced[S]{old: old, isAside: true, giveUp: before}
}

// endAside drops old, and reports whether it was still set aside.
func (r *registry[S]) endAside(old S) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := old.known().id
	if r.aside[id] != old {
		return false
	}
	delete(r.aside, id)
	return true
}

// hasAside reports whether an earlier instance of an id is set aside.
func (r *registry[S]) hasAside(id protocol.SessionID) bool {
	var none S
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.aside[id] != none
}

// noteExit counts a session as exited. isPresent is false if another instance has replaced it
// meanwhile. The sessions in surplus must be forgotten.
func (r *registry[S]) noteExit(s S) (surplus []S, isPresent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[s.known().id] != s {
		return nil, false
	}
	r.exited = append(r.exited, s)
	return slices.Clone(r.exited[:max(0, len(r.exited)-r.bounds.exited)]), true
}

// remove drops a forgotten session. If restore is true, the earlier instance that was set aside gets
// the id again. old is that instance, and isRestored reports whether it has the id.
func (r *registry[S]) remove(s S, restore bool) (old S, isRestored bool) {
	var none S
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(s)
	id := s.known().id
	if r.sessions[id] != s {
		return none, false
	}
	delete(r.sessions, id)
	old = r.aside[id]
	delete(r.aside, id)
	if !restore || old == none || r.opening[id] != nil {
		return old, false
	}
	r.sessions[id] = old
	if old.isLost() {
		r.lost = append(r.lost, old)
	} else {
		r.exited = append(r.exited, old)
	}
	return old, true
}

// drop removes a session from the lists of exited and lost ones. mu must be held.
func (r *registry[S]) drop(s S) {
	r.exited = slices.DeleteFunc(r.exited, func(e S) bool { return e == s })
	r.lost = slices.DeleteFunc(r.lost, func(e S) bool { return e == s })
}

// sortExited sorts the exited sessions by the order of their ends, and returns them.
func (r *registry[S]) sortExited(compare func(a, b S) int) []S {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.exited, compare)
	return slices.Clone(r.exited)
}

// get returns the session of an id, or zero.
func (r *registry[S]) get(id protocol.SessionID) S {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[id]
}

// all returns the sessions, and how many are being opened.
func (r *registry[S]) all() (all []S, openingCount int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all = make([]S, 0, len(r.sessions))
	for _, s := range r.sessions {
		all = append(all, s)
	}
	return all, len(r.opening)
}

// everyLife returns all sessions, including earlier instances that were set aside.
func (r *registry[S]) everyLife() []S {
	all, _ := r.all()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.aside {
		all = append(all, s)
	}
	return all
}

// forSuccessor returns the sessions that a successor takes over: all but the lost ones, of which it
// reads the recordings itself.
func (r *registry[S]) forSuccessor() []S {
	return slices.DeleteFunc(r.everyLife(), func(s S) bool { return s.isLost() })
}

// live returns how many sessions have not ended.
func (r *registry[S]) live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.liveCount()
}

// close permits no new sessions, and reports whether this is the first call that did so.
func (r *registry[S]) close() (isFirst bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isFirst = !r.closing
	r.closing = true
	return isFirst
}

// closeIfIdle closes the registry, if no session runs or is being opened. If records is true, an
// exited session counts as well. A lost one does not, because it is stored on disk.
func (r *registry[S]) closeIfIdle(records bool) (closed, isFirst bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := len(r.sessions) - len(r.lost) + len(r.opening)
	if !records {
		left -= len(r.exited)
	}
	if left > 0 {
		return false, false
	}
	isFirst = !r.closing
	r.closing = true
	return true, isFirst
}

// freeze prevents new sessions while another program takes over. Errors: closed, because another program would not know that
// all sessions were to end.
func (r *registry[S]) freeze() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return closedError()
	}
	r.frozen = true
	return nil
}

// thaw permits new sessions again.
func (r *registry[S]) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = false
}

func closedError() error {
	return protocol.Errorf(protocol.CodeClosed, "the supervisor is shutting down")
}
