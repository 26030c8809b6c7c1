package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/logging"
)

// number is a raw WebSocket's attachment's, the only one on its stream.
const number = 1

// statusStolen closes a raw WebSocket in whose place another client came.
const statusStolen ws.StatusCode = 4001

// terminalReset is RIS. Sent before a snapshot that stands for missed output,
// so that it is not drawn over what the terminal shows.
const terminalReset = "\x1bc"

// patience is how long the parts of a raw WebSocket wait.
type patience struct {
	retryMin, retryMax time.Duration // for input to be accepted, before it is sent again
	ping               time.Duration // between pings to a client that is not read
}

var defaultPatience = patience{retryMin: 50 * time.Millisecond, retryMax: 400 * time.Millisecond, ping: 5 * time.Second}

// A raw is a raw WebSocket: one attachment whose bytes are the messages.
//
//	read   takes what the client types; alone reads the socket
//	typist brings it to the supervisor, and again what was not accepted
//	print  brings output to the client, and says how that ended
type raw struct {
	socket   *socket
	link     *linkclient.Attachment
	typist   *linkclient.Typist
	readOnly bool
	patience patience
	log      zerolog.Logger
}

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
	trusted, err := h.trust(r, id)
	if err != nil {
		return err
	}
	if !trusted {
		return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "this raw WebSocket needs a ticket")
	}
	link, info, err := h.cfg.Link.Attach(ctx, number, spec)
	if err != nil {
		if ctx.Err() != nil {
			return refuse(statusUnavailable, protocol.CodeClosed, errGoaway.Error())
		}
		return refuseFor(err)
	}
	defer link.Detach()
	s, err := upgrade(r, "")
	if err != nil {
		return err
	}
	w := &raw{
		socket: s, link: link, typist: linkclient.NewTypist(link, info.InputOffset), readOnly: spec.Mode == protocol.ModeReadOnly,
		patience: h.patience, log: h.cfg.Log.With().Str(logging.Session, string(id)).Logger(),
	}
	w.typist.RetryMin, w.typist.RetryMax = h.retryMin, h.retryMax
	w.serve(ctx)
	return nil
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

// serve returns when nothing of the WebSocket is running.
func (w *raw) serve(ctx context.Context) {
	w.log.Debug().Msg("raw client connected")
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(inner, func() {
		if ctx.Err() == nil {
			w.link.Detach() // the client has gone: it knows no offset to come back at
		}
		w.link.Close()
		w.socket.close(leaving(ctx))
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		w.read(inner)
		cancel()
	})
	wg.Go(func() { w.typist.Run(inner) })
	if status, reason := w.print(inner); status != 0 {
		w.socket.close(status, reason)
	}
	cancel()
	wg.Wait()
	stop()
	w.socket.end()
}

// read takes input until the client goes. While too much of it is not accepted
// nothing more is read.
func (w *raw) read(ctx context.Context) {
	for {
		_, m, err := w.socket.next()
		if err != nil {
			return
		}
		if w.readOnly {
			continue // terminals answer questions by themselves; that is no fault
		}
		for p := m[headroom:]; len(p) > 0; {
			n := w.typist.Add(p)
			if p = p[n:]; len(p) > 0 && !w.waitForRoom(ctx) {
				return
			}
		}
	}
}

// waitForRoom returns true when input may have been accepted, false when the
// client is gone. The end of a connection that is not read cannot be seen, so
// the client is pinged: the answer of a dead one is a reset.
func (w *raw) waitForRoom(ctx context.Context) bool {
	ping := time.NewTicker(w.patience.ping)
	defer ping.Stop()
	for {
		select {
		case <-w.typist.Room():
			return true
		case <-ctx.Done():
			return false
		case <-ping.C:
			if w.socket.broken.Load() {
				return false
			}
			w.socket.later(ws.OpPing, nil)
		}
	}
}

// print writes what the session prints, and nothing else, until the end. It
// returns how to close, or 0 when that is known already.
func (w *raw) print(ctx context.Context) (ws.StatusCode, string) {
	for {
		item, err := w.link.Next(ctx)
		if err != nil {
			return w.lost(err)
		}
		if item.Raw == nil {
			if status, reason := w.told(item.Message); status != 0 {
				return status, reason
			}
			continue
		}
		_, _, data, err := frame.ParseData(item.Raw[frame.HeaderLen:])
		if err == nil && len(data) > 0 { // the link's reader has looked at err
			err = w.socket.write(ws.OpBinary, data)
		}
		if err != nil {
			return 0, ""
		}
	}
}

// told acts on a message and returns how to close if it was the last.
func (w *raw) told(m protocol.Message) (ws.StatusCode, string) {
	if w.typist.Told(m) {
		return 0, ""
	}
	switch m := m.(type) {
	case *wire.Resync:
		_ = w.socket.write(ws.OpBinary, []byte(terminalReset)) // what follows would fail, too
	case *wire.Error:
		return w.failed(&m.Error)
	case *wire.Stolen:
		return statusStolen, "stolen"
	case *wire.Exited:
		return exited(&m.Exit)
	}
	return 0, ""
}

// failed acts on an error of the attachment.
func (w *raw) failed(e *protocol.Error) (ws.StatusCode, string) {
	switch e.Code {
	case protocol.CodeSessionNotFound, protocol.CodeSessionExited:
		return 0, "" // typed after the end; what comes next says how that was
	case protocol.CodeLineTooLong:
		return 0, "" // there are no words for it here, and it ends nothing
	}
	return w.lost(e)
}

func exited(e *protocol.ExitRecord) (ws.StatusCode, string) {
	if e.Signal != "" {
		return ws.StatusNormalClosure, "killed by " + e.Signal
	}
	return ws.StatusNormalClosure, fmt.Sprintf("exited %d", e.ExitCode)
}

// lost returns how to close when the attachment could not go on.
func (w *raw) lost(err error) (ws.StatusCode, string) {
	e := protocol.AsError(err)
	switch {
	case errors.Is(err, io.EOF):
		return 0, ""
	case e.Code == protocol.CodeSessionExited && e.Exit != nil:
		return exited(e.Exit)
	case e.Code == protocol.CodeSupervisorUnreachable:
		return statusTryAgainLater, string(e.Code)
	}
	w.log.Info().Err(err).Msg("raw client's attachment lost")
	return ws.StatusInternalServerError, string(e.Code)
}
