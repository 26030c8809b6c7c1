//go:build !manual

package operate

import "github.com/spf13/cobra"

// manualCommands returns no command. Only scripts/release builds the command that writes the manual.
func manualCommands() []*cobra.Command { return nil }
