package linkclient

import (
	"context"
	"time"
)

// reconnectPoll is the interval between attempts to find a supervisor while there is none.
const reconnectPoll = time.Second

// Reconnect makes a new link after each loss until ctx is done, so that Stats and Watch find one. It
// connects to a supervisor that runs, and starts none.
func (c *Client) Reconnect(ctx context.Context) {
	for {
		conn := c.live()
		if conn == nil {
			conn, _, _ = c.reach(ctx, false) // the next request reports the error
		}
		if conn != nil {
			began := time.Now()
			select {
			case <-conn.Done():
			case <-ctx.Done():
				return
			}
			if time.Since(began) > reconnectPoll { // otherwise the next link would probably be lost at once, too
				continue
			}
		}
		select {
		case <-time.After(reconnectPoll):
		case <-ctx.Done():
			return
		}
	}
}
