package web

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gobwas/ws"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/pass"
	"holdfast/proxy/policy"
	"holdfast/shared/testkit"
)

const index = "<!doctype html><title>the page</title>"

var files = fstest.MapFS{
	"index.html":       {Data: []byte(index)},
	"icon.svg":         {Data: []byte("<svg/>")},
	"odd.xyz":          {Data: []byte("?")},
	"assets/a-1.js":    {Data: []byte("1")},
	"assets/a-2.css":   {Data: []byte("2")},
	"assets/f-3.woff2": {Data: []byte("3")},
	"assets/a-4.js":    {Data: []byte("as it is")},
	"assets/a-4.js.br": {Data: []byte("brotli")},
	"assets/a-4.js.gz": {Data: []byte("gzip")},
}

// clock is a handler's time, which tests can advance.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time        { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) pass(by time.Duration) { c.ahead.Add(int64(by)) }

// paged serves the page.
func (e *env) paged() (net.Addr, *clock) {
	h, c := e.handler(false), &clock{}
	h.cfg.Page, h.cfg.Files, h.cfg.Now, h.passes = true, files, c.now, pass.NewKey(token)
	return e.listen(h), c
}

func ticketFor(t *testing.T, e *env) string {
	t.Helper()
	ticket, err := e.server.StartTicket()
	testkit.Must(t, err)
	return ticket
}

// cookie returns the cookie that a browser sends back, and its path.
func cookie(t *testing.T, r *http.Response) (pair, path string) {
	t.Helper()
	all := r.Cookies()
	if len(all) != 1 {
		t.Fatalf("%d cookies: %v", len(all), r.Header)
	}
	c := all[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Domain != "" || c.Secure || c.MaxAge <= 0 {
		t.Errorf("cookie %+v", c)
	}
	return c.Name + "=" + c.Value, c.Path
}

// signIn exchanges a ticket for a cookie.
func signIn(t *testing.T, e *env, addr net.Addr) string {
	t.Helper()
	r, _ := get(t, addr, "/?ticket="+ticketFor(t, e))
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/" {
		t.Fatalf("%d to %q", r.StatusCode, r.Header.Get("Location"))
	}
	pair, path := cookie(t, r)
	if port := strconv.Itoa(addr.(*net.TCPAddr).Port); !strings.HasPrefix(pair, "holdfast-"+port+"=") || path != "/" {
		t.Errorf("cookie %s of %s", pair, path)
	}
	return pair
}

func sealed(t *testing.T, p pass.Pass) string {
	t.Helper()
	text, err := pass.NewKey(token).Seal(p)
	testkit.Must(t, err)
	return text
}

func TestPageFiles(t *testing.T) {
	e := newEnv(t)
	addr, _ := e.paged()
	const forever = "public, max-age=31536000, immutable"
	for _, tt := range []struct{ path, contentType, cache, body string }{
		{"/", "text/html; charset=utf-8", "no-store", index},
		{"/index.html", "text/html; charset=utf-8", "no-store", index},
		{"/share/x/", "text/html; charset=utf-8", "no-store", index},
		{"/icon.svg", "image/svg+xml", "no-cache", "<svg/>"},
		{"/odd.xyz", "application/octet-stream", "no-cache", "?"},
		{"/assets/a-1.js", "text/javascript; charset=utf-8", forever, "1"},
		{"/assets/a-2.css", "text/css; charset=utf-8", forever, "2"},
		{"/assets/f-3.woff2", "font/woff2", forever, "3"},
		{"/%61ssets/a-1.js", "text/javascript; charset=utf-8", forever, "1"},
		{"/v1/page", "application/json", "no-store", `{"signed_in":false}`},
		{"/share/x/page", "application/json", "no-store", `{"signed_in":false}`},
	} {
		t.Run(tt.path, func(t *testing.T) {
			r, body := get(t, addr, tt.path)
			if r.StatusCode != 200 || body != tt.body || r.Header.Get("Content-Type") != tt.contentType || r.Header.Get("Cache-Control") != tt.cache {
				t.Errorf("%d %q %v", r.StatusCode, body, r.Header)
			}
			if len(r.Cookies()) > 0 {
				t.Errorf("a cookie without a ticket: %v", r.Cookies())
			}
			wantPageHeaders(t, addr, r)
			c := dial(t, addr)
			c.send("HEAD " + tt.path + " HTTP/1.1\r\nHost: " + addr.String() + "\r\n\r\n")
			head, err := io.ReadAll(c.br)
			if err != nil || !strings.Contains(string(head), "\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n") || !strings.HasSuffix(string(head), "\r\n\r\n") {
				t.Errorf("HEAD: %q, %v", head, err)
			}
		})
	}
}

// A file is sent in a coding that the client accepts and that the build has made.
func TestPageCompressed(t *testing.T) {
	e := newEnv(t)
	addr, _ := e.paged()
	for _, tt := range []struct{ path, accept, encoding, body string }{
		{"/assets/a-4.js", "", "", "as it is"},
		{"/assets/a-4.js", "gzip, deflate, br, zstd", "br", "brotli"},
		{"/assets/a-4.js", "gzip, deflate", "gzip", "gzip"},
		{"/assets/a-4.js", "GZIP;q=0.5, br;q=0", "gzip", "gzip"},
		{"/assets/a-4.js", "br; q=0.0, gzip; Q = 0", "", "as it is"},
		{"/assets/a-4.js", "br;q=x", "", "as it is"},
		{"/assets/a-4.js", "*, identity", "", "as it is"},
		{"/assets/a-1.js", "gzip, br", "", "1"}, // the build has no coding of this file
	} {
		r, body := get(t, addr, tt.path, "Accept-Encoding: "+tt.accept)
		if r.StatusCode != 200 || body != tt.body || r.Header.Get("Content-Encoding") != tt.encoding || r.Header.Get("Vary") != "Accept-Encoding" ||
			r.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
			t.Errorf("%s to %q: %d %q %v", tt.path, tt.accept, r.StatusCode, body, r.Header)
		}
	}
	for _, path := range []string{"/assets/a-4.js.br", "/assets/a-4.js.gz"} {
		if r, _ := get(t, addr, path); r.StatusCode != 404 {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

func wantPageHeaders(t *testing.T, addr net.Addr, r *http.Response) {
	t.Helper()
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
		"Content-Security-Policy": "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; connect-src 'self' ws://" + addr.String() +
			"; img-src 'self' data:; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
	} {
		if got := r.Header[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestPageRefused(t *testing.T) {
	e := newEnv(t)
	addr, _ := e.paged()
	for _, tt := range []struct {
		name, line string
		headers    []string
		status     int
	}{
		{"out of it", "GET /../page.go", nil, 404},
		{"out of it, hidden", "GET /%2e%2e/page.go", nil, 404},
		{"out of it, more hidden", "GET /assets/..%2f..%2fpage.go", nil, 404},
		{"out of it, the other way", "GET /..%5cpage.go", nil, 404},
		{"nothing", "GET /assets/", nil, 404},
		{"a directory", "GET /assets", nil, 404},
		{"twice a slash", "GET //index.html", nil, 404},
		{"a dot", "GET /./index.html", nil, 404},
		{"no such file", "GET /nothing", nil, 404},
		{"a zero", "GET /index.html%00", nil, 404},
		{"below the page of a link", "GET /share/x/y", nil, 404},
		{"a link's without a slash", "GET /share/x", nil, 404},
		{"a link of no name", "GET /share//", nil, 404},
		{"a link of a strange name", "GET /share/a%0d%0ab/", nil, 404},
		{"POST", "POST /", nil, 405},
		{"PUT", "PUT /assets/a-1.js", nil, 405},
		{"OPTIONS", "OPTIONS /v1/page", nil, 405},
		{"another Host", "GET /", []string{"Host: evil.example"}, 403},
		{"another port", "GET /assets/a-1.js", []string{"Host: localhost:1"}, 403},
		{"another Origin", "GET /", []string{"Origin: http://evil.example"}, 403},
		{"for another site", "GET /assets/a-1.js", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"}, 403},
		{"for another port", "GET /v1/page", []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"}, 403},
		{"in a frame", "GET /", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 403},
		{"from a mail", "GET /", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 200},
		{"typed in", "GET /", []string{"Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 200},
		{"by itself", "GET /v1/page", []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"}, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headers := tt.headers
			if !strings.HasPrefix(strings.Join(headers, ""), "Host:") {
				headers = append(headers, "Host: "+addr.String())
			}
			c := dial(t, addr)
			c.send(tt.line + " HTTP/1.1\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n")
			if r := c.response(); r.StatusCode != tt.status || tt.status == 405 && r.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%d %v", r.StatusCode, r.Header)
			}
		})
	}
	// There is no page on the Unix socket, and none if the page is not configured.
	for _, h := range []*Handler{e.handler(true), e.handler(false)} {
		if r, _ := get(t, e.listen(h), "/"); r.StatusCode != 404 {
			t.Errorf("status %d", r.StatusCode)
		}
	}
}

func TestPageNotBuilt(t *testing.T) {
	e := newEnv(t)
	h := e.handler(false)
	h.cfg.Page = true
	addr := e.listen(h)
	r, body := get(t, addr, "/")
	if r.StatusCode != 501 || !strings.Contains(body, "scripts/web") {
		t.Errorf("%d %q", r.StatusCode, body)
	}
	wantPageHeaders(t, addr, r)
}

// A ticket can be exchanged once for a cookie, and no reply or log has a secret.
func TestSignIn(t *testing.T) {
	e := newEnv(t)
	addr, clock := e.paged()
	ticket := ticketFor(t, e)
	c := dial(t, addr) // HEAD does not use up the ticket
	c.send("HEAD /?ticket=" + ticket + " HTTP/1.1\r\nHost: " + addr.String() + "\r\n\r\n")
	if r := c.response(); r.StatusCode != 303 || len(r.Cookies()) != 0 {
		t.Errorf("HEAD: %d %v", r.StatusCode, r.Header)
	}
	r, _ := get(t, addr, "/?ticket="+ticket)
	mine, _ := cookie(t, r)
	wantPageHeaders(t, addr, r)
	for name, path := range map[string]string{
		"used up": "/?ticket=" + ticket, "wrong": "/?ticket=" + token, "empty": "/?ticket=", "two": "/?ticket=" + ticketFor(t, e) + "&ticket=x",
	} {
		r, body := get(t, addr, path)
		if r.StatusCode != 401 || len(r.Cookies()) != 0 || !strings.Contains(body, "proxy web") || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %q %v", name, r.StatusCode, body, r.Header)
		}
		wantPageHeaders(t, addr, r)
	}
	// A browser that is signed in needs no ticket.
	if r, _ := get(t, addr, "/?ticket="+ticket, "Cookie: "+mine); r.StatusCode != 303 || len(r.Cookies()) != 0 {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	// A valid ticket is used up nevertheless, so that another person who has seen the link cannot sign in.
	seen := ticketFor(t, e)
	if r, _ := get(t, addr, "/?ticket="+seen, "Cookie: "+mine); r.StatusCode != 303 || len(r.Cookies()) != 1 {
		t.Errorf("a browser that is signed in: %d %v", r.StatusCode, r.Header)
	}
	if r, _ := get(t, addr, "/?ticket="+seen); r.StatusCode != 401 {
		t.Errorf("a ticket is valid although a browser that is signed in has used it: %d", r.StatusCode)
	}
	if n := strings.Count(e.log.String(), "browser signed in"); n != 2 {
		t.Errorf("%d of 2 sign-ins are logged: %s", n, e.log.String())
	}
	if log := e.log.String(); strings.Contains(log, ticket) || strings.Contains(log, mine[20:40]) {
		t.Errorf("a secret is in the log: %s", log)
	}

	// Each load renews the cookie. Without a load it expires.
	signedIn := func(cookie string) bool {
		_, body := get(t, addr, "/v1/page", "Cookie: "+cookie)
		return strings.Contains(body, `"signed_in":true,"expires_at":"`)
	}
	clock.pass(pageLife - time.Hour)
	r, _ = get(t, addr, "/", "Cookie: "+mine)
	again, _ := cookie(t, r)
	clock.pass(2 * time.Hour)
	if signedIn(mine) || !signedIn(again) {
		t.Errorf("the old cookie is valid: %v, the new one: %v", signedIn(mine), signedIn(again))
	}
	clock.pass(pageLife)
	if r, _ := get(t, addr, "/", "Cookie: "+again); signedIn(again) || len(r.Cookies()) != 0 {
		t.Error("an expired cookie was renewed")
	}
	// The cookie of a policy's user is not renewed, so that the policy is asked again.
	addr, clock = e.paged()
	port := addr.(*net.TCPAddr).Port
	ann := "holdfast-" + strconv.Itoa(port) + "=" + sealed(t, pass.Pass{Kind: pass.Page, Port: port, Principal: &policy.Principal{User: "ann"}, Expires: clock.now().Add(time.Hour)})
	if r, _ := get(t, addr, "/", "Cookie: "+ann); len(r.Cookies()) != 0 {
		t.Error("the cookie of a policy's user was renewed")
	}
}

// The page signs out its own browser, and the user can sign out all browsers.
func TestSignOut(t *testing.T) {
	e := newEnv(t)
	h, c := e.handler(false), &clock{}
	var signedOut atomic.Pointer[time.Time]
	used := make(chan string, 2)
	h.cfg.Page, h.cfg.Files, h.cfg.Now, h.passes = true, files, c.now, pass.NewKey(token)
	h.cfg.SignedOut = func() time.Time {
		if at := signedOut.Load(); at != nil {
			return *at
		}
		return time.Time{}
	}
	h.cfg.Used = func(ticket string) { used <- ticket }
	addr := e.listen(h)
	ticket := ticketFor(t, e)
	r, _ := get(t, addr, "/?ticket="+ticket)
	mine, _ := cookie(t, r)
	if got := <-used; got != ticket {
		t.Errorf("used %q", got)
	}
	ask := func(method string, headers ...string) *http.Response {
		c := dial(t, addr)
		c.send(method + " /v1/sign-out HTTP/1.1\r\n" + strings.Join(append(headers, "Host: "+addr.String()), "\r\n") + "\r\n\r\n")
		return c.response()
	}
	own := "Origin: http://" + addr.String()
	for want, r := range map[int]*http.Response{
		405: ask("GET", own, "Cookie: "+mine), 403: ask("POST", "Cookie: "+mine),
	} {
		if r.StatusCode != want || len(r.Cookies()) != 0 || want == 405 && r.Header.Get("Allow") != "POST" {
			t.Errorf("%d %v, want %d", r.StatusCode, r.Header, want)
		}
	}
	r = ask("POST", own, "Cookie: "+mine)
	if all := r.Cookies(); r.StatusCode != 200 || len(all) != 1 || all[0].MaxAge >= 0 || all[0].Value != "" {
		t.Errorf("sign-out: %d %v", r.StatusCode, r.Header)
	}
	isIn := func(cookie string) bool {
		_, body := get(t, addr, "/v1/page", "Cookie: "+cookie)
		return strings.Contains(body, `"signed_in":true`)
	}
	if !isIn(mine) {
		t.Error("the cookie is void before all browsers are signed out")
	}
	now := time.Now()
	signedOut.Store(&now)
	if isIn(mine) || !isIn(signIn(t, e, addr)) {
		t.Error("after the sign-out: an old cookie is valid, or a new one is not")
	}
}

// A lateServer signs all browsers out before it accepts a connection whose cookie was checked before.
type lateServer struct {
	Server
	signOut func()
}

func (s lateServer) Accept(ctx context.Context, t apiserver.Transport, from apiserver.Origin) (serve func() (moved bool)) {
	s.signOut()
	return s.Server.Accept(ctx, t, from)
}

// A WebSocket of the page ends if all browsers are signed out between the check of its cookie and its acceptance.
func TestSignOutDuringHandshake(t *testing.T) {
	e := newEnv(t)
	h := e.handler(false)
	var signedOut atomic.Pointer[time.Time]
	signedOut.Store(&time.Time{})
	h.cfg.Page, h.cfg.Files, h.passes = true, files, pass.NewKey(token)
	h.cfg.SignedOut = func() time.Time { return *signedOut.Load() }
	h.cfg.Server = lateServer{h.cfg.Server, func() {
		now := time.Now()
		signedOut.Store(&now)
		e.server.SignOut()
	}}
	addr := e.listen(h)
	mine := signIn(t, e, addr)
	c := open(t, addr, "/v1/api", "Origin: http://"+addr.String(), "Cookie: "+mine)
	c.message(api.Hello{Protocol: protocol.Supported(), Client: "test"})
	if status, reason := c.closing(); status != ws.StatusPolicyViolation || reason != "unauthorized" {
		t.Errorf("closed with %d %s", status, reason)
	}
}

// A cookie that is renewed while all browsers are signed out is void as the former one is.
func TestSignOutDuringRenewal(t *testing.T) {
	e := newEnv(t)
	h := e.handler(false)
	var signedOut atomic.Pointer[time.Time]
	signedOut.Store(&time.Time{})
	var left atomic.Int32 // checks of a cookie until all browsers are signed out
	h.cfg.Page, h.cfg.Files, h.passes = true, files, pass.NewKey(token)
	h.cfg.SignedOut = func() time.Time {
		at := *signedOut.Load()
		if left.Add(-1) == 0 {
			now := time.Now()
			signedOut.Store(&now)
		}
		return at
	}
	addr := e.listen(h)
	for n := range int32(3) { // a request checks the cookie twice
		mine := signIn(t, e, addr)
		left.Store(n + 1)
		r, _ := get(t, addr, "/", "Cookie: "+mine)
		for _, c := range r.Cookies() {
			mine = c.Name + "=" + c.Value
		}
		for left.Load() > 0 {
			h.cfg.SignedOut()
		}
		if _, body := get(t, addr, "/v1/page", "Cookie: "+mine); strings.Contains(body, `"signed_in":true`) {
			t.Errorf("signed out after check %d: the cookie is valid", n+1)
		}
	}
}

// A cookie permits WebSockets of the page, and no others.
func TestCookie(t *testing.T) {
	e := newEnv(t)
	addr, clock := e.paged()
	mine := signIn(t, e, addr)
	name, value, _ := strings.Cut(mine, "=")
	own := "Origin: http://" + addr.String()
	port := addr.(*net.TCPAddr).Port
	in := time.Now().Add(time.Hour)
	other := sealed(t, pass.Pass{Kind: pass.Page, Port: port + 1, Expires: in})
	share := sealed(t, pass.Pass{Kind: pass.Share, Port: port, Session: "echo", Instance: "life", Expires: in})
	old := sealed(t, pass.Pass{Kind: pass.Page, Port: port, Expires: time.Now().Add(-time.Second)})
	for _, tt := range []struct {
		name    string
		headers []string
		ok      bool
	}{
		{"its own", []string{own, "Cookie: " + mine}, true},
		{"in other letters", []string{"Origin: HTTP://" + addr.String(), "Cookie: " + mine}, true},
		{"among others", []string{own, "Cookie: a=b; " + name + "=x; " + mine + "; c=d"}, true},
		{"no Origin", []string{"Cookie: " + mine}, false},
		{"an allowed Origin, of another page", []string{"Origin: http://localhost:" + strconv.Itoa(port), "Cookie: " + mine}, false},
		{"no cookie", []string{own}, false},
		{"another name", []string{own, "Cookie: x" + mine}, false},
		{"another port's name", []string{own, "Cookie: holdfast-" + strconv.Itoa(port+1) + "=" + value}, false},
		{"another port's", []string{own, "Cookie: " + name + "=" + other}, false},
		{"a share link's", []string{own, "Cookie: " + name + "=" + share}, false},
		{"an old one", []string{own, "Cookie: " + name + "=" + old}, false},
		{"forged", []string{own, "Cookie: " + name + "=" + value[:len(value)-4] + "AAAA"}, false},
		{"the token", []string{own, "Cookie: " + name + "=" + token}, false},
		{"empty", []string{own, "Cookie: " + name + "="}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t, addr, "/v1/api", tt.headers...)
			if tt.ok {
				c.hello("")
				c.message(api.List{Request: protocol.Request{RequestID: "l"}})
				receive[api.Sessions](c)
				return
			}
			c.message(api.Hello{Protocol: protocol.Supported(), Client: "test"})
			if m := receive[api.Error](c); m.Code != protocol.CodeUnauthorized {
				t.Errorf("received %+v", m)
			}
			if status, reason := c.closing(); status != ws.StatusPolicyViolation || reason != "unauthorized" {
				t.Errorf("closed with %d %s", status, reason)
			}
		})
	}
	// A cookie is valid for the api only.
	for path, status := range map[string]int{rawURL("echo"): 401, "/metrics": 404} {
		c := dial(t, addr)
		c.send(handshake(addr, path, own, "Cookie: "+mine))
		if got, _ := c.refusal(); got != status {
			t.Errorf("%s: %d", path, got)
		}
	}
	// Another key belongs to another proxy, or to this one with another token.
	h := e.handler(false)
	h.cfg.Page, h.passes = true, pass.NewKey("another")
	there := e.listen(h)
	if _, body := get(t, there, "/v1/page", "Cookie: holdfast-"+strconv.Itoa(there.(*net.TCPAddr).Port)+"="+value); body != `{"signed_in":false}` {
		t.Errorf("received %s", body)
	}
	clock.pass(pageLife)
	c := open(t, addr, "/v1/api", own, "Cookie: "+mine)
	c.message(api.Hello{Protocol: protocol.Supported(), Client: "test"})
	if m := receive[api.Error](c); m.Code != protocol.CodeUnauthorized {
		t.Errorf("an expired cookie: received %+v", m)
	}
}

// A share link lets a browser read one session, in addition to its other rights.
func TestSharePage(t *testing.T) {
	e := newEnv(t)
	addr, clock := e.paged()
	mine := signIn(t, e, addr)
	key := sealed(t, pass.Pass{Kind: pass.Share, Session: "echo", Instance: "life", Expires: clock.now().Add(time.Hour)})
	at := "/share/" + pass.Name(key) + "/"
	var theirs string
	for range 2 { // a link can be opened any number of times
		r, _ := get(t, addr, "/share?key="+key, "Cookie: "+mine)
		pair, path := cookie(t, r)
		if r.StatusCode != 303 || r.Header.Get("Location") != at || path != at || strings.HasPrefix(pair, strings.Split(mine, "=")[0]+"=") {
			t.Errorf("%d %v", r.StatusCode, r.Header)
		}
		wantPageHeaders(t, addr, r)
		theirs = pair
	}
	if strings.Contains(at, key) || strings.Contains(e.log.String(), key) {
		t.Error("the key is in a URL, or in the log")
	}
	if _, body := get(t, addr, at+"page", "Cookie: "+theirs); !strings.Contains(body, `"signed_in":true`) || !strings.Contains(body, `"session_id":"echo","instance":"life"`) {
		t.Errorf("received %s", body)
	}
	own := "Origin: http://" + addr.String()
	c := open(t, addr, at+"api", own, "Cookie: "+mine+"; "+theirs)
	c.hello("")
	c.message(api.Attach{Request: protocol.Request{RequestID: "a"}, Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "echo", Mode: protocol.ModeReadOnly}})
	receive[api.Attached](c)
	c.data(frame.Snapshot, len(snapshot))
	c.message(api.Spawn{Request: protocol.Request{RequestID: "s"}, SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}}})
	if m := receive[api.Error](c); m.Code != protocol.CodePermissionDenied {
		t.Errorf("received %+v", m)
	}
	name, _, _ := strings.Cut(theirs, "=")
	page := sealed(t, pass.Pass{Kind: pass.Page, Expires: clock.now().Add(time.Hour)})
	for what, request := range map[string]string{
		"no cookie":               handshake(addr, at+"api", own),
		"the page's":              handshake(addr, at+"api", own, "Cookie: "+mine),
		"a page's pass":           handshake(addr, "/share/"+pass.Name(page)+"/api", own, "Cookie: "+name+"="+page),
		"another link's":          handshake(addr, "/share/AAAA/api", own, "Cookie: "+theirs),
		"no Origin":               handshake(addr, at+"api", "Cookie: "+theirs),
		"another Origin of ours":  handshake(addr, at+"api", "Origin: http://localhost:"+portOf(addr), "Cookie: "+theirs),
		"the token instead of it": handshake(addr, at+"api", own, "Authorization: Bearer "+token),
		"a ticket instead of it":  handshake(addr, at+"api?ticket="+ticketFor(t, e), own),
	} {
		c := dial(t, addr)
		c.send(request)
		if status, err := c.refusal(); status != 401 || err.Code != protocol.CodeUnauthorized {
			t.Errorf("%s: %d %v", what, status, err)
		}
	}
	// The cookie of a link is not valid as the cookie of the page.
	if _, body := get(t, addr, "/v1/page", "Cookie: "+theirs); body != `{"signed_in":false}` {
		t.Errorf("received %s", body)
	}
	clock.pass(2 * time.Hour)
	if _, body := get(t, addr, at+"page", "Cookie: "+theirs); body != `{"signed_in":false}` {
		t.Errorf("an expired cookie: received %s", body)
	}
	for what, path := range map[string]string{"old": "/share?key=" + key, "none": "/share", "two": "/share?key=" + key + "&key=x", "a page's": "/share?key=" + page} {
		r, body := get(t, addr, path)
		if r.StatusCode != 401 || len(r.Cookies()) != 0 || !strings.Contains(body, "another one") {
			t.Errorf("%s: %d %q", what, r.StatusCode, body)
		}
	}
}

func portOf(addr net.Addr) string { return strconv.Itoa(addr.(*net.TCPAddr).Port) }

// FuzzPage checks that no path, query or cookie that was not issued is accepted, and that a request cannot add a
// header to the reply.
func FuzzPage(f *testing.F) {
	h := New(Config{Token: token, Page: true, Files: files})
	for _, s := range []string{"/", "/share/x/page", "/share?key=1.e30.AAAA", "/assets/../x", "/v1/page", "/share/a\r\nb/"} {
		f.Add(s, "holdfast-0=1.e30.AAAA; holdfast-share-0=x")
	}
	f.Fuzz(func(t *testing.T, target, cookies string) {
		hr, err := parseHead([]byte("GET " + target + " HTTP/1.1\r\nHost: h\r\nCookie: " + cookies + "\r\n\r\n"))
		if err != nil {
			return
		}
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		r := &request{Request: hr, query: hr.URL.Query(), nc: near}
		if h.pagePass(r) != nil {
			t.Errorf("the cookie %q was accepted", cookies)
		}
		name, below, ok := sharePath(hr.URL.Path)
		if h.sharePass(r, name) != nil {
			t.Errorf("the cookie %q was accepted", cookies)
		}
		if ok && strings.ContainsAny(name+"/", "\r\n ;%") {
			t.Errorf("the name of a share link is %q, the path below it %q", name, below)
		}
		if do := h.pageFor(r); do != nil && hr.URL.Path != "/" && !ok {
			if p := hr.URL.Path[1:]; p != "v1/page" && p != "share" && files[p] == nil {
				t.Errorf("the path %q has a reply", p)
			}
		}
	})
}
