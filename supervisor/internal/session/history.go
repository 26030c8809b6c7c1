package session

import (
	"context"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// History returns lines of the session, the newest first, or of the output of a command. loop only
// collects the lines; the caller's goroutine converts them.
//
// Errors: those of askScreen; not_stored if the session does not keep the command.
func (s *Session) History(spec protocol.HistorySpec) (protocol.HistoryContent, error) {
	var lines *screen.Lines
	var command *protocol.CommandInfo
	if err := s.askScreen(func(sc *screen.Screen) (err error) {
		if spec.Command == 0 {
			lines = sc.History(spec)
		} else if command, err = s.saved.Log.find(spec.Command); err == nil {
			lines = sc.Output(spec, command.Output)
		}
		return err
	}); err != nil {
		return protocol.HistoryContent{}, err
	}
	c := lines.Content()
	c.Instance, c.Command = s.instance, maskCommand(command, s.masker)
	return c, nil
}

// Commands returns the commands that have ended, the oldest first. Errors: those of askScreen.
func (s *Session) Commands() (protocol.CommandsContent, error) {
	c := protocol.CommandsContent{Instance: s.instance, Commands: []protocol.CommandInfo{}}
	err := s.askScreen(func(sc *screen.Screen) error {
		c.Offset, c.Count = sc.Offset(), s.saved.commands.current().Count
		c.Commands = append(c.Commands, s.saved.Log...)
		return nil
	})
	for i := range c.Commands {
		c.Commands[i] = *maskCommand(&c.Commands[i], s.masker)
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
func (s *Session) Search(ctx context.Context, spec protocol.SearchSpec) (protocol.SearchContent, error) {
	search, err := screen.NewSearch(spec)
	if err != nil {
		return protocol.SearchContent{}, err
	}
	for looked := 0; looked < searchLines && !search.Over(); looked += searchTake {
		if err := ctx.Err(); err != nil {
			return protocol.SearchContent{}, err
		}
		if err := s.askScreen(func(sc *screen.Screen) error { search.Take(sc, searchTake); return nil }); err != nil {
			return protocol.SearchContent{}, err
		}
		search.Match()
	}
	c := search.Content()
	c.Instance = s.instance
	return c, nil
}
