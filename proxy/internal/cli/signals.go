package cli

import (
	"context"
	"math"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/shared/machine"
)

// signalled is the cause of a context that was ended by a signal.
type signalled struct{ syscall.Signal }

// Error implements error.
func (s signalled) Error() string { return s.String() }

// exitCode returns the exit code that a shell reports for a program that the signal ended.
func (s signalled) exitCode() int { return 128 + int(s.Signal) }

// catch returns a context that ends with the first of the signals. Further signals have no effect,
// because timeout(1) sends its signal twice, and the second one must not interrupt the reaction to
// the first one. If the command has not ended some time after the first one, catch ends the process.
func (e *ending) catch(parent context.Context, signals ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	e.caught.CompareAndSwap(nil, &c)
	go func() {
		select {
		case s := <-c:
			if s, ok := s.(syscall.Signal); ok {
				cancel(signalled{s})
				time.AfterFunc(endLimit, func() {
					time.Sleep(time.Duration(e.extra.Load())) // the command may have asked for it after the signal
					e.exit(s)
				})
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(c); cancel(nil) }
}

// heeded returns the signals without SIGHUP if the process that has started this one has made it ignore SIGHUP, as nohup does.
func heeded(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, func(s os.Signal) bool { return s == syscall.SIGHUP && signal.Ignored(s) })
}

// orSignalled returns err, or the exit code of the signal that has ended ctx.
func orSignalled(ctx context.Context, err error) error {
	if by, ok := context.Cause(ctx).(signalled); ok {
		return exitcode.New(by.exitCode(), "")
	}
	return err
}

// catchToo makes another signal end the context of the first call of catch, which is that of the command.
func (e *ending) catchToo(s os.Signal) {
	if c := e.caught.Load(); c != nil {
		signal.Notify(*c, s)
	}
}

const (
	// endLimit is how long a command may take to end after a signal. A command that is attached to a session on
	// another host needs the longest time: the viewer waits up to 0.5 s until the session has acknowledged its input,
	// the client up to 1 s until the input is sent, 1 s until the proxy has confirmed it, and 2 s until ssh has ended. The rest is for the terminal and the last message. A
	// service manager and docker stop wait for at least 10 s before they send SIGKILL.
	endLimit = 5 * time.Second
	// restoreLimit is how long the terminal may take to accept the sequences that reset its modes.
	restoreLimit = 250 * time.Millisecond

	always time.Duration = math.MaxInt64
)

// An ending ends the process after a signal if the command does not end by itself. A command cannot look at its
// context while it waits in a write to a pipe or a terminal that nobody reads, or in a read.
type ending struct {
	term   atomic.Pointer[front.Terminal] // the last one that the command has opened, or nil
	caught atomic.Pointer[chan os.Signal] // of the first call of catch
	extra  atomic.Int64                   // time that the command needs beyond endLimit, in nanoseconds
}

// open returns the terminal of this command, which exit restores.
func (e *ending) open() *front.Terminal { return e.restores(front.Open(os.Stdin, os.Stdout)) }

// restores makes t the terminal that exit restores, and returns it.
func (e *ending) restores(t *front.Terminal) *front.Terminal {
	e.term.Store(t)
	return t
}

// needs gives the command more time to end after a signal than endLimit.
func (e *ending) needs(extra time.Duration) { e.extra.Store(int64(extra)) }

// EndsSlowly lets this command take any time to end after a signal, because it serves clients or ends processes of its
// own. Other commands are ended if they take too long.
func (a *App) EndsSlowly() { a.ending.needs(always) }

// Serves is EndsSlowly for a command that must continue to serve clients also if nobody reads its log any more.
func (a *App) Serves() {
	a.EndsSlowly()
	machine.SurviveBrokenPipe()
}

// exit restores the terminal, and ends the process as the signal s. The attributes of the terminal are
// restored first, which never takes long; a terminal that blocks output keeps its modes.
func (e *ending) exit(s syscall.Signal) {
	if t := e.term.Load(); t != nil {
		restored := make(chan struct{})
		go func() { defer close(restored); t.Restore() }()
		select {
		case <-restored:
		case <-time.After(restoreLimit):
		}
	}
	os.Exit(signalled{s}.exitCode())
}
