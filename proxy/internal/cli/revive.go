package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/config"
	"holdfast/shared/mask"
	"holdfast/shared/sysexits"
)

const (
	// labelResume is the label with the command that continues a session's work: a JSON array, or a
	// command line for sh.
	labelResume = "resume_argv"
	// labelRevive is the label that replaces the setting "revive" for a session.
	labelRevive = "revive"
)

func (a *App) reviveCommand() *cobra.Command {
	o := &attachOptions{}
	var detach, all bool
	cmd := &cobra.Command{
		Use:   "revive ID|--all [-- argv...]",
		Short: "Start a session again that was lost with the machine, below its old screen",
		Long: "A session is lost if the machine has stopped, or lost power, while it ran. This command starts a new\n" +
			"child under the session's id and in its last directory: argv, or the command in the label " + labelResume + "\n" +
			"(a JSON array, or a command line for sh), or that of a template for the program, or otherwise your shell.\n" +
			"The setting or label " + labelRevive + " can choose the shell, or the session's own command instead of the shell.\n" +
			"The old screen and history stand above the new output.",
		Example:           "  proxy revive build\n  proxy revive build -- make -k\n  proxy revive --all",
		ValidArgsFunction: a.sessionIDs(func(s protocol.State) bool { return s == protocol.StateLost }),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, argv := args, []string(nil)
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				ids, argv = args[:n], args[n:]
			}
			if all != (len(ids) == 0) || len(ids) > 1 || all && argv != nil {
				return exitcode.WrongUsagef("revive takes one ID, or --all without a command")
			}
			ctx := cmd.Context()
			cfg, err := a.Settings()
			if err != nil {
				return err
			}
			if all {
				return a.withClient(ctx, func(c *client.Client) error { return a.reviveAll(cmd, c, cfg) })
			}
			id, err := a.sessionID(ctx, ids[0]) // before the connection, which is with the host in the name
			if err := errors.Join(err, a.checkAttach(o)); err != nil {
				return err
			}
			return a.withClient(ctx, func(c *client.Client) error {
				o.fresh, o.reopened, o.early = !detach, true, earlyTime
				s, err := a.revive(ctx, c, id, cfg, argv, !detach)
				if err != nil {
					return err
				}
				if detach {
					return a.detached(cmd, c, s, earlyTime, earlyTime)
				}
				return a.attachTo(ctx, c, &s.Session, o)
			})
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not attach; print the id")
	cmd.Flags().BoolVar(&all, "all", false, "all lost sessions; do not attach, and print their ids")
	o.flags(a, cmd)
	return cmd
}

// reviveAll revives all lost sessions. It continues after an error. A session whose command fails at once is lost again.
// A session that another command revives or forgets meanwhile is left to that command.
func (a *App) reviveAll(cmd *cobra.Command, c *client.Client, cfg config.Config) error {
	list, err := c.List(cmd.Context(), "")
	if err != nil {
		return err
	}
	var errs []error
	var started []*client.Spawned
	for _, s := range list {
		if s.State != protocol.StateLost {
			continue
		}
		again, err := a.revive(cmd.Context(), c, s.ID, cfg, nil, false)
		switch {
		case err == nil:
			started = append(started, again)
		case !isByAnother(err):
			errs = append(errs, fmt.Errorf("%s: %w", s.ID, err))
		}
	}
	end := time.Now().Add(earlyTime)
	for _, s := range started { // all of them are watched for the same time
		errs = append(errs, a.detached(cmd, c, s, earlyTime, max(time.Until(end), time.Millisecond)))
	}
	return errors.Join(errs...)
}

// errNotLost is in the error of revive if the session is not lost.
var errNotLost = errors.New("only a lost session can be revived")

// isByAnother reports whether an error of revive shows that another command has revived or forgotten the session, or does
// so now.
func isByAnother(err error) bool {
	switch protocol.CodeOf(err) {
	case protocol.CodeSessionExists, protocol.CodeSessionRunning, protocol.CodeSessionNotFound:
		return true
	}
	return errors.Is(err, errNotLost)
}

// revive starts a lost session again, with argv or the command that restartArgv chooses.
func (a *App) revive(ctx context.Context, c *client.Client, id protocol.SessionID, cfg config.Config, argv []string, here bool) (*client.Spawned, error) {
	info, err := c.SessionInfo(ctx, id)
	if err != nil {
		return nil, err
	}
	if info.State != protocol.StateLost {
		return nil, exitcode.With(sysexits.Usage, fmt.Errorf("session %s is %s; %w", id, info.State, errNotLost))
	}
	change := protocol.RespawnSpec{Argv: argv, KeepScreen: true}
	if info.Lost != nil {
		if change.Cwd = info.Lost.Cwd; a.Host == "" {
			change.Cwd = existing(change.Cwd)
		}
	}
	if len(argv) == 0 {
		if change.Argv, err = restartArgv(info, cfg, loginShell(a.Host != "")); err != nil {
			return nil, err
		}
	}
	if here {
		change.Cols, change.Rows = reopenSize(info)
	}
	none := time.Duration(0)
	return c.Reopen(ctx, id, change, &none)
}

// restartArgv returns the command that starts a lost session again: a shell, the command that continues
// the session's work, or nil for the command of the session itself. The supervisor has that command, and
// s may have only its first arguments (protocol.CutArgv). restartArgv returns nil only if the user has
// chosen that, because a command that runs twice may do harm.
func restartArgv(s *protocol.SessionInfo, cfg config.Config, shell []string) ([]string, error) {
	way := wayToRevive(s, cfg)
	if way == config.ReviveShell {
		return shell, nil
	}
	resume := strings.TrimSpace(s.Labels[labelResume])
	switch {
	case strings.HasPrefix(resume, "["):
		var argv []string
		if err := json.Unmarshal([]byte(resume), &argv); err != nil || len(argv) == 0 {
			return nil, exitcode.WrongUsagef("the label %s of session %s is no JSON array of a command and its arguments", labelResume, s.ID)
		}
		return argv, nil
	case resume != "":
		return []string{"sh", "-c", resume}, nil
	}
	if len(s.Argv) > 0 {
		if argv := cfg.ResumeCommand(filepath.Base(s.Argv[0]), s.Labels); argv != nil {
			return argv, nil
		}
	}
	if way != config.ReviveArgv || len(s.Argv) == 0 {
		return shell, nil
	}
	if mask.MayHide(s.Argv) { // the supervisor refuses it, too, but cannot tell which command to use instead
		return nil, exitcode.WrongUsagef("the command of session %s contains a secret, which is not stored: name the command, as in proxy revive %s -- COMMAND", s.ID, s.ID)
	}
	return nil, nil
}

// loginShell returns the command of the user's login shell.
func loginShell(isRemote bool) []string {
	if isRemote { // sessions inherit SHELL from the remote supervisor, which has that of the user there
		return []string{"sh", "-c", `exec "${SHELL:-/bin/sh}" -l`}
	}
	return []string{config.LoginShell(), "-l"}
}

// wayToRevive returns the value of the session's label "revive", or the setting if the session has no
// such label. If the label is invalid, wayToRevive returns ask.
func wayToRevive(s *protocol.SessionInfo, cfg config.Config) config.Revive {
	label, hasLabel := s.Labels[labelRevive]
	switch way := config.Revive(label); {
	case !hasLabel:
		return cfg.Revive
	case way.IsValid():
		return way
	}
	return config.ReviveAsk
}

// existing returns dir, or "" if it does not exist any more.
func existing(dir string) string {
	if i, err := os.Stat(dir); err != nil || !i.IsDir() {
		return ""
	}
	return dir
}

// offerRevival tells the viewer of a lost session which screen it sees. It starts the session again if
// the setting or label "revive" says so, or if the user answers yes, and attaches to it. If another command has started it
// meanwhile, offerRevival attaches to that.
func (a *App) offerRevival(ctx context.Context, c *client.Client, att *client.Attachment, t *front.Terminal, o *attachOptions) error {
	// The attachment may be older than the loss, and then its info does not describe the loss.
	info, err := c.SessionInfo(ctx, att.Info().Session.ID)
	if err != nil {
		return err
	}
	cwd := info.Cwd
	if info.Lost != nil {
		cwd = cmp.Or(info.Lost.Cwd, cwd)
		t.Say("[%s was lost with the machine; this is its screen at %s, after %d bytes of output]", info.ID, info.Lost.SeenAt.Local().Format(time.DateTime), info.Lost.Offset)
	}
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	isAgreed := wayToRevive(info, cfg) != config.ReviveAsk
	switch {
	case o.readOnly || !t.IsTerminal() && !isAgreed:
		t.Say("[to start it again: %s revive %s]", installed.Name(), info.ID)
		return nil
	case isAgreed:
		t.Say("[it is started again in %s, because %s is %s]", cwd, labelRevive, wayToRevive(info, cfg))
	default:
		t.Say("[start it again in %s? y or n]", cwd)
		answer, err := t.ReadLine(ctx)
		if by, ok := context.Cause(ctx).(signalled); ok {
			return exitcode.New(by.exitCode(), "")
		}
		if err != nil || !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
			return nil
		}
	}
	o.before, o.earlyInput = t, nil
	s, err := a.revive(ctx, c, info.ID, cfg, nil, true)
	if isByAnother(err) { // such as another viewer of the lost session, which was asked as well
		if now, infoErr := c.SessionInfo(ctx, info.ID); infoErr == nil && now.State == protocol.StateRunning {
			return a.attachTo(ctx, c, now, o)
		}
	}
	if err != nil {
		return err
	}
	o.fresh, o.reopened, o.early = true, true, earlyTime
	return a.attachTo(ctx, c, &s.Session, o)
}

func (a *App) forgetCommand() *cobra.Command {
	cmd := a.manySessions("forget ID...", "Delete sessions that have ended or were lost, and what is stored of them",
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID) error {
			return c.Forget(cmd.Context(), id)
		})
	cmd.Long = "Delete sessions that have ended or were lost: their exit record, their screen and history, and the files\n" +
		"in which they are stored. This cannot be undone. A session that runs is not deleted; kill ends it."
	cmd.Example = "  proxy forget build"
	return cmd
}
