//go:build !linux && !darwin

package pty

import (
	"errors"
	"testing"
)

// demand: M14
func TestUnsupported(t *testing.T) {
	if p, err := Start(Spec{Argv: []string{"cmd"}, Cols: 80, Rows: 24}); p != nil || !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v, %v, want ErrUnsupported", p, err)
	}
}
