//go:build !manual

package main

import "github.com/spf13/cobra"

// addManual adds nothing: only scripts/release needs the manual's writer.
func addManual(*cobra.Command) {}
