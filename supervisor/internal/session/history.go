package session

import (
	"context"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// reading answers requests that read the screen or the commands. loop only copies what they need; the caller's goroutine
// converts it, so that a long answer costs the caller time and the session little.
type reading struct {
	*identity
	askScreen func(func(*screen.Screen) error) error // Session.askScreen
	commands  *commands                              // in the session's savedState; may be used within askScreen only
	now       func() time.Time
}

// History returns lines of the session, the newest first, or of the output of a command.
//
// Errors: those of askScreen; not_stored if the session does not keep the command.
func (r *reading) History(spec protocol.HistorySpec) (protocol.HistoryContent, error) {
	var lines *screen.Lines
	var command *protocol.CommandInfo
	if err := r.askScreen(func(sc *screen.Screen) (err error) {
		if spec.Command == 0 {
			lines = sc.History(spec)
		} else if command, err = r.commands.Log.find(spec.Command); err == nil {
			lines = sc.Output(spec, command.Output)
		}
		return err
	}); err != nil {
		return protocol.HistoryContent{}, err
	}
	c := lines.Content()
	c.Instance, c.Command = r.instance, maskCommand(command, r.masker)
	return c, nil
}

// Commands returns the commands that have ended, the oldest first. Errors: those of askScreen.
func (r *reading) Commands() (protocol.CommandsContent, error) {
	c := protocol.CommandsContent{Instance: r.instance, Commands: []protocol.CommandInfo{}}
	err := r.askScreen(func(sc *screen.Screen) error {
		c.Offset, c.Count = sc.Offset(), r.commands.current().Count
		c.Commands = append(c.Commands, r.commands.Log...)
		return nil
	})
	for i := range c.Commands {
		c.Commands[i] = *maskCommand(&c.Commands[i], r.masker)
	}
	return c, err
}

const (
	searchLines = 50_000 // lines that one request examines
	searchTake  = 2_000  // lines that loop copies at a time, in a millisecond or two
)

// Search returns the lines that match spec's pattern, the newest first. loop only copies the
// text of searchTake lines at a time; the caller's goroutine matches them.
//
// Errors: invalid_argument for an invalid pattern; ctx's; those of askScreen.
func (r *reading) Search(ctx context.Context, spec protocol.SearchSpec) (protocol.SearchContent, error) {
	search, err := screen.NewSearch(spec)
	if err != nil {
		return protocol.SearchContent{}, err
	}
	for looked := 0; looked < searchLines && !search.Over(); looked += searchTake {
		if err := ctx.Err(); err != nil {
			return protocol.SearchContent{}, err
		}
		if err := r.askScreen(func(sc *screen.Screen) error { search.Take(sc, searchTake); return nil }); err != nil {
			return protocol.SearchContent{}, err
		}
		search.Match()
	}
	c := search.Content()
	c.Instance = r.instance
	return c, nil
}
