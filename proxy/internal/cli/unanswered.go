package cli

import (
	"context"
	"os"
	"time"

	"holdfast/proxy/internal/doctor"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
)

// askAfter is how long a command runs before it checks whether both processes answer. The check
// takes up to 2 s, which is the time-out of a link's hello.
const askAfter = time.Second

// watchAnswers tells on stderr which process does not answer, and what to do, if the command takes
// long. The command continues to wait, because a process that was stopped may continue. stop ends
// the watch; it must be called before stderr is a terminal in raw mode.
func (a *app) watchAnswers(ctx context.Context) (stop func()) {
	if pipe.Here || a.host != "" { // ssh reports a host that does not answer
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-time.After(askAfter):
			a.tellUnanswered(ctx)
		case <-ctx.Done():
		}
	}()
	return cancel
}

// tellUnanswered checks both processes, and prints which of them does not answer.
func (a *app) tellUnanswered(ctx context.Context) {
	dirs, err := config.Resolve(a.dir, os.Getenv)
	if err != nil {
		return
	}
	f, _ := a.facts(dirs)
	found := doctor.Unanswered(ctx, f)
	if ctx.Err() != nil { // the command has ended
		return
	}
	for _, u := range found {
		note("%s: %s", u.Check, u.Finding)
		note("%s; proxy doctor says more", u.Fix)
	}
}
