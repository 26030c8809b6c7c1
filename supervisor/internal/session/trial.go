package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// onTrial are the files that a program on trial looks at: what it may only read.
var onTrial = []string{fileState, fileKeyframe}

// Records are the sessions', for a trial: what each leaves that can be looked at
// while it goes on, or ends. The files are those of the records, one after another, and the
// caller closes them, also after an error.
func (t *Table) Records() (records []vault.Record, files []*os.File, err error) {
	for _, s := range t.everyLife() {
		r, held, own := s.forTrial()
		if errors.Is(own, os.ErrClosed) { // forgotten meanwhile
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

// forTrial returns files of its own: a session that is forgotten closes the others. It does
// not wait for loop.
func (s *Session) forTrial() (r vault.Record, files []*os.File, err error) {
	r = vault.Record{ID: s.recordID(), PID: s.pty.PID()}
	for _, from := range []*slate.Slate{s.stateSlate, s.keyframe} {
		f, err := from.Duplicate()
		if err != nil {
			return r, files, err
		}
		files = append(files, f)
		fd, err := Descriptor(f)
		if err != nil {
			return r, files, err
		}
		r.FDs = append(r.FDs, fd)
	}
	r.Meta, err = json.Marshal(recordMeta{Version: recordVersion, Files: onTrial})
	return r, files, err
}

// looks is how often a record is read that cannot be: it may have been written to
// meanwhile.
const looks = 5

// Try reports whether this program could go on with sessions of which it was left
// these records. Their descriptors are used up.
func Try(records []vault.Record) error {
	for _, r := range records {
		if err := try(r); err != nil {
			return fmt.Errorf("%s: %w", r.ID, err)
		}
	}
	return nil
}

func try(r vault.Record) error {
	in, err := files(r, onTrial...)
	if err != nil {
		return err
	}
	defer in.close()
	for range looks {
		if err = in.look(); err == nil {
			break
		}
	}
	return err
}

func (in *inherited) look() error {
	state, err := slate.Look(in.state)
	if err != nil {
		return err
	}
	v, err := parseSaved(state)
	if err != nil {
		return err
	}
	frame, err := slate.Look(in.keyframe)
	if err != nil || len(frame) < frameHead || v.Degraded {
		return err
	}
	from, err := screen.Restore(frame[frameHead:], 0)
	if err != nil {
		return err
	}
	for !from.Step(restoreSlice) {
	}
	return nil
}
