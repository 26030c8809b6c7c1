//go:build !linux && !darwin

package reexec

import (
	"errors"
	"os"
)

// Exec is not possible here.
func (p *Program) Exec([]byte, []*os.File, []string) error {
	return p.failed("exec", errors.ErrUnsupported)
}

func (p *Program) execPath(int) string { return p.path }

func closeOnExecAgain(int) {}
