package client

import (
	"context"
	"fmt"
	"iter"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// HistoryOptions say which lines to return. The zero value is the last 100 above
// the screen.
type HistoryOptions struct {
	Before *uint64 // only lines with smaller numbers; nil is those above the screen
	Lines  int     // at most; 0 is 100
}

// History returns lines of a session, the newest first, also after its end. An
// answer has no more than fits into one message: while there is More, ask with
// the number of its last line as Before.
func (c *Client) History(ctx context.Context, id protocol.SessionID, o HistoryOptions) (*protocol.HistoryContent, error) {
	h, err := ask[*api.HistoryContent](ctx, c, &api.History{
		HistorySpec: protocol.HistorySpec{SessionID: id, Before: o.Before, Lines: o.Lines},
	}, true)
	if err != nil {
		return nil, err
	}
	return &h.HistoryContent, nil
}

// SearchOptions say what to look for.
type SearchOptions struct {
	Pattern    string // a regular expression of RE2's syntax
	IgnoreCase bool
	Before     *uint64 // only lines with smaller numbers; nil is all
	Limit      int     // lines that match at most; 0 is all
}

// Search looks through a session's history and screen, the newest line first,
// also after its end. It asks for more as long as the caller does. An error is the
// last that it yields; a session that was started again meanwhile is
// instance_mismatch.
func (c *Client) Search(ctx context.Context, id protocol.SessionID, o SearchOptions) iter.Seq2[protocol.Match, error] {
	return func(yield func(protocol.Match, error) bool) {
		spec := protocol.SearchSpec{SessionID: id, Pattern: o.Pattern, IgnoreCase: o.IgnoreCase, Before: o.Before}
		instance := protocol.Instance("")
		for found := 0; ; {
			if spec.Limit = protocol.MaxMatches; o.Limit > 0 {
				spec.Limit = min(o.Limit-found, protocol.MaxMatches)
			}
			s, err := ask[*api.SearchContent](ctx, c, &api.Search{SearchSpec: spec}, true)
			if err == nil && instance != "" && s.Instance != instance {
				err = protocol.Errorf(protocol.CodeInstanceMismatch, fmt.Sprintf("session %s was started again during the search", id))
			}
			if err != nil {
				yield(protocol.Match{}, err)
				return
			}
			for _, m := range s.Matches {
				if found++; !yield(m, nil) || found == o.Limit {
					return
				}
			}
			if !s.More {
				return
			}
			if spec.Before != nil && s.Before >= *spec.Before {
				yield(protocol.Match{}, failed(ErrDecode, fmt.Errorf("search does not get on from line %d", s.Before)))
				return
			}
			instance, spec.Before = s.Instance, &s.Before
		}
	}
}
