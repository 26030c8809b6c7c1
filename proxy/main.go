// Command proxy speaks to clients, and is the command line: it serves apps and
// pages, and starts, lists, attaches and ends sessions as a client of the
// running proxy. It holds nothing that matters and is replaced at will.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast/shared/config"
	"holdfast/shared/machine"
	"holdfast/shared/version"
)

func main() {
	machine.Share()
	ctx, stop := catch(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := (&app{}).command().ExecuteContext(ctx)
	if by, ok := context.Cause(ctx).(signalled); ok && errors.Is(err, context.Canceled) {
		err = &exitError{by.exitCode(), ""}
	}
	stop()
	if code := exitCode(err); code != 0 {
		if text := errorText(err); text != "" {
			fmt.Fprintln(stderr, "proxy:", text)
		}
		os.Exit(code)
	}
}

// app is what all commands share.
type app struct {
	dir   string // --dir
	proxy string // --proxy: which of several
	json  bool   // --json

	answered func() // ends the watch of a command that waits for an answer
}

func (a *app) command() *cobra.Command {
	var handoff bool
	var o handoffOptions
	root := &cobra.Command{
		Use:   "proxy",
		Short: "Terminals that outlive everything around them",
		Long: "Terminals that outlive everything around them.\n\n" +
			"new, run, web and start start what is missing, in the background. A command about sessions that exist\n" +
			"starts a proxy if only the supervisor runs, and starts nothing if nothing runs: it ends with 69.\n" +
			"proxy handoff, or proxy --handoff, starts this program as the successor of the running proxy.",
		Example: "  proxy new --id build -- make -j8   # start a session and attach; ctrl-\\ d detaches\n" +
			"  proxy ls                           # what runs, and what has ended and how\n" +
			"  proxy attach build                 # come back\n" +
			"  proxy upgrade                      # both run as the release that is installed; no shell ends",
		Version:       version.String(),
		SilenceErrors: true, SilenceUsage: true,
		Args: noSuchCommand, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if handoff {
				return a.handoff(cmd.Context(), &o)
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if err := config.CheckEnviron(os.Environ()); err != nil {
				return err
			}
			return config.CheckProxyName(a.proxy)
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.Flags().BoolVar(&handoff, "handoff", false, "take over from the running proxy, then serve in its place")
	o.flags(root)
	for _, name := range []string{"handoff", "foreground", "dry-run", "json", "from-dir", "timeout"} {
		_ = root.Flags().MarkHidden(name) // proxy handoff has them; here they are for what has always said --handoff
	}
	root.PersistentFlags().StringVar(&a.dir, "dir", "", "`directory` for everything (default $HOLDFAST_DIR, else the user's directories)")
	root.PersistentFlags().StringVar(&a.proxy, "proxy", config.DefaultProxy, "`name` of the proxy, where several serve one supervisor")
	root.AddCommand(
		a.startCommand(), a.serveCommand(), a.stopCommand(), a.statusCommand(), a.handoffCommand(), a.upgradeCommand(), a.doctorCommand(), a.serviceCommand(),
		a.newCommand(), a.runCommand(), a.reopenCommand(), a.attachCommand(), a.detachCommand(),
		a.lsCommand(), a.infoCommand(), a.whyCommand(), a.awayCommand(), a.envCommand(), a.eventsCommand(),
		a.sendCommand(), a.screenCommand(), a.historyCommand(), a.searchCommand(), a.resizeCommand(), a.renameCommand(), a.clearCommand(),
		a.recordCommand(), a.exportCommand(),
		a.killCommand(), a.limitCommand(), a.freezeCommand(), a.thawCommand(), a.waitCommand(), a.markCommand(),
		a.webCommand(), a.shareCommand(),
	)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root)
	addManual(root)
	addGroups(root)
	for _, cmd := range root.Commands() {
		typedArgs(cmd)
	}
	return root
}

// knownWords are commands of other programs, with what to type here.
var knownWords = map[string]string{
	"rm":            "proxy kill ID --forget ends a session and forgets it",
	"remove":        "proxy kill ID --forget ends a session and forgets it",
	"logs":          "proxy history ID prints its last lines, proxy export ID all that is kept",
	"exec":          "proxy send ID --enter 'COMMAND' types it into a session, proxy run -- COMMAND runs it in one of its own",
	"ps":            "proxy ls lists the sessions",
	"restart":       "proxy handoff replaces the proxy, proxy upgrade both programs, proxy reopen ID starts an ended session again",
	"kill-server":   "proxy stop --all stops what runs here, unless sessions do",
	"shutdown":      "proxy stop --all stops what runs here, unless sessions do",
	"version":       "proxy --version, or proxy status for what runs",
	"new-session":   "proxy new starts a session",
	"list-sessions": "proxy ls lists the sessions",
	"kill-session":  "proxy kill ID ends a session",
	"send-keys":     "proxy send ID TEXT, with --enter and --key",
	"capture-pane":  "proxy screen ID prints what a session shows",
	"a":             "proxy attach ID",
	"clear-history": "proxy clear ID forgets the lines above a session's screen",
	"create":        "proxy new starts a session",
	"top":           "proxy ls --wide",
}

// groups are the parts of the help.
var groups = []struct{ id, title, commands string }{
	{"sessions", "Sessions:", "new run attach detach ls kill reopen info rename resize clear"},
	{"look", "What a session shows, and what happened:", "screen history search export record away why events"},
	{"drive", "Drive a session from scripts:", "send wait mark env"},
	{"limits", "Limits:", "limit freeze thaw"},
	{"web", "In a browser:", "web share"},
	{"programs", "The programs themselves:", "start stop status handoff upgrade doctor serve service"},
}

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

func noSuchCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if known := knownWords[args[0]]; known != "" {
		return usage(fmt.Errorf("there is no command %q: %s", args[0], known))
	}
	text := fmt.Sprintf("there is no command %q, see proxy help", args[0])
	if like := root.SuggestionsFor(args[0]); len(like) > 0 {
		text = fmt.Sprintf("there is no command %q, but %s", args[0], strings.Join(like, ", "))
	}
	return usage(errors.New(text))
}

// typedArgs gives cobra's complaints about arguments, and about flags that do not go
// together, our exit code, and says what would be right.
func typedArgs(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := cmd.ValidateFlagGroups(); err != nil {
			return usage(err)
		}
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			text := "an argument is missing"
			if len(args) > 0 {
				text = fmt.Sprintf("it does not take %s", count(len(args), "argument"))
			}
			return usage(fmt.Errorf("%s\nusage: %s", text, cmd.UseLine()))
		}
		return nil
	}
	for _, sub := range cmd.Commands() {
		typedArgs(sub)
	}
}

// exitError ends the process with a code and, where there is one, a message.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

func usage(err error) error { return &exitError{exitUsage, err.Error()} }

func errorText(err error) string {
	var e *exitError
	if errors.As(err, &e) {
		return e.text
	}
	return err.Error()
}
