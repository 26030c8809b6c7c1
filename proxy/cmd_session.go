package main

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// oneSession makes a command whose first argument is a session's id.
func (a *app) oneSession(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, *client.Client, protocol.SessionID, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args, ValidArgsFunction: a.sessionIDs(anyState),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error { return run(cmd, c, id, args[1:]) })
		},
	}
}

func (a *app) resizeCommand() *cobra.Command {
	var size protocol.Size // 0 by 0 where none was given
	var name string
	cmd := a.oneSession("resize ID [COLSxROWS]", "Change a session's size, or whose size it has", cobra.RangeArgs(1, 2),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			ctx, policy := cmd.Context(), protocol.SizePolicy(name)
			if policy == protocol.SizeFixed { // from one moment on
				return c.SetSizePolicy(ctx, id, policy, size.Cols, size.Rows)
			}
			if policy != "" {
				if err := c.SetSizePolicy(ctx, id, policy, 0, 0); err != nil {
					return err
				}
			}
			if size == (protocol.Size{}) {
				return nil
			}
			return c.Resize(ctx, id, size.Cols, size.Rows)
		})
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if len(args) < 2 && name == "" {
			return usage(errors.New("nothing to change: give COLSxROWS or --policy"))
		}
		if len(args) > 1 {
			size, err = parseSize(args[1])
		}
		return errors.Join(err, protocol.SizePolicy(name).Validate())
	}
	cmd.Example = "  proxy resize build 120x40            # until its policy decides again\n  proxy resize build --policy largest"
	cmd.Long = "Change a session's size once, until its policy decides again; or the policy.\n\n" +
		"latest    the size of the viewer that typed last\n" +
		"owner     of the viewer that came first\n" +
		"smallest  the smallest of all viewers'\n" +
		"largest   the largest of all viewers'\n" +
		"fixed     of nobody; with COLSxROWS that one\n\n" +
		"No viewer's window makes a session smaller than " + protocol.Size{Cols: protocol.SmallestCols, Rows: protocol.SmallestRows}.String() + "."
	cmd.Flags().StringVar(&name, "policy", "", "`whose` size it has from now on")
	_ = cmd.RegisterFlagCompletionFunc("policy", sizePolicies)
	return cmd
}

func (a *app) clearCommand() *cobra.Command {
	var screen bool
	cmd := a.oneSession("clear ID", "Forget the lines above a session's screen", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			return c.Clear(cmd.Context(), id, screen)
		})
	cmd.Long = "Forget the lines above a session's screen, for all who see it: history, search and screen do not have them any more.\n\n" +
		"What the session has printed stays in its buffer: proxy export --format cast still has that, until newer output takes its place."
	cmd.Example = "  proxy clear build\n  proxy clear build --screen   # the screen, too, but the cursor's row"
	cmd.Flags().BoolVar(&screen, "screen", false, "the lines on the screen, too, but the cursor's row, which moves to the top")
	return cmd
}

func (a *app) renameCommand() *cobra.Command {
	var title string
	cmd := a.oneSession("rename ID TITLE", "Give a session a title, or take it away", cobra.ExactArgs(2),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			_, err := c.Rename(cmd.Context(), id, title)
			return err
		})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if title = args[1]; len(title) > protocol.MaxTitle || !utf8.ValidString(title) {
			return usage(fmt.Errorf("a title is text, at most %d bytes", protocol.MaxTitle))
		}
		return nil
	}
	cmd.Long = "Say what a session is called, for all who see it: its label title, which goes before what its program says, and is kept when it " +
		"is reopened. Its id stays as it is. An empty TITLE takes it away."
	cmd.Example = "  proxy rename build 'release 1.2'\n  proxy rename build ''"
	return cmd
}

// sizePolicies completes a flag that names one.
func sizePolicies(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{
		string(protocol.SizeLatest), string(protocol.SizeOwner), string(protocol.SizeSmallest), string(protocol.SizeLargest), string(protocol.SizeFixed),
	}, cobra.ShellCompDirectiveNoFileComp
}

func parseSize(s string) (protocol.Size, error) {
	var size protocol.Size
	var rest string
	n, _ := fmt.Sscanf(s, "%dx%d%s", &size.Cols, &size.Rows, &rest)
	if n != 2 || size.Cols < 1 || size.Rows < 1 || size != size.Normalize() {
		return size, usage(fmt.Errorf("a size is COLSxROWS, at most %dx%d, it is %.40q", protocol.MaxCols, protocol.MaxRows, s))
	}
	return size, nil
}

func (a *app) killCommand() *cobra.Command {
	var grace time.Duration
	var signal string
	var forget, all bool
	only := func(cmd *cobra.Command) bool { return signal != "" && !cmd.Flags().Changed("grace") && !all }
	kill := func(cmd *cobra.Command, c *client.Client, id protocol.SessionID) error {
		ctx := cmd.Context()
		if only(cmd) {
			return c.Signal(ctx, id, signal)
		}
		end := client.End{SoftSignal: signal, All: all}
		if cmd.Flags().Changed("grace") {
			end.Grace = &grace
		}
		err := c.Terminate(ctx, id, end)
		if errors.Is(err, protocol.ErrSessionExited) && forget {
			return c.Forget(ctx, id)
		}
		if err != nil {
			return err
		}
		if _, err := c.Wait(ctx, id, -1); err != nil {
			return err
		}
		if forget {
			return c.Forget(ctx, id)
		}
		return nil
	}
	cmd := a.oneSession("kill ID...", "End sessions, or only send them a signal", cobra.MinimumNArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, more []string) error {
			errs := []error{kill(cmd, c, id)}
			for _, arg := range more { // each is tried, whatever became of the one before
				id, err := sessionID(arg)
				if err == nil {
					err = kill(cmd, c, id)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if only(cmd) && forget {
			return usage(errors.New("--signal alone ends nothing, so there is nothing to --forget; add --grace"))
		}
		return nil
	}
	cmd.Example = "  proxy kill build --signal INT   # as ctrl-c does\n  proxy kill build --grace 2s\n  proxy kill build --all          # its daemons, too"
	cmd.Long = "End a session: SIGHUP to all of its process groups, a grace, then SIGKILL.\n\n" +
		"With --signal alone that signal is sent and nothing else happens; with --signal\n" +
		"and --grace it takes the place of SIGHUP.\n\n" +
		"With --all everything that the session has started is ended, also daemons that have\n" +
		"left its terminal, and also after the session has exited. That needs a control group\n" +
		"of its own: proxy doctor says whether sessions have one."
	spanVar(cmd.Flags(), &grace, "grace", 250*time.Millisecond, "time from the soft signal to SIGKILL")
	cmd.Flags().StringVar(&signal, "signal", "", "a `signal`: INT, SIGUSR1, 10")
	cmd.Flags().BoolVar(&all, "all", false, "end everything that it has started, also what has left its terminal")
	cmd.Flags().BoolVar(&forget, "forget", false, "forget the exit record too")
	return cmd
}
