package service

import (
	"context"
	"errors"
)

// A File is what lies where a unit's file belongs.
type File string

// The kinds of files.
const (
	FileNone    File = "none"
	FileOurs    File = "ours"
	FileOther   File = "outdated" // ours, and not what install would write
	FileForeign File = "foreign"  // not ours

	FilePackaged File = "packaged" // none of ours; a package has brought the unit
)

// Status is how a unit is.
type Status struct {
	Unit
	File    File   `json:"file"`
	Manager string `json:"manager_error,omitempty"` // why it does not answer
	State
	Serving int `json:"serving_pid"` // the proxy that answers, 0 for none
}

// Running reports whether the unit is there and runs.
func (s *Status) Running() bool { return s.File != FileNone && s.Active }

// Status asks how a proxy's unit is. It changes nothing.
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
