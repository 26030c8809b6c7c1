package session

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/slate"
)

// If a memory file of a session is damaged and its terminal is open, a successor replaces that file by a new one, because
// its child lives and must not be out of reach. A file that only another version can read stays, because that version may
// be started later.

// errDamaged is the error of a state that no program can read.
var errDamaged = errors.New("the saved state is damaged")

// mayReplace reports whether the file whose adoption has failed with err is replaced.
func (in *fileSet) mayReplace(err error) bool {
	isDamage := errors.Is(err, errDamaged) || errors.Is(err, slate.ErrDamaged) || errors.Is(err, ring.ErrDamaged) || errors.Is(err, journal.ErrDamaged)
	return isDamage && in.master != nil
}

// replaceState returns a state in the place of a damaged one. It lacks the command, the labels and the environment of
// the session.
func replaceState(instance protocol.Instance, from known, lines int, now time.Time) *savedState {
	v := newSavedState()
	v.Version, v.ID, v.Instance = savedVersion, cmp.Or(from.SessionID, protocol.SessionID(instance)), instance
	v.Turns, v.SizePolicy, v.LastIO = []responderTurn{{}}, protocol.SizeLatest, now
	if from.PTY != nil {
		v.PTY = *from.PTY
	}
	own := identity{spec: unknownSpec(lines), created: now}
	v.Spec, _ = own.save(nil, protocol.Limits{}) // it has no value that JSON cannot have
	return &v
}

// unknownSpec returns the spec of a session whose command is not known.
func unknownSpec(lines int) protocol.SpawnSpec {
	return protocol.SpawnSpec{Argv: []string{"?"}, ScrollbackLines: lines}
}

// noteScanned saves the state that replaces a damaged one. The queries and shell marks in the output up to end count as
// answered and published, because the damaged state may have told so.
func (s *Session) noteScanned(end uint64) error {
	s.saved.ScannedTo = end
	return errors.Join(s.stateSlate.SetWord(wordAnswered, end), s.writeState())
}

// replaceRing makes a ring in the place of a damaged one. Its first offset must be behind every offset of the lost output.
// Not more than the length of two rings follows a keyframe, because the reader waits for the screen.
func (s *Session) replaceRing(in *fileSet) (err error) {
	k := keyframe{Slate: s.keyframeSlate}
	at, _, _ := k.readOffset() // 0 if it is damaged, too
	answered, _ := s.stateSlate.Word(wordAnswered)
	at = max(at, answered, s.saved.ScannedTo, s.saved.ClearEnd) + 2*uint64(s.cfg.RingBytes)
	cols, rows := pty.SizeOf(in.master)
	s.ring, err = ring.NewAt(s.cfg.RingBytes, protocol.Size{Cols: cols, Rows: rows}.Normalize(), at)
	s.doubtInput()
	return err
}

// replaceJournal makes a journal in the place of a damaged one. Input that the terminal had not accepted is lost.
func (s *Session) replaceJournal(in *fileSet) (err error) {
	s.doubtInput()
	lost := fileSet{journal: in.journal}
	lost.close()
	clear(s.ring.Room())
	s.journal, err = journal.New(s.ring.Room(), s.journalConfig())
	return err
}

// doubtedInput has the writers that were attached when the journal was lost, which is in the ring's file. How much of their
// input was accepted is unknown. A client sends the input again that was not acknowledged, and it would be typed twice if it
// was accepted. Therefore such a client receives an error instead of the offset at which it should continue. It is a part of
// savedState, and loop owns it.
type doubtedInput struct {
	DoubtedWriters []string `json:"input_doubted,omitempty"`
}

// doubtInput doubts the input of the viewers that were attached to the predecessor.
func (s *Session) doubtInput() {
	for writer, l := range s.viewers.lost {
		if l.couldWrite && !slices.Contains(s.saved.DoubtedWriters, writer) {
			s.saved.DoubtedWriters = append(s.saved.DoubtedWriters, writer)
		}
	}
	slices.Sort(s.saved.DoubtedWriters)
	s.noteChange()
}

// check returns the error of a writer that continues its input, if that is doubted.
func (d *doubtedInput) check(id protocol.SessionID, writer string) error {
	if !slices.Contains(d.DoubtedWriters, writer) {
		return nil
	}
	return protocol.Errorf(protocol.CodeInternal, "the memory of session %s was damaged, and input that was under way may be lost; it is not sent again, because it may have been typed already; attach anew", id)
}

// beginAnew trusts the input of a writer, whose client does not continue, but begins anew.
func (d *doubtedInput) beginAnew(writer string) {
	d.DoubtedWriters = slices.DeleteFunc(d.DoubtedWriters, func(doubted string) bool { return doubted == writer })
}
