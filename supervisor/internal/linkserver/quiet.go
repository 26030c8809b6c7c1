package linkserver

import (
	"sync"
	"time"

	"holdfast/supervisor/internal/session"
)

// quietTime is how long requests under way may take before another program takes
// over. One that takes longer ends with the link, and nobody knows whether it was
// done; the peer repeats what may be repeated.
const quietTime = time.Second

// quiet lets requests in, until no more are to be: so that one that is answered
// was done, and one that was not done is not left unanswered.
type quiet struct {
	mu     sync.Mutex
	shut   bool
	inside int
	empty  chan struct{} // closed when none is inside; nil while nobody waits
}

// enter returns upgrading where nobody is let in any more. leave is to be called,
// once, when the request is answered, or when it goes on for long.
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

// Quiesce lets no more requests in, and waits for those under way, but not for
// long. resume lets them in again.
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
		s.cfg.Log.Warn().Msg("requests are under way for long; they are cut off")
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.shut, q.empty = false, nil
	}
}
