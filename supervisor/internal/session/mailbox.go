package session

import (
	"context"
	"time"
)

// loop owns the state of a session. Other goroutines send it functions, which it runs between two
// pieces of its own work.

// answerTime is how long a request waits for a busy loop. The work of loop between two requests
// is bounded and far shorter, so only a loop that hangs exceeds it.
const answerTime = 5 * time.Second

// ask is a function that loop runs for another goroutine.
type ask struct {
	f       func()
	done    chan struct{} // closed when the changes of f are saved and published
	isAlone bool          // f may take long, so no other request waits for its end
}

func newAsk(f func()) ask { return ask{f: f, done: make(chan struct{})} }

// mailbox passes requests of other goroutines to loop.
type mailbox struct {
	of       *identity
	asks     chan ask
	gone     chan struct{} // closed when loop and all other goroutines of the session have ended
	settling time.Duration // how long the last settling took; owned by loop
}

func newMailbox(of *identity) mailbox {
	return mailbox{of: of, asks: make(chan ask), gone: make(chan struct{})}
}

// isGone reports whether the session was forgotten.
func (m *mailbox) isGone() bool { return isClosed(m.gone) }

// maxTurn bounds the requests that loop runs before it saves and publishes their changes.
const maxTurn = 256

// serve runs a request and those that wait behind it, and then calls settle, which saves and
// publishes the changes of all. If a proxy dies, it loses all its attachments at the same moment. The
// saved state has all viewers, so saving it after each of the detachments would take a time that grows
// with the square of their number. serve runs no further request after pieceTime, or after the time
// that the last settling took if that is longer; so settling takes at most about half of the time.
//
// serve is called in loop. No request is run after isOver.
func (m *mailbox) serve(q ask, settle func(), isOver func() bool) {
	var room [16]chan struct{}
	done, begun, limit := room[:0], time.Now(), max(pieceTime, m.settling)
	answer := func() {
		settled := time.Now()
		settle()
		m.settling = time.Since(settled)
		for _, c := range done {
			close(c)
		}
		done = done[:0]
	}
	for more := true; more; {
		q.f()
		done = append(done, q.done)
		if isOver() || len(done) == maxTurn || time.Since(begun) >= limit {
			break
		}
		select {
		case q = <-m.asks:
			if q.isAlone {
				answer()
			}
		default:
			more = false
		}
	}
	answer()
}

// ask runs f in loop, and waits at most for limit until loop begins with f.
//
// Errors: session_not_found if the session is gone; busy if loop does not begin with f within
// limit. After an error f was not run and will not be run.
func (m *mailbox) ask(limit time.Duration, f func()) error {
	return m.askWhile(context.Background(), limit, f)
}

// askWhile is ask for a client that may leave. Errors besides: ctx's, if ctx ends before loop begins with f.
func (m *mailbox) askWhile(ctx context.Context, limit time.Duration, f func()) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	q := newAsk(f)
	select {
	case m.asks <- q:
		<-q.done
		return nil
	case <-m.gone:
		return notFound(m.of.id)
	case <-timer.C:
		return busyError(m.of.id)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do runs f in loop, however long loop is busy before. It returns false, without a call of f,
// if loop has ended.
func (m *mailbox) do(f func()) bool {
	q := newAsk(f)
	select {
	case m.asks <- q:
		<-q.done
		return true
	case <-m.gone:
		return false
	}
}

// request runs f in loop and returns its error. Errors besides: those of ask, with answerTime
// as the limit.
func (m *mailbox) request(f func() error) error { return m.requestWithin(answerTime, f) }

// requestWithin runs f in loop and returns its error. Errors besides: those of ask with this limit.
func (m *mailbox) requestWithin(limit time.Duration, f func() error) error {
	return m.requestWhile(context.Background(), limit, f)
}

// requestWhile is requestWithin for a client that may leave. Errors besides: those of askWhile.
func (m *mailbox) requestWhile(ctx context.Context, limit time.Duration, f func() error) (err error) {
	if unanswered := m.askWhile(ctx, limit, func() { err = f() }); unanswered != nil {
		return unanswered
	}
	return err
}

// try runs f in loop, however long loop is busy before, and returns f's error, or
// session_not_found if loop has ended.
func (m *mailbox) try(f func() error) error {
	err := notFound(m.of.id)
	m.do(func() { err = f() })
	return err
}
