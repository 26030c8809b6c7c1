package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// request is a request in progress.
type request struct {
	raw    json.RawMessage // nil if the request must finish here
	m      protocol.Message
	begun  time.Time
	cancel context.CancelFunc
	state  requestState // guarded by the mu of pendingRequests

	attachment *attachment // the reserved attachment of an attach request, or
	refused    error       // the reason why none was reserved
}

type requestState int

const (
	asked    requestState = iota
	answered              // or an answer is about to be sent
	moved                 // the new proxy will make it again
)

// pendingRequests holds the requests of a connection that are in progress, and those that were read
// and not started.
type pendingRequests struct {
	mu        sync.Mutex
	all       map[*request]struct{}
	unstarted []json.RawMessage
}

// add registers a request in progress.
func (p *pendingRequests) add(m protocol.Message, raw []byte) *request {
	q := &request{m: m, begun: time.Now()}
	if isMovable(m) {
		q.raw = bytes.Clone(raw)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = make(map[*request]struct{})
	}
	p.all[q] = struct{}{}
	return q
}

// remove cancels the context of a request and removes its registration.
func (p *pendingRequests) remove(q *request) {
	q.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, q)
}

// setSince gives an await in progress a mark, which the next proxy receives as well.
func (p *pendingRequests) setSince(m *api.Await, mark []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.Since = mark
}

// postpone leaves a request to the next proxy.
func (p *pendingRequests) postpone(raw []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unstarted = append(p.unstarted, bytes.Clone(raw))
}

// claimReply reports whether this proxy must answer the request. After that, freeze does not move
// it.
func (p *pendingRequests) claimReply(q *request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.state == moved {
		return false
	}
	q.state = answered
	return true
}

// freeze cancels the requests that can be repeated by another proxy, and returns them. The other
// requests must finish here.
func (p *pendingRequests) freeze() (repeated []json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for q := range p.all {
		if q.raw != nil && q.state == asked {
			q.state = moved
			repeated = append(repeated, q.left())
			q.cancel()
		}
	}
	return append(repeated, p.unstarted...)
}

// left returns the request for the next proxy. A time limit is what is left of it.
func (q *request) left() json.RawMessage {
	left := func(ms *int64) *int64 {
		n := max(0, *ms-time.Since(q.begun).Milliseconds())
		return &n
	}
	var m protocol.Message
	switch wait := q.m.(type) {
	case *api.Wait:
		if wait := *wait; wait.TimeoutMS != nil {
			wait.TimeoutMS = left(wait.TimeoutMS)
			m = wait
		}
	case *api.Await:
		await := *wait
		if await.TimeoutMS != nil {
			await.TimeoutMS = left(await.TimeoutMS)
		}
		m = await
	}
	if m != nil {
		if raw, err := protocol.Encode(m); err == nil { // it came as JSON, so it can be encoded
			return raw
		}
	}
	return q.raw
}

// mustFinish reports whether a request in progress must finish here.
func (p *pendingRequests) mustFinish() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for q := range p.all {
		if q.raw == nil {
			return true
		}
	}
	return false
}

// isMovable reports whether the next proxy may make the request again. A request that sets a state
// must finish here, because a repetition could replace the state that another client has set
// meanwhile.
func isMovable(m protocol.Message) bool {
	kind, _ := api.Messages.Request(m.MessageType())
	return kind.MayRepeat(m) && kind.Repeat != protocol.RepeatSet
}
