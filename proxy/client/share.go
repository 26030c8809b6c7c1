package client

import (
	"context"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Share returns a link with which a browser can view a session read-only, and the time when the
// link expires. If ttl is 0, the link is valid for an hour; ttl may be at most 30 days. The error
// is unsupported if the proxy does not serve the web page, or if the client has entered the host through a gate: the
// link would lead to an address that only the host itself reaches.
func (c *Client) Share(ctx context.Context, id protocol.SessionID, ttl time.Duration) (url string, expires time.Time, err error) {
	if c.o.Gate != nil {
		return "", time.Time{}, protocol.Errorf(protocol.CodeUnsupported, "a gate serves no share links: make the link on the host itself, or let the viewer attach with --read-only through the gate")
	}
	m, err := ask[*api.Shared](ctx, c, &api.Share{SessionID: id, TTLMS: ttl.Milliseconds()})
	if err != nil {
		return "", time.Time{}, err
	}
	return m.URL, m.ExpiresAt, nil
}
