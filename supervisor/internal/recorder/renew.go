package recorder

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"holdfast/supervisor/internal/past"
)

// The errors of Renew.
var (
	errNotRenewed = errors.New("recorder: the session does not give its screen, or its recording ends; its files are renewed later")
	errDiskSlow   = errors.New("recorder: the disk does not answer; the files are renewed later")
)

// Renew stores the present screen of a session, and deletes all that was stored before, because
// lines of it were cleared for good (Meta.Clears). It returns an error if that is not done within
// the given time; the recorder continues to try. It returns nil if the session is not recorded. Lines that
// are cleared during the call are not its concern: a Renew of their own follows.
func (r *Recorder) Renew(l past.Life, within time.Duration) error {
	r.mu.Lock()
	t := r.tracks[l]
	r.mu.Unlock()
	if t == nil {
		return nil
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	t.poke()
	wanted := renewal{clears: t.source.Clears(), done: make(chan error, 1)}
	select {
	case t.renewals <- wanted:
	case <-t.ended:
		return t.checkRenewed(wanted.clears) // by its last step
	case <-timer.C:
		return errDiskSlow
	}
	select {
	case err := <-wanted.done:
		return err
	case <-timer.C:
		return errDiskSlow
	}
}

// A renewal asks the recording to renew its files.
type renewal struct {
	clears uint64 // of the source, when it was asked for
	done   chan error
}

func (t *track) renewNow(clears uint64) error {
	if err := t.do(t.store); err != nil {
		return err
	}
	return t.checkRenewed(clears)
}

// checkRenewed returns errNotRenewed if the files were not renewed after the given number of clears.
func (t *track) checkRenewed(clears uint64) error {
	if t.clears >= clears || t.isForgotten.Load() { // the files of a forgotten session are erased
		return nil
	}
	return errNotRenewed
}

// renew renews the files if lines were cleared since they were renewed last. If the session cannot
// save its screen, the next step tries again.
func (t *track) renew() error {
	clears := t.source.Clears() // before the screen is saved: a later clear needs another renewal
	if clears == t.clears {
		return nil
	}
	frame, err := t.source.Frame(t.writer.End(), true)
	if err != nil || !frame.IsWhole || frame.Offset < t.writer.End() || len(frame.Data) == 0 {
		return nil
	}
	t.marksMu.Lock()
	t.marks = slices.DeleteFunc(t.marks, func(m past.Note) bool { return m.Offset <= frame.Offset }) // later ones are of commands that ended since
	t.marksMu.Unlock()
	if err := t.writer.Renew(frame.Offset, t.ring.SizeAt(frame.Offset), frame.Data); err != nil {
		return err
	}
	t.clears, t.isWhole = clears, true
	return t.storeMeta()
}

// A state tells whether something must be stored.
type state struct {
	end  uint64 // of the output
	meta [sha256.Size]byte
}

// present returns the state of the session.
func (t *track) present() state {
	_, end, _ := t.ring.Bounds()
	data, err := json.Marshal(t.source.Meta())
	if err != nil {
		return state{}
	}
	return state{end, sha256.Sum256(data)}
}
