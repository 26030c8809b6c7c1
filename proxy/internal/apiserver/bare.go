package apiserver

import (
	"cmp"
	"context"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/logging"
)

// A bare connection shows one session: it has one attachment, no hello, and no
// word for anything but bytes. Its transport makes of what is typed input frames
// whose offsets mean nothing, and tells its client what it can of the messages.

// BareNumber is a bare connection's attachment's.
const BareNumber = 1

// probeEvery is how often a client is asked whether it is there, while nothing
// is read of it.
const probeEvery = 5 * time.Second

// A Prober can ask its client whether it is there, and knows where the answer
// was that it is not.
type Prober interface{ Probe() error }

// AcceptBare is Accept for a client that shows one session, to which it was
// attached by AttachBare.
func (s *Server) AcceptBare(ctx context.Context, t Transport, from Origin, la *linkclient.Attachment, info *protocol.AttachInfo) (serve func() (moved bool)) {
	c := s.newConn(ctx, t, from)
	c.hello = &api.Hello{Client: "web"}
	c.log = c.log.With().Str(logging.Session, string(info.Session.ID)).Logger()
	a, err := c.reserve(BareNumber)
	if err == nil {
		err = s.add(c)
	}
	if err != nil {
		la.Detach()
	} else {
		c.begin(a, la, info, false, func() {})
	}
	return s.accepted(c, err)
}

// AttachBare attaches a client that comes without a hello, and whom the system or
// a ticket vouches for, to show one session. It says in from who the client is.
func (s *Server) AttachBare(ctx context.Context, from *Origin, spec protocol.AttachSpec) (*linkclient.Attachment, *protocol.AttachInfo, error) {
	from.Transport = TransportRaw
	c := s.newConn(ctx, nil, *from)
	defer c.cancel()
	c.hello = &api.Hello{Client: spec.Client}
	if err := c.identified(ctx); err != nil {
		return nil, nil, err
	}
	from.Principal = c.from.Principal
	return c.attachAllowed(ctx, BareNumber, spec)
}

// leave is for a client that has gone and knows no offset to come back at.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.attachments {
		a.left.Store(true)
	}
}

// typed takes what a bare connection's client typed. While too much of it is not
// accepted nothing more is read.
func (c *conn) typed(a *attachment, p []byte) error {
	if a.readOnly {
		return nil // terminals answer questions by themselves; that is no fault
	}
	for {
		p = p[a.typist.Add(p):]
		if len(p) == 0 {
			return nil
		}
		if err := c.waitForRoom(a); err != nil || a.ctx.Err() != nil {
			a.typist.Keep(p)
			return err
		}
	}
}

// waitForRoom returns nil when input may have been accepted, or never will be.
// The end of a connection that is not read cannot be seen, so its client is
// asked.
func (c *conn) waitForRoom(a *attachment) error {
	probe := time.NewTicker(cmp.Or(c.s.cfg.ProbeEvery, probeEvery))
	defer probe.Stop()
	for {
		select {
		case <-a.typist.Room():
			return nil
		case <-c.moving:
			return errMoving
		case <-a.ctx.Done():
			return c.ctx.Err()
		case <-probe.C:
			if p, ok := c.t.(Prober); ok {
				if err := p.Probe(); err != nil {
					return err
				}
			}
		}
	}
}
