//go:build linux || darwin

package pty

import (
	"fmt"
	"io"
	"os"
)

// sealedRole is a supervisor's main: it seals, and prints what a child says of
// its signals.
func sealedRole() error {
	if err := Seal(); err != nil {
		return err
	}
	if guard, ok := os.LookupEnv("HOLDFAST_PTY_SEALED"); ok {
		return fmt.Errorf("the guard stays in the environment: %q", guard)
	}
	p, err := Start(script("grep -E '^Sig(Blk|Ign)' /proc/self/status"))
	if err != nil {
		return err
	}
	if _, err := io.Copy(os.Stdout, p); err != nil {
		return err
	}
	return p.Close()
}
