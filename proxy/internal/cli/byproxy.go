package cli

import (
	"os"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/sysexits"
)

// byProxy are the commands that only the program proxy has (package operate), because they need packages
// that would slow the start of holdfast.
var byProxy = []struct{ name, short string }{
	{"chaos", "Disturb a daemon, and judge whether an app's client loses a byte; for the tests of apps"},
	{"conformance", "Test a client in any language against the worst that a proxy does"},
	{"doctor", "Find causes of failure of terminals, and say how to remove them"},
	{"gate", "Serve as a gate in the foreground: clients enter here the hosts that have joined"},
	{"join", "Join a gate, so that clients can enter this host there"},
	{"leave", "Leave the gate that this host has joined"},
	{"mcp", "Let an agent use the sessions, by the Model Context Protocol"},
	{"recordings", "List the recordings of sessions"},
	{"replay", "Print the screen that a recording had at a moment"},
	{"serve", "Serve clients in the foreground; starts the supervisor if none runs"},
	{"service", "Let the system's service manager run the proxy: install, uninstall, status"},
	{"verify", "Check that recordings are whole"},
	{"web", "Open the web page in a browser, or print a link to it"},
}

// byProxyCommands returns these commands for holdfast. Each executes the program proxy, which answers the
// arguments of this process, also if they ask for help or for the completion of a word.
func byProxyCommands() (all []*cobra.Command) {
	for _, c := range byProxy {
		cmd := &cobra.Command{
			Use: c.name, Short: c.short, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error { return becomeProxy() },
			ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				cmd.PrintErrln(becomeProxy())
				return nil, cobra.ShellCompDirectiveError
			},
		}
		cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { cmd.PrintErrln(becomeProxy()) })
		all = append(all, cmd)
	}
	return all
}

// becomeProxy executes the program proxy with the name and the arguments of this process. It returns only
// if that fails.
func becomeProxy() error {
	path, err := installed.Proxy()
	if err != nil {
		return exitcode.With(sysexits.Unavailable, err)
	}
	return Execute(path, append([]string{installed.Name()}, os.Args[1:]...))
}
