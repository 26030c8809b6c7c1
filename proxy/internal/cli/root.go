// Package cli has the commands of holdfast, the users' program, and the command line of the program proxy,
// which has these commands and those of package operate. Each command has a file of its name, and root.go
// lists the commands. They are clients of the running proxy: they connect, send requests and print the
// answers. byproxy.go lets holdfast run the commands of package operate.
//
// Commands share these files: app.go (directories, connections, the start of a proxy), supervisor.go (a
// connection without a proxy), name.go (the name of the program in texts), session.go (commands about one session), pick.go, limitflags.go, await.go
// and ending.go (parts of commands), and print.go, describe.go, format.go, choice.go, duration.go, size.go,
// cast.go, sgr.go, screen_html.go and completion.go (text).
//
// Invariant: no text of another program or user reaches a terminal unescaped, except the output of a
// session; all text is written through package plain. A command about existing sessions starts no
// supervisor. The package imports nothing that would slow the start of holdfast (TestHoldfast of
// scripts/tidy).
//
// Not here: the commands that serve, that use files of the proxy, or that need large packages (package operate), the terminal of a viewer (package front), the process of the proxy (package serve), exit
// codes (package exitcode), and requests (package proxy/client).
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/config"
	"holdfast/shared/plain"
	"holdfast/shared/version"
)

// Main runs the command that the arguments of the process name, and returns its exit code. It prints
// the error of the command. operate has the commands of package operate for the program proxy, and is nil for
// holdfast.
func Main(operate func(*App) []*cobra.Command) int {
	a := newApp(operate)
	signals := heeded(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ctx, stop := a.ending.catch(context.Background(), signals...)
	err := a.command(firstWord(os.Args[1:])).ExecuteContext(ctx)
	by, isSignalled := context.Cause(ctx).(signalled)
	if isSignalled && errors.Is(err, context.Canceled) {
		err = exitcode.New(by.exitCode(), "")
	}
	// The default action of a signal that comes from here on, such as the second one of timeout(1), would take the last
	// message away. Such a signal ends the process only if nobody reads the message.
	a.ending.needs(0)
	_, _ = a.ending.catch(context.Background(), signals...)
	stop()
	if failed := plain.StdoutError(); failed != nil && !isSignalled && !errors.Is(failed, syscall.EPIPE) && (err == nil || exitcode.Text(err) == "") {
		err = failed // not all commands look at the errors of their writes
	}
	code := exitcode.Of(err)
	if code == 0 {
		return 0
	}
	if text := exitcode.Text(err); text != "" {
		Note("%s", text)
	}
	return code
}

// An App is this command line: the fields that all commands share, also those of package operate.
type App struct {
	Dir   string // --dir
	Proxy string // --proxy: the name of the proxy
	JSON  bool   // --json
	Host  string // --on, or the host in the name of a session; "" is this host

	attaches   bool         // the command will attach to a session with a connection of its own
	isStarting *atomic.Bool // the command needs a proxy to start something, so that it starts one also after a user has stopped it; nil: no

	isProxy  bool                    // this program is proxy, and not holdfast
	operate  func() []*cobra.Command // makes those of package operate, or those that execute the program proxy for them
	answered func()                  // ends the watch of a command that waits for an answer
	toldFull bool                    // the user knows that a session accepts no more input
	ending   *ending                 // ends the process after a signal
}

// newApp returns the fields for Main.
func newApp(operate func(*App) []*cobra.Command) *App {
	a := &App{isProxy: operate != nil, ending: &ending{}}
	a.operate = byProxyCommands
	if operate != nil {
		a.operate = func() []*cobra.Command { return operate(a) }
	}
	return a
}

// command returns the root command with the subcommand that is named, or with all if only is "" or no
// subcommand has that name.
func (a *App) command(only string) *cobra.Command {
	var handoff bool
	var o handoffOptions
	root := &cobra.Command{
		Use:   installed.Name(),
		Short: "Terminals that outlive everything around them",
		Long: "Terminals that outlive everything around them.\n\n" +
			"new, run, web and start start missing processes in the background. A command about existing sessions\n" +
			"starts a proxy if only the supervisor runs; if no supervisor runs, it starts nothing and ends with 69.\n" +
			"proxy handoff, or proxy --handoff, starts this program as the successor of the running proxy.",
		Example: "  proxy new --id build -- make -j8   # start a session and attach; ctrl-\\ d detaches\n" +
			"  proxy ls                           # the running and the ended sessions\n" +
			"  proxy attach build                 # return to it\n" +
			"  proxy upgrade                      # replace both programs by the installed release; no shell ends",
		Version:       version.String(),
		SilenceErrors: true, SilenceUsage: true,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if handoff {
				return a.explainTimeout(cmd.Context(), a.handoff(cmd.Context(), &o))
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.CheckEnviron(os.Environ()); err != nil {
				return err
			}
			return errors.Join(config.CheckProxyName(a.Proxy), a.checkPlace(cmd))
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitcode.WrongUsage(err) })
	root.Flags().BoolVar(&handoff, "handoff", false, "take over from the running proxy, then serve in its place")
	o.flags(root)
	for _, name := range []string{"handoff", "foreground", "dry-run", "json", "from-dir", "timeout"} {
		_ = root.Flags().MarkHidden(name) // proxy handoff has these flags; here they exist for scripts that use --handoff
	}
	root.PersistentFlags().StringVar(&a.Dir, "dir", "", "`directory` for all files (default $HOLDFAST_DIR, or the user's directories)")
	root.PersistentFlags().StringVar(&a.Proxy, "proxy", config.DefaultProxy, "`name` of the proxy, if several proxies serve one supervisor")
	root.PersistentFlags().StringVar(&a.Host, "on", "", "run the command for another `host`, which the gate knows or ssh reaches; HOST/ID names a session there")
	root.AddCommand(a.commands(only)...)
	root.SetOut(plain.Stdout)
	root.SetErr(plain.Stderr)
	addCompletion(root)
	addGroups(root)
	nameInHelp(root)
	strictHelp(root)
	for _, cmd := range root.Commands() {
		typedArgs(cmd)
	}
	a.runsOnHost(root)
	return root
}

// knownWords maps commands of other programs to the corresponding command of this one.
var knownWords = map[string]string{
	"rm":            "proxy kill ID --forget ends a session and forgets it",
	"remove":        "proxy kill ID --forget ends a session and forgets it",
	"logs":          "proxy history ID prints its last lines, proxy export ID all kept output",
	"exec":          "proxy send ID --enter 'COMMAND' sends it to a session, proxy run -- COMMAND runs it in a new one",
	"ps":            "proxy ls lists the sessions",
	"restart":       "proxy handoff replaces the proxy, proxy upgrade both programs, proxy reopen ID starts an ended session again",
	"kill-server":   "proxy stop --all stops both programs, unless a session runs",
	"shutdown":      "proxy stop --all stops both programs, unless a session runs",
	"version":       "proxy --version, or proxy status for the running programs",
	"new-session":   "proxy new starts a session",
	"list-sessions": "proxy ls lists the sessions",
	"kill-session":  "proxy kill ID ends a session",
	"send-keys":     "proxy send ID TEXT, with --enter and --key",
	"capture-pane":  "proxy screen ID prints a session's screen",
	"a":             "proxy attach ID",
	"clear-history": "proxy clear ID forgets the lines above a session's screen",
	"create":        "proxy new starts a session",
	"top":           "proxy ls --wide",
}

// groups are the sections of the help.
var groups = []struct{ id, title, commands string }{
	{"sessions", "Sessions:", "new run attach detach ls kill reopen revive forget info rename resize clear"},
	{"look", "Output and history of a session:", "screen changes history search play export record away why events"},
	{"recordings", "Recordings that outlive the host:", "recordings replay verify"},
	{"drive", "Drive a session from scripts:", "send wait mark env mcp acp"},
	{"limits", "Limits:", "limit freeze thaw"},
	{"web", "In a browser:", "web share"},
	{"hosts", "Many hosts:", "hosts join leave gate"},
	{"programs", "The programs:", "start stop status handoff upgrade doctor serve service"},
}

// addGroups assigns each command to its section of the help.
func addGroups(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(strings.Fields(g.commands), cmd.Name()) {
				cmd.GroupID = g.id
			}
		}
	}
}

// noSuchCommand reports an unknown subcommand of a command, and suggests similar ones.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if known := knownWords[args[0]]; known != "" {
		return exitcode.WrongUsagef("there is no command %q: %s", args[0], known)
	}
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return exitcode.WrongUsagef("there is no command %q; did you mean %s?", args[0], strings.Join(like, " or "))
	}
	return exitcode.WrongUsagef("there is no command %q, see proxy help", args[0])
}

// typedArgs gives errors of cobra about arguments and exclusive flags the exit code for wrong
// usage, and adds the usage.
func typedArgs(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := cmd.ValidateFlagGroups(); err != nil {
			return exitcode.WrongUsage(err)
		}
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			text := "an argument is missing"
			if len(args) > 0 {
				text = fmt.Sprintf("the command does not take %s", plain.Count(len(args), "argument"))
			}
			return exitcode.WrongUsagef("%s\nusage: %s", text, cmd.UseLine())
		}
		return nil
	}
	for _, sub := range cmd.Commands() {
		typedArgs(sub)
	}
}
