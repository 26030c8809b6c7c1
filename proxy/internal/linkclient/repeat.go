package linkclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
)

// A supervisor may exec another program, or die and be started again with all its sessions. It is
// then the same instance with another link. A request of that time is repeated over the new link:
//
//	upgrading   the request was not carried out: every request is repeated
//	link lost   it is unknown whether the request was carried out: it is repeated if its row
//	            in the table of requests permits it (protocol.Repeat), and if the next link's
//	            supervisor is the same instance
//
// A supervisor that died while it worked on a request may have died of that request. Such a
// request is repeated only as often as maxDeaths allows. Otherwise a request that kills each
// supervisor would make the keeper give up starting one.

// linkEnd is how long a link may last after the answer that the supervisor is upgrading, or after
// a stream has broken. After that time the supervisor has probably stayed as it is.
const linkEnd = time.Second

// errStranger ends the repetition of a request, because another supervisor has come.
var errStranger = errors.New("another supervisor has come, which has other sessions")

// errDone means that a request is not repeated because it was carried out.
var errDone = errors.New("it was done before the link was lost")

// repeatable returns the request with the fields that its protocol.Repeat requires, and whether it
// may be repeated. The instance is set later, by pin.
func repeatable(request protocol.Message) (protocol.Message, bool) {
	switch m := request.(type) {
	case wire.Create:
		m.SessionID = cmp.Or(m.SessionID, protocol.SessionID(protocol.NewToken(6))) // the supervisor would choose one otherwise
		m.Token = cmp.Or(m.Token, protocol.NewToken(16))
		request = m
	case wire.Reopen:
		m.Token = cmp.Or(m.Token, protocol.NewToken(16))
		request = m
	case wire.Write:
		if m.Writer == "" { // offset 0, so that the accepted offset counts the bytes of this request
			m.Writer, m.Offset = protocol.NewToken(8), 0
		}
		request = m
	case wire.Attach:
		if m.Shadow { // it has no input, and no other viewer notices it
			return m, true
		}
		m.Writer = cmp.Or(m.Writer, protocol.NewToken(8)) // so that a second attach replaces the first one
		request = m
	}
	kind := kindOf(request)
	return request, kind.Repeat == protocol.RepeatInstance || kind.MayRepeat(request)
}

// kindOf returns the row of a request in the table of the link.
func kindOf(request protocol.Message) protocol.RequestKind {
	kind, _ := wire.Messages.Request(request.MessageType())
	return kind
}

// maxDeaths returns how many supervisors may die during a request before it is given up; -1 means
// any number. It is far below the keeper's crash limit of five deaths a minute.
func maxDeaths(request protocol.Message) int {
	if m, ok := request.(wire.Attach); ok && m.Resume != nil {
		return -1 // a death breaks the attachments of all viewers; giving one up would lose its viewer
	}
	read, isRead := request.(wire.Read)
	switch kind := kindOf(request); {
	case kind.IsCostly || isRead && read.Past:
		return 0
	case kind.IsIdle:
		return -1
	}
	return 2
}

// A question is a request and the state of its repetition.
type question struct {
	m          protocol.Message
	repeatable bool
	firstAsked time.Time         // time of the first attempt
	instance   protocol.Instance // instance of the supervisor that was asked last
	pid        int               // pid of that supervisor
	deaths     int               // supervisors that died while they worked on the request
	wasTried   bool
	mayBeDone  bool // the request may have been carried out
}

// over calls try with the live link, and again with later links if the request may be repeated.
// It waits for each link as long as for the first one.
//
// Its errors are errDone if the request was carried out before the link was lost, the errors of
// Conn, supervisor_unreachable, and the errors of the supervisor.
func (c *Client) over(ctx context.Context, request protocol.Message, try func(*link.Conn, protocol.Message) error) error {
	q := &question{firstAsked: time.Now()}
	q.m, q.repeatable = repeatable(request)
	conn, welcome, err := c.reach(ctx, true)
	if err != nil {
		return err
	}
	q.instance, q.pid = welcome.Instance, welcome.PID
	var late time.Time
	var pause backoff
	for {
		begun := time.Now()
		if err = q.pin(ctx, conn); err == nil {
			err = try(conn, q.current())
		}
		if ctx.Err() != nil || !q.shouldRepeat(err) {
			return q.meant(err)
		}
		now := time.Now()
		late = giveUpTime(late, now, now.Sub(begun), q.patience())
		if now.Sub(begun) > backoffMax { // the request ran for a while, so a short wait is enough again
			pause.reset()
		}
		if conn, err = c.next(ctx, conn, q, late, &pause, err); err != nil {
			return err
		}
	}
}

// giveUpTime returns the time until which the next link is awaited. late is that time for the
// link before (zero if this is the first one), and lasted is how long that link lasted. Each link
// extends the time by twice its own duration, at most to now plus patience. Therefore a wait for
// a session's end survives any number of upgrades, but a request that kills supervisors is not
// repeated for ever.
func giveUpTime(late, now time.Time, lasted, patience time.Duration) time.Time {
	limit := now.Add(patience)
	if late.IsZero() || late.Add(2*lasted).After(limit) {
		return limit
	}
	return late.Add(2 * lasted)
}

// shouldRepeat reports whether a request that ended with err should be repeated.
func (q *question) shouldRepeat(err error) bool {
	q.wasTried = true
	if protocol.CodeOf(err) == protocol.CodeUpgrading {
		return true
	}
	if !isBroken(err) {
		return false
	}
	q.mayBeDone = true
	return q.repeatable
}

// isBroken reports whether err comes from a lost link and is not an answer.
func isBroken(err error) bool {
	var e *protocol.Error
	return err != nil && !errors.Is(err, errDone) && !errors.As(err, &e)
}

// next waits until the lost link has ended, and returns the next link. If the supervisor has
// stayed, that is the same link. next starts no supervisor, because the supervisor that is to be
// asked again runs already or is being started by its keeper.
func (c *Client) next(ctx context.Context, lost *link.Conn, q *question, late time.Time, pause *backoff, err error) (*link.Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, late)
	defer cancel()
	ends := time.NewTimer(linkEnd)
	defer ends.Stop()
	select {
	case <-lost.Done():
	case <-ends.C:
		if isBroken(err) { // only the stream is broken, and waiting would not help
			return nil, unreachable(err)
		}
	case <-ctx.Done():
	}
	if pause.wait(ctx) != nil {
		if isBroken(err) {
			err = unreachable(err)
		}
		return nil, err
	}
	wasWorking := isBroken(err)
	conn, welcome, err := c.reach(ctx, false)
	if err != nil {
		return nil, err
	}
	if q.mayBeDone && welcome.Instance != q.instance {
		return nil, unreachable(errStranger)
	}
	if wasWorking && welcome.PID != q.pid { // an upgrade in place keeps the process id
		q.deaths++
		if limit := maxDeaths(q.m); limit >= 0 && q.deaths > limit {
			return nil, died(q.m)
		}
	}
	q.instance, q.pid = welcome.Instance, welcome.PID
	return conn, nil
}

// errDied means that a request was given up because supervisors died while they worked on it.
var errDied = errors.New("given up")

// died returns the error of such a request. It is not retryable, because a repetition by the
// client could kill the next supervisor, too.
func died(request protocol.Message) error {
	return fmt.Errorf("%w: %w", errDied, &protocol.Error{
		Code:    protocol.CodeSupervisorUnreachable,
		Message: fmt.Sprintf("the supervisor died while it worked on this request (%s) and may have died of it, so it is not repeated; its successor serves the sessions", request.MessageType()),
	})
}

// current returns the request for the next attempt, with the time that is left.
func (q *question) current() protocol.Message {
	if !q.wasTried {
		return q.m
	}
	var timeout *int64
	if left, timed := q.left(); timed {
		timeout = new(left.Milliseconds())
	}
	switch m := q.m.(type) {
	case wire.Wait:
		m.TimeoutMS = timeout
		return m
	case wire.Await:
		m.TimeoutMS = timeout
		return m
	}
	return q.m
}

// left returns how long a Wait or an Await may still take; timed is false for other requests and
// if it has no timeout.
func (q *question) left() (left time.Duration, timed bool) {
	var ms *int64
	switch m := q.m.(type) {
	case wire.Wait:
		ms = m.TimeoutMS
	case wire.Await:
		ms = m.TimeoutMS
	}
	if ms == nil {
		return 0, false
	}
	if *ms > maxTimed {
		return time.Duration(maxTimed) * time.Millisecond, true
	}
	return max(0, time.Duration(*ms)*time.Millisecond-time.Since(q.firstAsked)), true
}

// maxTimed is the longest timeout in milliseconds, one year, because a time.Duration could not
// hold a much longer one.
const maxTimed = int64(365 * 24 * time.Hour / time.Millisecond)

// patience returns how long a new link is awaited. A request with a timeout must not wait much
// longer than its timeout.
func (q *question) patience() time.Duration {
	if left, timed := q.left(); timed {
		return min(connectTimeout, left+linkEnd)
	}
	return connectTimeout
}

// pin sets the instance of a request that is repeated, if its protocol.Repeat requires one, because
// the session may have been reopened after the first attempt. The repetition must not affect the
// new instance.
func (q *question) pin(ctx context.Context, conn *link.Conn) error {
	id := protocol.SessionOf(q.m)
	if !q.mayBeDone || id == "" || kindOf(q.m).Repeat != protocol.RepeatInstance || protocol.InstanceOf(q.m) != "" {
		return nil
	}
	found, err := wire.ReplyAs[*wire.Session](conn.Call(ctx, wire.Info{SessionID: id}))
	if err != nil {
		return err
	}
	if found.Session.CreatedAt.After(q.firstAsked) {
		return errDone
	}
	q.m = protocol.WithInstance(q.m, found.Session.Instance)
	return nil
}

// meant returns the result that the first attempt would have had. If a repetition fails because
// the first attempt has succeeded, that is errDone.
func (q *question) meant(err error) error {
	if isBroken(err) {
		return err
	}
	code := protocol.CodeOf(err)
	if !q.mayBeDone || err == nil {
		return err
	}
	switch m := q.m.(type) {
	case wire.Forget:
		if code == protocol.CodeSessionNotFound || code == protocol.CodeInstanceMismatch {
			return errDone
		}
	case wire.Terminate:
		exit := protocol.AsError(err).Exit
		if code == protocol.CodeSessionExited && exit != nil && exit.Reason == cmp.Or(m.Reason, protocol.ReasonUserRequested) {
			return errDone
		}
	}
	return err
}

const (
	backoffMin = 2 * time.Millisecond
	backoffMax = 200 * time.Millisecond
)

// A backoff is the pause before the next attempt to reach the supervisor. Each pause is twice as
// long as the one before, from backoffMin to backoffMax.
type backoff struct{ next time.Duration }

// wait waits for the next pause. It returns the error of ctx if ctx is done first.
func (b *backoff) wait(ctx context.Context) error {
	pause := max(b.next, backoffMin)
	b.next = min(2*pause, backoffMax)
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset makes the next pause the shortest one.
func (b *backoff) reset() { b.next = backoffMin }
