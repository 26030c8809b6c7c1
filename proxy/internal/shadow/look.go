// Package shadow compares what two proxies see of the sessions before one of
// them follows the other. Each attaches to every session as a shadow, which
// nobody notices, and says what it saw; who is shown another screen, or other
// output, is not fit to go on for the other.
//
// Invariant: what a session shows stays here. A View has a sum of it; no
// message, no error and no log has more.
//
// Not here: how the other proxy is asked (package handoff), and what follows
// from a difference (the proxy's main).
package shadow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/link"
)

const (
	// MaxAsks is how many a message between two proxies carries: that many asks
	// or views of the longest ids take two thirds of socket.MaxPayload at most.
	MaxAsks = 128
	// atOnce is how many sessions are looked at at a time: enough that the
	// supervisor is not waited for, and too few to be in anybody's way there.
	atOnce = 8
)

// An Ask is for a look at one session.
type Ask struct {
	Session  protocol.SessionID `json:"session"`
	Instance protocol.Instance  `json:"instance"`
	// From and To ask for the output between two offsets instead of the screen.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"` // 0: the screen
}

// A View is what was seen.
type View struct {
	Session  protocol.SessionID `json:"session"`
	Instance protocol.Instance  `json:"instance,omitempty"`
	Offset   uint64             `json:"offset"` // that the screen stands for; of a range: To
	Size     protocol.Size      `json:"size,omitzero"`
	Sum      string             `json:"sum,omitempty"`    // SHA-256 in hex of the snapshot's or the output's bytes
	Gone     bool               `json:"gone,omitempty"`   // no such session, or no such instance, or it has exited
	Unseen   bool               `json:"unseen,omitempty"` // it could not be looked at now: a full session, a range that the ring no longer has
}

// ofOutput reports whether a asks for output, not for the screen.
func (a Ask) ofOutput() bool { return a.To > 0 }

func (a Ask) validate() error {
	if err := a.Session.Validate(); err != nil {
		return err
	}
	if !protocol.ValidID(string(a.Instance)) {
		return protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("an instance must have the form of an id, it is %.80q", string(a.Instance)))
	}
	if a.From > 0 && a.From >= a.To {
		return protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("there is no output from %d to %d", a.From, a.To))
	}
	return nil
}

// Look looks at sessions over the link, some at a time, and returns what it saw
// in the order asked for.
//
// Errors: invalid_argument for what cannot be asked, or was not printed yet;
// those of the link, and of ctx.
func Look(ctx context.Context, link *linkclient.Client, asks []Ask) ([]View, error) {
	for _, ask := range asks {
		if err := ask.validate(); err != nil {
			return nil, err
		}
	}
	ctx, fail := context.WithCancelCause(ctx) // one that fails ends all
	defer fail(nil)
	views := make([]View, len(asks))
	turns := make(chan struct{}, atOnce)
	var looks sync.WaitGroup
	for i, ask := range asks {
		turns <- struct{}{}
		looks.Go(func() {
			defer func() { <-turns }()
			view, err := look(ctx, link, ask)
			if err != nil {
				fail(fmt.Errorf("look at session %s: %w", ask.Session, err))
			}
			views[i] = view
		})
	}
	looks.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return views, nil
}

// lookTries is how often a session is looked at whose link is lost meanwhile: the
// supervisor becomes another program.
const lookTries = 3

// look attaches by itself, not by linkclient's Attach: that resumes, and what
// came of two links is no look. It looks anew.
func look(ctx context.Context, c *linkclient.Client, ask Ask) (view View, err error) {
	for range lookTries {
		view, err = lookOnce(ctx, c, ask)
		if e := protocol.AsError(err); err == nil || e.Code != protocol.CodeSupervisorUnreachable || !e.Retryable || ctx.Err() != nil {
			break
		}
	}
	return view, err
}

func lookOnce(ctx context.Context, c *linkclient.Client, ask Ask) (View, error) {
	view := View{Session: ask.Session}
	spec := protocol.AttachSpec{SessionID: ask.Session, Mode: protocol.ModeReadOnly, History: new(0)} // what scrolled away is long, and all of it was on a screen
	if ask.ofOutput() {
		spec.Resume = &protocol.Resume{Instance: ask.Instance, Offset: ask.From}
	}
	st, reply, err := c.Open(ctx, wire.Attach{AttachSpec: spec, Shadow: true})
	switch protocol.CodeOf(err) {
	case "":
	case protocol.CodeSessionNotFound, protocol.CodeSessionExited, protocol.CodeInstanceMismatch:
		view.Gone = true
		return view, nil
	case protocol.CodeLimitExceeded:
		view.Unseen = true
		return view, nil
	default:
		return view, err
	}
	defer st.Abort()
	defer context.AfterFunc(ctx, st.Abort)()
	info, ok := reply.(*wire.Attached)
	if !ok {
		return view, protocol.Errorf(protocol.CodeInternal, "attach answered by "+reply.MessageType())
	}
	if info.Session.Instance != ask.Instance || info.Session.State == protocol.StateExited {
		view.Gone = true
		return view, nil
	}
	view.Instance = ask.Instance
	if ask.ofOutput() {
		err = view.output(st, ask, info)
	} else {
		err = view.screen(st, info)
	}
	if err != nil && ctx.Err() != nil { // it ended the stream
		err = context.Cause(ctx)
	}
	return view, err
}

func (v *View) screen(st *link.Stream, info *wire.Attached) error {
	v.Offset, v.Size = info.Offset, info.Session.Size
	return v.read(st, frame.Snapshot, info.Offset, uint64(max(0, info.SnapshotBytes)))
}

func (v *View) output(st *link.Stream, ask Ask, info *wire.Attached) error {
	v.Offset = ask.To
	if info.Session.OutputOffset < ask.To { // it may never be
		return protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("offset %d was not printed yet, the end is %d", ask.To, info.Session.OutputOffset))
	}
	if info.Replay != protocol.ReplayExact || info.Offset != ask.From {
		v.Unseen = true
		return nil
	}
	return v.read(st, frame.Output, ask.From, ask.To-ask.From)
}

// read sums up the next n bytes of a kind, of which the first has an offset.
func (v *View) read(st *link.Stream, kind frame.Kind, offset, n uint64) error {
	sum := sha256.New()
	for n > 0 {
		raw, err := st.Next()
		if err != nil {
			return &protocol.Error{Code: protocol.CodeSupervisorUnreachable, Retryable: true, Message: fmt.Sprintf("the attachment ended: %v", err)}
		}
		payload := raw[frame.HeaderLen:]
		switch got := frame.Kind(raw[4]); got {
		case kind:
			_, at, data, err := frame.ParseData(payload)
			if err != nil {
				return err
			}
			if at != offset {
				return protocol.Errorf(protocol.CodeBadFrame, fmt.Sprintf("data at offset %d, want %d", at, offset))
			}
			if kind == frame.Output { // all of a snapshot has one
				offset += uint64(len(data))
			}
			data = data[:min(uint64(len(data)), n)]
			sum.Write(data)
			n -= uint64(len(data))
		case frame.Control:
			if overtaken(payload) {
				v.Unseen = true
				return nil
			}
		case frame.Output, frame.Snapshot, frame.View:
			return protocol.Errorf(protocol.CodeBadFrame, fmt.Sprintf("a frame of kind %d, want %d", got, kind))
		}
	}
	v.Sum = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// overtaken reports whether a message says that the ring has gone on without
// us; what else there is to tell is for viewers.
func overtaken(payload []byte) bool {
	m, _, err := wire.Messages.Decode(payload)
	_, resync := m.(*wire.Resync)
	return err == nil && resync
}
