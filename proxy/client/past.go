package client

import (
	"context"
	"iter"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Past describes the past of a session: which range of its output is kept, when it was printed, and
// the commands of its shell. If to is not 0, the times, gaps and commands are those between the
// offsets from and to. It also works after the session's end, and for a lost session.
func (c *Client) Past(ctx context.Context, id protocol.SessionID, from, to uint64) (*protocol.PastContent, error) {
	return askFor(ctx, c, &api.Past{PastSpec: protocol.PastSpec{SessionID: id, From: from, To: to}},
		func(p *api.PastContent) *protocol.PastContent { return &p.PastContent })
}

// PastOutput is a part of the output of a session, with the times at which it was printed.
type PastOutput struct {
	Instance protocol.Instance
	Offset   uint64 // of the first byte of Data
	End      uint64 // of all output when the part was read
	Data     []byte
	Times    []protocol.PastTime // when Data was printed
	Sizes    []protocol.PastSize // the size of the terminal at Offset, and its changes
}

// ReadPast yields the output of a session from one offset to another, as far as the store on disk or
// the session's memory has it. Where output is missing, the offset of a part is greater than the end
// of the part before. If to is 0, the output ends where it ended when ReadPast began. An error is the last
// item. If the session was reopened meanwhile, the error is instance_mismatch.
func (c *Client) ReadPast(ctx context.Context, id protocol.SessionID, from, to uint64) iter.Seq2[PastOutput, error] {
	return func(yield func(PastOutput, error) bool) {
		instance := protocol.Instance("")
		for at := from; to == 0 || at < to; {
			part, err := ask[*api.ScrollbackData](ctx, c, &api.Scrollback{SessionID: id, Offset: at, Past: true})
			if err == nil && instance != "" && part.Instance != instance {
				err = protocol.Errorf(protocol.CodeInstanceMismatch, "session %s was started again meanwhile", id)
			}
			if err != nil {
				yield(PastOutput{}, err)
				return
			}
			if to == 0 {
				to = max(part.End, 1)
			}
			o := PastOutput{part.Instance, part.Offset, part.End, part.Data, part.Times, part.Sizes}
			if len(o.Data) == 0 || o.Offset >= to || o.Offset < at {
				return
			}
			o.Data = o.Data[:min(uint64(len(o.Data)), to-o.Offset)]
			if !yield(o, nil) {
				return
			}
			instance, at = o.Instance, o.Offset+uint64(len(o.Data))
		}
	}
}

// SearchPast yields the lines of a session's whole past that match, the newest line first. Limit and
// Before are as in SearchOptions, but Before is an offset. It requests further lines while the caller
// iterates. An error is the last item. If the session was reopened during the search, the error is
// instance_mismatch.
func (c *Client) SearchPast(ctx context.Context, id protocol.SessionID, o SearchOptions) iter.Seq2[protocol.PastMatch, error] {
	return searchPages(id, o, func(before *uint64, limit int) (searchPage[protocol.PastMatch], error) {
		spec := protocol.PastSearchSpec{SessionID: id, Pattern: o.Pattern, IgnoreCase: o.IgnoreCase, Before: before, Limit: limit}
		return askFor(ctx, c, &api.SearchPast{PastSearchSpec: spec}, func(s *api.SearchPastContent) searchPage[protocol.PastMatch] {
			return searchPage[protocol.PastMatch]{s.Instance, s.Matches, s.Before, s.More}
		})
	})
}

// OffsetAt returns the output offset of a moment of a session's past. If the moment is not kept, the
// error is not_stored.
func (c *Client) OffsetAt(ctx context.Context, id protocol.SessionID, at protocol.Moment) (uint64, error) {
	if at.Offset != nil {
		return *at.Offset, nil
	}
	s, err := c.Screen(ctx, id, ScreenOptions{Lines: 1, At: &at})
	if err != nil {
		return 0, err
	}
	return s.Offset, nil
}
