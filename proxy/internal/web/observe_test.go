package web

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
)

const numbersType = "text/plain; version=0.0.4"

// observed returns a handler with metrics. unwell is the reason why it is not healthy.
func (e *env) observed(trusted bool, unwell *atomic.Pointer[protocol.Error]) *Handler {
	h := e.handler(trusted)
	h.cfg.Token = token
	h.cfg.Metrics = func(context.Context) ([]byte, string, error) {
		if err := unwell.Load(); err != nil {
			return nil, "", err
		}
		return []byte("a 1\n"), numbersType, nil
	}
	h.cfg.Health = func(ctx context.Context) error {
		if _, ok := ctx.Deadline(); !ok {
			return errors.New("no end is set")
		}
		if err := unwell.Load(); err != nil {
			return err
		}
		return nil
	}
	return h
}

// get sends a request on a connection of its own, which ends with the reply.
func get(t *testing.T, addr net.Addr, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	c := dial(t, addr)
	host := "Host: " + addr.String()
	if addr.Network() == "unix" {
		host = "Host: localhost"
	}
	c.send("GET " + path + " HTTP/1.1\r\n" + strings.Join(append(headers, host), "\r\n") + "\r\n\r\n")
	r := c.response()
	body, err := io.ReadAll(r.Body)
	if err != nil || !r.Close || r.ContentLength != int64(len(body)) {
		t.Errorf("%s: %d of %d bytes, close %v, %v", path, len(body), r.ContentLength, r.Close, err)
	}
	if n, err := io.Copy(io.Discard, c.br); n > 0 || err != nil {
		t.Errorf("%s: %d bytes behind the reply, %v", path, n, err)
	}
	return r, string(body)
}

// Which client may read which path.
func TestObserve(t *testing.T) {
	e := newEnv(t)
	var well atomic.Pointer[protocol.Error]
	unix, tcp := e.listen(e.observed(true, &well)), e.listen(e.observed(false, &well))
	bare := e.handler(false)
	bare.cfg.Metrics = e.observed(false, &well).cfg.Metrics
	noToken := e.listen(bare)
	for _, tt := range []struct {
		name    string
		addr    net.Addr
		path    string
		headers []string
		status  int
	}{
		{"numbers on the socket", unix, "/metrics", nil, 200},
		{"numbers without a token", tcp, "/metrics", nil, 401},
		{"numbers with it", tcp, "/metrics", []string{"Authorization: Bearer " + token}, 200},
		{"in other letters", tcp, "/metrics", []string{"authorization: bearer " + token}, 200},
		{"numbers with another", tcp, "/metrics", []string{"Authorization: Bearer " + token[1:] + "x"}, 401},
		{"with a part of it", tcp, "/metrics", []string{"Authorization: Bearer " + token[1:]}, 401},
		{"with an empty one", tcp, "/metrics", []string{"Authorization: Bearer "}, 401},
		{"in another scheme", tcp, "/metrics", []string{"Authorization: Basic " + token}, 401},
		{"with two", tcp, "/metrics", []string{"Authorization: Bearer " + token, "Authorization: Bearer " + token}, 401},
		{"with it in the URL", tcp, "/metrics?token=" + token, nil, 400},
		{"with a ticket", tcp, "/metrics?ticket=x", nil, 401},
		{"numbers for another site", tcp, "/metrics", []string{"Authorization: Bearer " + token, "Origin: http://evil.example"}, 403},
		{"numbers where there is no token", noToken, "/metrics", []string{"Authorization: Bearer "}, 401},
		{"health where there is none", noToken, "/healthz", nil, 404},
		{"health on the socket", unix, "/healthz", nil, 200},
		{"health on TCP", tcp, "/healthz", nil, 200},
		{"health for another site", tcp, "/healthz", []string{"Origin: http://evil.example"}, 403},
		{"below it", unix, "/healthz/", nil, 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, body := get(t, tt.addr, tt.path, tt.headers...)
			if r.StatusCode != tt.status {
				t.Errorf("%d %q, want %d", r.StatusCode, body, tt.status)
			}
			if got := r.Header.Get("Www-Authenticate"); (got == "Bearer") != (tt.status == 401) {
				t.Errorf("WWW-Authenticate %q", got)
			}
			if tt.status != 200 {
				return
			}
			want, kind := "a 1\n", numbersType
			if tt.path == "/healthz" {
				want, kind = "ok\n", "text/plain; charset=utf-8"
			}
			if got := r.Header.Get("Content-Type"); body != want || got != kind {
				t.Errorf("%q of type %q", body, got)
			}
		})
	}
	if strings.Contains(e.log.String(), token) || strings.Contains(e.log.String(), token[1:]) {
		t.Error("the token is in the log")
	}
}

// A proxy that is not healthy tells so, and only clients with a token learn the reason.
func TestNotWell(t *testing.T) {
	e := newEnv(t)
	var unwell atomic.Pointer[protocol.Error]
	unwell.Store(protocol.Errorf(protocol.CodeSupervisorUnreachable, "dial /home/somebody"))
	refused := make(chan protocol.Code, 2)
	h := e.observed(true, &unwell)
	h.cfg.Refused = func(code protocol.Code) { refused <- code }
	addr := e.listen(h)
	r, body := get(t, addr, "/healthz")
	if r.StatusCode != 503 || !strings.Contains(body, `"code":"supervisor_unreachable"`) || strings.Contains(body, "somebody") {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	if r, body = get(t, addr, "/metrics"); r.StatusCode != 500 || strings.Contains(body, "somebody") {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	if a, b := <-refused, <-refused; a != protocol.CodeSupervisorUnreachable || b != protocol.CodeInternal {
		t.Errorf("the refusals are %s, %s", a, b)
	}
	unwell.Store(nil)
	if r, body = get(t, addr, "/healthz"); r.StatusCode != 200 {
		t.Errorf("after it is healthy again: %d %s", r.StatusCode, body)
	}
	c := dial(t, addr)
	c.send("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if answer, err := io.ReadAll(c.br); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") || !strings.HasSuffix(string(answer), "\r\n\r\n") {
		t.Errorf("the answer to HEAD is %q, %v", answer, err)
	}
}

// A client that does not read is kept for a short time only.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		h := New(Config{Trusted: true, Log: zerolog.Nop(), Metrics: func(context.Context) ([]byte, string, error) {
			return make([]byte, 1<<20), numbersType, nil
		}})
		done := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(done)
			h.serve(context.Background(), &guard{trusted: true}, h.addPending(far, nil))
		}()
		if _, err := near.Write([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		<-done
		if took := time.Since(began); took != answerTimeout {
			t.Errorf("the connection was kept for %v", took)
		}
	})
}
