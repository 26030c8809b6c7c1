package session

import (
	"fmt"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vault"
)

const (
	// prepareTime is how long Prepare waits for a session. Prepare skips busy sessions.
	prepareTime = 100 * time.Millisecond
	// haltTime is how long a session may take until its halt begins. loop answers within
	// milliseconds, whatever its program prints.
	haltTime = 2 * time.Second
	// freezeCost is the cost that a halted session may spend on output that the screen has not
	// shown yet: all text that the ring may have, and of costly output as much as two pieces.
	// It must be small, because all clients wait. A successor reads the remainder from the
	// ring.
	freezeCost = 2 << 20
)

// prepareShare is the part of the ring, and of frameCost, that may follow a keyframe before an
// upgrade. The new program needs some milliseconds for it.
const prepareShare = 8

// Prepare renews keyframes while the sessions run, so that Freeze has little to do, and so that no line
// above a screen is lost. If forOther is set, any release can read the keyframes afterwards. It sleeps as long as it works.
func (t *Table) Prepare(forOther bool) {
	for _, s := range t.registry.forSuccessor() {
		var took time.Duration
		_ = s.ask(prepareTime, func() {
			s.ring.Unpack()
			if s.display.isDropped() {
				if forOther {
					begun := time.Now()
					s.display.unpackKeyframe()
					took = time.Since(begun)
				}
				return
			}
			s.feed()
			if s.display.restoring == nil && (s.display.needsSaving() || forOther && !s.display.keyframe.isPlain) {
				begun := time.Now()
				s.display.writeKeyframe(plainLines)
				took = time.Since(begun)
			}
		})
		time.Sleep(took)
	}
}

// Frozen is a table with halted sessions.
type Frozen struct {
	Entries []vault.Entry // entries of the sessions, for the next program
	table   *Table
	thaws   []func()
	dones   []func()
}

// AwaitErased waits a short time until the recordings of forgotten sessions are erased. Call it before Freeze, because the
// sessions must not wait for the disk. State returns the erasures that are not done.
func (t *Table) AwaitErased() { t.awaitErased(eraseTime, "") }

// Freeze halts all sessions, saves their state, and prevents new ones, so that another program
// can take over. If the other program does not, Thaw resumes the sessions. Errors: closed, busy,
// and those of saving; all sessions continue then.
func (t *Table) Freeze() (*Frozen, error) {
	if err := t.registry.freeze(); err != nil {
		return nil, err
	}
	if !t.registry.awaitBegun(haltTime) {
		t.registry.thaw()
		return nil, &protocol.Error{Code: protocol.CodeBusy, Message: "a session is being started, and the file system of its program or directory does not answer; try again", Retryable: true}
	}
	f := &Frozen{table: t}
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	for _, s := range t.registry.forSuccessor() {
		all.Go(func() {
			var r vault.Entry
			done := func() {}
			var err error
			thaw, unanswered := s.halt(haltTime, func() { r, done, err = s.saveForSuccessor() })
			mu.Lock()
			defer mu.Unlock()
			if unanswered == nil {
				f.thaws, f.dones = append(f.thaws, thaw), append(f.dones, done)
				f.Entries = append(f.Entries, r)
			}
			if protocol.CodeOf(unanswered) == protocol.CodeBusy { // otherwise the session is gone
				err = unanswered
			}
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	all.Wait()
	if failed != nil {
		f.Thaw()
		return nil, failed
	}
	return f, nil
}

// Thaw resumes the sessions, and permits new ones.
func (f *Frozen) Thaw() {
	for _, thaw := range f.thaws {
		thaw()
	}
	for _, done := range f.dones {
		done()
	}
	f.table.registry.thaw()
}

// saveForSuccessor brings the files of a halted session up to date, and returns its vault
// entry. It is called in loop.
func (s *Session) saveForSuccessor() (vault.Entry, func(), error) {
	if s.display.restoring == nil {
		_, end, _ := s.ring.Bounds()
		s.writeToScreen(end, freezeCost)
		if !s.display.ringSuffices() && s.display.sinceKeyframe() > uint64(s.ring.Keep()/frameShare) {
			s.display.writeKeyframe(noLines)
		}
	}
	s.publishHeld() // if no other program takes over, they were published a little early
	s.ring.Unpack() // it was packed again if the session fell idle after Prepare
	r, done, err := s.liveEntry(s.entry.id, s.pty.PID())
	if err != nil {
		return r, done, fmt.Errorf("session %s: %w", s.id, err)
	}
	return r, done, s.writeState()
}

// Upgrading returns the error for requests that arrive while another program takes over.
func Upgrading() error {
	return &protocol.Error{Code: protocol.CodeUpgrading, Message: "another program is taking over the sessions; retry with the next one", Retryable: true}
}
