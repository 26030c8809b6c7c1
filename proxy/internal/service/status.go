package service

import (
	"context"
	"errors"
)

// A File is the kind of the file at a unit's path.
type File string

// The kinds of the file at a unit's path.
const (
	FileNone    File = "none"
	FileOurs    File = "ours"
	FileOther   File = "outdated" // written by install, but with another text than install would write now
	FileForeign File = "foreign"  // written by another program

	FilePackaged File = "packaged" // there is no file, and a package has installed the unit
)

// A Status is the status of a unit and of its proxy.
type Status struct {
	Unit
	File    File   `json:"file"`
	Manager string `json:"manager_error,omitempty"` // error of a manager that does not answer
	State
	Serving int `json:"serving_pid"` // pid of the proxy that answers; 0 if none does
}

// Running reports whether the unit exists and runs.
func (s *Status) Running() bool { return s.File != FileNone && s.Active }

// Status returns the status of a proxy's unit. It changes nothing.
func (h Host) Status(ctx context.Context, s Spec) (*Status, error) {
	m, u, err := h.unit(s)
	if err != nil {
		return nil, err
	}
	st := &Status{Unit: u, File: FileOurs}
	text, exists, err := read(u.Path)
	switch {
	case errors.Is(err, ErrForeign):
		st.File = FileForeign
	case err != nil:
		return nil, err
	case !exists:
		st.File = FileNone
	case text != u.Text:
		st.File = FileOther
	}
	if st.State, err = h.state(ctx, m, u); err != nil {
		st.Manager = err.Error()
	}
	if st.File == FileNone && st.Packaged != "" {
		st.File, st.Path = FilePackaged, st.Packaged
	}
	return st, nil
}
