package client

import (
	"context"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Changes returns the least text that brings a reader of a session up to date: the lines that are
// new or have changed since a mark, the cursor, the commands that have ended, and the mark for the
// next call. since is the mark of the last reply, or nil for the whole screen. The lines, rows and
// commands take at most maxBytes as JSON; 0 means 16 KiB. If more has changed, the reply has the
// newest lines, and its LeftOut tells which ones History must be asked for.
//
// The error is instance_mismatch if the session was started again since the mark; the caller then
// asks without a mark. It is invalid_argument for a mark that is not one of Changes.
func (c *Client) Changes(ctx context.Context, id protocol.SessionID, since []byte, maxBytes int) (*protocol.ChangesContent, error) {
	r, err := ask[*api.ChangesContent](ctx, c, &api.Changes{ChangesSpec: protocol.ChangesSpec{SessionID: id, Since: since, MaxBytes: maxBytes}})
	if err != nil {
		return nil, err
	}
	return &r.ChangesContent, nil
}
