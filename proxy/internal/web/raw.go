package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gobwas/ws"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/internal/apiserver"
)

// statusStolen closes a raw WebSocket because another client has replaced its attachment.
const statusStolen ws.StatusCode = 4001

// terminalReset is RIS. The transport sends it before a snapshot that replaces missed output,
// because the snapshot must not be drawn over the old screen.
const terminalReset = "\x1bc"

// raw serves a session's raw WebSocket until it ends. It attaches to the session before it
// answers the handshake, because an HTTP answer can still report an error.
func (h *Handler) raw(ctx context.Context, r *request, id protocol.SessionID) error {
	if err := checkUpgrade(r.Header); err != nil {
		return err
	}
	spec, err := rawSpec(r, id)
	if err != nil {
		return refuseFor(err)
	}
	from, err := h.origin(r, id)
	if err != nil {
		return err
	}
	if !from.Trusted {
		return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "this raw WebSocket needs a ticket")
	}
	link, info, err := h.cfg.Server.AttachBare(ctx, &from, spec)
	if err != nil {
		if ctx.Err() != nil {
			return refuse(statusUnavailable, protocol.CodeClosed, errGoaway.Error())
		}
		return refuseFor(err)
	}
	s, err := upgrade(r, "")
	if err != nil {
		link.Detach()
		return err
	}
	serve := h.cfg.Server.AcceptBare(ctx, &rawTransport{transport: newTransport(ctx, s)}, from, link, info)
	r.markAnswered()
	return s.endUnless(serve())
}

func rawSpec(r *request, id protocol.SessionID) (protocol.AttachSpec, error) {
	cols, err := queryInt(r, "cols")
	rows, err2 := queryInt(r, "rows")
	spec := protocol.AttachSpec{
		SessionID: id, Cols: cols, Rows: rows, Mode: protocol.Mode(r.query.Get("mode")), View: protocol.View(r.query.Get("view")), Client: "web",
		Answers: true, // the client is xterm.js or another terminal, which answers queries
	}
	return spec, errors.Join(err, err2, spec.Validate())
}

// queryInt returns a number of the query, or 0 if the query does not have it.
func queryInt(r *request, name string) (int, error) {
	v := r.query.Get(name)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return 0, protocol.Errorf(protocol.CodeInvalidArgument, "%s must be a whole number", name)
	}
	return int(n), nil
}

// A rawTransport carries a session's bytes on a WebSocket: messages of the client are input,
// messages to the client are output. Of the api's messages it forwards only those that a terminal
// sequence or a close status can express.
type rawTransport struct {
	*transport
	frame []byte // the frame that Next returned last; its memory is used again
}

// Next implements apiserver.Transport. It returns a message as a frame of input with the offset
// 0.
func (t *rawTransport) Next() ([]byte, error) {
	_, m, err := t.next()
	if err != nil {
		return nil, err
	}
	t.frame = frame.AppendData(t.frame[:0], frame.Input, apiserver.BareNumber, 0, m[headroom:])
	return t.frame, nil
}

// SetLimit implements apiserver.Transport. It has no effect, because a raw WebSocket has no hello,
// and so no smaller limit before hello.
func (t *rawTransport) SetLimit(int) {}

// Write implements apiserver.Transport.
func (t *rawTransport) Write(raw []byte) error {
	payload := raw[frame.HeaderLen:]
	if frame.Kind(raw[frame.HeaderLen-1]) == frame.Control {
		m, _, err := api.Messages.Decode(payload)
		if err != nil {
			return err
		}
		return t.handleMessage(m)
	}
	_, _, data, err := frame.ParseData(payload)
	if err != nil || len(data) == 0 {
		return err
	}
	return t.write(ws.OpBinary, data)
}

// handleMessage translates a message of the api. After the last message of a connection it closes
// the socket.
func (t *rawTransport) handleMessage(m protocol.Message) error {
	status, reason := ws.StatusCode(0), ""
	switch m := m.(type) {
	case *api.Resync:
		return t.write(ws.OpBinary, []byte(terminalReset))
	case *api.PTYExited:
		status, reason = exited(m.Signal, m.ExitCode)
	case *api.Stolen:
		status, reason = statusStolen, "stolen"
	case *api.Goaway:
		status, reason = statusServiceRestart, errGoaway.Error()
	case *api.Error:
		status, reason = noteFailure(&m.Error)
	}
	if status != 0 {
		t.close(status, reason)
	}
	return nil
}

// closeStatusForError returns the close status for an error, or 0 if the connection continues
// after the error.
func noteFailure(e *protocol.Error) (ws.StatusCode, string) {
	switch {
	case e.Code == protocol.CodeNotAttached || e.Code == protocol.CodeLineTooLong:
		return 0, "" // a raw WebSocket cannot express these
	case e.Code == protocol.CodeSessionExited && e.Exit != nil:
		return exited(e.Exit.Signal, e.Exit.ExitCode)
	case e.Code == protocol.CodeSupervisorUnreachable || e.Code == protocol.CodeLimitExceeded:
		return statusTryAgainLater, string(e.Code)
	case e.Code == protocol.CodeClosed:
		return statusServiceRestart, string(e.Code)
	}
	return ws.StatusInternalServerError, string(e.Code)
}

func exited(signal string, code int) (ws.StatusCode, string) {
	if signal != "" {
		return ws.StatusNormalClosure, "killed by " + signal
	}
	return ws.StatusNormalClosure, fmt.Sprintf("exited %d", code)
}
