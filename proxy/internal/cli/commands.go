package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// commands has the function that makes each command of this package, by its name.
var commands = map[string]func(*App) *cobra.Command{
	"acp":     (*App).acpCommand,
	"attach":  (*App).attachCommand,
	"away":    (*App).awayCommand,
	"changes": (*App).changesCommand,
	"clear":   (*App).clearCommand,
	"detach":  (*App).detachCommand,
	"env":     (*App).envCommand,
	"events":  (*App).eventsCommand,
	"export":  (*App).exportCommand,
	"forget":  (*App).forgetCommand,
	"freeze":  (*App).freezeCommand,
	"handoff": (*App).handoffCommand,
	"history": (*App).historyCommand,
	"hosts":   (*App).hostsCommand,
	"info":    (*App).infoCommand,
	"kill":    (*App).killCommand,
	"limit":   (*App).limitCommand,
	"ls":      (*App).lsCommand,
	"mark":    (*App).markCommand,
	"new":     (*App).newCommand,
	"play":    (*App).playCommand,
	"record":  (*App).recordCommand,
	"rename":  (*App).renameCommand,
	"reopen":  (*App).reopenCommand,
	"resize":  (*App).resizeCommand,
	"revive":  (*App).reviveCommand,
	"run":     (*App).runCommand,
	"screen":  (*App).screenCommand,
	"search":  (*App).searchCommand,
	"send":    (*App).sendCommand,
	"share":   (*App).shareCommand,
	"start":   (*App).startCommand,
	"status":  (*App).statusCommand,
	"stdio":   (*App).stdioCommand,
	"stop":    (*App).stopCommand,
	"thaw":    (*App).thawCommand,
	"upgrade": (*App).upgradeCommand,
	"wait":    (*App).waitCommand,
	"why":     (*App).whyCommand,
}

// commands returns the command with a name, or all commands if none has that name. To make all of them takes
// longer than a command such as ls.
func (a *App) commands(only string) (all []*cobra.Command) {
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
