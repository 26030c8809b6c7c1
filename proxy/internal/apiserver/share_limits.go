package apiserver

import (
	"context"
	"fmt"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// A shareKey tells share links apart: no two are made at the same nanosecond.
type shareKey struct {
	session  protocol.SessionID
	instance protocol.Instance
	expires  int64
}

func (s *Share) key() shareKey { return shareKey{s.Session, s.Instance, s.Expires.UnixNano()} }

// A linkUse is what the holders of one share link have of this proxy.
type linkUse struct {
	conns int
	room  chan struct{} // the places for their requests, in place of each connection's own
}

// addLink counts a connection of a share link, and gives it the link's places for
// requests. The caller holds s.mu.
func (s *Server) addLink(c *conn) error {
	if c.from.Share == nil {
		return nil
	}
	all := 0
	for _, u := range s.links {
		all += u.conns
	}
	use := s.links[c.from.Share.key()]
	if use == nil {
		use = &linkUse{room: make(chan struct{}, maxLinkRequests)}
	}
	if use.conns >= maxLinkConns || all >= maxLinksConns {
		return &protocol.Error{
			Code: protocol.CodeLimitExceeded, Retryable: true, RetryAfterMS: 1000,
			Message: fmt.Sprintf("too many look by share links: %d connections by this one, %d by all", use.conns, all),
		}
	}
	use.conns++
	s.links[c.from.Share.key()] = use
	c.room = use.room
	return nil
}

// removeLink undoes addLink. The caller holds s.mu.
func (s *Server) removeLink(c *conn) {
	if c.from.Share == nil {
		return
	}
	key := c.from.Share.key()
	if use := s.links[key]; use.conns > 1 {
		use.conns--
	} else {
		delete(s.links, key)
	}
}

// linkAttachments counts the attachments of a share link's connections.
func (s *Server) linkAttachments(key shareKey) (n int) {
	for _, c := range s.all() {
		if share := c.from.Share; share != nil && share.key() == key {
			c.mu.Lock()
			n += len(c.attachments)
			c.mu.Unlock()
		}
	}
	return n
}

// costlyPause bounds how long the place for costly requests stays taken after one.
const costlyPause = time.Second

// costs waits for the place of a request that costs the supervisor much, if it comes
// by a share link, and returns what gives the place back. The place stays taken
// after the request for as long as the request took, so that all links together
// have at most half of one processor.
func (c *conn) costs(ctx context.Context, m protocol.Message) (done func(), err error) {
	if c.from.Share == nil || !isCostly(m) {
		return func() {}, nil
	}
	select {
	case c.s.costly <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	begun := time.Now()
	return func() {
		time.AfterFunc(min(time.Since(begun), costlyPause), func() { <-c.s.costly })
	}, nil
}

// isCostly reports whether a request makes the supervisor search all of a session's
// history, or lay it out for another size.
func isCostly(m protocol.Message) bool {
	switch m := m.(type) {
	case *api.Search:
		return true
	case *api.Screen:
		return m.Cols != 0 || m.Rows != 0
	}
	return false
}
