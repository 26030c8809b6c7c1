package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"holdfast/proxy/internal/doctor"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
)

// askAfter is how long a command runs before it asks whether both processes answer. To find
// that one does not takes 2 s more, the time of a link's hello.
const askAfter = time.Second

// watchAnswers says on stderr which process does not answer, and what to do about it, if a
// command that began now takes long for that. Commands wait all the same: a process that was
// stopped goes on where it was. stop ends the watch, before stderr is a terminal in raw mode
// at the latest.
func (a *app) watchAnswers(ctx context.Context) (stop func()) {
	if pipe.Here {
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

// tellUnanswered asks both processes, and says which of them does not answer.
func (a *app) tellUnanswered(ctx context.Context) {
	dirs, err := config.Resolve(a.dir, os.Getenv)
	if err != nil {
		return
	}
	f, _ := a.facts(dirs)
	found := doctor.Unanswered(ctx, f)
	if ctx.Err() != nil { // the command has ended, or the asking was ended with it
		return
	}
	for _, u := range found {
		fmt.Fprintf(stderr, "proxy: %s: %s\nproxy: %s; proxy doctor says more\n", u.Check, u.Finding, u.Fix)
	}
}
