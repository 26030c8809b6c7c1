//go:build !linux

package cage

import (
	"os"

	"github.com/rs/zerolog"

	"holdfast/protocol"
)

// Options configure Open.
type Options struct {
	Setting string
	Keeper  int
	Managed bool
	Log     zerolog.Logger
}

// A Root has no effect on this system, because there are no cgroups.
type Root struct{}

// Open returns nil, because there are no cgroups.
func Open(Options) *Root { return nil }

// New returns nil, and an "unsupported" error if limits are required.
func (*Root) New(_ string, required, _ protocol.Limits) (*Cage, error) {
	if required.IsZero() {
		return nil, nil
	}
	return nil, Unsupported("a session with limits", "this system has no cgroups")
}

// Adopt returns nil.
func (*Root) Adopt(string) *Cage { return nil }

// Sweep does nothing.
func (*Root) Sweep() {}

// Status returns nil.
func (*Root) Status() *protocol.CagesStatus { return nil }

// A Cage is always nil on this system.
type Cage struct{}

// Dir returns "".
func (*Cage) Dir() string { return "" }

// Open returns os.ErrInvalid.
func (*Cage) Open() (*os.File, error) { return nil, os.ErrInvalid }

// Limit returns an "unsupported" error if a limit is given.
func (*Cage) Limit(l protocol.Limits) error {
	if l.IsZero() {
		return nil
	}
	return Unsupported("limits", "this system has no cgroups")
}

// Use returns nil.
func (*Cage) Use() *protocol.Cage { return nil }

// Freeze returns an "unsupported" error.
func (*Cage) Freeze(bool) error {
	return Unsupported("freezing", "this system has no cgroups")
}

// Frozen returns false.
func (*Cage) Frozen() bool { return false }

// Populated returns false.
func (*Cage) Populated() bool { return false }

// Kill does nothing.
func (*Cage) Kill() []int { return nil }

// Remove does nothing.
func (*Cage) Remove() {}
