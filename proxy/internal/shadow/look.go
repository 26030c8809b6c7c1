// Package shadow compares the views that two proxies have of sessions, before one proxy
// replaces the other. Each proxy attaches to a sample of sessions as a shadow, which other viewers do
// not notice, and computes a checksum. If the new proxy sees another screen or other output than
// the old one, it must not replace the old one.
//
// Invariant: the content of a session stays in this package. A View has only its checksum, and no
// message, error or log contains more.
//
// Not here: the conversation with the other proxy (package handoff), and the consequences of a
// difference (the proxy's main).
package shadow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/link"
)

const (
	// MaxAsks is the largest number of asks or views in a message between two proxies. With the
	// longest ids they take at most two thirds of socket.MaxPayload.
	MaxAsks = 128
	// atOnce is how many sessions are viewed at the same time. It is high enough that the
	// supervisor is always busy, and low enough that other requests do not wait for long.
	atOnce = 8
)

// An Ask is a request for a view of one session.
type Ask struct {
	Session  protocol.SessionID `json:"session"`
	Instance protocol.Instance  `json:"instance"`
	// If To is not 0, the request is for the output from From to To instead of the screen.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"` // 0 means the screen
}

// A View is the result of an Ask.
type View struct {
	Session  protocol.SessionID `json:"session"`
	Instance protocol.Instance  `json:"instance,omitempty"`
	Offset   uint64             `json:"offset"` // offset of the screen, or To for output
	Size     protocol.Size      `json:"size,omitzero"`
	Sum      string             `json:"sum,omitempty"`    // SHA-256, in hex, of the bytes of the snapshot or of the output
	Gone     bool               `json:"gone,omitempty"`   // the session or its instance does not exist, or has exited
	Unseen   bool               `json:"unseen,omitempty"` // no view was possible: the session is full or busy, or its ring does not hold the range any more
}

// ofOutput reports whether a requests output instead of the screen.
func (a Ask) ofOutput() bool { return a.To > 0 }

func (a Ask) validate() error {
	if err := a.Session.Validate(); err != nil {
		return err
	}
	if !protocol.ValidID(string(a.Instance)) {
		return protocol.Errorf(protocol.CodeInvalidArgument, "an instance must have the form of an id, it is %.80q", string(a.Instance))
	}
	if a.From > 0 && a.From >= a.To {
		return protocol.Errorf(protocol.CodeInvalidArgument, "there is no output from %d to %d", a.From, a.To)
	}
	return nil
}

// Look views sessions over the link, atOnce at a time, and returns the views in the order of the
// asks.
//
// The errors are invalid_argument for an invalid ask and for output that was not printed yet,
// those of the link, and those of ctx.
func Look(ctx context.Context, link *linkclient.Client, asks []Ask) ([]View, error) {
	for _, ask := range asks {
		if err := ask.validate(); err != nil {
			return nil, err
		}
	}
	ctx, fail := context.WithCancelCause(ctx) // the first error ends the other views
	defer fail(nil)
	views := make([]View, len(asks))
	turns := make(chan struct{}, atOnce)
	var looks sync.WaitGroup
	for i, ask := range asks {
		turns <- struct{}{}
		looks.Go(func() {
			defer func() { <-turns }()
			view, err := viewSession(ctx, link, ask)
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

// viewTries is how many attempts a view has if the link is lost, because the supervisor may exec
// another program meanwhile.
const viewTries = 3

// viewTime limits one attempt, so that several attempts at a session that answers late fit into
// the time of a handoff. If the output of a session is expensive to parse, it may restore its screen
// for seconds after an upgrade; the session then counts as unseen.
const viewTime = 2 * time.Second

// viewSession returns a view of one session. It does not use linkclient's Attach, because that
// resumes over a new link, and a view must come from one link. It begins anew instead.
func viewSession(ctx context.Context, c *linkclient.Client, ask Ask) (view View, err error) {
	for range viewTries {
		once, cancel := context.WithTimeout(ctx, viewTime)
		view, err = viewOnce(once, c, ask)
		late := once.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && late {
			return View{Session: ask.Session, Unseen: true}, nil
		}
		if e := protocol.AsError(err); err == nil || e.Code != protocol.CodeSupervisorUnreachable || !e.Retryable || ctx.Err() != nil {
			break
		}
	}
	return view, err
}

func viewOnce(ctx context.Context, c *linkclient.Client, ask Ask) (View, error) {
	view := View{Session: ask.Session}
	spec := protocol.AttachSpec{SessionID: ask.Session, Mode: protocol.ModeReadOnly, History: new(0)} // without history, which may be long and was on a screen before
	if ask.ofOutput() {
		spec.Resume = &protocol.Resume{Instance: ask.Instance, Offset: ask.From}
	}
	st, reply, err := c.Open(ctx, wire.Attach{AttachSpec: spec, Shadow: true})
	switch protocol.CodeOf(err) {
	case "":
	case protocol.CodeSessionNotFound, protocol.CodeSessionExited, protocol.CodeInstanceMismatch:
		view.Gone = true
		return view, nil
	case protocol.CodeLimitExceeded, protocol.CodeBusy:
		view.Unseen = true
		return view, nil
	default:
		return view, err
	}
	defer st.Abort()
	defer context.AfterFunc(ctx, st.Abort)()
	info, err := wire.ReplyAs[*wire.Attached](reply, nil)
	if err != nil {
		return view, err
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
	if err != nil && ctx.Err() != nil { // the end of ctx has ended the stream
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
	if info.Session.OutputOffset < ask.To { // it may never be printed
		return protocol.Errorf(protocol.CodeInvalidArgument, "offset %d was not printed yet, the end is %d", ask.To, info.Session.OutputOffset)
	}
	if info.Replay != protocol.ReplayExact || info.Offset != ask.From {
		v.Unseen = true
		return nil
	}
	return v.read(st, frame.Output, ask.From, ask.To-ask.From)
}

// read computes the checksum of the next n bytes of one kind; offset is the offset of the first
// one.
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
				return protocol.Errorf(protocol.CodeBadFrame, "data at offset %d, want %d", at, offset)
			}
			if kind == frame.Output { // all frames of a snapshot have the same offset
				offset += uint64(len(data))
			}
			data = data[:min(uint64(len(data)), n)]
			sum.Write(data)
			n -= uint64(len(data))
		case frame.Control:
			if isResync(payload) {
				v.Unseen = true
				return nil
			}
		case frame.Output, frame.Snapshot, frame.View:
			return protocol.Errorf(protocol.CodeBadFrame, "a frame of kind %d, want %d", got, kind)
		}
	}
	v.Sum = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// isResync reports whether a message is a Resync: the ring has overwritten output that was not
// read. Other messages do not matter for a view.
func isResync(payload []byte) bool {
	m, _, err := wire.Messages.Decode(payload)
	_, resync := m.(*wire.Resync)
	return err == nil && resync
}
