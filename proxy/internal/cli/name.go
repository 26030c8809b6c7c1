package cli

import (
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/proxy/internal/installed"
)

// Named returns a text of this release, or of a process that this program asks, for the user to read. Such
// texts name a command as a command of proxy ("proxy ls"); in the result it is one of the program that the
// user has called.
func Named(text string) string {
	const generic = "proxy"
	name := installed.Name()
	if name == generic {
		return text
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, generic)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		if isWordEnd(before) && isCommand(after) {
			out.WriteString(name)
		} else {
			out.WriteString(generic)
		}
		text = after
	}
}

// isWordEnd reports whether a word may begin after text.
func isWordEnd(text string) bool {
	if text == "" {
		return true
	}
	last := rune(text[len(text)-1])
	return !unicode.IsLetter(last) && !strings.ContainsRune("-/._", last)
}

// isCommand reports whether text continues with the name of a command or with a flag.
func isCommand(text string) bool {
	rest := strings.TrimLeft(text, " \n")
	if rest == text {
		return false
	}
	if strings.HasPrefix(rest, "--") {
		return true
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && r != '-' })
	if end >= 0 {
		rest = rest[:end]
	}
	_, isCommand := places[rest]
	return isCommand && rest != "proxy" || rest == "help"
}

// nameInHelp lets the help of a command and of its subcommands name the program that the user has called.
func nameInHelp(root *cobra.Command) {
	printHelp := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		NameTexts(cmd)
		printHelp(cmd, args)
	})
}

// strictHelp lets the command help refuse a name that no command has. That of cobra prints the help of the next
// command above it, and succeeds.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return
	}
	help.Run = nil
	help.RunE = func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		if (err != nil || len(rest) > 0) && !cmd.DisableFlagParsing { // the program proxy answers for such a command
			return noSuchCommand(cmd, rest)
		}
		cmd.InitDefaultHelpFlag() // so that the help tells it
		cmd.InitDefaultVersionFlag()
		return cmd.Help()
	}
}

// NameTexts lets the texts of a command, and of its subcommands, name the program that the user has called.
func NameTexts(cmd *cobra.Command) {
	cmd.Short, cmd.Long, cmd.Example = Named(cmd.Short), Named(cmd.Long), Named(cmd.Example)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = Named(f.Usage) })
	for _, sub := range cmd.Commands() {
		NameTexts(sub)
	}
}
