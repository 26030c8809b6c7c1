package session

import (
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vault"
)

const (
	// prepareTime is how long a session is waited for that is to be prepared; one that is
	// busy is not.
	prepareTime = 100 * time.Millisecond
	// haltTime is how long a session may take until it begins to come to rest. It answers
	// within milliseconds whatever its program prints.
	haltTime = 2 * time.Second
)

// prepareShare is how much of the ring may come behind a keyframe that is left to
// another program: some milliseconds of its time.
const prepareShare = 8

// Prepare makes what Freeze has to do little: keyframes are made while all goes on,
// with as many rests as work.
func (t *Table) Prepare() {
	for _, s := range t.everyLife() {
		var took time.Duration
		_ = s.ask(prepareTime, func() {
			s.feed()
			if s.restoring == nil && (!s.framedWhole || s.shownTo()-s.framed > uint64(s.ring.Keep()/prepareShare)) {
				begun := time.Now()
				s.frame(allLines)
				took = time.Since(begun)
			}
		})
		time.Sleep(took)
	}
}

// Frozen is a table at rest.
type Frozen struct {
	Records []vault.Record // of its sessions: what another program goes on with
	table   *Table
	thaws   []func()
	dones   []func()
}

// Freeze brings all sessions to rest, and lets none begin. What they are is
// written down. Thaw lets all go on. Errors: busy, after which all go on.
func (t *Table) Freeze() (*Frozen, error) {
	t.mu.Lock()
	t.frozen = true
	t.mu.Unlock()
	t.opens.Wait()
	f := &Frozen{table: t}
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	for _, s := range t.everyLife() {
		all.Go(func() {
			var r vault.Record
			done := func() {}
			var err error
			thaw, unanswered := s.halt(haltTime, func() { r, done, err = s.rest() })
			mu.Lock()
			defer mu.Unlock()
			if unanswered == nil {
				f.thaws, f.dones = append(f.thaws, thaw), append(f.dones, done)
				f.Records = append(f.Records, r)
			}
			if protocol.CodeOf(unanswered) == protocol.CodeBusy { // else it is gone
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

// Thaw takes Freeze back.
func (f *Frozen) Thaw() {
	for _, thaw := range f.thaws {
		thaw()
	}
	for _, done := range f.dones {
		done()
	}
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	f.table.frozen = false
}

// rest is called in loop, of a session that was brought to rest.
func (s *Session) rest() (vault.Record, func(), error) {
	if s.restoring == nil {
		s.feed()
		if s.shownTo()-s.framed > uint64(s.ring.Keep()/frameShare) {
			s.frame(noLines)
		}
	}
	r, done, err := s.record()
	if err != nil {
		return r, done, err
	}
	return r, done, s.writeState()
}

// Upgrading is what is answered while another program takes over.
func Upgrading() error {
	return &protocol.Error{Code: protocol.CodeUpgrading, Message: "another program takes over, ask it", Retryable: true}
}
