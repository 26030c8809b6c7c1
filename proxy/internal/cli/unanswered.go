package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"holdfast/proxy/internal/doctor"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/sysexits"
)

// askAfter is how long a command runs before it checks whether both processes answer. The check
// takes up to 2 s, which is the time-out of a link's hello.
const askAfter = time.Second

// askAgain is the longest time between two checks. A process may fail while a command waits for hours, and many such
// commands must not keep the processes busy.
const askAgain = time.Minute

// watchAnswers tells on stderr once which process does not answer, and what to do, while the command takes
// long. The command continues to wait, because a process that was stopped may continue. stop ends
// the watch; it must be called before stderr is a terminal in raw mode.
func (a *App) watchAnswers(ctx context.Context) (stop func()) {
	if pipe.Here || a.Host != "" { // ssh reports a host that does not answer
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go checkAgain(ctx, func() bool { return len(a.tellUnanswered(ctx)) > 0 })
	return cancel
}

// checkAgain calls check after askAfter, and then at growing intervals, until it returns true or ctx is done.
func checkAgain(ctx context.Context, check func() bool) {
	for interval := askAfter; ; interval = min(2*interval, askAgain) {
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return
		}
		if check() {
			return
		}
	}
}

// explainTimeout prints which process does not answer if err is the time-out of a connection, and returns err with the exit
// code for a process that does not answer. A command that replaces or stops a process does not wait for it as others do.
func (a *App) explainTimeout(ctx context.Context, err error) error {
	var late net.Error
	if pipe.Here || a.Host != "" || ctx.Err() != nil || !errors.As(err, &late) || !late.Timeout() {
		return err
	}
	found := a.tellUnanswered(ctx)
	switch {
	case len(found) == 0:
		return err
	case found[0].Check == "supervisor":
		return exitcode.With(sysexits.Unavailable, err)
	}
	return exitcode.With(sysexits.TempFail, err)
}

// tellUnanswered checks both processes, and prints and returns which of them does not answer.
func (a *App) tellUnanswered(ctx context.Context) []doctor.Finding {
	dirs, err := config.Resolve(a.Dir, os.Getenv)
	if err != nil {
		return nil
	}
	f, _ := a.Facts(dirs)
	found := doctor.Unanswered(ctx, f)
	if ctx.Err() != nil { // the command has ended
		return nil
	}
	for _, u := range found {
		Note("%s: %s", u.Check, u.Finding)
		Note("%s; proxy doctor says more", u.Fix)
	}
	return found
}
