package session

import (
	"errors"
	"fmt"
	"os"

	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// trialFiles are the roles of the files that a program on trial reads. It must only read them,
// because the sessions still run.
var trialFiles = []string{fileState, fileKeyframe}

// TrialEntries returns a vault entry of each session for a trial. The files are those of all
// entries, in order; the caller must close them, also after an error.
func (t *Table) TrialEntries() (records []vault.Entry, files []*os.File, err error) {
	for _, s := range t.registry.forSuccessor() {
		r, held, own := s.trialEntry(s.entry.id, s.pty.PID())
		if errors.Is(own, os.ErrClosed) { // the session was forgotten meanwhile
			for _, f := range held {
				_ = f.Close() // only a duplicate
			}
			continue
		}
		files = append(files, held...)
		records, err = append(records, r), errors.Join(err, own)
	}
	return records, files, err
}

// maxReads is how often an entry is read until it counts as unreadable. A read may fail because
// the session writes at the same time.
const maxReads = 5

// Try returns an error unless this program can adopt the sessions of these vault entries. It
// uses up their descriptors.
func Try(records []vault.Entry) error {
	for _, r := range records {
		if err := tryEntry(r); err != nil {
			return fmt.Errorf("%s: %w", r.ID, err)
		}
	}
	return nil
}

func tryEntry(r vault.Entry) error {
	in, err := openEntry(r, trialFiles...)
	if err != nil {
		return err
	}
	defer in.close()
	for range maxReads {
		if err = in.check(); err == nil {
			break
		}
	}
	return err
}

func (in *fileSet) check() error {
	state, err := slate.ReadLive(in.state)
	if err != nil {
		return err
	}
	v, err := parseSaved(state)
	if err != nil {
		return err
	}
	frame, err := slate.ReadLive(in.keyframe)
	if err != nil || v.Degraded {
		return err
	}
	if _, saved, ok := splitFrame(frame); ok {
		if saved, err = screen.Unpack(saved); err == nil {
			_, err = screen.Load(saved, 0)
		}
	}
	return err
}
