package cli

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
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/shared/mask"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// runOptions are the flags of run.
type runOptions struct {
	newOptions         // only the fields for the flags that run has
	timeout            time.Duration
	kill, text, asJSON bool // asJSON is set by --json
}

func (a *App) runCommand() *cobra.Command {
	o := &runOptions{}
	cmd := a.JSONFlag(&cobra.Command{
		Use:   "run [flags] [--] argv...",
		Short: "Run one command in a session, print its output, and exit with its code",
		RunE: func(cmd *cobra.Command, argv []string) error {
			if len(argv) == 0 {
				return exitcode.WrongUsagef("run needs a command: give it after the flags")
			}
			o.asJSON, a.attaches = a.JSON, true
			return a.run(cmd, o, argv)
		},
	})
	cmd.Long = "Run one command in a session, print its output as it comes, and exit with its code\n" +
		"(128+n for a signal). The command continues if this program, the proxy or the supervisor ends.\n\n" +
		"With --id the same command line returns to the same run, on any terminal and at any time: it prints\n" +
		"the run's output from the start, as far as that is kept, and exits with its code, even if the run has\n" +
		"already ended. A run is kept as long as exit records are (exit_keep), or until proxy kill --forget.\n" +
		"A run that was lost with the machine is reported as lost, with exit code 70, until proxy revive starts it again.\n" +
		"Another command with the id of a run fails with session_exists. Without --id the session is forgotten\n" +
		"after it has ended and its output has been printed. If the output cannot be written, or no process answers,\n" +
		"the run may continue, and run names its id, with which the same command returns to it.\n\n" +
		"In a terminal all keys go to the command, even ctrl-c, as with attach; the detach keys leave it\n" +
		"running, with exit code 75. Without a terminal, standard input is not read, CRLF is printed as LF, and\n" +
		"SIGINT is passed on to the command; a second SIGINT ends it. A third one, any other signal, or a broken\n" +
		"pipe, leaves a run with --id running, and ends a run without. If the output goes to a pipe, the command\n" +
		"waits for the reader of the pipe, at most 10 s at a time, and attach needs --read-only or --steal."
	cmd.Example = "  proxy run -- make -j8\n" +
		"  proxy run --id nightly --timeout 1h -- ./backup.sh   # the same line again returns to it\n" +
		"  proxy run --json -- go test ./..."
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the command belong to the command
	f.StringVar(&o.id, "id", "", "the run's `id`; the same id returns to the same run")
	SpanVar(f, &o.timeout, "timeout", 0, "wait at most this `time`, and exit with 124; the run continues (default for ever)")
	f.BoolVar(&o.kill, "kill", false, "with --timeout: end the run after that time")
	f.BoolVar(&o.text, "text", false, "print the lines after the end, as a screen shows them, without escape sequences")
	f.StringVar(&o.size, "size", "", "fixed size, `COLSxROWS` (default the size of this terminal or 80x24)")
	o.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("text", "json")
	_ = cmd.RegisterFlagCompletionFunc("id", a.sessionIDs(anyState))
	return cmd
}

// spawnRequest returns the spawn request of the run. Its token depends only on the id, so that a
// later command can repeat the request and receives the same run.
func (o *runOptions) spawnRequest(argv []string) (client.SpawnRequest, error) {
	if o.timeout < 0 || o.kill && o.timeout == 0 {
		return client.SpawnRequest{}, exitcode.WrongUsagef("--timeout must not be negative, and --kill needs it")
	}
	r, err := o.request(argv)
	if err != nil {
		return r, err
	}
	r.ID = cmp.Or(r.ID, protocol.SessionID(protocol.NewToken(6)))
	none := time.Duration(0)
	r.EarlyExit, r.Token = &none, "run "+string(r.ID)
	r.Unattended = o.text || o.asJSON // they print after the end, and do not attach
	return r, nil
}

// run starts the run or returns to it, watches it, and exits as it did.
func (a *App) run(cmd *cobra.Command, o *runOptions, argv []string) error {
	if err := a.nameHost(cmd, &o.newOptions); err != nil {
		return err
	}
	request, err := o.spawnRequest(argv)
	if err != nil {
		return err
	}
	joins := &attachOptions{view: protocol.ViewOwn, fresh: true, isRun: true, leftOut: o.attach.leftOut}
	if err := a.checkAttach(joins); err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, heeded(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)...)
	defer signal.Stop(signals)
	return a.WithStarted(cmd.Context(), func(c *client.Client) error {
		// From here on this command handles signals itself, because it must not lose sight of the
		// run. A run may take any time to end after SIGINT.
		a.ending.needs(always)
		ctx := context.WithoutCancel(cmd.Context())
		if err := a.notItself(cmd.Context(), c, request.ID); err != nil {
			return err
		}
		s, err := o.start(cmd.Context(), c, request)
		a.isStarting.Store(false)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(s.Session.Argv, protocol.CutArgv(argv), isMaskedFrom) {
			return protocol.Errorf(protocol.CodeSessionExists, "run %s has another command: %s", s.SessionID, plain.Text(commandLine(s.Session.Argv)))
		}
		warnUnmasked(&s.Session)
		r := &oneRun{c: c, o: o, joins: joins, s: s.Session, signals: signals, ending: a.ending, out: Raw(cmd)}
		r.ends = &lineEnds{w: r.out}
		r.s.ID = s.SessionID
		if t := a.ending.open(); !o.text && !o.asJSON && t.IsTerminal() {
			r.term, r.keys = t, t.HasKeyboard()
		}
		why := r.watch(ctx, a)
		done := make(chan struct{})
		defer close(done)
		go r.exitBySignal(ctx, done)
		return r.end(ctx, why)
	})
}

// start starts the run, or returns to it. A run that the supervisor has not confirmed soon after the end of asked, or in
// StartTimeout, may start later, so the error names it.
func (o *runOptions) start(asked context.Context, c *client.Client, request client.SpawnRequest) (*client.Spawned, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(asked), StartTimeout)
	defer cancel()
	defer context.AfterFunc(asked, func() { time.AfterFunc(abandonLimit, cancel) })()
	s, err := c.Spawn(ctx, request)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		code := sysexits.TempFail
		if by, ok := context.Cause(asked).(signalled); ok {
			code = by.exitCode()
		}
		err = exitcode.Newf(code, "the start of run %s was not confirmed, so it may still start; the same command with --id %s returns to it", request.ID, request.ID)
	case protocol.CodeOf(err) == protocol.CodeSessionExists && o.id != "":
		err = protocol.Errorf(protocol.CodeSessionExists, "%s; it was not started by proxy run", protocol.AsError(err).Message)
	}
	return s, err
}

// oneRun is a run that this command watches.
type oneRun struct {
	c       *client.Client
	o       *runOptions
	joins   *attachOptions // how this terminal attaches to the run
	s       protocol.SessionInfo
	signals <-chan os.Signal
	ending  *ending
	late    *time.Timer // ends this process after a signal; nil before a signal has ended watch
	out     io.Writer
	term    *front.Terminal // where output is shown; nil if standard output is no terminal
	keys    bool            // set if the terminal's input is sent to the run

	ends   *lineEnds            // where output is written if it does not go to a terminal
	pos    uint64               // output before this offset was printed, or is no longer kept
	shared bool                 // another viewer can send input, so the command does not wait for this viewer
	exit   *protocol.ExitRecord // nil until the end of the run is known
}

// The reasons why this command stops watching a run before the run has ended.
var (
	errRunTime = errors.New("the time is over")
	errRunPipe = errors.New("the reader of the output has closed the pipe")
	errRunLeft = errors.New("the user has detached")
)

// watch prints the run until it ends, or until a time-out, a signal, a broken pipe or the detach
// keys stop it.
func (r *oneRun) watch(parent context.Context, a *App) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	if r.o.timeout > 0 {
		defer time.AfterFunc(r.o.timeout, func() { cancel(errRunTime) }).Stop()
	}
	done := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.handleSignals(parent, cancel, done)
	}()
	defer func() { close(done); <-over }()

	var err error
	switch {
	case r.o.text || r.o.asJSON:
		r.exit, err = r.c.Wait(ctx, r.s.ID, -1)
	case r.keys && r.s.ExitCode == nil && r.s.State != protocol.StateLost:
		err = r.join(ctx, a)
	default:
		err = r.print(ctx)
	}
	if cause := context.Cause(ctx); cause != nil && r.exit == nil {
		return cause
	}
	return err
}

// handleSignals handles signals until done is closed. A terminal in raw mode sends no signals for keys.
func (r *oneRun) handleSignals(ctx context.Context, cancel context.CancelCauseFunc, done <-chan struct{}) {
	var last time.Time // of the last SIGINT that counts
	for interrupts := 0; ; {
		select {
		case <-done:
			return
		case s := <-r.signals:
			switch s {
			case syscall.SIGINT:
				if time.Since(last) < sameInterrupt {
					continue
				}
				last = time.Now()
				switch interrupts++; interrupts { // a request may wait for its answer for ever, and a further signal must not wait for it
				case 1:
					go func() { _ = r.c.Interrupt(ctx, r.s.ID) }() // fails if the run is ending
				case 2:
					go func() { _ = r.c.Terminate(ctx, r.s.ID, client.End{}) }()
				case 3: // the run has ended, and the reader of its output does not read, or no process answers
					r.leaveBySignal(ctx, syscall.SIGINT, cancel)
				}
			case syscall.SIGPIPE: // the write has failed, too
			default:
				if s, ok := s.(syscall.Signal); ok {
					r.leaveBySignal(ctx, s, cancel)
				}
			}
		}
	}
}

// sameInterrupt is the time within which a further SIGINT counts as the same one: timeout(1) sends its signal to this process and
// then to its process group, and a program that has started this one may pass on a SIGINT that the terminal has sent to both. A
// second one would end the run while it reacts to the first.
const sameInterrupt = 100 * time.Millisecond

// leaveBySignal ends the watch because of a signal, and ends this process if that takes too long. A further
// signal does not change when that is.
func (r *oneRun) leaveBySignal(ctx context.Context, s syscall.Signal, cancel context.CancelCauseFunc) {
	cancel(signalled{s})
	if r.late == nil {
		r.late = time.AfterFunc(endLimit, func() { r.abandon(ctx, s) })
	}
}

// exitBySignal ends this process some time after a signal that comes when the run is no longer watched: the
// command prints its result then, or waits for the end of a run that it has ended.
func (r *oneRun) exitBySignal(ctx context.Context, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case s := <-r.signals:
			if s, ok := s.(syscall.Signal); ok && s != syscall.SIGPIPE { // the write has failed, too
				time.AfterFunc(endLimit, func() { r.abandon(ctx, s) })
				return
			}
		}
	}
}

// abandon ends this process, which waits in a write or for the proxy. A run without an id must not outlive it.
func (r *oneRun) abandon(ctx context.Context, s syscall.Signal) {
	if r.o.id == "" {
		ctx, cancel := context.WithTimeout(ctx, abandonLimit)
		defer cancel()
		_ = r.c.Terminate(ctx, r.s.ID, client.End{}) // fails if the run has ended
		if _, err := r.c.Wait(ctx, r.s.ID, -1); err == nil {
			_ = r.c.Forget(ctx, r.s.ID) // if this fails, the session is removed after exit_keep
		}
	}
	r.ending.exit(s)
}

// abandonLimit is how long a command that a signal ends waits for the end of its run.
const abandonLimit = time.Second

// isMaskedFrom reports whether shown is text, or text in which asterisks replace secrets. A secret has at least
// mask.MinValue characters, so fewer asterisks in a row, as in a pattern of file names, stand for themselves.
func isMaskedFrom(shown, text string) bool {
	a, b := []rune(shown), []rune(text)
	if len(a) != len(b) {
		return false
	}
	for i, n := 0, 0; i < len(a); i += n {
		n = 1
		for a[i] == '*' && i+n < len(a) && a[i+n] == '*' {
			n++
		}
		isMasked := a[i] == '*' && n >= mask.MinValue
		if !isMasked && !slices.Equal(a[i:i+n], b[i:i+n]) {
			return false
		}
	}
	return true
}

// join attaches this terminal to the run.
func (r *oneRun) join(ctx context.Context, a *App) error {
	err := a.attachTo(ctx, r.c, &r.s, r.joins)
	switch {
	case r.joins.detached:
		return r.left(ctx)
	case protocol.CodeOf(err) == protocol.CodeSessionExited: // the run ended first, and its first output is no longer kept
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

// leftTime is how long a command waits, after its user has detached, for the answer whether the run has ended.
const leftTime = time.Second

// left returns errRunLeft after the user has detached, unless the run has ended meanwhile.
func (r *oneRun) left(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leftTime)
	defer cancel()
	record, err := r.c.Wait(ctx, r.s.ID, 0)
	switch {
	case err == nil:
		r.exit = record
		if record.Reason != protocol.ReasonLost { // end says how to return to a lost run
			Note("run %s has ended; the same command with --id %s prints its output", r.s.ID, r.s.ID)
		}
		return nil
	case protocol.CodeOf(err) == protocol.CodeSessionNotFound:
		return err
	}
	return errRunLeft
}

// print writes the run's output until its end. It continues by offset, and reads the kept output if
// an attachment would receive a snapshot, because a snapshot is meant for terminals.
func (r *oneRun) print(ctx context.Context) error {
	var w io.Writer = r.ends
	if r.term != nil {
		w = r.term
		defer r.term.Restore() // restores modes that the output has changed
	}
	for r.exit == nil {
		if err := r.attachOnce(ctx, w); err != nil {
			return brokenPipe(err)
		}
	}
	return brokenPipe(r.ends.flush())
}

// attachOnce attaches at the current offset and writes output, until the run has ended or until it
// must be attached again.
func (r *oneRun) attachOnce(ctx context.Context, w io.Writer) error {
	o := client.AttachOptions{Mode: protocol.ModeReadOnly, Resume: &protocol.Resume{Instance: r.s.Instance, Offset: r.pos}}
	if !r.shared { // only an exclusive viewer may make the command wait
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
	case protocol.CodeSessionExited: // the output at this offset is no longer kept
		if err = r.catchUp(ctx, w); err == nil {
			r.exit, err = r.c.Wait(ctx, r.s.ID, StartTimeout)
		}
	}
	return err
}

// receive writes the output of one attachment until the attachment ends. r.exit is set if the run
// has ended; otherwise it must be attached again.
func (r *oneRun) receive(ctx context.Context, att *client.Attachment, w io.Writer) error {
	defer context.AfterFunc(ctx, func() { _ = att.Detach() })()
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
			r.exit, err = r.c.Wait(ctx, r.s.ID, StartTimeout)
			return err
		case client.Failed:
			return m.Err
		}
	}
}

// catchUp writes the output that is kept, from the current offset on.
func (r *oneRun) catchUp(ctx context.Context, w io.Writer) error {
	data, offset, err := r.c.Output(ctx, r.s.ID)
	if err != nil {
		return err
	}
	if err := r.printStored(ctx, w, offset); err != nil {
		return err
	}
	if skip := r.pos - offset; skip < uint64(len(data)) {
		if _, err := w.Write(data[skip:]); err != nil {
			return err
		}
		r.pos = offset + uint64(len(data))
	}
	return nil
}

// printStored writes the output up to an offset, which only the store on disk has: that of a lost run, or the beginning of
// much output. It reports how many bytes are not stored either.
func (r *oneRun) printStored(ctx context.Context, w io.Writer, until uint64) error {
	missing := missingOutput{next: r.pos}
	for part, err := range (recording{r.c, r.s.ID}).Output(ctx, r.pos, until) {
		if e := (*protocol.Error)(nil); errors.As(err, &e) && !e.Retryable { // the session is not stored, or the store cannot be read
			break
		}
		if err != nil {
			return err
		}
		missing.note(part)
		if _, err := w.Write(part.Data); err != nil {
			return err
		}
	}
	missing.note(client.PastOutput{Offset: max(r.pos, until)})
	r.pos = max(r.pos, until)
	if missing.count > 0 {
		Note("%d bytes of the output are no longer kept", missing.count)
	}
	return nil
}

// brokenPipe converts EPIPE into errRunPipe.
func brokenPipe(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return errRunPipe
	}
	return err
}

// end handles the end of watching, for the reason why, and returns the error with the exit code of
// this command.
func (r *oneRun) end(ctx context.Context, why error) error {
	id, named := r.s.ID, r.o.id != ""
	goesOn := fmt.Sprintf("run %s continues; the same command with --id %s returns to it", id, id)
	var by signalled
	switch {
	case why == nil:
		if err := brokenPipe(r.result(ctx, false)); errors.Is(err, errRunPipe) {
			return exitcode.New(signalled{syscall.SIGPIPE}.exitCode(), "") // the run is kept, so the same command can return to it
		} else if err != nil {
			return r.keep(err)
		}
		if r.exit.Reason == protocol.ReasonLost { // what is stored of it is kept, also without an id
			return exitcode.Newf(sysexits.Software, "run %s was lost with the machine, so its exit code is not known; "+
				"proxy revive %s -- COMMAND starts it again, and after proxy forget %s the same command with --id %s starts a new run", id, id, id, id)
		}
		if !named && !r.joins.detached { // otherwise the end of its output may not have been shown
			if err := r.c.Forget(ctx, id); err != nil && protocol.CodeOf(err) != protocol.CodeSessionNotFound {
				Warn("the session could not be removed from the list: %v", err)
			}
		}
		return childExit(r.exit.ExitCode)
	case errors.Is(why, errRunTime) && r.o.kill:
		if err := r.kill(ctx, ctx); err != nil {
			return r.keep(err)
		}
		if err := r.result(ctx, true); err != nil {
			return r.keep(err)
		}
		if !named { // if this fails, the session is removed after exit_keep
			_ = r.c.Forget(ctx, id)
		}
		return exitcode.Newf(sysexits.Timeout, "timeout: run %s had not ended after %v, and was ended", id, r.o.timeout)
	case errors.Is(why, errRunTime):
		if err := r.result(ctx, true); err != nil {
			return r.keep(err)
		}
		return exitcode.Newf(sysexits.Timeout, "timeout: not ended after %v; %s", r.o.timeout, goesOn)
	case errors.Is(why, errRunLeft):
		return exitcode.New(sysexits.TempFail, goesOn)
	case errors.Is(why, errRunPipe):
		return r.leave(ctx, signalled{syscall.SIGPIPE}.exitCode(), goesOn)
	case errors.As(why, &by):
		return r.leave(ctx, by.exitCode(), goesOn)
	}
	return r.keep(why)
}

// keep names the run, because its user may have given it no id, and must be able to return to it after the error err, and
// returns err. A full disk, for example, does not end the run.
func (r *oneRun) keep(err error) error {
	if protocol.CodeOf(err) != protocol.CodeSessionNotFound { // otherwise the run was forgotten meanwhile
		Note("run %s was not ended by this error; the same command with --id %s returns to it", r.s.ID, r.s.ID)
	}
	return err
}

// leave leaves a run with an id running, and ends a run without.
func (r *oneRun) leave(ctx context.Context, code int, goesOn string) error {
	if r.o.id != "" {
		return exitcode.New(code, goesOn)
	}
	r.o.text = true // no more output is printed
	asking, cancel := context.WithTimeout(ctx, endLimit-abandonLimit)
	defer cancel()
	switch err := r.kill(ctx, asking); {
	case err != nil && asking.Err() != nil:
		return exitcode.Newf(code, "the end of run %s was not confirmed, so it may continue; the same command with --id %s returns to it", r.s.ID, r.s.ID)
	case err != nil:
		return err
	}
	_ = r.c.Forget(ctx, r.s.ID) // if this fails, the session is removed after exit_keep
	return exitcode.New(code, "")
}

// kill ends the run, and prints the output that it still produces. The request is given up when asking is done.
func (r *oneRun) kill(ctx, asking context.Context) error {
	err := r.c.Terminate(asking, r.s.ID, client.End{})
	if err != nil && !errors.Is(err, protocol.ErrSessionExited) {
		return err
	}
	if r.late != nil {
		r.late.Stop() // the supervisor ends the run after the setting grace, at most a minute
	}
	if !r.keys && !r.o.text && !r.o.asJSON {
		return r.print(ctx)
	}
	r.exit, err = r.c.Wait(ctx, r.s.ID, -1)
	return err
}

// A runResult is the output of --json.
type runResult struct {
	ID         protocol.SessionID `json:"id"`
	Instance   protocol.Instance  `json:"instance"`
	ExitCode   *int               `json:"exit_code"` // null while the run continues
	Signal     string             `json:"signal,omitempty"`
	Outcome    protocol.Outcome   `json:"outcome,omitempty"`
	DurationMS int64              `json:"duration_ms"`
	TimedOut   bool               `json:"timed_out,omitempty"` // --timeout ended first
	Output     string             `json:"output"`              // the lines, as --text prints them
	Truncated  bool               `json:"truncated"`           // the first lines are no longer kept
}

// result prints the output of --text and --json, which is printed only at the end.
func (r *oneRun) result(ctx context.Context, timedOut bool) error {
	if !r.o.text && !r.o.asJSON {
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
			Note("the first %d lines are no longer kept", lines.First)
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
	enc := JSONTo(r.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(o)
}

// lineEnds is a writer that converts CRLF into LF.
type lineEnds struct {
	w  io.Writer
	cr bool // the last byte was a CR, which was not written yet
}

// Write writes p with converted line ends.
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

// flush writes a CR that was held back.
func (l *lineEnds) flush() error {
	if !l.cr {
		return nil
	}
	l.cr = false
	_, err := l.w.Write([]byte{'\r'})
	return err
}
