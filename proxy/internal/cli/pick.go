package cli

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/shared/sysexits"
)

// attachable returns the sessions that attach may choose without an id: all running ones except the
// session in which the command runs. The session with the last input or output comes first. It is
// an error if there is none.
func (a *App) attachable(ctx context.Context, c *client.Client) ([]protocol.SessionInfo, error) {
	all, err := c.List(ctx, "")
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s protocol.SessionInfo) bool { return !alive(s.State) || a.isItself(s.ID, s.Instance) })
	if len(all) == 0 {
		return nil, exitcode.New(sysexits.NoInput, "no session runs to attach to; proxy new starts one")
	}
	slices.SortStableFunc(all, func(a, b protocol.SessionInfo) int { return b.LastIOAt.Compare(a.LastIOAt) })
	return all, nil
}

// pick chooses the session for attach without an id. If there are several and the terminal can show
// a list, the user chooses; otherwise it is the first one. Input after the choice is stored in
// o.earlyInput.
func (a *App) pick(ctx context.Context, sessions []protocol.SessionInfo, o *attachOptions) (*protocol.SessionInfo, error) {
	t := a.ending.open()
	if len(sessions) == 1 || !t.HasKeyboard() || !t.Escapes() {
		return &sessions[0], nil
	}
	a.answered() // a user may take any time
	defer func() { a.answered = a.watchAnswers(ctx) }()
	ctx, stop := a.ending.catch(ctx, syscall.SIGQUIT)
	defer stop()
	chosen, input, err := front.Pick(ctx, t, listItems(sessions))
	var by signalled
	switch {
	case errors.Is(err, front.ErrLeft):
		return nil, exitcode.New(signalled{syscall.SIGINT}.exitCode(), "")
	case errors.Is(err, front.ErrGone):
		return nil, exitcode.New(signalled{syscall.SIGHUP}.exitCode(), "")
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
		items[i] = front.Item{Name: string(s.ID), Age: Since(s.LastIOAt), Runs: titleAndCommand(s), Dir: shortDir(whereIs(&s))}
	}
	return items
}
