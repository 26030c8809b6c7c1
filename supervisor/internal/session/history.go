package session

import (
	"context"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// History returns lines of the session, the newest first.
func (s *Session) History(spec protocol.HistorySpec) (protocol.HistoryContent, error) {
	var lines *screen.Lines
	if err := s.look(func() { lines = s.screen.History(spec) }); err != nil {
		return protocol.HistoryContent{}, err
	}
	c := lines.Content()
	c.Instance = s.instance
	return c, nil
}

const (
	searchLines = 50_000 // looked at for one request
	searchTake  = 2_000  // taken in loop at a time: a millisecond or two
)

// Search returns lines that match, the newest first. Only their text is taken
// in loop, some lines at a time; it is looked at here.
//
// Errors: invalid_argument for a pattern that is none.
func (s *Session) Search(ctx context.Context, spec protocol.SearchSpec) (protocol.SearchContent, error) {
	search, err := screen.NewSearch(spec)
	if err != nil {
		return protocol.SearchContent{}, err
	}
	for looked := 0; looked < searchLines && !search.Over(); looked += searchTake {
		if err := ctx.Err(); err != nil {
			return protocol.SearchContent{}, err
		}
		if err := s.look(func() { search.Take(s.screen, searchTake) }); err != nil {
			return protocol.SearchContent{}, err
		}
		search.Match()
	}
	c := search.Content()
	c.Instance = s.instance
	return c, nil
}
