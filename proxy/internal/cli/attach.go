package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/shared/config"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// attachOptions are the flags of attach, and facts for one attachment.
type attachOptions struct {
	readOnly, exclusive, steal, pace bool
	view                             protocol.View
	detachKey                        string
	keys                             front.DetachKey // parsed from detachKey

	isRemote bool          // the session is on another host
	fresh    bool          // the session was started for this terminal, which must show all of its output
	early    time.Duration // a failure within this time after the start is exited_early
	reopened bool          // the session replaced an exited one of the same id
	isRun    bool          // the command run makes requests while it is attached, and after that

	earlyInput []byte          // input from before the attachment, for the session
	before     *front.Terminal // the terminal as the attachment before this one has left it, or nil
	detached   bool            // the user pressed the detach keys
	leftOut    []string        // variables that are not passed to the session, and about which the user was warned: see textOf

	sent struct { // sent to the session when attaching
		size  protocol.Size
		looks protocol.Appearance
	}
}

// flags adds the flags of attach to cmd. SIGQUIT then ends cmd as SIGINT does: until the terminal is in raw mode, it
// makes SIGQUIT of the first detach key, and the default action prints all goroutines.
func (o *attachOptions) flags(a *App, cmd *cobra.Command) {
	cmd.PreRun = func(*cobra.Command, []string) { a.ending.catchToo(syscall.SIGQUIT) }
	f := cmd.Flags()
	f.BoolVar(&o.readOnly, "read-only", false, "view without sending input; ctrl-c detaches")
	f.BoolVar(&o.exclusive, "exclusive", false, "let no other viewer send input")
	f.BoolVar(&o.steal, "steal", false, "detach all other viewers that can send input; implies --exclusive")
	f.BoolVar(&o.pace, "pace", false, "make the program wait until this terminal has shown its output, at most 10 s at a time; needs --exclusive")
	ChoiceVar(cmd, &o.view, "view", protocol.ViewOwn,
		"`how` a session of another size is shown: own lays its screen out for this terminal, raw prints its output unchanged", protocol.ViewOwn, protocol.ViewRaw)
	f.StringVar(&o.detachKey, "detach-key", "", "`keys` that detach, or none (default the setting detach_key, or "+front.DefaultDetachKey+")")
}

// checkAttach completes the options by the settings, and reports invalid ones before a process is
// started.
func (a *App) checkAttach(o *attachOptions) error {
	o.isRemote = a.Host != ""
	if o.detachKey == "" {
		cfg, err := a.Settings()
		if err != nil {
			return err
		}
		if o.detachKey = cmp.Or(cfg.DetachKey, front.DefaultDetachKey); cfg.DetachKey != "" {
			if _, err := front.ParseDetachKey(cfg.DetachKey); err != nil {
				return fmt.Errorf("%w: the setting detach_key is %.40q: %s", config.ErrInvalid, cfg.DetachKey, err.Error())
			}
		}
	}
	return o.check()
}

// check reports options that are invalid or exclude each other.
func (o *attachOptions) check() error {
	if o.readOnly && (o.exclusive || o.steal) {
		return exitcode.WrongUsagef("--read-only goes with neither --exclusive nor --steal")
	}
	if o.pace && o.mode() != protocol.ModeExclusive {
		return exitcode.WrongUsagef("--pace needs --exclusive, because other viewers would have to wait as well")
	}
	var err error
	o.keys, err = front.ParseDetachKey(o.detachKey)
	return err
}

// mode returns the mode of the attachment.
func (o *attachOptions) mode() protocol.Mode {
	switch {
	case o.readOnly:
		return protocol.ModeReadOnly
	case o.exclusive || o.steal: // a shared attachment cannot detach other viewers
		return protocol.ModeExclusive
	}
	return protocol.ModeShared
}

// request returns the options of the attach request. A session that was started for this terminal
// is shown from its first byte, including its queries to the terminal, even if it has already
// ended.
func (o *attachOptions) request(s *protocol.SessionInfo, t *front.Terminal) client.AttachOptions {
	r := client.AttachOptions{Mode: o.mode(), Steal: o.steal, Pace: o.pace, Term: os.Getenv("TERM"), IsTTY: t.IsTerminal(), TakeOver: !o.isRun}
	if !o.readOnly && !o.isRemote { // a read-only viewer does not change the session's viewer environment, and another host cannot use it
		r.Env = o.textOf(viewerEnv(os.Environ()))
	}
	r.Answers = t.Escapes() && t.HasKeyboard()
	o.sent.size = t.Size()
	r.Cols, r.Rows = o.sent.size.Cols, o.sent.size.Rows
	if t.Escapes() && r.Cols > 0 { // otherwise the terminal cannot draw a screen
		r.View = o.view
	}
	if o.sent.looks = t.Appearance(); !o.readOnly && o.sent.looks != (protocol.Appearance{}) {
		r.Appearance = &o.sent.looks
	}
	switch {
	case o.fresh:
		r.Resume = &protocol.Resume{Instance: s.Instance}
	case s.Instance != "" && s.ExitCode == nil && !t.Escapes(): // the terminal cannot draw a screen
		r.Resume = &protocol.Resume{Instance: s.Instance, Offset: s.RingStart}
	}
	return r
}

func (a *App) attachCommand() *cobra.Command {
	o := &attachOptions{}
	cmd := &cobra.Command{
		Use:   "attach [ID]",
		Short: "Attach this terminal to a session; exits with the child's code",
		Long: "Attach this terminal to a session until the session ends or the detach keys are pressed. Exits with the child's code.\n" +
			"Without an ID, attach chooses the only running session. If several run, it shows a list, with the session that was\n" +
			"active last at the top; without a terminal it attaches to that session.\n\n" +
			"If the output goes to a pipe or a file and no other viewer is attached, the session waits for the reader of the\n" +
			"output, at most 10 s at a time; other viewers then need --read-only or --steal. If output is skipped nevertheless,\n" +
			"attach reports that on standard error. If input may not have reached the session when you detach, because no\n" +
			"proxy answers or the program does not read, attach reports that on standard error, too, and exits with 75.",
		Example:           "  proxy attach build               # ctrl-\\ d detaches\n  proxy attach build --read-only   # look, and let others type",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.sessionIDs(alive),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if err := a.checkAttach(o); err != nil {
					return err
				}
				return a.withClient(cmd.Context(), func(c *client.Client) error {
					sessions, err := a.attachable(cmd.Context(), c)
					if err != nil {
						return err
					}
					s, err := a.pick(cmd.Context(), sessions, o)
					if err != nil {
						return err
					}
					return a.attachTo(cmd.Context(), c, &protocol.SessionInfo{ID: s.ID}, o)
				})
			}
			id, err := a.sessionID(cmd.Context(), args[0])
			if err := errors.Join(err, a.checkAttach(o)); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				if err := a.notItself(cmd.Context(), c, id); err != nil {
					return err
				}
				return a.attachTo(cmd.Context(), c, &protocol.SessionInfo{ID: id}, o)
			})
		},
	}
	o.flags(a, cmd)
	return cmd
}

// attachTo connects this terminal with a session until the session ends or the viewer detaches.
func (a *App) attachTo(ctx context.Context, c *client.Client, s *protocol.SessionInfo, o *attachOptions) error {
	// The default action of these signals would leave the terminal in raw mode.
	ctx, stop := a.ending.catch(ctx, syscall.SIGQUIT)
	defer stop()
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	t := a.ending.open()
	if o.before != nil {
		t = a.ending.restores(o.before.Again())
	}
	t.Unread(o.earlyInput)
	if !t.Escapes() && !o.fresh {
		info, err := c.SessionInfo(ctx, s.ID)
		if err != nil {
			return orSignalled(ctx, err)
		}
		s = info
	}
	att, err := o.open(ctx, c, s, t)
	if err != nil {
		return orSignalled(ctx, tellExited(err))
	}
	a.answered()
	if err := t.Raw(); err != nil {
		return errors.Join(err, att.Detach())
	}
	// From here on the terminal must be restored in every case, even after a panic.
	defer t.Restore()
	end := front.View(ctx, att, t, front.ViewOptions{DetachKey: o.keys, ReadOnly: o.readOnly, Size: o.sent.size, Appearance: o.sent.looks})
	t.Restore()
	if exit := att.Exit(); end == nil && exit != nil && exit.Reason == protocol.ReasonLost {
		return a.offerRevival(ctx, c, att, t, o)
	}
	return o.report(ctx, c, att, t, end)
}

// report prints how the view ended, and returns the error with the exit code of the command. It also prints how
// much input may be lost, because the session has not acknowledged it.
func (o *attachOptions) report(ctx context.Context, c *client.Client, att *client.Attachment, t *front.Terminal, end error) error {
	info := att.Info().Session
	switch {
	case errors.Is(end, front.ErrDetached):
		t.Say("[detached from %s]", info.ID)
		o.detached = true
		if noteUndelivered(att, t) {
			return exitcode.New(sysexits.TempFail, "")
		}
		return nil
	case errors.Is(end, front.ErrGone): // as after SIGHUP
		t.Say("[detached from %s: %v]", info.ID, end)
		noteUndelivered(att, t)
		return exitcode.New(signalled{syscall.SIGHUP}.exitCode(), "")
	case ctx.Err() != nil:
		if by, ok := context.Cause(ctx).(signalled); ok {
			t.Say("[detached from %s by a signal]", info.ID)
			noteUndelivered(att, t)
			return exitcode.New(by.exitCode(), "")
		}
		t.Say("[detached from %s]", info.ID) // --timeout of run is over
		noteUndelivered(att, t)
		return ctx.Err()
	case errors.Is(end, client.ErrStolen):
		t.Say("[detached from %s]", info.ID)
		noteUndelivered(att, t)
		return end
	case end != nil:
		t.Say("[lost %s]", info.ID)
		noteUndelivered(att, t)
		return end
	}
	exit := att.Exit()
	if exit.ExitCode != 0 {
		if err := earlyExit(ctx, c, &info, o); err != nil {
			return err
		}
	}
	if exit.Signal != "" {
		t.Say("[%s ended by %s]", info.ID, plain.Text(exit.Signal))
	}
	return childExit(exit.ExitCode)
}

// noteUndelivered prints how many bytes of input the session has not acknowledged, and reports whether there are any.
func noteUndelivered(att *client.Attachment, t *front.Terminal) bool {
	n := att.Unacknowledged() + t.Refused()
	if n > 0 {
		Note("%s of input may not have reached session %s, because no acknowledgement came; attach again, and look before you repeat the input",
			plain.Count(n, "byte"), att.Info().Session.ID)
	}
	return n > 0
}

// open attaches. If the output goes to a pipe or a file, the session must wait for its reader, like
// a program that writes to the pipe itself; otherwise a slow reader would miss most of the output
// of a fast program. Only an exclusive attachment can make the session wait. open therefore tries
// one first, and makes an ordinary attachment if another viewer is attached, which would have to wait as well even if
// it is read-only, or if an exclusive one is not permitted. s must be recent.
func (o *attachOptions) open(ctx context.Context, c *client.Client, s *protocol.SessionInfo, t *front.Terminal) (*client.Attachment, error) {
	r := o.request(s, t)
	if t.IsTerminal() || r.Mode != protocol.ModeShared || s.Attachments > 0 {
		return c.Attach(ctx, s.ID, r)
	}
	paced := r
	paced.Mode, paced.Pace = protocol.ModeExclusive, true
	att, err := c.Attach(ctx, s.ID, paced)
	switch protocol.CodeOf(err) {
	case protocol.CodeAlreadyAttached, protocol.CodePermissionDenied:
		return c.Attach(ctx, s.ID, r)
	}
	return att, err
}
