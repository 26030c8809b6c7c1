//go:build !unix

package testkit

import "os"

// lockFile does nothing, because only tests that need Unix share programs.
func lockFile(*os.File) error { return nil }
