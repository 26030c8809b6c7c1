package client

import (
	"context"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Share returns a link by which a browser can look at a session, and do nothing
// else, and until when it is good. A ttl of 0 is an hour; at most it is 30 days.
// Errors: unsupported where the proxy serves no web page.
func (c *Client) Share(ctx context.Context, id protocol.SessionID, ttl time.Duration) (url string, expires time.Time, err error) {
	m, err := ask[*api.Shared](ctx, c, &api.Share{SessionID: id, TTLMS: ttl.Milliseconds()}, true)
	if err != nil {
		return "", time.Time{}, err
	}
	return m.URL, m.ExpiresAt, nil
}
