package web

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"holdfast/protocol"
)

// observeTimeout is how long the supervisor may take to answer for us: who asks
// how we are does so every few seconds, and has a time-out of his own.
const observeTimeout = time.Second

// metrics answers with numbers, which are for whoever may use the api: they tell
// how much is typed here, and when.
func (h *Handler) metrics(ctx context.Context, r *request) error {
	if !h.cfg.Trusted && !h.hasBearer(r) {
		return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the token is missing or wrong: send it as Authorization: Bearer")
	}
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	text, contentType, err := h.cfg.Metrics(ctx)
	if err != nil {
		h.cfg.Log.Error().Err(err).Msg("metrics not made")
		return refuse(http.StatusInternalServerError, protocol.CodeInternal, "the metrics cannot be made")
	}
	r.answer(contentType, text)
	return nil
}

// health answers anybody, and so says no more than it must.
func (h *Handler) health(ctx context.Context, r *request) error {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	if err := h.cfg.Health(ctx); err != nil {
		return refuse(statusUnavailable, protocol.CodeOf(err), "the supervisor does not answer")
	}
	r.answer("text/plain; charset=utf-8", []byte("ok\n"))
	return nil
}

// hasBearer compares in constant time; an empty token is never the same.
func (h *Handler) hasBearer(r *request) bool {
	all := r.Header.Values("Authorization")
	if len(all) != 1 || h.cfg.Token == "" {
		return false
	}
	scheme, token, _ := strings.Cut(all[0], " ")
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(token), []byte(h.cfg.Token)) == 1
}

// answer writes what was asked for. A client that does not take it at once gets
// no more of it.
func (r *request) answer(contentType string, body []byte) {
	_ = r.nc.SetWriteDeadline(time.Now().Add(closeTimeout))
	if answer(r.nc, http.StatusOK, contentType, "X-Content-Type-Options: nosniff\r\n", body) == nil {
		linger(r.nc)
	}
}
