package client

import (
	"context"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Share returns a link with which a browser can view a session read-only, and the time when the
// link expires. If ttl is 0, the link is valid for an hour; ttl may be at most 30 days. The error
// is unsupported if the proxy does not serve the web page.
func (c *Client) Share(ctx context.Context, id protocol.SessionID, ttl time.Duration) (url string, expires time.Time, err error) {
	m, err := ask[*api.Shared](ctx, c, &api.Share{SessionID: id, TTLMS: ttl.Milliseconds()})
	if err != nil {
		return "", time.Time{}, err
	}
	return m.URL, m.ExpiresAt, nil
}
