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

// statusStolen closes a raw WebSocket in whose place another client came.
const statusStolen ws.StatusCode = 4001

// terminalReset is RIS. Sent before a snapshot that stands for missed output,
// so that it is not drawn over what the terminal shows.
const terminalReset = "\x1bc"

// raw serves a session's raw WebSocket until it ends. The session is attached
// first, so that what is wrong can be told in HTTP.
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
	r.answered()
	return s.endUnless(serve())
}

func rawSpec(r *request, id protocol.SessionID) (protocol.AttachSpec, error) {
	cols, err := queryInt(r, "cols")
	rows, err2 := queryInt(r, "rows")
	spec := protocol.AttachSpec{
		SessionID: id, Cols: cols, Rows: rows, Mode: protocol.Mode(r.query.Get("mode")), View: protocol.View(r.query.Get("view")), Client: "web",
		Answers: true, // what speaks this is xterm.js, or another terminal
	}
	return spec, errors.Join(err, err2, spec.Validate())
}

// queryInt returns a number of the query, 0 where it is absent.
func queryInt(r *request, name string) (int, error) {
	v := r.query.Get(name)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return 0, protocol.Errorf(protocol.CodeInvalidArgument, name+" must be a whole number")
	}
	return int(n), nil
}

// A rawTransport is a session's bytes on a WebSocket: its messages are what is
// typed, and output. Of the api's messages it tells what a terminal or the status
// of the close can say.
type rawTransport struct {
	*transport
	frame []byte // the last one that Next returned
}

// Next implements apiserver.Transport: a message is a frame of input, whose
// offset means nothing.
func (t *rawTransport) Next() ([]byte, error) {
	_, m, err := t.next()
	if err != nil {
		return nil, err
	}
	t.frame = frame.AppendData(t.frame[:0], frame.Input, apiserver.BareNumber, 0, m[headroom:])
	return t.frame, nil
}

// SetLimit implements apiserver.Transport: there is no hello before which less
// is read.
func (t *rawTransport) SetLimit(int) {}

// Write implements apiserver.Transport.
func (t *rawTransport) Write(raw []byte) error {
	payload := raw[frame.HeaderLen:]
	if frame.Kind(raw[frame.HeaderLen-1]) == frame.Control {
		m, _, err := api.Messages.Decode(payload)
		if err != nil {
			return err
		}
		return t.tell(m)
	}
	_, _, data, err := frame.ParseData(payload)
	if err != nil || len(data) == 0 {
		return err
	}
	return t.write(ws.OpBinary, data)
}

// tell acts on a message. After the last one the socket is closed.
func (t *rawTransport) tell(m protocol.Message) error {
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
		status, reason = failed(&m.Error)
	}
	if status != 0 {
		t.close(status, reason)
	}
	return nil
}

// failed returns how to close after an error, 0 where it ends nothing.
func failed(e *protocol.Error) (ws.StatusCode, string) {
	switch {
	case e.Code == protocol.CodeNotAttached || e.Code == protocol.CodeLineTooLong:
		return 0, "" // there are no words for it here
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
