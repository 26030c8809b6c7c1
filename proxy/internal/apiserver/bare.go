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

// A bare connection shows one session. It has one attachment, no hello and no messages, only bytes.
// Its transport makes input frames of the input, with offsets that are ignored, and translates the
// messages that its client can understand.

// BareNumber is the number of a bare connection's attachment.
const BareNumber = 1

// probeEvery is the default interval at which the server probes a bare client while it does not
// read the client's input.
const probeEvery = 5 * time.Second

// A Prober is a Transport that can probe its client. Probe returns an error if the client has
// disconnected.
type Prober interface{ Probe() error }

// AcceptBare adds a bare connection for an attachment that AttachBare returned. The result is the
// same as the result of Accept.
func (s *Server) AcceptBare(ctx context.Context, t Transport, from Origin, la *linkclient.Attachment, info *protocol.AttachInfo) (serve func() (moved bool)) {
	c := s.newConn(ctx, t, from, phaseServing)
	c.hello = &api.Hello{Client: "web"}
	c.log = c.log.With().Str(logging.Session, string(info.Session.ID)).Logger()
	a, err := c.reserve(BareNumber)
	if err == nil {
		err = s.addConn(c)
	}
	if err != nil {
		la.Detach()
	} else {
		c.begin(a, la, info, false, func() {})
	}
	return s.serveFunc(c, err)
}

// AttachBare attaches a client that sends no hello to one session. The operating system or a ticket
// must have authenticated the client. AttachBare sets from.Principal.
func (s *Server) AttachBare(ctx context.Context, from *Origin, spec protocol.AttachSpec) (*linkclient.Attachment, *protocol.AttachInfo, error) {
	from.Transport = TransportRaw
	c := s.newCaller(*from)
	c.hello = &api.Hello{Client: spec.Client}
	if err := c.identify(ctx); err != nil {
		return nil, nil, err
	}
	from.Principal = c.from.Principal
	return c.attachAllowed(ctx, BareNumber, spec)
}

// writeInput sends input of a bare connection's client. It returns when the typist has taken all of
// p, so the connection is not read while too much input is not yet accepted.
func (c *conn) writeInput(a *attachment, p []byte) error {
	if a.isReadOnly {
		return nil // a terminal answers queries by itself, so this is no error
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

// waitForRoom returns nil when the typist may have room again, or when the attachment has ended.
// While it waits, the connection is not read and its end cannot be seen, so waitForRoom probes the
// client.
func (c *conn) waitForRoom(a *attachment) error {
	probe := time.NewTicker(cmp.Or(c.s.cfg.ProbeEvery, probeEvery))
	defer probe.Stop()
	for {
		select {
		case <-a.typist.Room():
			return nil
		case <-c.life.reached(phaseStopping):
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
