package cli

import "github.com/spf13/cobra"

// NewTestApp returns an App for the commands of package operate.
func NewTestApp() *App { return &App{ending: &ending{}} }

// ByProxyCommands returns the commands that holdfast has in the place of those of package operate.
func ByProxyCommands() []*cobra.Command { return byProxyCommands() }

// Root returns the root command of the program proxy.
func Root(operate func(*App) []*cobra.Command) *cobra.Command { return newApp(operate).command("") }
