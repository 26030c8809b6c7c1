//go:build manual

package main

import (
	"os"

	"github.com/spf13/cobra"

	"holdfast/scripts/release/manual"
	"holdfast/shared/version"
)

// addManual adds the command that writes the man pages. Only the build of scripts/release has
// it.
func addManual(root *cobra.Command) {
	root.AddCommand(&cobra.Command{
		Use: "manual DIR", Short: "Write the man pages into a directory", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			date, err := manual.Date(os.Getenv)
			if err != nil {
				return err
			}
			m := manual.Manual{
				Root: root, Version: version.String(), Date: date,
				Sections: manualSections, SeeAlso: []string{"holdfast"},
			}
			return m.Write(args[0])
		},
	})
}

var manualSections = []manual.Section{
	{Title: "EXIT STATUS", Items: []manual.Item{
		{Word: "0", Text: "It was told to stop, and did."},
		{Word: "1", Text: "It failed, and said why."},
		{Word: "64", Text: "A flag or an argument is wrong."},
		{Word: "69", Text: "Another supervisor serves here, or for stop: none does."},
		{Word: "75", Text: "It was not stopped, for sessions run."},
	}},
	{Title: "ENVIRONMENT", Text: "Each setting among the options has a variable: HOLDFAST_GRACE is --grace. Besides:", Items: []manual.Item{
		{Word: "HOLDFAST_DIR", Text: "The directory for everything."},
		{Word: "XDG_RUNTIME_DIR, XDG_STATE_HOME, XDG_CONFIG_HOME", Text: "Where the user's directories are; holdfast has one in each. Without the first, on Linux, /run/user/UID counts."},
	}},
	{Title: "FILES", Items: []manual.Item{
		{Word: "$XDG_RUNTIME_DIR/holdfast/supervisor.sock", Text: "The socket that proxies connect to."},
		{Word: "$XDG_STATE_HOME/holdfast/supervisor.log", Text: "What it logs with --background. What is typed or printed is never logged."},
		{Word: "$XDG_STATE_HOME/holdfast/supervisor.crash", Text: "What it said when it crashed, with --background."},
		{Word: "$XDG_CONFIG_HOME/holdfast/holdfast.json", Text: "Settings: an object, with _ for the - of options."},
	}},
}
