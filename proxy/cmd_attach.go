package main

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
	"holdfast/shared/config"
)

type attachOptions struct {
	readOnly, exclusive, steal, pace bool
	view                             string
	detachKey                        string

	fresh    bool          // it was started for this terminal, which shows all of its output
	early    time.Duration // an end with failure within this time of the start is exited_early
	reopened bool          // it was started in the place of a life that had ended

	detached bool // the user has left by the detach keys

	told struct { // of this terminal, when attaching
		size  protocol.Size
		looks protocol.Appearance
	}
}

func (o *attachOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.readOnly, "read-only", false, "look, do not type; ctrl-c detaches")
	f.BoolVar(&o.exclusive, "exclusive", false, "let nobody else type")
	f.BoolVar(&o.steal, "steal", false, "end the attachments of all others who type; implies --exclusive")
	f.BoolVar(&o.pace, "pace", false, "let the program wait for this terminal, 10 s at most at a time; needs --exclusive")
	f.StringVar(&o.view, "view", string(protocol.ViewOwn),
		"`what` is shown of a session of another size: own is its screen in this terminal's size, raw its output as it is")
	_ = cmd.RegisterFlagCompletionFunc("view", cobra.FixedCompletions(
		[]cobra.Completion{string(protocol.ViewOwn), string(protocol.ViewRaw)}, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.detachKey, "detach-key", "", "`keys` that detach, or none (default the setting detach_key, or "+defaultDetachKey+")")
}

// checkAttach completes the options by the settings, and reports mistakes before anything
// is started.
func (a *app) checkAttach(o *attachOptions) error {
	if o.detachKey == "" {
		cfg, err := a.settings()
		if err != nil {
			return err
		}
		if o.detachKey = cmp.Or(cfg.DetachKey, defaultDetachKey); cfg.DetachKey != "" {
			if _, err := parseDetachKey(cfg.DetachKey); err != nil {
				return fmt.Errorf("%w: the setting detach_key is %.40q: %s", config.ErrInvalid, cfg.DetachKey, err.Error())
			}
		}
	}
	return o.check()
}

func (o *attachOptions) check() error {
	if o.readOnly && (o.exclusive || o.steal) {
		return usage(errors.New("--read-only goes with neither --exclusive nor --steal"))
	}
	if o.pace && o.mode() != protocol.ModeExclusive {
		return usage(errors.New("--pace needs --exclusive: others would have to wait, too"))
	}
	if v := protocol.View(o.view); v != protocol.ViewOwn && v != protocol.ViewRaw {
		return usage(fmt.Errorf("--view is own or raw, it is %.40q", o.view))
	}
	_, err := parseDetachKey(o.detachKey)
	return err
}

func (o *attachOptions) mode() protocol.Mode {
	switch {
	case o.readOnly:
		return protocol.ModeReadOnly
	case o.exclusive || o.steal: // whom a shared attachment leaves be, it could not steal from
		return protocol.ModeExclusive
	}
	return protocol.ModeShared
}

// request says how to attach. What is fresh is shown from its first byte on,
// questions to the terminal included, also if it has ended by now.
func (o *attachOptions) request(s *protocol.SessionInfo, t *terminal) client.AttachOptions {
	r := client.AttachOptions{Mode: o.mode(), Steal: o.steal, Pace: o.pace, Term: os.Getenv("TERM"), IsTTY: t.isTerminal()}
	if !o.readOnly { // who only looks changes nothing
		r.Env = viewerEnv(os.Environ())
	}
	r.Answers = t.escapes() && isTerminal(t.in)
	o.told.size = t.size()
	r.Cols, r.Rows = o.told.size.Cols, o.told.size.Rows
	if t.escapes() && r.Cols > 0 { // else no screen can be drawn there
		r.View = protocol.View(o.view)
	}
	if o.told.looks = t.looks(); !o.readOnly && o.told.looks != (protocol.Appearance{}) {
		r.Appearance = &o.told.looks
	}
	switch {
	case o.fresh:
		r.Resume = &protocol.Resume{Instance: s.Instance}
	case s.Instance != "" && s.ExitCode == nil && !t.escapes(): // a screen cannot be drawn there
		r.Resume = &protocol.Resume{Instance: s.Instance, Offset: s.RingStart}
	}
	return r
}

func (a *app) attachCommand() *cobra.Command {
	o := &attachOptions{}
	cmd := &cobra.Command{
		Use:   "attach [ID]",
		Short: "Attach this terminal to a session; exits with the child's code",
		Long: "Attach this terminal to a session until it ends, or until the detach keys; exits with the child's code. Without an ID\n" +
			"it is the only session that runs, or of several the one that printed or was typed into last.\n\n" +
			"If the output goes to a pipe or a file and nobody else is attached, the session waits for whoever reads there,\n" +
			"at most 10 s at a time, and other viewers need --read-only or --steal meanwhile. What is skipped all the same is\n" +
			"told on standard error.",
		Example:           "  proxy attach build               # ctrl-\\ d detaches\n  proxy attach build --read-only   # look, and let others type",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.sessionIDs(alive),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if err := a.checkAttach(o); err != nil {
					return err
				}
				return a.withClient(cmd.Context(), func(c *client.Client) error {
					id, err := lastSession(cmd.Context(), c)
					if err != nil {
						return err
					}
					return a.attachTo(cmd.Context(), c, &protocol.SessionInfo{ID: id}, o)
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

// detachCommand ends the attachments of other terminals. An exclusive attachment that steals
// is what ends them, so no request of its own is needed. It has no size, and ends at once.
func (a *app) detachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "detach [ID]",
		Short: "Detach all terminals that are attached to a session; it goes on",
		Long: "Detach all terminals, pages and programs that are attached to a session and may type; the session goes on.\n" +
			"Those that only look stay. Without an ID it is the session in which the command runs.",
		Example:           "  proxy detach build\n  proxy detach           # in a session: leave it, wherever it is shown",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.sessionIDs(alive),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = append(args, os.Getenv("HOLDFAST_SESSION"))
			}
			if args[0] == "" {
				return usage(errors.New("detach takes the ID of a session; in a terminal that is attached, " + defaultDetachKey + " detaches"))
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

// lastSession is the session that attach means without an id: of those that run, and are
// not the one that this terminal is, the one with the last input or output.
func lastSession(ctx context.Context, c *client.Client) (protocol.SessionID, error) {
	all, err := c.List(ctx, "")
	if err != nil {
		return "", err
	}
	var last *protocol.SessionInfo
	for i, s := range all {
		if alive(s.State) && notItself(s.ID) == nil && (last == nil || s.LastIOAt.After(last.LastIOAt)) {
			last = &all[i]
		}
	}
	if last == nil {
		return "", &exitError{exitNoInput, "no session runs to attach to; proxy new starts one"}
	}
	return last.ID, nil
}

func notItself(id protocol.SessionID) error {
	if string(id) != os.Getenv("HOLDFAST_SESSION") {
		return nil
	}
	return usage(fmt.Errorf("this terminal is session %s; attached to itself it would show itself for ever", id))
}

// attachTo joins this terminal and a session until either ends.
func (a *app) attachTo(ctx context.Context, c *client.Client, s *protocol.SessionInfo, o *attachOptions) error {
	// A dump or a broken pipe would leave the terminal as it is.
	ctx, stop := catch(ctx, syscall.SIGQUIT)
	defer stop()
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	t := openTerminal(os.Stdin, os.Stdout)
	if !t.escapes() && !o.fresh {
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
	v, err := newViewer(att, t, o)
	if err == nil {
		err = t.raw()
	}
	if err != nil {
		return errors.Join(err, att.Detach())
	}
	// Whatever happens from here on, a panic included, this terminal is put
	// back as it was.
	defer t.restore()
	if t.talks() {
		v.ask()
	}
	end := v.run(ctx)
	t.restore()
	return v.report(ctx, c, o, end)
}

// open attaches. If the output goes to a pipe or a file, the session waits for its
// reader, as a program does that writes there itself: otherwise a slow reader would miss
// most of what a fast program prints. Only an exclusive attachment can have that, so it
// is tried first, and given up if somebody else is attached or it is not allowed.
func (o *attachOptions) open(ctx context.Context, c *client.Client, s *protocol.SessionInfo, t *terminal) (*client.Attachment, error) {
	r := o.request(s, t)
	if t.isTerminal() || r.Mode != protocol.ModeShared {
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

// earlyExit is the error of a session whose child has failed within the time after its start.
// Its record stays, unless the session was opened again: then the record before is back.
func earlyExit(ctx context.Context, c *client.Client, s *protocol.SessionInfo, o *attachOptions) error {
	if o.early <= 0 || time.Since(s.CreatedAt) > o.early+startTimeout {
		return nil
	}
	record, err := c.Wait(ctx, s.ID, startTimeout) // it has ended
	if err != nil || record.ExitCode == 0 || record.ExitedAt.Sub(record.StartedAt) > o.early {
		return nil // there is no telling, or it was not early
	}
	if o.reopened {
		removeFailed(ctx, c, s)
	}
	e := protocol.ExitedEarly(s.ID, record)
	e.Exit.Tail = nil // it stands on the terminal already
	return tellEarlyExit(e)
}

// tellExited puts a session's last lines under the error that it has exited.
func tellExited(err error) error {
	return tell(err, protocol.CodeSessionExited, exitNoInput)
}

// tellEarlyExit puts a child's last lines under the error.
func tellEarlyExit(err error) error {
	return tell(err, protocol.CodeExitedEarly, exitSoftware)
}

// tell puts the tail under an error of one code. The exit code is the child's,
// unless that was success, which this is not.
func tell(err error, code protocol.Code, success int) error {
	e := protocol.AsError(err)
	if err == nil || e.Code != code || e.Exit == nil {
		return err
	}
	text := e.Error()
	for _, l := range e.Exit.Tail {
		text += "\n  " + printable(l)
	}
	if e.Exit.ExitCode > 0 {
		success = e.Exit.ExitCode
	}
	return &exitError{success, text}
}
