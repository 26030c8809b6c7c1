package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/shared/logging"
	"holdfast/shared/plain"
)

const (
	// maxHead limits the request line and headers. Browsers send about 1 KiB, and the cookies of all ports of this host: up to
	// 180, of which those of other proxies have some 220 bytes each.
	maxHead     = 48 << 10
	firstHead   = 2 << 10 // bytes for which there is room at first
	headTimeout = 2 * time.Second
)

// A request is the head of a request, its connection, and the bytes that have arrived after the
// head.
type request struct {
	*http.Request
	query        url.Values
	nc           net.Conn
	remainder    []byte
	markAnswered func() // must be called when apiserver serves the WebSocket, or when the answer is written
	markKnown    func() // must be called when the client has identified itself
}

// scheme returns "https" or "http".
func (r *request) scheme() string {
	if _, ok := r.nc.(*tls.Conn); ok {
		return "https"
	}
	return "http"
}

// live returns a context that ends with ctx, and with the cause errGoaway when all clients must
// reconnect.
func (h *Handler) live(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.away, func() { cancel(errGoaway) })
	return ctx, func() { stop(); cancel(nil) }
}

// serve reads one request, answers it, and closes the connection unless it was moved.
func (h *Handler) serve(ctx context.Context, g *guard, a *pendingConn) {
	ctx, cancel := h.live(ctx)
	defer cancel()
	defer context.AfterFunc(a.away, cancel)()
	defer a.leave()
	defer h.removeStranger(a)
	nc := a.nc
	r, err := h.readRequest(ctx, a)
	if h.freezeConn(a, err) {
		return // another process will serve the connection
	}
	defer h.markAnswered(a)
	if err == nil {
		r.markAnswered, r.markKnown = func() { h.markAnswered(a) }, func() { h.removeStranger(a) }
		err = h.route(ctx, g, r)
	}
	if errors.Is(err, errMoved) {
		return
	}
	var no *refusal
	if errors.As(err, &no) {
		h.refused(no)
		h.logRefusal(no, r, nc)
		_ = nc.SetWriteDeadline(time.Now().Add(answerTimeout))
		if no.write(nc, r) == nil {
			linger(nc)
		}
	}
	_ = nc.Close()
}

func (h *Handler) refused(no *refusal) {
	if h.cfg.Refused != nil {
		h.cfg.Refused(no.err.Code)
	}
}

// logRefusal logs a refusal without the URL, because the URL may contain a ticket or a token.
func (h *Handler) logRefusal(no *refusal, r *request, nc net.Conn) {
	event := h.cfg.Log.Debug()
	if no.security {
		event = h.refusals.Of(h.cfg.Log).Warn().Bool(logging.Security, true)
	}
	event = event.Int("status", no.status).Str(logging.Code, string(no.err.Code)).Str("why", no.err.Message)
	if a := nc.RemoteAddr(); a != nil {
		event = event.Str(logging.RemoteAddr, a.String())
	}
	if r != nil {
		event = event.Str("host", cut(r.Host)).Str("origin", cut(r.Header.Get("Origin")))
	}
	event.Msg("web client refused")
}

// cut limits the bytes that a client can write into the log.
func cut(s string) string { return plain.Cut(s, 100) }

// route handles a request. It returns a refusal if the request was not handled, or nil when the
// connection has ended.
func (h *Handler) route(ctx context.Context, g *guard, r *request) error {
	if err := g.check(r); err != nil {
		return err
	}
	if h.cfg.Page {
		if h.pagePass(r) != nil {
			r.markKnown()
		}
		if ok, err := h.page(ctx, r); ok {
			return err
		}
	}
	if h.cfg.Gate != nil {
		return h.routeGate(ctx, r)
	}
	if r.Method == http.MethodGet {
		if r.URL.Path == "/v1/api" {
			return h.api(ctx, r)
		}
		if id, ok := rawPath(r.URL.Path); ok {
			return h.raw(ctx, r, id)
		}
	}
	if ok, err := h.observe(ctx, r); ok {
		return err
	}
	return refuse(http.StatusNotFound, protocol.CodeUnsupported, "there is only GET /v1/api, /v1/sessions/{id}/raw, /metrics and /healthz")
}

// rawPath returns the session id of the path /v1/sessions/{id}/raw.
func rawPath(path string) (protocol.SessionID, bool) {
	id, ok := strings.CutPrefix(path, "/v1/sessions/")
	if !ok {
		return "", false
	}
	id, ok = strings.CutSuffix(id, "/raw")
	return protocol.SessionID(id), ok && protocol.ValidID(id)
}

// readRequest reads the head of a request. It returns a refusal if the client should receive an
// answer, and another error if the client has sent no bytes.
func (h *Handler) readRequest(ctx context.Context, a *pendingConn) (*request, error) {
	nc := a.nc
	if err := nc.SetReadDeadline(time.Now().Add(headTimeout)); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(longAgo) })()
	if h.isMoving() { // if Freeze ran before the deadline was set above, it must interrupt the read again
		_ = nc.SetReadDeadline(longAgo)
	}
	head, remainder, err := readHead(nc, a.read)
	if err != nil {
		a.read = head
		return nil, err
	}
	hr, err := parseHead(head)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, protocol.CodeInvalidArgument, err.Error())
	}
	query, err := url.ParseQuery(hr.URL.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, protocol.CodeInvalidArgument, "the URL's query is invalid")
	}
	return &request{Request: hr, query: query, nc: nc, remainder: remainder}, nil
}

// readHead reads a request's head up to the blank line, beginning with the bytes before. It
// returns the head and the bytes after it. If it returns an error, head holds all bytes that have
// arrived.
func readHead(r io.Reader, before []byte) (head, remainder []byte, err error) {
	blank := []byte("\r\n\r\n")
	buf := append(make([]byte, 0, firstHead), before...)
	for len(buf) < maxHead {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, len(buf))
		}
		n := len(buf)
		k, err := r.Read(buf[n:min(cap(buf), maxHead)])
		buf = buf[:n+k]
		from := max(0, n-len(blank)+1)
		if i := bytes.Index(buf[from:], blank); i >= 0 {
			end := from + i + len(blank)
			return buf[:end], buf[end:], nil
		}
		if err != nil {
			if len(buf) > 0 { // a client that has sent no bytes receives no answer
				err = errors.Join(refuse(http.StatusRequestTimeout, protocol.CodeTimeout, "the request's head did not arrive completely"), err)
			}
			return buf, nil, err
		}
	}
	return buf, nil, refuse(http.StatusRequestHeaderFieldsTooLarge, protocol.CodeFrameTooLarge, fmt.Sprintf("the request's head exceeds %d bytes", maxHead))
}

// parseHead parses a request's head. The target must be a path, and there must be no body,
// because its bytes would be read as the WebSocket's first bytes.
func parseHead(head []byte) (*http.Request, error) {
	left := bytes.NewReader(head)
	br := bufio.NewReader(left)
	r, err := http.ReadRequest(br)
	switch {
	case err != nil:
		return nil, errors.New("this is not an HTTP request")
	case br.Buffered()+left.Len() > 0:
		return nil, errors.New("the request's lines must end in CR LF")
	case !r.ProtoAtLeast(1, 1) || r.ProtoMajor != 1:
		return nil, errors.New("the HTTP version must be 1.1")
	case !strings.HasPrefix(r.RequestURI, "/"):
		return nil, errors.New("the request's target must be a path")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return nil, errors.New("the request must not have a body")
	}
	return r, nil
}

const statusUnavailable = http.StatusServiceUnavailable

// A refusal is an answer that is not a WebSocket and reports an error.
type refusal struct {
	status   int
	err      *protocol.Error
	security bool   // the client has tried a forbidden action
	allow    string // the methods of the path, for the header Allow; empty unless status is 405
	page     string // an HTML page for people; empty if programs read the answer
}

func (no *refusal) Error() string { return fmt.Sprintf("%d: %v", no.status, no.err) }

func refuse(status int, code protocol.Code, message string) *refusal {
	return &refusal{status: status, err: protocol.Errorf(code, "%s", message)}
}

// refuseMethod returns the refusal of a request whose method is none of those of its path.
func refuseMethod(allowed ...string) *refusal {
	no := refuse(http.StatusMethodNotAllowed, protocol.CodeUnsupported, "the method must be "+strings.Join(allowed, " or "))
	no.allow = strings.Join(allowed, ", ")
	return no
}

// forbid returns a refusal that is logged as a security event.
func forbid(status int, code protocol.Code, message string) *refusal {
	no := refuse(status, code, message)
	no.security = true
	return no
}

// refuseFor returns the refusal for an error of the supervisor.
func refuseFor(err error) *refusal {
	e := protocol.AsError(err)
	status, ok := statuses[e.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	return &refusal{status: status, err: e}
}

var statuses = map[protocol.Code]int{
	protocol.CodeInvalidArgument:       http.StatusBadRequest,
	protocol.CodeUnauthorized:          http.StatusUnauthorized,
	protocol.CodePermissionDenied:      http.StatusForbidden,
	protocol.CodeSessionNotFound:       http.StatusNotFound,
	protocol.CodeAlreadyAttached:       http.StatusConflict,
	protocol.CodeInstanceMismatch:      http.StatusConflict,
	protocol.CodeSessionExited:         http.StatusGone,
	protocol.CodeLimitExceeded:         http.StatusTooManyRequests,
	protocol.CodeClosed:                http.StatusServiceUnavailable,
	protocol.CodePolicyUnavailable:     http.StatusServiceUnavailable,
	protocol.CodeSupervisorUnreachable: http.StatusServiceUnavailable,
}

// write sends the whole answer to the request r, which is nil if it could not be read. The body
// is an error message of the api, or a page.
func (no *refusal) write(w io.Writer, r *request) error {
	contentType, headers, body := "application/json", "X-Content-Type-Options: nosniff\r\n", []byte(no.page)
	if no.page != "" {
		contentType, headers = "text/html; charset=utf-8", r.pageHeaders()
	} else {
		var err error
		if body, err = protocol.Encode(api.Error{Error: *no.err}); err != nil {
			return err
		}
	}
	if r != nil && r.Method == http.MethodHead {
		body = nil
	}
	if no.allow != "" {
		headers += "Allow: " + no.allow + "\r\n"
	}
	return answer(w, no.status, contentType, headers, body)
}

// answer sends a whole answer, after which no other bytes follow on the connection.
func answer(w io.Writer, status int, contentType, headers string, body []byte) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	switch status {
	case http.StatusUnauthorized:
		b.WriteString("WWW-Authenticate: Bearer\r\n")
	case http.StatusUpgradeRequired:
		b.WriteString("Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n")
	case http.StatusServiceUnavailable:
		b.WriteString("Retry-After: 1\r\n")
	}
	fmt.Fprintf(&b, "Content-Type: %s\r\nContent-Length: %d\r\n", contentType, len(body))
	b.WriteString("Cache-Control: no-store\r\n" + headers + "Connection: close\r\n\r\n")
	b.Write(body)
	_, err := w.Write(b.Bytes())
	return err
}
