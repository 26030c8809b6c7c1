package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// IsSession reports whether a record in the vault is a session's.
func IsSession(r vault.Record) bool { return strings.HasPrefix(r.ID, recordPrefix) }

// Heritage is what a table goes on with.
type Heritage struct {
	Records []vault.Record // of sessions; their descriptors are used up
	Exits   *Exits         // of children that are not this process's
	Own     bool           // the children are this process's, but for those that were another's before
	Crashed bool           // the supervisor before died by a mistake of its own
	State   State
	Adopted func() // called after each record, by any goroutine
}

// State is what a table knows beside its sessions.
type State struct {
	Seq    uint64  `json:"seq"`              // of the last event
	Events []Event `json:"events,omitempty"` // the last ones
	Counts Counts  `json:"counts"`           // those that count up
}

// State returns the table's. What was counted since a supervisor died is lost.
func (t *Table) State() State {
	seq, events := t.hub.saved()
	return State{Seq: seq, Events: events, Counts: t.Counts()}
}

// Adopt goes on with sessions of a supervisor that has ended, or of the program
// that this process ran before, and returns how many. One that cannot be read
// stays where it is: its terminal stays open, and its record in the vault.
func (t *Table) Adopt(h Heritage) int {
	t.hub.restore(h.State.Seq, h.State.Events)
	t.cfg.counts.restore(h.State.Counts)
	var n, next atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) { // their clients wait
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(h.Records)); i = next.Add(1) - 1 {
				r := h.Records[i]
				s, err := t.adopt(r, h)
				if h.Adopted != nil {
					h.Adopted()
				}
				if err != nil {
					t.cfg.Log.Error().Err(err).Str("record", r.ID).Msg("session not adopted: it is held, and nobody serves it")
					continue
				}
				if s != nil {
					t.enlist(s)
					n.Add(1)
				}
			}
		})
	}
	all.Wait()
	h.Exits.asked()
	if t.cfg.Cages != nil {
		t.cfg.Cages.Sweep()
	}
	t.keepExited()
	return int(n.Load())
}

// adopt returns nil for a session that never began.
func (t *Table) adopt(r vault.Record, h Heritage) (*Session, error) {
	in, err := files(r, fileRing, fileState, fileKeyframe)
	if err != nil {
		return nil, err
	}
	s, err := t.restored(in, r, h)
	if errors.Is(err, pty.ErrNoChild) {
		s.letGo()
		return nil, nil
	}
	return s, err
}

// restored makes a session of its files.
func (t *Table) restored(in *inherited, r vault.Record, h Heritage) (*Session, error) {
	s := &Session{cfg: &t.cfg, hub: t.hub, onExit: t.onExit, instance: protocol.Instance(strings.TrimPrefix(r.ID, recordPrefix)), log: t.cfg.Log}
	var err error
	if s.stateSlate, err = slate.Adopt(in.state); err != nil {
		return s, err
	}
	if s.keyframe, err = slate.Adopt(in.keyframe); err != nil {
		return s, err
	}
	v, err := readSaved(s.stateSlate)
	if err != nil {
		return s, err
	}
	s.makeChannels()
	if err := s.take(v); err != nil {
		return s, err
	}
	if t.cfg.Cages != nil && v.Cage != "" {
		s.cage = t.cfg.Cages.Adopt(v.Cage)
		s.stopped.Store(s.cage.Frozen())
		s.toldFrozen = s.stopped.Load()
		if s.exit != nil {
			s.cage.Remove()
		}
	}
	s.log = t.cfg.Log.With().Str(logging.Session, string(s.id)).Str(logging.Instance, string(s.instance)).Logger()
	var rescued int
	if s.ring, rescued, err = ring.Adopt(in.ring); err != nil {
		return s, err
	}
	s.input.max = t.cfg.InputBytes
	s.input.journal, err = journal.Adopt(s.ring.Room(), in.journal, s.journalConfig())
	if err != nil && s.exit != nil { // nobody types there
		s.input.journal, err = journal.Adopt(make([]byte, journal.RoomBytes), journal.Files{Pipe: -1, Queue: -1}, s.journalConfig())
	}
	if err != nil {
		return s, err
	}
	if err := s.adoptPTY(v.PTY, in, r, h); err != nil {
		return s, err
	}
	_, end, _ := s.ring.Bounds()
	s.size = s.ring.SizeAt(end)
	s.holders.Store(1)
	s.adopted = true
	s.kept.Store(t.cfg.Vault != nil)
	s.log.Info().Int(logging.PID, s.pty.PID()).Uint64("printed", end).Int("rescued", rescued).Msg("session adopted")
	if err := s.openRestore(h); err != nil {
		return s, err
	}
	s.publish()
	return s, nil
}

func readSaved(from *slate.Slate) (*saved, error) {
	data, err := from.Read()
	if err != nil {
		return nil, err
	}
	return parseSaved(data)
}

func parseSaved(data []byte) (*saved, error) {
	v := new(saved)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return v, v.validate()
}

// adoptPTY takes the terminal over, unless the session has ended.
func (s *Session) adoptPTY(st pty.State, in *inherited, r vault.Record, h Heritage) error {
	if st.PID == 0 {
		st.PID = r.PID // named, and not yet written down
	}
	word, err := s.stateSlate.Word(wordExit)
	if err != nil {
		return err
	}
	if status, ok := exitStatus(word); ok && st.Ended == nil {
		st.Ended = &status
	}
	if s.exit != nil && in.master != nil { // it was to be closed
		_ = in.master.Close()
		in.master = nil
	}
	if s.exit != nil && st.Ended == nil {
		st.Ended = &pty.Status{Code: s.exit.ExitCode, Signal: s.exit.Signal}
	}
	exits := func(pid int) <-chan pty.Status { return h.Exits.of(pid, s.childHasEnded) }
	if h.Own && !st.Foreign {
		exits = nil
	}
	p, err := pty.Adopt(st, in.master, exits, s.childHasEnded)
	if err != nil {
		return err
	}
	s.pty = p
	return nil
}

// childHasEnded is called before the child is reaped, which is the last time that
// anybody could ask how it ended.
func (s *Session) childHasEnded(status pty.Status) {
	if err := s.stateSlate.SetWord(wordExit, exitWord(status)); err != nil {
		s.log.Error().Err(err).Msg("exit code not written down")
	}
}

// An exit word is 1<<63, the number of a signal (31 bits) or 0, and the code (32).
func exitWord(status pty.Status) uint64 {
	w := uint64(1)<<63 | uint64(uint32(int32(status.Code)))
	if status.Signal != "" {
		w |= uint64(status.Code-128) << 32
	}
	return w
}

func exitStatus(w uint64) (status pty.Status, ok bool) {
	if w>>63 == 0 {
		return status, false
	}
	if sig := w >> 32 & (1<<31 - 1); sig != 0 {
		return pty.StatusOf(uint32(sig)), true
	}
	return pty.Status{Code: int(int32(uint32(w)))}, true
}

// enlist has the table know a session, and begins to serve it. Of two lives of an id
// the earlier one had ended, and was set aside.
func (t *Table) enlist(s *Session) {
	t.mu.Lock()
	stays, goes := s, t.sessions[s.id]
	if goes != nil && goes.created.After(s.created) {
		stays, goes = goes, s
	}
	t.sessions[s.id] = stays
	t.exited = slices.DeleteFunc(t.exited, func(e *Session) bool { return e == goes })
	if stays == s && s.exit != nil {
		t.exited = append(t.exited, s)
	}
	t.mu.Unlock()
	s.resume()
	if goes != nil {
		t.adoptAside(goes, stays)
	}
}

// keepExited has those that have ended be forgotten in time.
func (t *Table) keepExited() {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortFunc(t.exited, func(a, b *Session) int { return a.exit.ExitedAt.Compare(b.exit.ExitedAt) })
	for _, s := range t.exited {
		id, instance := s.id, s.instance
		time.AfterFunc(t.cfg.ExitKeep-t.cfg.Now().Sub(s.exit.ExitedAt), func() { t.expire(id, instance) })
	}
}

// restoreTime is how long a session is waited for before the next one has its turn.
const restoreTime = 100 * time.Millisecond

// Restore makes the screens of adopted sessions, one after another, with as many
// rests as work. It is to run beside what serves them. begins is called when those
// who come again have had the first moment.
func (t *Table) Restore(begins func()) {
	time.Sleep(restoreAfter)
	begins()
	all := t.everyLife()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) // no session is always the first
	for len(all) > 0 {
		s := all[0]
		all = all[1:]
		for done := false; !done; {
			begun := time.Now()
			err := s.ask(restoreTime, func() { done = s.restoreStep() })
			if protocol.CodeOf(err) == protocol.CodeBusy {
				all = append(all, s) // after the others
				break
			}
			if err != nil {
				break
			}
			time.Sleep(min(time.Since(begun), time.Millisecond))
		}
	}
}

// resume begins to serve an adopted session: the bytes first, the screen later.
func (s *Session) resume() {
	if s.exit != nil {
		s.outputOver, s.childEnded = true, true
		close(s.chunks)
		close(s.exited)
	} else {
		s.answers.resume()
		if err := s.setSize(s.size); err != nil { // its last change may be half done
			s.log.Warn().Err(err).Msg("size not set")
		}
		s.running.Go(s.read)
	}
	s.running.Go(s.await)
	go s.loop()
}

// resume has what nobody claimed be ours: whoever was to come has had its time.
func (w *answers) resume() { w.claim("") }

// takeUp is what loop does first for an adopted session: it goes on with what was
// under way.
func (s *Session) takeUp() {
	if e := s.orders.ending.Load(); e != nil && e.adopted && !e.over {
		go s.hangUp(e, s.note)
	}
	if s.quiet.busy {
		s.quiet.set(outputIdle)
	}
	s.typeOn(nil)
	s.chooseAnswerer()
	s.finishIfOver()
}
