package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/agent"
	"holdfast/shared/plain"
)

// followed lists the environment variables that depend on the place of the viewer: its display, its
// bus, its agents, and its ssh connection. Variables that describe the viewer's terminal
// (COLORTERM, TERM_PROGRAM) are not in the list, because a session has a terminal of its own.
var followed = []string{
	"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS",
	"SSH_AUTH_SOCK", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "KRB5CCNAME",
}

// splitText divides the variables of an environment into those that are UTF-8 and the others. A request cannot carry
// the others, because JSON would replace their bytes.
func splitText(environ []string) (text, others []string) {
	text = []string{}
	for _, e := range environ {
		if utf8.ValidString(e) {
			text = append(text, e)
		} else {
			others = append(others, e)
		}
	}
	return text, others
}

// warnNotText tells which variables are not passed to a session, because they are not UTF-8. It prints no values, which
// may be secret.
func warnNotText(others []string) {
	var names []string
	unnamed := 0
	for _, e := range others {
		if name, _, _ := strings.Cut(e, "="); utf8.ValidString(name) {
			names = append(names, plain.Text(name))
		} else {
			unnamed++
		}
	}
	if unnamed > 0 {
		names = append(names, fmt.Sprintf("%d whose name is not text either", unnamed))
	}
	if len(names) > 0 {
		Warn("variables that are not UTF-8 text are not passed to the session: %s", strings.Join(names, ", "))
	}
}

// textOf returns the variables of an environment that are UTF-8, and warns about the others. It warns about a variable
// once, although a command that starts a session and attaches to it sends some variables twice.
func (o *attachOptions) textOf(environ []string) []string {
	text, others := splitText(environ)
	others = slices.DeleteFunc(others, func(e string) bool { return slices.Contains(o.leftOut, e) })
	warnNotText(others)
	o.leftOut = append(o.leftOut, others...)
	return text
}

// viewerEnv returns the part of an environment that a viewer sends when it attaches.
func viewerEnv(environ []string) (env []string) {
	for _, e := range environ {
		if name, value, _ := strings.Cut(e, "="); slices.Contains(followed, name) && len(value) <= maxViewerValue {
			env = append(env, e)
		}
	}
	return env
}

// maxViewerValue bounds the size of one value, so that all values fit into the limit of the protocol.
const maxViewerValue = protocol.MaxViewerEnvBytes / 16

func (a *App) envCommand() *cobra.Command {
	var shell string
	cmd := a.JSONFlag(a.oneSession("env ID", "Print the environment of the viewer that attached last, for a shell to use", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			env, err := c.Environment(cmd.Context(), id)
			if err != nil {
				return err
			}
			if a.JSON {
				return PrintJSON(cmd, append([]string{}, env...))
			}
			if len(env) == 0 {
				Note("no viewer of %s has sent its environment", id)
				return nil
			}
			dirs, err := a.Dirs()
			if err != nil {
				return err
			}
			return printEnv(cmd.OutOrStdout(), env, shell, filepath.Join(dirs.Runtime, agent.Name))
		}))
	cmd.Long = "Print the display, the bus, the agents and the ssh connection of the viewer that attached last,\n" +
		"as commands for a shell in the session. The shell itself has those of the viewer that started it.\n" +
		"The variables are " + strings.Join(followed, ", ") + ".\n" +
		"Variables that the viewer does not have are unset. Other variables are printed only with --json.\n\n" +
		"SSH_AUTH_SOCK needs no such command: sessions use a link there, which leads to the agent of\n" +
		"the viewer that attached last (setting agent_link)."
	cmd.Example = "  eval \"$(proxy env \"$HOLDFAST_SESSION\")\"\n" +
		"  proxy env \"$HOLDFAST_SESSION\" --shell fish | source"
	ChoiceVar(cmd, &shell, "shell", "sh", "the `shell` that reads the output: sh (also for bash and zsh) or fish", "sh", "fish")
	cmd.MarkFlagsMutuallyExclusive("shell", "json")
	return cmd
}

// printEnv prints a command for each followed variable. If the link leads to the viewer's agent or
// to another viewer's, printEnv prints the link instead of the agent's socket, because the link
// stays valid.
func printEnv(w io.Writer, env []string, shell, link string) error {
	values := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	listed, has := values["SSH_AUTH_SOCK"]
	if to, err := os.Readlink(link); err == nil && (!has || to == listed) {
		values["SSH_AUTH_SOCK"] = link
	}
	var errs []error
	for _, name := range followed {
		value, has := values[name]
		line := "unset " + name
		switch {
		case has && shell == "fish":
			line = "set -gx " + name + " '" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
		case has:
			line = "export " + name + "=" + plain.ShellWord(value)
		case shell == "fish":
			line = "set -e " + name
		}
		_, err := fmt.Fprintln(w, line)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
