package linkclient

import (
	"context"
	"time"
)

// keepPoll is how often a supervisor is looked for while there is none.
const keepPoll = time.Second

// Keep makes a lost link again, until ctx is done, so that who only looks on
// finds one: where a supervisor runs, and without starting any.
func (c *Client) Keep(ctx context.Context) {
	for {
		conn := c.live()
		if conn == nil {
			conn, _, _ = c.reach(ctx, false) // the next request says why not
		}
		if conn != nil {
			began := time.Now()
			select {
			case <-conn.Done():
			case <-ctx.Done():
				return
			}
			if time.Since(began) > keepPoll { // else it would be lost again at once
				continue
			}
		}
		select {
		case <-time.After(keepPoll):
		case <-ctx.Done():
			return
		}
	}
}
