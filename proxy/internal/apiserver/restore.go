package apiserver

import (
	"context"
	"sync"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/logging"
)

// Restore continues a connection at the state of its record and serves it until it ends. The
// transport must begin with the bytes of r.In. Restore calls ready when all attachments have been
// made. It reads and writes nothing, and sends no input, until the previous process has released
// the connection, which is when owned is closed. If ctx is done before that, Restore drops the
// connection and returns taken = false. moved tells whether the connection was moved to another
// proxy again.
func (s *Server) Restore(ctx context.Context, t Movable, r *Record, ready func(), owned <-chan struct{}) (taken, moved bool) {
	c := s.newConn(ctx, t, r.From, phaseRestoring)
	c.hello = r.Hello
	if c.hello != nil {
		t.SetLimit(frame.Max)
	}
	c.writeFirst(c.wg.Go, t, r.Out)
	err := c.checkPassKey(r)
	if err == nil {
		err = c.identify(ctx)
	}
	isSubscribed := err == nil && c.reattachAll(r)
	ready()
	select {
	case <-owned:
	case <-ctx.Done():
		t.Stop() // writes are discarded from now on
		c.life.enter(onEnd)
		c.cancel()
		c.wg.Wait()
		return false, false
	}
	c.life.enter(onOwn)
	if err == nil {
		err = s.addConn(c)
	}
	if err != nil {
		c.refuse(err)
		c.wg.Wait()
		return true, false
	}
	defer s.removeConn(c)
	for _, rec := range r.Attachments { // before the client's next input
		if a := c.attachments.await(c.ctx, rec.Number); a != nil && a.typist != nil {
			a.typist.Keep(rec.Typed)
		}
	}
	if !isSubscribed {
		_ = t.Close() // the client subscribes again, after the last event that it received
	}
	for _, raw := range r.Requests {
		if err := c.handleControl(c.ctx, raw); err != nil {
			_ = t.Close()
		}
	}
	return true, c.serve()
}

// checkPassKey refuses a client whose cookie, of the page or of a share link, is void because the token was changed
// between the proxies. The cookie is checked when the WebSocket is opened, so without this check a viewer could stay
// after the user has revoked the link.
//
// The record of an earlier release does not name the key. It is refused if this proxy has made its token itself,
// because then the previous proxy had another one. Otherwise the client is accepted: an upgrade to this release
// must not end the connections of all viewers, and a user who revokes the links removes the token, as documented.
func (c *conn) checkPassKey(r *Record) error {
	isVoid := r.PassKey != c.s.passes.Fingerprint()
	if r.PassKey == "" {
		isVoid = c.s.cfg.IsTokenNew
	}
	if !c.from.Cookie || !isVoid {
		return nil
	}
	text := "the token of the proxy was changed, so the browser is signed out: sign in again"
	if c.from.Share != nil {
		text = "the share link was revoked: ask for a new one"
	}
	err := protocol.Errorf(protocol.CodeUnauthorized, "%s", text)
	c.s.refusals.Of(c.log).Info().Str(logging.Code, string(err.Code)).Msg("client refused")
	return err
}

// reattachAll makes the attachments and the subscription of the record again. It reports false if
// the subscription could not be made.
func (c *conn) reattachAll(r *Record) (isSubscribed bool) {
	var wg sync.WaitGroup
	for _, a := range r.Attachments {
		wg.Go(func() { c.reattach(a) })
	}
	wg.Wait()
	if r.Events == nil {
		return true
	}
	c.following.reserve()
	return c.follow(r.Events.Instance, r.Events.After, func(*wire.Subscribed) {}) == nil
}

// reattach makes an attachment of the record again. The client receives the messages that it would
// receive after a lost link. The limit of a share link does not apply: after a failed handoff, the link still has the
// attachment of the old conn, which the new one replaces.
func (c *conn) reattach(r AttachmentRecord) {
	a, err := c.attachments.reserve(c.ctx, r.Number)
	if err != nil {
		return
	}
	la, info, err := c.s.cfg.Link.Attach(a.ctx, r.Number, r.Spec)
	if err != nil {
		a.session = r.Spec.SessionID
		close(a.ended)
		c.wg.Go(func() { c.sendLast(a, a.errorMessage(err)) })
		return
	}
	a.sentSize = r.Size
	if a.sentSize == (protocol.Size{}) {
		a.sentSize = info.Session.Size // the message attached had this size
	}
	c.begin(a, la, info, r.Text, func() {
		<-c.life.reached(phaseServing)
		if info.Replay == protocol.ReplaySnapshot {
			c.send(api.Resync{
				Attachment: r.Number, Offset: info.Offset, BytesMissed: info.BytesMissed, SnapshotBytes: info.SnapshotBytes,
				View: info.View, ScreenOnly: r.Spec.ScreenOnly,
			})
		}
		if a.typist == nil {
			c.send(api.Accepted{Attachment: &r.Number, Offset: info.InputOffset})
		}
	})
}
