//go:build !manual

package cli

import "github.com/spf13/cobra"

// addManual adds no command. Only scripts/release builds the command that writes the manual.
func addManual(*cobra.Command) {}
