// Package operate has the commands that only the program proxy has: those that serve (serve, gate, join,
// mcp), that use files of the proxy or disturb it, or that need large packages. holdfast executes proxy for them.
//
// Invariant: cli.Main has a row for each command of Commands, with the same short text (TestByProxy).
//
// Not here: the commands that are clients of a proxy (package cli), whose helpers these commands use.
package operate

import (
	"github.com/spf13/cobra"

	"holdfast/proxy/internal/cli"
)

// app has the commands of this package.
type app struct{ *cli.App }

// Commands returns the commands of this package.
func Commands(p *cli.App) []*cobra.Command {
	a := &app{p}
	return append([]*cobra.Command{
		a.serveCommand(), a.chaosCommand(), a.doctorCommand(), a.serviceCommand(), a.webCommand(), a.mcpCommand(),
		a.gateCommand(), a.joinCommand(), a.leaveCommand(),
		a.recordingsCommand(), a.replayCommand(), a.verifyCommand(), a.conformanceCommand(),
	}, manualCommands()...)
}
