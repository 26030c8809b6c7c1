package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/session/event"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// IsSession reports whether a vault entry is that of a session.
func IsSession(r vault.Entry) bool { return strings.HasPrefix(r.ID, entryPrefix) }

// Heritage has the sessions and the state that a table takes over from a predecessor.
type Heritage struct {
	Entries []vault.Entry // entries of sessions; Adopt uses up their descriptors
	Exits   *Exits        // exit statuses of children that are not children of this process
	Own     bool          // this process is the parent of the children, except of those that it had adopted itself
	Crashed bool          // the previous supervisor died because of its own defect
	State   State
	Adopted func() // called after each entry, by any goroutine
}

// Instances returns the instances of the sessions of which the keeper holds entries.
func (h *Heritage) Instances() (all []protocol.Instance) {
	for _, r := range h.Entries {
		all = append(all, instanceOf(r))
	}
	return all
}

func instanceOf(r vault.Entry) protocol.Instance {
	return protocol.Instance(strings.TrimPrefix(r.ID, entryPrefix))
}

// State is the state of a table besides its sessions.
type State struct {
	Seq    uint64        `json:"seq"`              // number of the last event
	Events []event.Event `json:"events,omitempty"` // the last events
	Counts Counts        `json:"counts"`           // the counters that only grow

	Forgotten []past.Life `json:"forgotten,omitempty"` // sessions with files that are still to be erased
}

// State returns the table's state. A successor of a supervisor that has died receives an older
// one, so that it misses some counts.
func (t *Table) State() State {
	seq, events := t.hub.Saved()
	return State{Seq: seq, Events: events, Counts: t.Counts(), Forgotten: t.awaitErased(0, "")}
}

// Adopt takes over the sessions of a supervisor that has ended, or of the program that this
// process ran before. It returns the number of sessions adopted. If an entry cannot be read,
// the session is not lost: its terminal stays open, and its entry stays in the vault.
func (t *Table) Adopt(h Heritage) int {
	t.hub.Restore(h.State.Seq, h.State.Events)
	t.cfg.counts.restore(h.State.Counts)
	if len(h.Entries) > 0 {
		t.cfg.packFrom = time.Now().Add(packDelay)
	}
	t.eraseFor(h.State.Forgotten)
	var n, next atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) { // in parallel, because clients wait for it
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(h.Entries)); i = next.Add(1) - 1 {
				r := h.Entries[i]
				s, err := t.adopt(r, h)
				if h.Adopted != nil {
					h.Adopted()
				}
				if err != nil {
					t.cfg.Log.Error().Err(err).Str("record", r.ID).Msg("session not adopted; the keeper still holds it, but no program serves it")
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
	h.Exits.forgetUnclaimed()
	if t.cfg.Cages != nil {
		t.cfg.Cages.Sweep()
	}
	t.keepExited()
	return int(n.Load())
}

// adopt returns the session of a vault entry, or nil if its child was never started.
func (t *Table) adopt(r vault.Entry, h Heritage) (*Session, error) {
	in, err := openEntry(r, fileRing, fileState, fileKeyframe)
	if err != nil {
		return nil, err
	}
	s, err := t.loadSession(in, r, h)
	if errors.Is(err, pty.ErrNoChild) {
		s.entry.delete()
		return nil, nil
	}
	return s, err
}

// loadSession makes a session from the files of its vault entry.
func (t *Table) loadSession(in *fileSet, r vault.Entry, h Heritage) (*Session, error) {
	s := &Session{cfg: &t.cfg, hub: t.hub, onExit: t.onExit, identity: identity{instance: instanceOf(r)}, log: t.cfg.Log}
	s.entry.cfg, s.entry.id, s.entry.log = &t.cfg, r.ID, &s.log
	damage, err := s.adoptSlates(in)
	if err != nil {
		return s, err
	}
	s.connect()
	v, isNew, err := s.adoptState(in, &damage)
	if err != nil {
		return s, err
	}
	if t.cfg.Cages != nil && v.Cage != "" {
		s.cage.adopt(t.cfg.Cages.Adopt(v.Cage))
		if s.exit != nil {
			s.cage.Remove()
		}
	}
	s.log = s.logger(t.cfg.Log)
	rescued, err := s.adoptRing(in, &damage)
	if err != nil {
		return s, err
	}
	if err := s.adoptJournal(in, &damage); err != nil {
		return s, err
	}
	s.useFiles()
	if err := s.adoptPTY(v.PTY, in, r, h); err != nil {
		return s, err
	}
	_, end, _ := s.ring.Bounds()
	if isNew {
		err = s.noteScanned(end)
	} else if damage != nil {
		s.write() // with the doubted input
	}
	s.size = s.ring.SizeAt(end)
	s.ringHolders.Store(1)
	s.adopted = true
	s.entry.isIn.Store(t.cfg.Vault != nil && !(h.Own && v.Owed)) // the entry came from the vault unless Own is set
	if v.Owed {
		s.entry.owe()
	}
	if damage != nil {
		s.log.Error().AnErr("state", err).Err(damage).Msg("memory of the session damaged; the session continues with what is left of its output, screen, input and description")
		s.entry.put(&s.sessionFiles, s.pty.PID()) // the vault still has the damaged file
	}
	s.log.Info().Int(logging.PID, s.pty.PID()).Uint64("printed", end).Int("rescued", rescued).Msg("session adopted")
	if s.saved.ScannedTo, err = s.display.openRestore(h, s.saved.ScannedTo); err != nil {
		return s, err
	}
	s.publish()
	return s, nil
}

// adoptState loads the saved state. If it is damaged, adoptState adds the error to damage and loads another state in its
// place; isNew reports that.
func (s *Session) adoptState(in *fileSet, damage *error) (v *savedState, isNew bool, err error) {
	v, err = readSaved(s.stateSlate)
	if err == nil {
		err = s.load(v)
	}
	if isNew = in.mayReplace(err); isNew {
		*damage = errors.Join(*damage, err)
		v = replaceState(s.instance, in.known, s.cfg.ScrollbackLines, s.cfg.Now())
		err = s.load(v)
	}
	return v, isNew, err
}

// adoptRing adopts the ring, or replaces a damaged one as adoptState does.
func (s *Session) adoptRing(in *fileSet, damage *error) (rescued int, err error) {
	if s.ring, rescued, err = ring.Adopt(in.ring); in.mayReplace(err) {
		*damage = errors.Join(*damage, err)
		err = s.replaceRing(in)
	}
	return rescued, err
}

// adoptJournal adopts the journal of input, or replaces a damaged one as adoptState does.
func (s *Session) adoptJournal(in *fileSet, damage *error) (err error) {
	if s.journal, err = journal.Adopt(s.ring.Room(), in.journal, s.journalConfig()); in.mayReplace(err) {
		*damage = errors.Join(*damage, err)
		err = s.replaceJournal(in)
	}
	if err != nil && s.exit != nil { // the exited session needs no input, so a missing journal does not matter
		s.journal, err = unusedJournal(s.journalConfig())
	}
	return err
}

func readSaved(from *slate.Slate) (*savedState, error) {
	data, err := from.Read()
	if err != nil {
		return nil, err
	}
	return parseSaved(data)
}

// parseSaved parses the content of a state slate. It must give a field that an older program did not
// save the value that means so, unless that is the zero value.
func parseSaved(data []byte) (*savedState, error) {
	v := &savedState{}
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return v, v.validate()
}

// adoptPTY takes over the terminal and the child, unless the session has exited.
func (s *Session) adoptPTY(st pty.State, in *fileSet, r vault.Entry, h Heritage) error {
	if st.PID == 0 {
		st.PID = r.PID // the vault has the pid, but the predecessor had not saved it in the state
	}
	word, err := s.stateSlate.Word(wordExit)
	if err != nil {
		return err
	}
	if status, ok := exitStatus(word); ok && st.Ended == nil {
		st.Ended = &status
	}
	isOpen := s.exit != nil && in.master != nil
	if isOpen { // the predecessor was about to close it
		_ = in.master.Close()
		in.master = nil
	}
	if s.exit != nil && st.Ended == nil {
		st.Ended = &pty.Status{Code: s.exit.ExitCode, Signal: s.exit.Signal}
	}
	exits := func(pid int) <-chan pty.Status { return h.Exits.watch(pid, s.childHasEnded) }
	if h.Own && !st.Foreign {
		exits = nil
	}
	p, err := pty.Adopt(st, in.master, exits, s.childHasEnded)
	if err != nil {
		return err
	}
	s.pty, s.terminal = p, p
	s.openTerminal()
	if s.exit != nil {
		s.ring.Finish() // the predecessor may have died before it did so
		s.endInput()
	}
	if isOpen {
		s.entry.put(&s.sessionFiles, p.PID()) // the vault closes the terminal, too
	}
	return nil
}

// childHasEnded saves the exit status. It is called before the child is reaped, because no
// process can read the status afterwards.
func (s *Session) childHasEnded(status pty.Status) {
	if err := s.stateSlate.SetWord(wordExit, exitWord(status)); err != nil {
		s.log.Error().Err(err).Msg("exit status not saved; a successor may not know it")
	}
}

// exitWord returns an exit status in one word, which can be saved atomically: 1<<63, the number
// of a signal in 31 bits or 0, and the code in 32 bits.
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

// enlist enters an adopted session in the table and starts it. If two instances of one id were
// adopted, the later one gets the id; the earlier one has exited and is set aside.
func (t *Table) enlist(s *Session) {
	newer, older := t.registry.adopt(s)
	s.resume()
	if older != nil {
		t.adoptAside(older, newer)
	}
}

// keepExited starts the timers that forget the exited sessions.
func (t *Table) keepExited() {
	for _, s := range t.registry.sortExited(func(a, b *Session) int { return a.exit.ExitedAt.Compare(b.exit.ExitedAt) }) {
		t.expireLater(s, keepLeft(t.cfg.ExitKeep, t.cfg.Now().Sub(s.exit.ExitedAt)))
	}
}

// keepLeft returns how long an adopted session is kept that has exited some time ago by the clock of the machine. If that is
// no time after which the session can still be there, the clock may have been set, and the session is kept for all of keep.
func keepLeft(keep, ago time.Duration) time.Duration {
	if ago < 0 || ago > keep {
		return keep
	}
	return keep - ago
}

// restoreTime is how long Restore waits for a busy session before it continues with the next
// one.
const restoreTime = 100 * time.Millisecond

// Restore restores the screens of adopted sessions, one after another, while requests are
// served. It sleeps as long as it works, at most 1 ms at a time. begins is called after
// restoreAfter, when clients have had time to attach again.
func (t *Table) Restore(begins func()) {
	time.Sleep(restoreAfter)
	begins()
	all := t.registry.everyLife()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) // so that a session that kills the supervisor is not always the first
	for len(all) > 0 {
		s := all[0]
		all = all[1:]
		for done := false; !done; {
			begun := time.Now()
			err := s.ask(restoreTime, func() { done = s.display.restoreStep() })
			if protocol.CodeOf(err) == protocol.CodeBusy {
				all = append(all, s) // try it again after the others
				break
			}
			if err != nil {
				break
			}
			time.Sleep(min(time.Since(begun), time.Millisecond))
		}
	}
}

// resume starts the goroutines of an adopted session. Viewers receive output at once; the
// screen is restored later.
func (s *Session) resume() {
	if s.exit != nil {
		s.reader.isOver, s.input.isOver, s.childEnded, s.display.isLast = true, true, true, true
		close(s.reader.chunks)
	} else {
		s.answers.resume()
		if err := s.setSize(s.size); err != nil { // the predecessor may have died between ring and terminal
			s.log.Warn().Err(err).Msg("terminal size not set")
		}
		s.running.Go(s.reader.run)
	}
	s.record()
	go s.loop()
}

// resume assigns queries that wait for a responder to the session itself, because claimTime is
// over.
func (w *responders) resume() { w.claim("") }

// resumeWork is the first work of loop for an adopted session. It continues an end that was
// requested, the alarm for idle output, and the delivery of input.
func (s *Session) resumeWork() {
	if e := s.orders.ending.Load(); e != nil && e.adopted && !e.over {
		go s.hangUp(e, s.noteChange)
	}
	if s.saved.quiet.Busy {
		s.saved.quiet.set(outputIdle)
	}
	s.input.resume(nil)
	s.chooseResponder()
	s.finishIfOver()
}
