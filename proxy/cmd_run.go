package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

type runOptions struct {
	newOptions        // of its flags, those that say what to start and how
	timeout           time.Duration
	kill, text, asOne bool // asOne: --json
}

func (a *app) runCommand() *cobra.Command {
	o := &runOptions{}
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "run [flags] [--] argv...",
		Short: "Run one command in a session, print its output, and exit with its code",
		RunE: func(cmd *cobra.Command, argv []string) error {
			if len(argv) == 0 {
				return usage(errors.New("there is no command to run"))
			}
			o.asOne = a.json
			return a.run(cmd, o, argv)
		},
	})
	cmd.Long = "Run one command in a session, print its output as it comes, and exit with its code\n" +
		"(128+n for a signal). The command outlives this one, the proxy and the supervisor.\n\n" +
		"With --id the same run is come back to, from wherever the same command line is given\n" +
		"again: what it printed is printed from the start, as far as it is kept, and its code is\n" +
		"returned, also when it has ended; for as long as exit records are kept (exit_keep), or\n" +
		"until proxy kill --forget. Another command with the id of a run is session_exists.\n" +
		"Without --id the session is forgotten when it has ended and was printed.\n\n" +
		"In a terminal its keys go to the command, ctrl-c too, as with attach; the detach keys\n" +
		"leave it running, with exit code 75. Elsewhere nothing is typed: standard input is not\n" +
		"read, CRLF is printed as LF, and SIGINT is passed on to the command; a second one ends\n" +
		"it. Any other signal, or a broken pipe, leaves a run with --id as it is, and ends one\n" +
		"without. While it is printed into a pipe, the command waits for whoever reads there,\n" +
		"at most 10 s at a time, and attach needs --read-only or --steal."
	cmd.Example = "  proxy run -- make -j8\n" +
		"  proxy run --id nightly --timeout 1h -- ./backup.sh   # the same line again comes back to it\n" +
		"  proxy run --json -- go test ./..."
	f := cmd.Flags()
	f.SetInterspersed(false) // flags behind the command's name are the command's
	f.StringVar(&o.id, "id", "", "the run's `id`: the same one returns the same run")
	spanVar(f, &o.timeout, "timeout", 0, "wait no longer than this `time`, and exit with 124; the run goes on (default for ever)")
	f.BoolVar(&o.kill, "kill", false, "with --timeout: end the run then")
	f.BoolVar(&o.text, "text", false, "print its lines when it has ended, as a screen shows them, without escape sequences")
	f.StringVar(&o.size, "size", "", "`COLSxROWS`, which it keeps (default this terminal's, else 80x24)")
	o.flags(cmd)
	f.Lookup("timeout").DefValue = "0s" // not shown
	cmd.MarkFlagsMutuallyExclusive("text", "json")
	_ = cmd.RegisterFlagCompletionFunc("id", a.sessionIDs(anyState))
	return cmd
}

// spawnRequest is the same for the same id: it can be repeated by whoever comes later.
func (o *runOptions) spawnRequest(argv []string) (client.SpawnRequest, error) {
	if o.timeout < 0 || o.kill && o.timeout == 0 {
		return client.SpawnRequest{}, usage(errors.New("--timeout is not negative, and --kill needs it"))
	}
	r, err := o.request(argv)
	if err != nil {
		return r, err
	}
	r.ID = cmp.Or(r.ID, protocol.SessionID(protocol.NewToken(6)))
	none := time.Duration(0)
	r.EarlyExit, r.Token = &none, "run "+string(r.ID)
	return r, notItself(r.ID)
}

func (a *app) run(cmd *cobra.Command, o *runOptions, argv []string) error {
	request, err := o.spawnRequest(argv)
	joins := &attachOptions{view: string(protocol.ViewOwn), fresh: true}
	if err := errors.Join(err, a.checkAttach(joins)); err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	defer signal.Stop(signals)
	return a.withStarted(cmd.Context(), func(c *client.Client) error {
		// From here on a signal is ours to act on: what was started is not to be lost sight of.
		ctx := context.WithoutCancel(cmd.Context())
		begin, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		s, err := c.Spawn(begin, request)
		if err != nil {
			if e := protocol.AsError(err); e.Code == protocol.CodeSessionExists && o.id != "" {
				err = protocol.Errorf(e.Code, fmt.Sprintf("%s; it is no run of this command's", e.Message))
			}
			return err
		}
		if !slices.Equal(s.Session.Argv, argv) {
			return protocol.Errorf(protocol.CodeSessionExists, fmt.Sprintf(
				"run %s is of another command: %s", s.SessionID, printable(commandLine(s.Session.Argv))))
		}
		r := &oneRun{c: c, o: o, joins: joins, s: s.Session, signals: signals, out: raw(cmd)}
		r.ends = &lineEnds{w: r.out}
		r.s.ID = s.SessionID
		if t := openTerminal(os.Stdin, os.Stdout); !o.text && !o.asOne && t.isTerminal() {
			r.term, r.keys = t, isTerminal(t.in)
		}
		return r.end(ctx, r.watch(ctx, a))
	})
}

// oneRun is a run as this command sees it.
type oneRun struct {
	c       *client.Client
	o       *runOptions
	joins   *attachOptions // how this terminal joins the run
	s       protocol.SessionInfo
	signals <-chan os.Signal
	out     io.Writer
	term    *terminal // where output is shown; nil where that is no terminal
	keys    bool      // and what is typed there is for the run

	ends   *lineEnds            // where output goes if that is no terminal
	pos    uint64               // what is before was printed, or is lost
	shared bool                 // somebody else types, so that the command does not wait for this one
	exit   *protocol.ExitRecord // nil before its end was seen
}

// Why the watching of a run has ended before the run.
var (
	errRunTime = errors.New("the time is over")
	errRunPipe = errors.New("nobody reads the output any more")
	errRunLeft = errors.New("the user has left")
)

// watch prints the run until its end, or until something else is to be done
// about it.
func (r *oneRun) watch(parent context.Context, a *app) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	if r.o.timeout > 0 {
		defer time.AfterFunc(r.o.timeout, func() { cancel(errRunTime) }).Stop()
	}
	done := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.obey(parent, cancel, done)
	}()
	defer func() { close(done); <-over }()

	var err error
	switch {
	case r.o.text || r.o.asOne:
		r.exit, err = r.c.Wait(ctx, r.s.ID, -1)
	case r.keys && r.s.ExitCode == nil:
		err = r.join(ctx, a)
	default:
		err = r.print(ctx)
	}
	if cause := context.Cause(ctx); cause != nil && r.exit == nil {
		return cause
	}
	return err
}

// obey acts on signals. A terminal that is raw sends none by its keys.
func (r *oneRun) obey(ctx context.Context, cancel context.CancelCauseFunc, done <-chan struct{}) {
	for interrupts := 0; ; {
		select {
		case <-done:
			return
		case s := <-r.signals:
			switch s {
			case syscall.SIGINT:
				if interrupts++; interrupts == 1 {
					_ = r.c.Interrupt(ctx, r.s.ID) // it may be ending
				} else if interrupts == 2 {
					_ = r.c.Terminate(ctx, r.s.ID, client.End{})
				}
			case syscall.SIGPIPE: // the write has failed, too
			default:
				if s, ok := s.(syscall.Signal); ok {
					cancel(signalled{s})
				}
			}
		}
	}
}

// join joins this terminal and the run.
func (r *oneRun) join(ctx context.Context, a *app) error {
	err := a.attachTo(ctx, r.c, &r.s, r.joins)
	switch {
	case r.joins.detached:
		return errRunLeft
	case protocol.CodeOf(err) == protocol.CodeSessionExited: // it was faster, and its beginning is gone
		return r.print(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	record, waited := r.c.Wait(ctx, r.s.ID, 0)
	if waited != nil {
		return cmp.Or(err, waited)
	}
	r.exit = record
	return nil
}

// print writes the run's output until its end. It is gone on with by offset, from
// what is kept where an attachment would be given a snapshot: that is for terminals.
func (r *oneRun) print(ctx context.Context) error {
	var w io.Writer = r.ends
	if r.term != nil {
		w = r.term
		defer r.term.restore() // what it has left of modes
	}
	for r.exit == nil {
		if err := r.more(ctx, w); err != nil {
			return brokenPipe(err)
		}
	}
	return brokenPipe(r.ends.flush())
}

// more attaches at the position and writes what comes, until the run's end or until
// it is to be attached again.
func (r *oneRun) more(ctx context.Context, w io.Writer) error {
	o := client.AttachOptions{Mode: protocol.ModeReadOnly, Resume: &protocol.Resume{Instance: r.s.Instance, Offset: r.pos}}
	if !r.shared { // only such a viewer may have the command wait for it
		o.Mode, o.Pace = protocol.ModeExclusive, true
	}
	att, err := r.c.Attach(ctx, r.s.ID, o)
	if err == nil {
		defer func() { _ = att.Detach() }()
		return r.receive(ctx, att, w)
	}
	switch protocol.CodeOf(err) {
	case protocol.CodeAlreadyAttached:
		r.shared = true
		return nil
	case protocol.CodeSessionExited: // and what is at the position is no longer kept
		if err = r.catchUp(ctx, w); err == nil {
			r.exit, err = r.c.Wait(ctx, r.s.ID, startTimeout)
		}
	}
	return err
}

// receive writes what comes of one attachment, until it ends or cannot go on; then
// it is to be attached again.
func (r *oneRun) receive(ctx context.Context, att *client.Attachment, w io.Writer) error {
	stop := context.AfterFunc(ctx, func() { _ = att.Detach() })
	defer stop()
	if att.Info().Replay == protocol.ReplaySnapshot {
		return r.catchUp(ctx, w)
	}
	for {
		m, err := att.Receive(-1)
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		switch m.Kind {
		case client.Output:
			if _, err := w.Write(m.Data); err != nil {
				return err
			}
			r.pos = m.Offset + uint64(len(m.Data))
		case client.Missed:
			return r.catchUp(ctx, w)
		case client.Stolen:
			r.shared = true
			return nil
		case client.Exited:
			r.exit, err = r.c.Wait(ctx, r.s.ID, startTimeout)
			return err
		case client.Failed:
			return m.Err
		}
	}
}

// catchUp writes what is kept of the output, from the position on.
func (r *oneRun) catchUp(ctx context.Context, w io.Writer) error {
	data, offset, err := r.c.Output(ctx, r.s.ID)
	if err != nil {
		return err
	}
	if offset > r.pos {
		fmt.Fprintf(stderr, "proxy: %d bytes of the output are no longer kept\n", offset-r.pos)
		r.pos = offset
	}
	if skip := r.pos - offset; skip < uint64(len(data)) {
		if _, err := w.Write(data[skip:]); err != nil {
			return err
		}
		r.pos = offset + uint64(len(data))
	}
	return nil
}

func brokenPipe(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return errRunPipe
	}
	return err
}

// end does what is to be done when the watching is over, and returns what the
// command exits with.
func (r *oneRun) end(ctx context.Context, why error) error {
	id, named := r.s.ID, r.o.id != ""
	goesOn := fmt.Sprintf("run %s goes on; the same command with --id %s comes back to it", id, id)
	var by signalled
	switch {
	case why == nil:
		if err := brokenPipe(r.result(ctx, false)); errors.Is(err, errRunPipe) {
			return &exitError{128 + int(syscall.SIGPIPE), ""} // it can be come back to
		} else if err != nil {
			return err
		}
		if !named {
			if err := r.c.Forget(ctx, id); err != nil && protocol.CodeOf(err) != protocol.CodeSessionNotFound {
				warn(fmt.Errorf("the session is still listed: %w", err))
			}
		}
		return childExit(r.exit.ExitCode)
	case errors.Is(why, errRunTime) && r.o.kill:
		if err := r.kill(ctx); err != nil {
			return err
		}
		if err := r.result(ctx, true); err != nil {
			return err
		}
		if !named {
			_ = r.c.Forget(ctx, id) // it goes with the time, else
		}
		return &exitError{exitTimeout, fmt.Sprintf("timeout: run %s had not ended after %v, and was ended", id, r.o.timeout)}
	case errors.Is(why, errRunTime):
		if err := r.result(ctx, true); err != nil {
			return err
		}
		return &exitError{exitTimeout, fmt.Sprintf("timeout: not ended after %v; %s", r.o.timeout, goesOn)}
	case errors.Is(why, errRunLeft):
		return &exitError{exitTempFail, goesOn}
	case errors.Is(why, errRunPipe):
		return r.leave(ctx, exitCodeOf(syscall.SIGPIPE), goesOn)
	case errors.As(why, &by):
		return r.leave(ctx, by.exitCode(), goesOn)
	}
	return why
}

func exitCodeOf(s syscall.Signal) int { return signalled{s}.exitCode() }

// leave leaves a run as it is that can be come back to, and ends another one.
func (r *oneRun) leave(ctx context.Context, code int, goesOn string) error {
	if r.o.id != "" {
		return &exitError{code, goesOn}
	}
	r.o.text = true // nothing more is printed
	if err := r.kill(ctx); err != nil {
		return err
	}
	_ = r.c.Forget(ctx, r.s.ID) // it goes with the time, else
	return &exitError{code, ""}
}

// kill ends the run, and prints what it has to say to that.
func (r *oneRun) kill(ctx context.Context) error {
	err := r.c.Terminate(ctx, r.s.ID, client.End{})
	if err != nil && !errors.Is(err, protocol.ErrSessionExited) {
		return err
	}
	if !r.keys && !r.o.text && !r.o.asOne {
		return r.print(ctx)
	}
	r.exit, err = r.c.Wait(ctx, r.s.ID, -1)
	return err
}

// A runResult is a run as one object.
type runResult struct {
	ID         protocol.SessionID `json:"id"`
	Instance   protocol.Instance  `json:"instance"`
	ExitCode   *int               `json:"exit_code"` // null while it runs
	Signal     string             `json:"signal,omitempty"`
	Outcome    protocol.Outcome   `json:"outcome,omitempty"`
	DurationMS int64              `json:"duration_ms"`
	TimedOut   bool               `json:"timed_out,omitempty"` // --timeout was over first
	Output     string             `json:"output"`              // its lines, as --text prints them
	Truncated  bool               `json:"truncated"`           // the first lines are no longer kept
}

// result prints what is printed at the end alone.
func (r *oneRun) result(ctx context.Context, timedOut bool) error {
	if !r.o.text && !r.o.asOne {
		return nil
	}
	lines, err := allLines(ctx, r.c, r.s.ID)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, l := range lines.Lines {
		(&historyOptions{}).print(&b, l, nil)
	}
	text, truncated := b.String(), lines.First > 0
	if r.o.text {
		if truncated {
			fmt.Fprintf(stderr, "proxy: the first %d lines are no longer kept\n", lines.First)
		}
		_, err := io.WriteString(r.out, text)
		return err
	}
	o := runResult{
		ID: r.s.ID, Instance: r.s.Instance, DurationMS: time.Since(r.s.CreatedAt).Milliseconds(),
		TimedOut: timedOut, Output: text, Truncated: truncated,
	}
	if e := r.exit; e != nil {
		o.ExitCode, o.Signal, o.Outcome, o.DurationMS = &e.ExitCode, e.Signal, e.Outcome, e.ExitedAt.Sub(e.StartedAt).Milliseconds()
	}
	enc := jsonTo(r.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(o)
}

// lineEnds writes the line ends of a terminal as those of a file: CRLF as LF.
type lineEnds struct {
	w  io.Writer
	cr bool // one was read last, and not written
}

func (l *lineEnds) Write(p []byte) (int, error) {
	out := p
	if l.cr {
		out = append([]byte{'\r'}, p...)
	}
	out = bytes.ReplaceAll(out, []byte("\r\n"), []byte("\n"))
	if l.cr = bytes.HasSuffix(out, []byte{'\r'}); l.cr {
		out = out[:len(out)-1]
	}
	if _, err := l.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes what may yet have become a line's end.
func (l *lineEnds) flush() error {
	if !l.cr {
		return nil
	}
	l.cr = false
	_, err := l.w.Write([]byte{'\r'})
	return err
}
