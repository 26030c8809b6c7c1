//go:build manual

package operate

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/service"
	"holdfast/scripts/release/manual"
	"holdfast/shared/version"
)

// manualCommands returns the command that writes the man pages and the unit of a package. Only
// scripts/release builds it.
func manualCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use: "manual DIR", Short: "Write the man pages, and a package's unit, into a directory", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := manual.Date(os.Getenv)
			if err != nil {
				return err
			}
			cli.NameTexts(cmd.Root())
			for i := range manualSections {
				nameSection(&manualSections[i])
			}
			m := manual.Manual{
				Root: cmd.Root(), Version: version.String(), Date: date,
				Sections: manualSections, SeeAlso: []string{"supervisor"},
			}
			u, err := service.Packaged("/usr/libexec/holdfast/proxy")
			if err != nil {
				return err
			}
			return errors.Join(m.Write(args[0]), os.WriteFile(filepath.Join(args[0], u.Name), []byte(u.Text), 0o644))
		},
	}}
}

// nameSection lets a section name the program that was called.
func nameSection(s *manual.Section) {
	s.Text = cli.Named(s.Text)
	for i := range s.Items {
		s.Items[i].Text = cli.Named(s.Items[i].Text)
	}
}

var manualSections = []manual.Section{
	{Title: "UPGRADE", Text: "Replace the old programs by the new ones by rename (packages do this), then run proxy upgrade: " +
		"the supervisor becomes the new program in place, and the new proxy takes over the listening sockets and all live connections. " +
		"No shell ends. proxy --handoff replaces the proxy alone; proxy status shows both versions."},
	{Title: "EXIT STATUS", Text: "attach, new and wait exit with the child's code, or with 128 and the signal's number if a signal ended it. If a session ends before the output that send or wait waits for, they exit with its code, or with 1 if that is 0. " +
		"search exits with 1 if no line matches, doctor with 1 for warnings and 2 for errors. The other codes are those of sysexits(3):",
		Items: []manual.Item{
			{Word: "0", Text: "The command succeeded."},
			{Word: "64", Text: "A flag or an argument is wrong."},
			{Word: "66", Text: "There is no such session, or it has ended."},
			{Word: "69", Text: "No proxy or no supervisor runs here, or this host cannot do it."},
			{Word: "70", Text: "Another error occurred."},
			{Word: "71", Text: "The command could not be started."},
			{Word: "73", Text: "The session's id is in use."},
			{Word: "74", Text: "An output could not be written completely, because the disk is full, for example."},
			{Word: "75", Text: "The command may succeed later: a limit is reached, another viewer is attached, the connection was lost, or a viewer has detached before its input reached the session."},
			{Word: "76", Text: "Both sides have no protocol in common, or the new supervisor cannot continue the work of the old one."},
			{Word: "77", Text: "The command is not permitted."},
			{Word: "78", Text: "A setting is wrong, in the file or in the environment."},
			{Word: "124", Text: "The given time is over."},
		}},
	{Title: "ENVIRONMENT", Text: "Each setting among the options of proxy serve has a variable: HOLDFAST_IDLE_TIMEOUT is --idle-timeout. The other variables are:",
		Items: []manual.Item{
			{Word: "HOLDFAST_DIR", Text: "The directory for all files; --dir takes precedence."},
			{Word: "HOLDFAST_SUPERVISOR", Text: "The supervisor's program, if it is not beside this one."},
			{Word: "HOLDFAST_SESSION", Text: "Set in a session: its id."},
			{Word: "HOLDFAST_INSTANCE", Text: "Set in a session: its instance, which distinguishes it from all other sessions of that id."},
			{Word: "XDG_RUNTIME_DIR, XDG_STATE_HOME, XDG_CONFIG_HOME", Text: "The user's directories; holdfast uses one directory in each. If the first is not set, Linux uses /run/user/UID."},
			{Word: "NO_COLOR", Text: "If it is set, search prints no colours."},
		}},
	{Title: "FILES", Text: "With HOLDFAST_DIR or --dir all files are in that directory. On macOS they are in " +
		"Library/Application Support/holdfast, and sockets in run below it.",
		Items: []manual.Item{
			{Word: "$XDG_RUNTIME_DIR/holdfast/proxy.sock", Text: "The socket of the api."},
			{Word: "$XDG_RUNTIME_DIR/holdfast/proxy.web.sock", Text: "The same over WebSocket, with /metrics and /healthz."},
			{Word: "$XDG_STATE_HOME/holdfast/", Text: "Logs and tokens. Input and output are never logged."},
			{Word: "$XDG_CONFIG_HOME/holdfast/holdfast.json", Text: "Settings: an object, with _ for the - of options."},
		}},
}
