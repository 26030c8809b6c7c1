package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
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
	view                             string
	detachKey                        string
	keys                             front.DetachKey // parsed from detachKey

	fresh    bool          // the session was started for this terminal, which must show all of its output
	early    time.Duration // a failure within this time after the start is exited_early
	reopened bool          // the session replaced an exited one of the same id

	earlyInput []byte // input from before the attachment, for the session
	detached   bool   // the user pressed the detach keys

	sent struct { // sent to the session when attaching
		size  protocol.Size
		looks protocol.Appearance
	}
}

// flags adds the flags of attach to cmd.
func (o *attachOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.readOnly, "read-only", false, "view without sending input; ctrl-c detaches")
	f.BoolVar(&o.exclusive, "exclusive", false, "let no other viewer send input")
	f.BoolVar(&o.steal, "steal", false, "detach all other viewers that can send input; implies --exclusive")
	f.BoolVar(&o.pace, "pace", false, "make the program wait until this terminal has shown its output, at most 10 s at a time; needs --exclusive")
	f.StringVar(&o.view, "view", string(protocol.ViewOwn),
		"`how` a session of another size is shown: own lays its screen out for this terminal, raw prints its output unchanged")
	_ = cmd.RegisterFlagCompletionFunc("view", cobra.FixedCompletions(
		[]cobra.Completion{string(protocol.ViewOwn), string(protocol.ViewRaw)}, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.detachKey, "detach-key", "", "`keys` that detach, or none (default the setting detach_key, or "+front.DefaultDetachKey+")")
}

// checkAttach completes the options by the settings, and reports invalid ones before a process is
// started.
func (a *app) checkAttach(o *attachOptions) error {
	if o.detachKey == "" {
		cfg, err := a.settings()
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
		return exitcode.WrongUsage(errors.New("--read-only goes with neither --exclusive nor --steal"))
	}
	if o.pace && o.mode() != protocol.ModeExclusive {
		return exitcode.WrongUsage(errors.New("--pace needs --exclusive, because other viewers would have to wait as well"))
	}
	if v := protocol.View(o.view); v != protocol.ViewOwn && v != protocol.ViewRaw {
		return exitcode.WrongUsage(fmt.Errorf("--view is %.40q: it must be own or raw", o.view))
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
	r := client.AttachOptions{Mode: o.mode(), Steal: o.steal, Pace: o.pace, Term: os.Getenv("TERM"), IsTTY: t.IsTerminal()}
	if !o.readOnly { // a read-only viewer does not change the session's viewer environment
		r.Env = viewerEnv(os.Environ())
	}
	r.Answers = t.Escapes() && t.HasKeyboard()
	o.sent.size = t.Size()
	r.Cols, r.Rows = o.sent.size.Cols, o.sent.size.Rows
	if t.Escapes() && r.Cols > 0 { // otherwise the terminal cannot draw a screen
		r.View = protocol.View(o.view)
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

func (a *app) attachCommand() *cobra.Command {
	o := &attachOptions{}
	cmd := &cobra.Command{
		Use:   "attach [ID]",
		Short: "Attach this terminal to a session; exits with the child's code",
		Long: "Attach this terminal to a session until the session ends or the detach keys are pressed. Exits with the child's code.\n" +
			"Without an ID, attach chooses the only running session. If several run, it shows a list, with the session that was\n" +
			"active last at the top; without a terminal it attaches to that session.\n\n" +
			"If the output goes to a pipe or a file and no other viewer is attached, the session waits for the reader of the\n" +
			"output, at most 10 s at a time; other viewers then need --read-only or --steal. If output is skipped nevertheless,\n" +
			"attach reports that on standard error.",
		Example:           "  proxy attach build               # ctrl-\\ d detaches\n  proxy attach build --read-only   # look, and let others type",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.sessionIDs(alive),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if err := a.checkAttach(o); err != nil {
					return err
				}
				return a.withClient(cmd.Context(), func(c *client.Client) error {
					sessions, err := attachable(cmd.Context(), c)
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
			id, err := sessionID(args[0])
			if err := errors.Join(err, a.checkAttach(o), notItself(id)); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				return a.attachTo(cmd.Context(), c, &protocol.SessionInfo{ID: id}, o)
			})
		},
	}
	o.flags(cmd)
	return cmd
}

// attachable returns the sessions that attach may choose without an id: all running ones except the
// session in which the command runs. The session with the last input or output comes first. It is
// an error if there is none.
func attachable(ctx context.Context, c *client.Client) ([]protocol.SessionInfo, error) {
	all, err := c.List(ctx, "")
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s protocol.SessionInfo) bool { return !alive(s.State) || notItself(s.ID) != nil })
	if len(all) == 0 {
		return nil, exitcode.New(sysexits.NoInput, "no session runs to attach to; proxy new starts one")
	}
	slices.SortStableFunc(all, func(a, b protocol.SessionInfo) int { return b.LastIOAt.Compare(a.LastIOAt) })
	return all, nil
}

// pick chooses the session for attach without an id. If there are several and the terminal can show
// a list, the user chooses; otherwise it is the first one. Input after the choice is stored in
// o.earlyInput.
func (a *app) pick(ctx context.Context, sessions []protocol.SessionInfo, o *attachOptions) (*protocol.SessionInfo, error) {
	t := front.Open(os.Stdin, os.Stdout)
	if len(sessions) == 1 || !t.HasKeyboard() || !t.Escapes() {
		return &sessions[0], nil
	}
	a.answered() // a user may take any time
	defer func() { a.answered = a.watchAnswers(ctx) }()
	ctx, stop := catch(ctx, syscall.SIGQUIT)
	defer stop()
	chosen, input, err := front.Pick(ctx, t, listItems(sessions))
	var by signalled
	switch {
	case errors.Is(err, front.ErrLeft):
		return nil, exitcode.New(signalled{syscall.SIGINT}.exitCode(), "")
	case errors.As(err, &by):
		return nil, exitcode.New(by.exitCode(), "")
	case err != nil:
		return nil, err
	}
	o.earlyInput = input
	return &sessions[chosen], nil
}

// listItems returns the items of the list from which the user chooses a session.
func listItems(sessions []protocol.SessionInfo) []front.Item {
	items := make([]front.Item, len(sessions))
	for i, s := range sessions {
		items[i] = front.Item{Name: string(s.ID), Age: since(s.LastIOAt), Runs: titleAndCommand(s), Dir: shortDir(whereIs(&s))}
	}
	return items
}

// whereIs returns the current directory of a session, or the one in which it was started if that is
// unknown.
func whereIs(s *protocol.SessionInfo) string {
	if s.CurrentCwd == "" && s.Foreground != nil {
		return cmp.Or(s.Foreground.Cwd, s.Cwd)
	}
	return cmp.Or(s.CurrentCwd, s.Cwd)
}

// shortDir abbreviates the home directory to ~.
func shortDir(dir string) string {
	home := strings.TrimSuffix(os.Getenv("HOME"), "/")
	if rest, ok := strings.CutPrefix(dir, home); ok && home != "" && (rest == "" || rest[0] == '/') {
		return "~" + rest
	}
	return dir
}

// detachCommand ends the attachments of other viewers. It needs no request of its own: it makes an
// exclusive attachment with Steal, which ends all other attachments that can send input, and
// detaches again.
func (a *app) detachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "detach [ID]",
		Short: "Detach all terminals that are attached to a session; the session continues",
		Long: "Detach all terminals, pages and programs that are attached to a session and can send input. The session continues.\n" +
			"Read-only viewers stay attached. Without an ID, detach uses the session in which the command runs.",
		Example:           "  proxy detach build\n  proxy detach           # in a session: detach all its viewers",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.sessionIDs(alive),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = append(args, os.Getenv("HOLDFAST_SESSION"))
			}
			if args[0] == "" {
				return exitcode.WrongUsage(errors.New("detach takes the ID of a session; in a terminal that is attached, " + front.DefaultDetachKey + " detaches"))
			}
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				none := 0
				att, err := c.Attach(cmd.Context(), id, client.AttachOptions{Mode: protocol.ModeExclusive, Steal: true, History: &none})
				if err != nil {
					return tellExited(err)
				}
				return att.Detach()
			})
		},
	}
}

// notItself returns an error if id is the session in which this command runs.
func notItself(id protocol.SessionID) error {
	if string(id) != os.Getenv("HOLDFAST_SESSION") {
		return nil
	}
	return exitcode.WrongUsage(fmt.Errorf("this terminal is session %s: a session cannot be attached to itself", id))
}

// attachTo connects this terminal with a session until the session ends or the viewer detaches.
func (a *app) attachTo(ctx context.Context, c *client.Client, s *protocol.SessionInfo, o *attachOptions) error {
	// The default action of these signals would leave the terminal in raw mode.
	ctx, stop := catch(ctx, syscall.SIGQUIT)
	defer stop()
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	t := front.Open(os.Stdin, os.Stdout)
	t.Unread(o.earlyInput)
	if !t.Escapes() && !o.fresh {
		info, err := c.SessionInfo(ctx, s.ID)
		if err != nil {
			return err
		}
		s = info
	}
	att, err := o.open(ctx, c, s, t)
	if err != nil {
		return tellExited(err)
	}
	a.answered()
	if err := t.Raw(); err != nil {
		return errors.Join(err, att.Detach())
	}
	// From here on the terminal must be restored in every case, even after a panic.
	defer t.Restore()
	end := front.View(ctx, att, t, front.ViewOptions{DetachKey: o.keys, ReadOnly: o.readOnly, Size: o.sent.size, Appearance: o.sent.looks})
	t.Restore()
	return o.report(ctx, c, att, t, end)
}

// report prints how the view ended, and returns the error with the exit code of the command.
func (o *attachOptions) report(ctx context.Context, c *client.Client, att *client.Attachment, t *front.Terminal, end error) error {
	info := att.Info().Session
	switch {
	case errors.Is(end, front.ErrDetached):
		t.Say("[detached from %s]", info.ID)
		o.detached = true
		return nil
	case ctx.Err() != nil:
		if by, ok := context.Cause(ctx).(signalled); ok {
			t.Say("[detached from %s by a signal]", info.ID)
			return exitcode.New(by.exitCode(), "")
		}
		t.Say("[detached from %s]", info.ID) // --timeout of run is over
		return ctx.Err()
	case end != nil:
		t.Say("[lost %s]", info.ID)
		return end
	}
	exit := att.Exit()
	if err := earlyExit(ctx, c, &info, o); err != nil {
		return err
	}
	if exit.Signal != "" {
		t.Say("[%s ended by %s]", info.ID, plain.Text(exit.Signal))
	}
	return childExit(exit.ExitCode)
}

// open attaches. If the output goes to a pipe or a file, the session must wait for its reader, like
// a program that writes to the pipe itself; otherwise a slow reader would miss most of the output
// of a fast program. Only an exclusive attachment can make the session wait. open therefore tries
// one first, and makes an ordinary attachment if another viewer is attached or if an exclusive one
// is not permitted.
func (o *attachOptions) open(ctx context.Context, c *client.Client, s *protocol.SessionInfo, t *front.Terminal) (*client.Attachment, error) {
	r := o.request(s, t)
	if t.IsTerminal() || r.Mode != protocol.ModeShared {
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

// earlyExit returns an error if the child has failed within o.early after its start. The session's
// exit record is kept, unless the session was reopened: then earlyExit restores the previous exit
// record.
func earlyExit(ctx context.Context, c *client.Client, s *protocol.SessionInfo, o *attachOptions) error {
	if o.early <= 0 || time.Since(s.CreatedAt) > o.early+startTimeout {
		return nil
	}
	record, err := c.Wait(ctx, s.ID, startTimeout) // the session has ended, so this does not block
	if err != nil || record.ExitCode == 0 || record.ExitedAt.Sub(record.StartedAt) > o.early {
		return nil // the record is unavailable, or the failure was not early
	}
	if o.reopened {
		removeFailed(ctx, c, s)
	}
	e := protocol.ExitedEarly(s.ID, record)
	e.Exit.Tail = nil // the terminal already shows it
	return tellEarlyExit(e)
}

// tellExited adds the session's last lines to the error session_exited.
func tellExited(err error) error {
	return tell(err, protocol.CodeSessionExited, sysexits.NoInput)
}

// tellEarlyExit adds the child's last lines to the error exited_early.
func tellEarlyExit(err error) error {
	return tell(err, protocol.CodeExitedEarly, sysexits.Software)
}

// tell adds the last lines to an error with the given code. The exit code is the child's; if that
// is 0, it is success, because the command has failed.
func tell(err error, code protocol.Code, success int) error {
	e := protocol.AsError(err)
	if err == nil || e.Code != code || e.Exit == nil {
		return err
	}
	text := e.Error()
	for _, l := range e.Exit.Tail {
		text += "\n  " + plain.Text(l)
	}
	if e.Exit.ExitCode > 0 {
		success = e.Exit.ExitCode
	}
	return exitcode.New(success, text)
}
