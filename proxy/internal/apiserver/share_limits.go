package apiserver

import (
	"context"
	"fmt"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// A shareKey identifies a share link. Two links have different expiry times, in nanoseconds.
type shareKey struct {
	session  protocol.SessionID
	instance protocol.Instance
	expires  int64
}

func (s *Share) key() shareKey { return shareKey{s.Session, s.Instance, s.Expires.UnixNano()} }

// A linkUse is the use that all viewers by one share link make of this proxy.
type linkUse struct {
	connCount int
	askSlots  chan struct{} // holds an element for each request of the link that the supervisor works on
}

// addLink counts a connection of a share link, and gives it the slots of the link. It fails
// if the link or all links have too many connections. The caller holds s.mu.
func (s *Server) addLink(c *conn) error {
	if c.from.Share == nil {
		return nil
	}
	all := 0
	for _, u := range s.links {
		all += u.connCount
	}
	use := s.links[c.from.Share.key()]
	if use == nil {
		use = &linkUse{askSlots: make(chan struct{}, maxLinkRequests)}
	}
	if use.connCount >= maxLinkConns || all >= maxLinksConns {
		return &protocol.Error{
			Code: protocol.CodeLimitExceeded, Retryable: true, RetryAfterMS: 1000,
			Message: fmt.Sprintf("too many connections by share links: this link has %d, all links have %d: try again later", use.connCount, all),
		}
	}
	use.connCount++
	s.links[c.from.Share.key()] = use
	c.askSlots, c.requestSlots = use.askSlots, make(chan struct{}, maxLinkRequests)
	return nil
}

// removeLink reverses addLink. The caller holds s.mu.
func (s *Server) removeLink(c *conn) {
	if c.from.Share == nil {
		return
	}
	key := c.from.Share.key()
	if use := s.links[key]; use.connCount > 1 {
		use.connCount--
	} else {
		delete(s.links, key)
	}
}

// linkAttachments returns the number of attachments of a share link's connections.
func (s *Server) linkAttachments(key shareKey) (n int) {
	for _, c := range s.allConns() {
		if share := c.from.Share; share != nil && share.key() == key {
			n += c.attachments.count()
		}
	}
	return n
}

// costlyPause bounds how long the slot for costly requests stays occupied after a request.
const costlyPause = time.Second

// acquireAsk waits until the supervisor may work on another request, if that comes by a share link. The caller must call
// done when it has the answer, and before it writes the answer to the client: a client that does not read must not stop
// the others of its link.
func (c *caller) acquireAsk(ctx context.Context) (done func(), err error) {
	if c.askSlots == nil {
		return func() {}, nil
	}
	select {
	case c.askSlots <- struct{}{}:
		return func() { <-c.askSlots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// acquireCostly waits for the slot for costly requests, if m is costly and comes by a share link.
// The caller must call done after the request. The slot stays occupied after that for as long as
// the request took, so that all share links together use at most half of one processor.
func (c *caller) acquireCostly(ctx context.Context, m protocol.Message) (done func(), err error) {
	if c.from.Share == nil || !isCostly(m) {
		return func() {}, nil
	}
	select {
	case c.s.costlySlot <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	begun := time.Now()
	return func() {
		time.AfterFunc(min(time.Since(begun), costlyPause), func() { <-c.s.costlySlot })
	}, nil
}

// isCostly reports whether a request makes the supervisor search the whole history of a session, or
// lay out the screen for another size.
func isCostly(m protocol.Message) bool {
	switch m := m.(type) {
	case *api.Search:
		return true
	case *api.Screen:
		return m.Cols != 0 || m.Rows != 0
	}
	return false
}
