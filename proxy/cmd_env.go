package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/agent"
)

// followed are the variables that say where a viewer is: its display, its bus, its
// agents, and the ssh connection it came by. What its terminal is like (COLORTERM,
// TERM_PROGRAM) is not among them: a session has a terminal of its own.
var followed = []string{
	"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS",
	"SSH_AUTH_SOCK", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "KRB5CCNAME",
}

// viewerEnv returns what of an environment a viewer tells of itself.
func viewerEnv(environ []string) (env []string) {
	for _, e := range environ {
		if name, value, _ := strings.Cut(e, "="); slices.Contains(followed, name) && len(value) <= maxTold {
			env = append(env, e)
		}
	}
	return env
}

// maxTold bounds one value: all of them are to fit into what a viewer may tell.
const maxTold = protocol.MaxViewerEnvBytes / 16

func (a *app) envCommand() *cobra.Command {
	shell := "sh"
	cmd := a.jsonFlag(a.oneSession("env ID", "Print the environment of who attached last, for a shell to follow", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			env, err := c.Environment(cmd.Context(), id)
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(cmd, append([]string{}, env...))
			}
			if len(env) == 0 {
				fmt.Fprintf(stderr, "proxy: no viewer of %s has told of its environment\n", id)
				return nil
			}
			dirs, err := a.dirs()
			if err != nil {
				return err
			}
			return printEnv(cmd.OutOrStdout(), env, shell, filepath.Join(dirs.Runtime, agent.Name))
		}))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if shell != "sh" && shell != "fish" {
			return usage(fmt.Errorf("--shell is sh or fish, it is %.40q", shell))
		}
		return nil
	}
	cmd.Long = "Print where who attached last has its display, its bus, its agents, and the ssh connection\n" +
		"it came by, as lines for a shell in the session, which has those of whoever started it:\n" +
		strings.Join(followed, ", ") + ". What the viewer\n" +
		"has not is unset. Nothing else is printed, whatever a viewer tells, but by --json.\n\n" +
		"SSH_AUTH_SOCK needs none of it: sessions have a link there, which leads to the agent of\n" +
		"who attached last (setting agent_link)."
	cmd.Example = "  eval \"$(proxy env \"$HOLDFAST_SESSION\")\"\n" +
		"  proxy env \"$HOLDFAST_SESSION\" --shell fish | source"
	cmd.Flags().StringVar(&shell, "shell", shell, "`whose` words: sh (bash, zsh, too) or fish")
	_ = cmd.RegisterFlagCompletionFunc("shell", cobra.FixedCompletions([]cobra.Completion{"sh", "fish"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.MarkFlagsMutuallyExclusive("shell", "json")
	return cmd
}

// printEnv writes a line for each variable that is followed. An agent is found by the
// link, where there is one that leads to it or to another one's: it stays right.
func printEnv(w io.Writer, env []string, shell, link string) error {
	values := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	told, has := values["SSH_AUTH_SOCK"]
	if to, err := os.Readlink(link); err == nil && (!has || to == told) {
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
			line = "export " + name + "=" + shellQuoted(value)
		case shell == "fish":
			line = "set -e " + name
		}
		_, err := fmt.Fprintln(w, line)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// shellQuoted returns s as one word of a shell's, in which nothing has a meaning.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
