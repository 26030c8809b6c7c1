package linkserver

import (
	"sync"
	"time"

	"holdfast/supervisor/internal/session"
)

// quietTime is how long an upgrade waits for unfinished requests. A request that takes longer
// ends with its link. The peer then does not know whether it was done, and repeats it if it may
// be repeated.
const quietTime = time.Second

// quiet admits requests until an upgrade begins. Therefore each request is either done and
// answered, or refused and not done.
type quiet struct {
	mu     sync.Mutex
	shut   bool
	inside int
	empty  chan struct{} // closed when no request is inside; nil unless Quiesce waits
}

// enter admits a request, or returns upgrading if none may be admitted any more. leave must be
// called when the request is answered, or when it turns out to be long. Further calls of leave
// have no effect.
func (q *quiet) enter() (leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return nil, session.Upgrading()
	}
	q.inside++
	return sync.OnceFunc(q.leave), nil
}

func (q *quiet) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inside--
	if q.inside == 0 && q.empty != nil {
		close(q.empty)
		q.empty = nil
	}
}

// Quiesce admits no more requests, and waits for unfinished ones, at most for quietTime. resume
// admits requests again.
func (s *Server) Quiesce() (resume func()) {
	q := &s.quiet
	q.mu.Lock()
	q.shut = true
	empty := make(chan struct{})
	if q.inside == 0 {
		close(empty)
	} else {
		q.empty = empty
	}
	q.mu.Unlock()
	select {
	case <-empty:
	case <-time.After(quietTime):
		s.cfg.Log.Warn().Msg("some requests take too long; their links are closed without an answer")
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.shut, q.empty = false, nil
	}
}
