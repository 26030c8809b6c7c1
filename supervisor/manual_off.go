//go:build !manual

package main

import "github.com/spf13/cobra"

// addManual does nothing, because only scripts/release needs the command that writes man pages.
func addManual(*cobra.Command) {}
