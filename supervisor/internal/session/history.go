package session

import (
	"context"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// History returns lines of the session, the newest first. loop only collects the lines; the
// caller's goroutine converts them. Errors: those of askScreen.
func (s *Session) History(spec protocol.HistorySpec) (protocol.HistoryContent, error) {
	var lines *screen.Lines
	if err := s.askScreen(func(sc *screen.Screen) { lines = sc.History(spec) }); err != nil {
		return protocol.HistoryContent{}, err
	}
	c := lines.Content()
	c.Instance = s.instance
	return c, nil
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
		if err := s.askScreen(func(sc *screen.Screen) { search.Take(sc, searchTake) }); err != nil {
			return protocol.SearchContent{}, err
		}
		search.Match()
	}
	c := search.Content()
	c.Instance = s.instance
	return c, nil
}
