package session

import (
	"errors"
	"fmt"
	"os"

	"holdfast/protocol"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// sessionFiles are the open files of a session, from which a successor adopts it. A fileSet has
// the descriptors of the same files. loop owns ring, journal and terminal; the slates stay the same
// as long as the session lives, so that any goroutine may duplicate them.
type sessionFiles struct {
	ring          *ring.Ring
	stateSlate    *slate.Slate
	keyframeSlate *slate.Slate
	journal       *journal.Journal // nil after the session has exited
	terminal      *pty.PTY         // nil after the session has exited, and for the fake terminal of a test
	sessionID     protocol.SessionID
}

// makeFiles makes the files of a new session.
func makeFiles(ringBytes int, size protocol.Size, input journal.Config) (f sessionFiles, err error) {
	if f.ring, err = ring.New(ringBytes, size); err != nil {
		return f, err
	}
	if err = f.makeSlates(); err == nil {
		f.journal, err = journal.New(f.ring.Room(), input)
	}
	return f, f.closeAfter(err)
}

// makeLostFiles makes the files of a session that the machine has lost. Its output begins at an
// offset and has no byte, and it has no input.
func makeLostFiles(size protocol.Size, offset uint64, input journal.Config) (f sessionFiles, err error) {
	if f.ring, err = ring.NewAt(ring.MinBytes, size, offset); err != nil {
		return f, err
	}
	f.ring.Finish()
	if err = f.makeSlates(); err == nil {
		f.journal, err = unusedJournal(input)
	}
	return f, f.closeAfter(err)
}

// unusedJournal returns a journal without files, for a session that accepts no input any more.
func unusedJournal(input journal.Config) (*journal.Journal, error) {
	return journal.Adopt(make([]byte, journal.RoomBytes), noJournal, input)
}

// The names of the slates in /proc.
const (
	stateName    = "holdfast-state"
	keyframeName = "holdfast-keyframe"
)

// makeSlates makes the files of the state and the keyframe.
func (f *sessionFiles) makeSlates() (err error) {
	if f.stateSlate, err = slate.New(stateName); err != nil {
		return err
	}
	f.keyframeSlate, err = slate.New(keyframeName)
	return err
}

// adoptSlates opens the files of the state and the keyframe that a predecessor has written. If the
// keyframe is no slate, adoptSlates makes an empty one, and damage tells why: the ring suffices to
// make a screen, so that the session can be served all the same. It does the same for the state; see damage.go.
func (f *sessionFiles) adoptSlates(in *fileSet) (damage, err error) {
	if f.stateSlate, err = slate.Adopt(in.state); in.mayReplace(err) {
		damage = err
		f.stateSlate, err = slate.New(stateName)
	}
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	var keyframe error
	if f.keyframeSlate, keyframe = slate.Adopt(in.keyframe); keyframe != nil {
		f.keyframeSlate, err = slate.New(keyframeName)
	}
	return errors.Join(damage, keyframe), err
}

// endInput drops journal and terminal from the entries of the session, because the session has
// exited. The vault would otherwise keep the terminal open.
func (f *sessionFiles) endInput() { f.journal, f.terminal = nil, nil }

// closeAfter closes the files if err is an error. It returns err and the errors of closing.
func (f *sessionFiles) closeAfter(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, f.closeFiles())
}

// closeFiles closes the files that exist, except for the terminal.
func (f *sessionFiles) closeFiles() (err error) {
	if f.journal != nil {
		err = f.journal.Close()
	}
	err = errors.Join(err, f.closeSlates())
	if f.ring != nil {
		err = errors.Join(err, f.ring.Close())
	}
	return err
}

// closeSlates closes the files of state and keyframe that exist.
func (f *sessionFiles) closeSlates() (err error) {
	for _, s := range []*slate.Slate{f.stateSlate, f.keyframeSlate} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// liveEntry returns a vault entry with the present files, and with the id and the child's pid. done
// must be called when the entry is not used any more; it closes duplicates.
func (f *sessionFiles) liveEntry(id string, pid int) (r vault.Entry, done func(), err error) {
	in := fileSet{state: f.stateSlate.File(), keyframe: f.keyframeSlate.File(), journal: noJournal, known: known{SessionID: f.sessionID}}
	done = func() {
		for _, duplicate := range []*os.File{in.master, in.ring} {
			if duplicate != nil {
				_ = duplicate.Close() // the session has the file open
			}
		}
	}
	if f.journal != nil {
		in.journal = f.journal.Files()
	}
	if f.terminal != nil {
		st := f.terminal.State()
		in.known.PTY = &st
		in.master, err = f.terminal.Master()
	}
	var ringErr error
	in.ring, ringErr = f.ring.File()
	if err = errors.Join(err, ringErr); err == nil {
		r, err = in.entry(id, pid)
	}
	if err != nil {
		done()
		return r, func() {}, err
	}
	return r, done, nil
}

// trialEntry returns a vault entry with the files that a program on trial reads. They are
// duplicates, because the session closes its own files when it is forgotten; the caller must close
// them, also after an error. Any goroutine may call trialEntry. If the session was forgotten, the
// error is os.ErrClosed.
func (f *sessionFiles) trialEntry(id string, pid int) (r vault.Entry, duplicates []*os.File, err error) {
	in := fileSet{journal: noJournal}
	for _, each := range []struct {
		from *slate.Slate
		to   **os.File
	}{{f.stateSlate, &in.state}, {f.keyframeSlate, &in.keyframe}} {
		if *each.to, err = each.from.Duplicate(); err != nil {
			return r, duplicates, err
		}
		duplicates = append(duplicates, *each.to)
	}
	r, err = in.entry(id, pid)
	return r, duplicates, err
}
