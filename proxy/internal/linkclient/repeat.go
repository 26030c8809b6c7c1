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

// A supervisor may become another program, or die and be started again with all
// that it holds: then it is the same instance, over another link. What is asked
// meanwhile is asked again there.
//
//	upgrading   nothing was done: every request is made again
//	link lost   whether it was done is not known: what may be done twice is made
//	            again, if the next link's supervisor is the same
//
// A supervisor that died while it worked on a request may have died of it. Such a request
// is made again only as often as deathsOutlived says: a request that kills each supervisor
// would end with the keeper starting none any more.

// linkEnd is how long a link may outlast the answer that another program comes,
// or a stream that broke. The supervisor may stay as it is after all.
const linkEnd = time.Second

// errStranger ends the repeating of what another supervisor was asked.
var errStranger = errors.New("another supervisor has come, which has other sessions")

// errDone is of a request that is not repeated because it was done.
var errDone = errors.New("it was done before the link was lost")

// repeatable returns a request as it is to be made, with all that makes it safe
// to make twice, and whether it then is.
func repeatable(request protocol.Message) (protocol.Message, bool) {
	switch m := request.(type) {
	case wire.List, wire.Info, wire.Read, wire.Screen, wire.History, wire.Search, wire.Wait, wire.Mark, wire.Await, wire.Events, wire.Status, wire.Stats,
		wire.Environment, wire.Away:
		return m, true
	case wire.Resize, wire.SizePolicy, wire.Clear, wire.Relabel, wire.Limit, wire.Freeze, wire.Terminate, wire.Forget:
		return m, true // once more has no effect, see doneBefore
	case wire.Create:
		m.SessionID = cmp.Or(m.SessionID, protocol.SessionID(protocol.NewToken(6))) // as the supervisor would
		m.Token = cmp.Or(m.Token, protocol.NewToken(16))
		return m, true
	case wire.Reopen:
		m.Token = cmp.Or(m.Token, protocol.NewToken(16))
		return m, true
	case wire.Write:
		if m.Writer == "" { // from 0 on: what is accepted is so much of this
			m.Writer, m.Offset = protocol.NewToken(8), 0
		}
		return m, true
	case wire.Attach:
		if m.Writer == "" && !m.Shadow { // so that the second comes in the place of the first
			m.Writer = protocol.NewToken(8)
		}
		return m, true
	}
	return request, false
}

// deathsOutlived is how many supervisors may die under a request before it is given up; -1
// is any number. It is far below the keeper's crash limit, of five a minute.
func deathsOutlived(request protocol.Message) int {
	switch m := request.(type) {
	case wire.Attach:
		if m.Resume != nil {
			return -1 // each death ends in this for every viewer: giving it up would lose the viewer
		}
	case wire.Screen, wire.History, wire.Search, wire.Mark, wire.Resize, wire.SizePolicy:
		return 0 // their work grows with what is kept, or with a size that the client names
	case wire.Wait, wire.Events:
		return -1 // they wait, and are no work
	}
	return 2
}

// A question is a request until it is answered.
type question struct {
	m          protocol.Message
	repeatable bool
	asked      time.Time         // for the first time
	of         protocol.Instance // of the supervisor that was asked last
	pid        int               // its process
	deaths     int               // of supervisors that were working on it
	knows      protocol.Capabilities
	tried      bool
	doubt      bool // it may have been done
}

// over makes a request over the live link, by try, and again over the next ones.
// For a link to come it waits as long as for the first.
//
// Errors: errDone where it had been done when the link was lost; those of Conn;
// supervisor_unreachable; and those of the supervisor.
func (c *Client) over(ctx context.Context, request protocol.Message, try func(*link.Conn, protocol.Message) error) error {
	q := &question{asked: time.Now()}
	q.m, q.repeatable = repeatable(request)
	conn, welcome, err := c.reach(ctx, true)
	if err != nil {
		return err
	}
	q.of, q.pid, q.knows = welcome.Instance, welcome.PID, welcome.Capabilities
	var late time.Time
	wait := backoffMin
	for {
		begun := time.Now()
		if err = q.understood(); err == nil {
			err = q.pin(ctx, conn)
		}
		if err == nil {
			err = try(conn, q.now())
		}
		if ctx.Err() != nil || !q.again(err) {
			return q.meant(err)
		}
		now := time.Now()
		late = giveUp(late, now, now.Sub(begun), q.patience())
		if now.Sub(begun) > backoffMax { // it was not this that took the time
			wait = backoffMin
		}
		if conn, err = c.next(ctx, conn, q, late, wait, err); err != nil {
			return err
		}
		wait = min(2*wait, backoffMax)
	}
}

// understood returns unsupported for what an older supervisor would take for something
// else: it does not know of keys, would type what is to be pasted, and would start a
// session without limits.
func (q *question) understood() error {
	switch m := q.m.(type) {
	case wire.Write:
		if (m.Paste || len(m.Keys) > 0) && !q.knows.Has(protocol.CapAutomation) {
			return protocol.Errorf(protocol.CodeUnsupported, "this supervisor knows neither pasted input nor keys")
		}
	case wire.Create:
		if !m.Limits.IsZero() && !q.knows.Has(protocol.CapCage) {
			return protocol.Errorf(protocol.CodeUnsupported, "this supervisor knows no limits; upgrade it (supervisor --upgrade)")
		}
	case wire.Terminate:
		if m.All && !q.knows.Has(protocol.CapCage) {
			return protocol.Errorf(protocol.CodeUnsupported, "this supervisor has no cages; upgrade it (supervisor --upgrade)")
		}
	}
	return nil
}

// giveUp is until when the next link is waited for, after one that was to be waited
// for until late (zero: it is the first) and lasted for so long. A link earns as much
// waiting as it lasted: who waits for a session's end outlives any number of upgrades,
// and who asks what supervisors die of is not answered for ever.
func giveUp(late, now time.Time, lasted, patience time.Duration) time.Time {
	most := now.Add(patience)
	if late.IsZero() || late.Add(2*lasted).After(most) {
		return most
	}
	return late.Add(2 * lasted)
}

// again reports whether a request that ended so is to be made again.
func (q *question) again(err error) bool {
	q.tried = true
	if protocol.CodeOf(err) == protocol.CodeUpgrading {
		return true
	}
	if !broke(err) {
		return false
	}
	q.doubt = true
	return q.repeatable
}

// broke reports whether err is no answer, but what came of a lost link.
func broke(err error) bool {
	var e *protocol.Error
	return err != nil && !errors.Is(err, errDone) && !errors.As(err, &e)
}

// next waits for the end of a link after which err came, and returns the next
// one; or the same, where the supervisor has stayed what it was. It starts none:
// one that is to be found again is there already, or on its way.
func (c *Client) next(ctx context.Context, lost *link.Conn, q *question, late time.Time, wait time.Duration, err error) (*link.Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, late)
	defer cancel()
	ends := time.NewTimer(linkEnd)
	defer ends.Stop()
	select {
	case <-lost.Done():
	case <-ends.C:
		if broke(err) { // the stream alone: waiting mends nothing
			return nil, unreachable(err)
		}
	case <-ctx.Done():
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		if broke(err) {
			err = unreachable(err)
		}
		return nil, err
	}
	underWay := broke(err)
	conn, welcome, err := c.reach(ctx, false)
	if err != nil {
		return nil, err
	}
	if q.doubt && welcome.Instance != q.of {
		return nil, unreachable(errStranger)
	}
	if underWay && welcome.PID != q.pid { // an upgrade in place keeps the process
		q.deaths++
		if most := deathsOutlived(q.m); most >= 0 && q.deaths > most {
			return nil, died(q.m)
		}
	}
	q.of, q.pid, q.knows = welcome.Instance, welcome.PID, welcome.Capabilities
	return conn, nil
}

// errDied is of a request that is given up because supervisors have died under it.
var errDied = errors.New("given up")

// died is the error of such a request. It is not retryable, so that no client makes the
// next supervisor die of it, too.
func died(request protocol.Message) error {
	return fmt.Errorf("%w: %w", errDied, &protocol.Error{
		Code:    protocol.CodeSupervisorUnreachable,
		Message: fmt.Sprintf("the supervisor died while it worked on this request (%s) and may have died of it, so it is not repeated; its successor serves the sessions", request.MessageType()),
	})
}

// now is the request as it is to be made now.
func (q *question) now() protocol.Message {
	left, timed := q.left()
	if !timed || !q.tried {
		return q.m
	}
	ms := left.Milliseconds()
	switch m := q.m.(type) {
	case wire.Wait:
		m.TimeoutMS = &ms
		return m
	case wire.Await:
		m.TimeoutMS = &ms
		return m
	}
	return q.m
}

// left is how long a session's end, or what is awaited of it, is still to be waited for.
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
	return max(0, time.Duration(*ms)*time.Millisecond-time.Since(q.asked)), true
}

// maxTimed is for ever, within what a time.Duration can hold, in milliseconds.
const maxTimed = int64(365 * 24 * time.Hour / time.Millisecond)

// patience is how long a link is waited for. Who waits for a session's end for a
// while is not kept for much longer.
func (q *question) patience() time.Duration {
	if left, timed := q.left(); timed {
		return min(connectTimeout, left+linkEnd)
	}
	return connectTimeout
}

// pin has what ends or removes a session, and may have done so already, mean no
// other life of it than was there when it was asked.
func (q *question) pin(ctx context.Context, conn *link.Conn) error {
	var id protocol.SessionID
	switch m := q.m.(type) {
	case wire.Terminate:
		if m.Instance == "" {
			id = m.SessionID
		}
	case wire.Forget:
		if m.Instance == "" {
			id = m.SessionID
		}
	}
	if !q.doubt || id == "" {
		return nil
	}
	reply, err := conn.Call(ctx, wire.Info{SessionID: id})
	if err != nil {
		return err
	}
	found, ok := reply.(*wire.Session)
	if !ok {
		return protocol.Errorf(protocol.CodeInternal, "info answered by "+reply.MessageType())
	}
	if found.Session.CreatedAt.After(q.asked) {
		return errDone
	}
	switch m := q.m.(type) {
	case wire.Terminate:
		m.Instance = found.Session.Instance
		q.m = m
	case wire.Forget:
		m.Instance = found.Session.Instance
		q.m = m
	}
	return nil
}

// meant turns an error into what the first try would have been told, had there
// been but that.
func (q *question) meant(err error) error {
	if broke(err) {
		return err
	}
	code := protocol.CodeOf(err)
	if !q.doubt || err == nil {
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
