package apiserver

import (
	"bytes"
	"context"
	"encoding/json"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// request is a request in progress.
type request struct {
	raw    json.RawMessage // nil if the request must finish here
	cancel context.CancelFunc
	state  requestState // guarded by the mu of the connection

	attachment *attachment // the reserved attachment of an attach request, or
	refused    error       // the reason why none was reserved
}

type requestState int

const (
	asked    requestState = iota
	answered              // or an answer is about to be sent
	moved                 // the new proxy will make it again
)

// addRequest registers a request in progress.
func (c *conn) addRequest(m protocol.Message, raw []byte) *request {
	q := &request{}
	if isMovable(m) {
		q.raw = bytes.Clone(raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[q] = struct{}{}
	return q
}

// removeRequest cancels the context of a request and removes its registration.
func (c *conn) removeRequest(q *request) {
	q.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, q)
}

// claimReply reports whether this proxy must answer the request. After that, freeze does not move
// it.
func (c *conn) claimReply(q *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.state == moved {
		return false
	}
	q.state = answered
	return true
}

// isMovable reports whether the next proxy may make the request again. A request that sets a state
// must finish here, because a repetition could replace the state that another client has set
// meanwhile.
func isMovable(m protocol.Message) bool {
	kind, _ := api.Messages.Request(m.MessageType())
	return kind.MayRepeat(m) && kind.Repeat != protocol.RepeatSet
}

// freezeRequests cancels the requests that can be repeated by another proxy, and records them. The
// other requests must finish here.
func (c *conn) freezeRequests(r *Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.requests {
		if q.raw != nil && q.state == asked {
			q.state = moved
			r.Requests = append(r.Requests, q.raw)
			q.cancel()
		}
	}
	r.Requests = append(r.Requests, c.unstarted...)
}
