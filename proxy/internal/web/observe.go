package web

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"holdfast/protocol"
)

// observeTimeout is how long the supervisor may take to answer a health check. A monitor asks
// every few seconds and gives up after a few seconds, too.
const observeTimeout = time.Second

// observe answers a request for the metrics or the health. ok is false if it is another request.
func (h *Handler) observe(ctx context.Context, r *request) (ok bool, err error) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/metrics" && h.cfg.Metrics != nil:
		return true, h.metrics(ctx, r)
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.URL.Path == "/healthz" && h.cfg.Health != nil:
		return true, h.health(ctx, r)
	}
	return false, nil
}

// metrics answers GET /metrics. On TCP the request must carry the token, at a gate that of clients, because the
// figures show how much is typed, and when.
func (h *Handler) metrics(ctx context.Context, r *request) error {
	if !h.cfg.Trusted && !h.hasBearer(r) {
		return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the token is missing or wrong: send it as Authorization: Bearer")
	}
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	text, contentType, err := h.cfg.Metrics(ctx)
	if err != nil {
		h.cfg.Log.Error().Err(err).Msg("metrics could not be collected")
		return refuse(http.StatusInternalServerError, protocol.CodeInternal, "the metrics could not be collected")
	}
	r.answer(contentType, text)
	return nil
}

// health answers GET and HEAD of /healthz without a token, and therefore says only whether the supervisor
// answers, or that a gate serves.
func (h *Handler) health(ctx context.Context, r *request) error {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	if err := h.cfg.Health(ctx); err != nil {
		return refuse(statusUnavailable, protocol.CodeOf(err), "the supervisor does not answer")
	}
	r.answer("text/plain; charset=utf-8", []byte("ok\n"))
	return nil
}

// hasBearer reports whether the request carries the configured token, or at a gate that of clients. It
// compares in constant time, and an empty token never matches.
func (h *Handler) hasBearer(r *request) bool {
	own := h.cfg.Token
	if h.cfg.Gate != nil {
		own = h.cfg.Gate.Token()
	}
	all := r.Header.Values("Authorization")
	if len(all) != 1 || own == "" {
		return false
	}
	scheme, token, _ := strings.Cut(all[0], " ")
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(token), []byte(own)) == 1
}

// answer sends the body with status 200. A client that does not read it within answerTimeout
// receives only a part.
func (r *request) answer(contentType string, body []byte) {
	if r.Method == http.MethodHead {
		body = nil
	}
	_ = r.nc.SetWriteDeadline(time.Now().Add(answerTimeout))
	if answer(r.nc, http.StatusOK, contentType, "X-Content-Type-Options: nosniff\r\n", body) == nil {
		linger(r.nc)
	}
}
