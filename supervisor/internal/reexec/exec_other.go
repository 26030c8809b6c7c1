//go:build !linux && !darwin

package reexec

import (
	"errors"
	"os"
	"os/exec"
)

// Exec returns errors.ErrUnsupported.
func (p *Program) Exec([]byte, []int, []string) error {
	return p.failed("exec", errors.ErrUnsupported)
}

func (p *Program) execPath(int) string { return p.path }

func closeOnExecAgain(int) {}

// ExecAs returns errors.ErrUnsupported.
func (p *Program) ExecAs(string, *os.File, []int, []string) error {
	return p.failed("exec", errors.ErrUnsupported)
}

func apart(*exec.Cmd) {}
