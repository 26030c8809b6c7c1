package client

import (
	"context"
	"fmt"
	"iter"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// HistoryOptions select the lines of a history. The zero value selects the last 100 lines above
// the screen.
type HistoryOptions struct {
	Before *uint64 // only lines with smaller numbers; nil means all lines above the screen
	Lines  int     // largest number of lines; 0 means 100
	// Command selects the output of an ended command instead: -1 is the last command, -2 the one
	// before it; a positive number is the count of a CommandInfo.
	Command int
}

// History returns lines of a session, the newest first. It also works after the session's end. An
// answer holds only as many lines as fit into one message. If More is true, the caller can ask
// again with the number of the last line as Before.
//
// The error is not_stored if o names a command that the session does not keep.
func (c *Client) History(ctx context.Context, id protocol.SessionID, o HistoryOptions) (*protocol.HistoryContent, error) {
	return askFor(ctx, c, &api.History{
		HistorySpec: protocol.HistorySpec{SessionID: id, Before: o.Before, Lines: o.Lines, Command: o.Command},
	}, func(h *api.HistoryContent) *protocol.HistoryContent { return &h.HistoryContent })
}

// Commands returns the last commands of a session that have ended, the oldest first, if its shell
// reports them.
func (c *Client) Commands(ctx context.Context, id protocol.SessionID) (*protocol.CommandsContent, error) {
	return askFor(ctx, c, &api.Commands{SessionID: id}, func(r *api.CommandsContent) *protocol.CommandsContent { return &r.CommandsContent })
}

// SearchOptions are the options of a search.
type SearchOptions struct {
	Pattern    string // a regular expression in RE2's syntax
	IgnoreCase bool
	Before     *uint64 // only lines with smaller numbers; nil means all lines
	Limit      int     // largest number of matching lines; 0 means no limit
}

// Search yields the matching lines of a session's history and screen, the newest line first. It
// also works after the session's end. It requests further lines while the caller iterates. An
// error is the last item. If the session was reopened during the search, the error is
// instance_mismatch.
func (c *Client) Search(ctx context.Context, id protocol.SessionID, o SearchOptions) iter.Seq2[protocol.Match, error] {
	return searchPages(id, o, func(before *uint64, limit int) (searchPage[protocol.Match], error) {
		spec := protocol.SearchSpec{SessionID: id, Pattern: o.Pattern, IgnoreCase: o.IgnoreCase, Before: before, Limit: limit}
		return askFor(ctx, c, &api.Search{SearchSpec: spec}, func(s *api.SearchContent) searchPage[protocol.Match] {
			return searchPage[protocol.Match]{s.Instance, s.Matches, s.Before, s.More}
		})
	})
}

// searchPage is the reply to one request of a search.
type searchPage[M any] struct {
	instance protocol.Instance
	matches  []M    // the newest first
	before   uint64 // the line or offset before which the next page begins
	more     bool   // there may be another page
}

// searchPages yields the matches of all pages of a search, up to o.Limit. ask requests a page of at
// most limit matches before a line or offset. A reply that would repeat the same page is an error,
// because the search would not end otherwise.
func searchPages[M any](id protocol.SessionID, o SearchOptions, ask func(before *uint64, limit int) (searchPage[M], error)) iter.Seq2[M, error] {
	return func(yield func(M, error) bool) {
		var none M
		instance, before := protocol.Instance(""), o.Before
		for found := 0; ; {
			limit := protocol.MaxMatches
			if o.Limit > 0 {
				limit = min(o.Limit-found, limit)
			}
			page, err := ask(before, limit)
			if err == nil && instance != "" && page.instance != instance {
				err = protocol.Errorf(protocol.CodeInstanceMismatch, "session %s was started again during the search", id)
			}
			if err != nil {
				yield(none, err)
				return
			}
			for _, m := range page.matches {
				if found++; !yield(m, nil) || found == o.Limit {
					return
				}
			}
			if !page.more {
				return
			}
			if before != nil && page.before >= *before {
				yield(none, failed(ErrDecode, fmt.Errorf("search makes no progress at %d", page.before)))
				return
			}
			instance, before = page.instance, &page.before
		}
	}
}

// Changes returns the least text that brings a reader of a session up to date: the lines that are
// new or have changed since a mark, the cursor, the commands that have ended, and the mark for the
// next call. since is the mark of the last reply, or nil for the whole screen. The lines, rows and
// commands take at most maxBytes as JSON; 0 means 16 KiB. If more has changed, the reply has the
// newest lines, and its LeftOut tells which ones History must be asked for.
//
// The error is instance_mismatch if the session was started again since the mark; the caller then
// asks without a mark. It is invalid_argument for a mark that is not one of Changes.
func (c *Client) Changes(ctx context.Context, id protocol.SessionID, since []byte, maxBytes int) (*protocol.ChangesContent, error) {
	return askFor(ctx, c, &api.Changes{ChangesSpec: protocol.ChangesSpec{SessionID: id, Since: since, MaxBytes: maxBytes}},
		func(r *api.ChangesContent) *protocol.ChangesContent { return &r.ChangesContent })
}
