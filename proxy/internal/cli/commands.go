package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// commands has the function that makes each command of this package, by its name.
var commands = map[string]func(*app) *cobra.Command{
	"acp":     (*app).acpCommand,
	"attach":  (*app).attachCommand,
	"away":    (*app).awayCommand,
	"changes": (*app).changesCommand,
	"clear":   (*app).clearCommand,
	"detach":  (*app).detachCommand,
	"env":     (*app).envCommand,
	"events":  (*app).eventsCommand,
	"export":  (*app).exportCommand,
	"forget":  (*app).forgetCommand,
	"freeze":  (*app).freezeCommand,
	"handoff": (*app).handoffCommand,
	"history": (*app).historyCommand,
	"hosts":   (*app).hostsCommand,
	"info":    (*app).infoCommand,
	"kill":    (*app).killCommand,
	"limit":   (*app).limitCommand,
	"ls":      (*app).lsCommand,
	"mark":    (*app).markCommand,
	"new":     (*app).newCommand,
	"play":    (*app).playCommand,
	"record":  (*app).recordCommand,
	"rename":  (*app).renameCommand,
	"reopen":  (*app).reopenCommand,
	"resize":  (*app).resizeCommand,
	"revive":  (*app).reviveCommand,
	"run":     (*app).runCommand,
	"screen":  (*app).screenCommand,
	"search":  (*app).searchCommand,
	"send":    (*app).sendCommand,
	"share":   (*app).shareCommand,
	"start":   (*app).startCommand,
	"status":  (*app).statusCommand,
	"stdio":   (*app).stdioCommand,
	"stop":    (*app).stopCommand,
	"thaw":    (*app).thawCommand,
	"upgrade": (*app).upgradeCommand,
	"wait":    (*app).waitCommand,
	"why":     (*app).whyCommand,
}

// commands returns the command with a name, or all commands if none has that name. To make all of them takes
// longer than a command such as ls.
func (a *app) commands(only string) (all []*cobra.Command) {
	if makeOne := commands[only]; makeOne != nil {
		return []*cobra.Command{makeOne(a)}
	}
	for _, makeOne := range commands {
		all = append(all, makeOne(a))
	}
	return append(all, a.operate()...)
}

// firstWord returns the first argument that is neither a flag of all commands nor its value: the name of the
// command.
func firstWord(args []string) string {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--dir" || args[i] == "--proxy" || args[i] == "--on":
			i++
		case !strings.HasPrefix(args[i], "-"):
			return args[i]
		}
	}
	return ""
}
