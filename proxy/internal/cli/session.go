package cli

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
)

// oneSession returns a command with a first argument that is a session's id.
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
	var size protocol.Size // zero if no size was given
	var name string
	cmd := a.oneSession("resize ID [COLSxROWS]", "Change a session's size, or its size policy", cobra.RangeArgs(1, 2),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			ctx, policy := cmd.Context(), protocol.SizePolicy(name)
			if policy == protocol.SizeFixed { // the supervisor sets policy and size in one step
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
			return exitcode.WrongUsage(errors.New("nothing to change: give COLSxROWS or --policy"))
		}
		if len(args) > 1 {
			size, err = parseSize(args[1])
		}
		return errors.Join(err, protocol.SizePolicy(name).Validate())
	}
	cmd.Example = "  proxy resize build 120x40            # until its policy changes it again\n  proxy resize build --policy largest"
	cmd.Long = "Change a session's size once, until its size policy changes it again; or change the policy.\n\n" +
		"latest    the size of the viewer that sent input last\n" +
		"owner     the size of the viewer that attached first\n" +
		"smallest  the smallest size of all viewers\n" +
		"largest   the largest size of all viewers\n" +
		"fixed     COLSxROWS, or the current size; no viewer changes it\n\n" +
		"No viewer's window makes a session smaller than " + protocol.Size{Cols: protocol.SmallestCols, Rows: protocol.SmallestRows}.String() + "."
	cmd.Flags().StringVar(&name, "policy", "", "the `policy` from now on: latest, owner, smallest, largest or fixed")
	_ = cmd.RegisterFlagCompletionFunc("policy", sizePolicies)
	return cmd
}

func (a *app) clearCommand() *cobra.Command {
	var screen bool
	cmd := a.oneSession("clear ID", "Forget the lines above a session's screen", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			return c.Clear(cmd.Context(), id, screen)
		})
	cmd.Long = "Forget the lines above a session's screen, for all viewers: history, search and screen do not have them any more.\n\n" +
		"The session's output stays in its buffer: proxy export --format cast prints it until newer output has replaced it."
	cmd.Example = "  proxy clear build\n  proxy clear build --screen   # the screen as well, except the cursor's row"
	cmd.Flags().BoolVar(&screen, "screen", false, "clear the screen as well, except the cursor's row, which moves to the top")
	return cmd
}

func (a *app) renameCommand() *cobra.Command {
	var title string
	cmd := a.oneSession("rename ID TITLE", "Set or remove a session's title", cobra.ExactArgs(2),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			_, err := c.Rename(cmd.Context(), id, title)
			return err
		})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if title = args[1]; len(title) > protocol.MaxTitle || !utf8.ValidString(title) {
			return exitcode.WrongUsage(fmt.Errorf("a title is text, at most %d bytes", protocol.MaxTitle))
		}
		return nil
	}
	cmd.Long = "Set the title of a session for all viewers. It is the label title. It takes precedence over the title that a program sets, and " +
		"a reopened session keeps it. The id does not change. An empty TITLE removes the title."
	cmd.Example = "  proxy rename build 'release 1.2'\n  proxy rename build ''"
	return cmd
}

// sizePolicies completes the names of size policies.
func sizePolicies(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{
		string(protocol.SizeLatest), string(protocol.SizeOwner), string(protocol.SizeSmallest), string(protocol.SizeLargest), string(protocol.SizeFixed),
	}, cobra.ShellCompDirectiveNoFileComp
}

// parseSize parses COLSxROWS.
func parseSize(s string) (protocol.Size, error) {
	var size protocol.Size
	var rest string
	n, _ := fmt.Sscanf(s, "%dx%d%s", &size.Cols, &size.Rows, &rest)
	if n != 2 || size.Cols < 1 || size.Rows < 1 || size != size.Normalize() {
		return size, exitcode.WrongUsage(fmt.Errorf("a size must be COLSxROWS, at most %dx%d, it is %.40q", protocol.MaxCols, protocol.MaxRows, s))
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
			for _, arg := range more { // the next session is tried even if this one fails
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
			return exitcode.WrongUsage(errors.New("--signal alone does not end a session, so --forget needs --grace as well"))
		}
		return nil
	}
	cmd.Example = "  proxy kill build --signal INT   # as ctrl-c does\n  proxy kill build --grace 2s\n  proxy kill build --all          # and its daemons"
	cmd.Long = "End a session: send SIGHUP to all of its process groups, wait for the grace time, then send SIGKILL.\n\n" +
		"With --signal alone, kill only sends that signal. With --signal and --grace, it sends that signal\n" +
		"instead of SIGHUP.\n\n" +
		"With --all it ends every process that the session has started, even daemons that have left its\n" +
		"terminal, and even after the session has exited. That needs a control group for the session;\n" +
		"proxy doctor tells whether sessions have one."
	spanVar(cmd.Flags(), &grace, "grace", 250*time.Millisecond, "time from the first signal to SIGKILL")
	cmd.Flags().StringVar(&signal, "signal", "", "the `signal`, such as INT, SIGUSR1 or 10")
	cmd.Flags().BoolVar(&all, "all", false, "end every process that it has started, even those that have left its terminal")
	cmd.Flags().BoolVar(&forget, "forget", false, "forget the exit record as well")
	return cmd
}
