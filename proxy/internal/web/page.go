package web

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/pass"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
)

// The page consists of files, which are the same for everyone, and of the requests by which a
// browser signs in. All of it is served on TCP alone.
//
//	GET /                 the page's index.html
//	GET /?ticket=T        exchanges a ticket for a cookie, then 303 to /
//	GET /v1/page          the state of the cookie: {"signed_in", "expires_at"}
//	POST /v1/sign-out     removes the cookie from this browser; only from the page's own Origin
//	GET /v1/api           the WebSocket; the cookie replaces the token in hello
//
//	GET /share?key=K      exchanges a share link for a cookie, then 303 to /share/NAME/
//	GET /share/NAME/      index.html again
//	GET /share/NAME/page  as /v1/page, with "session_id" and "instance"
//	GET /share/NAME/api   the WebSocket for one session, read-only
//
//	GET /assets/...       files with their hash in the name, cached for ever
//	GET /...              the other files of the build, beside index.html
//
// The page depends on these rules:
//
//   - It is built for the base "/" and its files have absolute paths.
//   - If location.pathname begins with /share/, it is the page of a share link, and
//     must use "page" and "api" relative to its own path instead of /v1/page and /v1/api.
//   - It must request .../page first. The answer is always 200; if "signed_in" is false,
//     the browser has no valid cookie, and the page tells the user to run "proxy web".
//   - Its hello has no token. If the cookie is not valid any more, the answer is the one for
//     a wrong token: error unauthorized, then the close 1008 "unauthorized". An invalid
//     share link is refused earlier, with status 401. If a link expires while a viewer is
//     connected, the connection ends with error unauthorized and close 1008.
//   - With a share link it may list, info, attach (mode read_only), detach, resize its
//     attachment, screen, history, search, scrollback and events, for one session. Any
//     other request fails with permission_denied.
//   - Scripts and styles must come from files. Style attributes and style elements may be
//     created by scripts, because xterm.js creates some. Images may be data: URLs. Frames
//     and forms are forbidden.

const (
	pageLife    = 7 * 24 * time.Hour // of a cookie; each load of the page begins a new one
	fileTimeout = 5 * time.Second    // for a client to receive a file
)

// page answers the requests of the page; ok is false if the path is not one of the page's.
func (h *Handler) page(ctx context.Context, r *request) (ok bool, err error) {
	if share, below, ok := sharePath(r.URL.Path); ok && h.cfg.Gate == nil && below == "api" && r.Method == http.MethodGet {
		return true, h.sharedAPI(ctx, r, share)
	}
	if r.URL.Path == "/v1/sign-out" {
		return true, h.signOut(r)
	}
	do := h.pageFor(r)
	switch {
	case do == nil:
		return false, nil
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return true, refuseMethod(http.MethodGet, http.MethodHead)
	case !isOwnFetch(r.Header):
		return true, forbid(http.StatusForbidden, protocol.CodePermissionDenied, "the page must not be loaded by another site")
	}
	return true, do(r)
}

// pageFor returns the function that answers a path of the page, or nil if the path is not one of
// the page's.
func (h *Handler) pageFor(r *request) func(*request) error {
	switch p := r.URL.Path; p {
	case "/":
		return h.serveFront
	case "/v1/page":
		return h.replyPageState
	case "/share":
		if h.cfg.Gate == nil {
			return h.enterShare
		}
		return nil
	default:
		if name, below, ok := sharePath(p); ok && h.cfg.Gate == nil {
			switch below {
			case "":
				return h.index
			case "page":
				return func(r *request) error { return h.replyShareState(r, name) }
			}
		}
		if name := p[1:]; h.hasFile(name) {
			return func(r *request) error { return h.file(r, name, "") }
		}
	}
	return nil
}

// sharePath splits the path /share/NAME/BELOW.
func sharePath(p string) (name, below string, ok bool) {
	remainder, ok := strings.CutPrefix(p, "/share/")
	if !ok {
		return "", "", false
	}
	name, below, ok = strings.Cut(remainder, "/")
	return name, below, ok && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// isOwnFetch reports whether a request may come from the page itself or from a user that opened
// the URL in a window. A program that is no browser sends no Sec-Fetch-Site and is let through.
func isOwnFetch(h http.Header) bool {
	switch h.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site": // same-site is another port of this host
		return h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document"
	}
	return true
}

// serveFront signs in a browser that has a ticket, and serves index.html. A browser that is
// already signed in uses up a ticket, too, so that another person cannot sign in with the same
// ticket. If that ticket is invalid, the browser is redirected anyway, because its history may
// hold an old link.
func (h *Handler) serveFront(r *request) error {
	issued := h.now() // before the check, so that a sign-out of all browsers after the check voids the next cookie as well
	own := h.pagePass(r)
	ticket, asked := r.query["ticket"]
	switch {
	case asked && r.Method == http.MethodHead: // a link preview must not use up the ticket
		return h.redirect(r, "/", "")
	case asked:
		of, ok := h.redeem(ticket[0])
		if (!ok || len(ticket) != 1) && own != nil {
			return h.redirect(r, "/", "")
		}
		if !ok || len(ticket) != 1 {
			return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the ticket is used up, too old, or for another session: get a new one").
				withPage("This link is used up or too old.", h.newLinkHint())
		}
		cookie, err := h.pageCookie(r, of, issued)
		if err != nil {
			return refuseFor(err).withPage("This link cannot be used.", protocol.AsError(err).Message)
		}
		if h.cfg.Used != nil {
			h.cfg.Used(ticket[0])
		}
		h.logSign(r, of.Principal, "browser signed in")
		return h.redirect(r, "/", cookie)
	case own != nil && own.Principal == nil: // a pass with a principal is not renewed, so that its policy is asked again when it expires
		cookie, err := h.pageCookie(r, own, issued)
		if err != nil {
			return refuseFor(err)
		}
		return h.file(r, "index.html", cookie)
	}
	return h.index(r)
}

// signOut removes the cookie from the browser that sent the request. A page of another site has
// another Origin, so it cannot sign a browser out.
func (h *Handler) signOut(r *request) error {
	switch {
	case r.Method != http.MethodPost:
		return refuseMethod(http.MethodPost)
	case !ownOrigin(r):
		return forbid(http.StatusForbidden, protocol.CodePermissionDenied, "the request must come from the page itself")
	}
	if own := h.pagePass(r); own != nil {
		h.logSign(r, own.Principal, "browser signed out")
	}
	h.reply(r, http.StatusOK, "application/json", "Cache-Control: no-store\r\n"+setCookie(r, pageCookieName(r), "", "/", 0), []byte(`{"signed_in":false}`))
	return nil
}

// logSign logs that a browser has signed in or out, with its user and its address.
func (h *Handler) logSign(r *request, principal *policy.Principal, event string) {
	line := h.cfg.Log.Info().Bool(logging.Security, true).Str(logging.RemoteAddr, r.nc.RemoteAddr().String()).Str("browser", cut(r.Header.Get("User-Agent")))
	if principal != nil {
		line = line.Str("user", principal.User).Str("workspace", principal.Workspace)
	}
	line.Msg(event)
}

// newLinkHint tells a person how to get a new link.
func (h *Handler) newLinkHint() string {
	if h.cfg.Gate != nil {
		return "Run proxy gate web on the gate: it prints a link to this page."
	}
	return "Run proxy web: it opens this page, or with --no-open prints a link to it."
}

func (h *Handler) index(r *request) error { return h.file(r, "index.html", "") }

// enterShare signs in a browser that has a share link. The link is valid for any number of
// browsers until it expires.
func (h *Handler) enterShare(r *request) error {
	keys := r.query["key"]
	if len(keys) != 1 {
		keys = []string{""}
	}
	p, err := h.passes.Open(keys[0], pass.Share, h.now())
	switch {
	case err != nil:
		return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the share link has expired or is invalid: ask its owner for another one").
			withPage("This link is too old, or was not copied whole.", "Ask the person that gave it to you for another one.")
	case r.Method == http.MethodHead:
		return h.redirect(r, "/share/"+pass.Name(keys[0])+"/", "")
	}
	at := "/share/" + pass.Name(keys[0]) + "/"
	h.cfg.Log.Info().Bool(logging.Security, true).Str(logging.Session, string(p.Session)).
		Str(logging.RemoteAddr, r.nc.RemoteAddr().String()).Str("browser", cut(r.Header.Get("User-Agent"))).Msg("share link opened")
	return h.redirect(r, at, setCookie(r, shareCookie(r), keys[0], at, p.Expires.Sub(h.now())))
}

// A cookieState is the answer to a request for the state of a cookie.
type cookieState struct {
	SignedIn  bool               `json:"signed_in"`
	ExpiresAt *time.Time         `json:"expires_at,omitempty"`
	SessionID protocol.SessionID `json:"session_id,omitempty"`
	Instance  protocol.Instance  `json:"instance,omitempty"`
	IsGate    bool               `json:"gate,omitempty"` // the page is that of a gate
}

func (h *Handler) replyPageState(r *request) error { return h.replyState(r, h.pagePass(r)) }

func (h *Handler) replyShareState(r *request, name string) error {
	return h.replyState(r, h.sharePass(r, name))
}

func (h *Handler) replyState(r *request, p *pass.Pass) error {
	t := cookieState{IsGate: h.cfg.Gate != nil}
	if p != nil {
		t.SignedIn, t.ExpiresAt, t.SessionID, t.Instance = true, &p.Expires, p.Session, p.Instance
	}
	body, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("tell of a cookie: %w", err)
	}
	h.reply(r, http.StatusOK, "application/json", "Cache-Control: no-store\r\n", body)
	return nil
}

// sharedAPI serves the api to a browser that has the cookie of a share link.
func (h *Handler) sharedAPI(ctx context.Context, r *request, name string) error {
	if err := checkSocket(r.Header); err != nil {
		return err
	}
	p := h.sharePass(r, name)
	if p == nil || !ownOrigin(r) {
		return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the share link has expired, or the request does not come from its page")
	}
	r.markKnown()
	return h.serveAPI(ctx, r, apiserver.Origin{
		Transport: apiserver.TransportWeb, PID: peerPID(r.nc), Trusted: true, Cookie: true, Principal: p.Principal,
		Share: &apiserver.Share{Session: p.Session, Instance: p.Instance, Expires: p.Expires},
	})
}

// The name of a cookie contains the port, because a browser sends cookies to all ports of a host.
// The cookie of a share link is sent only to the paths below the link's name. A browser may
// therefore hold several of them beside its user's own cookie.
func pageCookieName(r *request) string { return "holdfast-" + port(r) }
func shareCookie(r *request) string    { return "holdfast-share-" + port(r) }

func port(r *request) string {
	if a, ok := r.nc.LocalAddr().(*net.TCPAddr); ok {
		return strconv.Itoa(a.Port)
	}
	return "0"
}

// pageCookie returns the Set-Cookie header of a page cookie that is issued at a time and is valid for pageLife.
func (h *Handler) pageCookie(r *request, p *pass.Pass, issued time.Time) (string, error) {
	n, _ := strconv.Atoi(port(r)) // port returns a number
	text, err := h.key().Seal(pass.Pass{Kind: pass.Page, Port: n, Principal: p.Principal, Issued: issued, Expires: issued.Add(pageLife)})
	if err != nil {
		return "", err
	}
	return setCookie(r, pageCookieName(r), text, "/", pageLife), nil
}

// setCookie returns a Set-Cookie header. It has Secure if the listener has TLS.
func setCookie(r *request, name, value, at string, life time.Duration) string {
	secure := ""
	if r.scheme() == "https" {
		secure = "; Secure"
	}
	return fmt.Sprintf("Set-Cookie: %s=%s; Path=%s; Max-Age=%d; HttpOnly; SameSite=Strict%s\r\n", name, value, at, int(life.Seconds()), secure)
}

// pagePass returns the pass in the request's page cookie, or nil if no cookie is valid for this
// port and this time.
func (h *Handler) pagePass(r *request) *pass.Pass { return h.passOf(r, h.key()) }

// passOf returns the pass in the request's page cookie if it was sealed with key.
func (h *Handler) passOf(r *request, key *pass.Key) *pass.Pass {
	for _, c := range r.CookiesNamed(pageCookieName(r)) { // another program on this host may have set a cookie with the same name
		p, err := key.Open(c.Value, pass.Page, h.now())
		if err == nil && strconv.Itoa(p.Port) == port(r) && (h.cfg.SignedOut == nil || !p.Issued.Before(h.cfg.SignedOut())) {
			return p
		}
	}
	return nil
}

// sharePass returns the pass in the request's cookie for the share link with this name, or nil if
// none is valid.
func (h *Handler) sharePass(r *request, name string) *pass.Pass {
	for _, c := range r.CookiesNamed(shareCookie(r)) {
		if subtle.ConstantTimeCompare([]byte(pass.Name(c.Value)), []byte(name)) != 1 {
			continue
		}
		if p, err := h.passes.Open(c.Value, pass.Share, h.now()); err == nil {
			return p
		}
	}
	return nil
}

// ownOrigin reports whether a request comes from the page itself. A browser always sends Origin
// with a WebSocket and with POST; a page of another allowed Origin must not use the cookie.
func ownOrigin(r *request) bool {
	origin := r.Header["Origin"]
	return len(origin) == 1 && strings.EqualFold(origin[0], r.scheme()+"://"+r.Host)
}

func (h *Handler) now() time.Time {
	if h.cfg.Now != nil {
		return h.cfg.Now()
	}
	return time.Now()
}

// hasFile reports whether name is a file of the page.
func (h *Handler) hasFile(name string) bool {
	if h.cfg.Files == nil || !fs.ValidPath(name) || isCompressed(name) {
		return false
	}
	info, err := fs.Stat(h.cfg.Files, name)
	return err == nil && info.Mode().IsRegular()
}

// file sends a file of the page with additional headers.
func (h *Handler) file(r *request, name, headers string) error {
	if h.cfg.Files == nil {
		return refuse(http.StatusNotImplemented, protocol.CodeUnsupported, "this program was built without the page").
			withPage("This program was built without the page.", "In its sources run scripts/web, which needs Node and npm, then go build, then proxy --handoff. A release has the page built in.")
	}
	body, encoding, err := h.readFile(r, name)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	headers += "Vary: Accept-Encoding\r\n"
	if encoding != "" {
		headers += "Content-Encoding: " + encoding + "\r\n"
	}
	contentType, ok := contentTypes[path.Ext(name)]
	if !ok {
		contentType = "application/octet-stream"
	}
	switch {
	case strings.HasPrefix(name, "assets/"): // a changed file has another name
		headers += "Cache-Control: public, max-age=31536000, immutable\r\n"
	case path.Ext(name) == ".html":
		headers += "Cache-Control: no-store\r\n"
	default:
		headers += "Cache-Control: no-cache\r\n"
	}
	h.reply(r, http.StatusOK, contentType, headers, body)
	return nil
}

// encodings lists the content codings that the build makes of a file, the smallest one first, and
// the suffix of the file's name for each.
var encodings = []struct{ name, ext string }{{"br", ".br"}, {"gzip", ".gz"}}

// isCompressed reports whether name is a file in a content coding. Such a file has no path of its
// own, because it is sent in place of the plain file.
func isCompressed(name string) bool {
	for _, e := range encodings {
		if path.Ext(name) == e.ext {
			return true
		}
	}
	return false
}

// readFile returns a file in the first content coding that the build made and the client accepts;
// encoding is empty if the body is the plain file.
func (h *Handler) readFile(r *request, name string) (body []byte, encoding string, err error) {
	for _, e := range encodings {
		if !accepts(r.Header, e.name) {
			continue
		}
		if body, err := fs.ReadFile(h.cfg.Files, name+e.ext); err == nil {
			return body, e.name, nil
		}
	}
	body, err = fs.ReadFile(h.cfg.Files, name)
	return body, "", err
}

// accepts reports whether Accept-Encoding names a content coding with a weight above 0. "*" does
// not count, because a client that supports a coding names it.
func accepts(h http.Header, coding string) bool {
	for _, part := range strings.Split(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if !strings.EqualFold(strings.TrimSpace(name), coding) {
			continue
		}
		q, ok := strings.CutPrefix(strings.ToLower(strings.ReplaceAll(weight, " ", "")), "q=")
		n, err := strconv.ParseFloat(q, 64)
		return !ok || err == nil && n > 0
	}
	return false
}

// contentTypes is used instead of the system's table, which differs between machines.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".json": "application/json", ".map": "application/json", ".webmanifest": "application/manifest+json", ".txt": "text/plain; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2", ".wasm": "application/wasm",
}

func (h *Handler) redirect(r *request, to, headers string) error {
	h.reply(r, http.StatusSeeOther, "text/plain; charset=utf-8", "Location: "+to+"\r\nCache-Control: no-store\r\n"+headers, []byte("see "+to+"\n"))
	return nil
}

// reply sends a whole answer, after which no other bytes follow on the connection.
func (h *Handler) reply(r *request, status int, contentType, headers string, body []byte) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n", status, http.StatusText(status), contentType, len(body))
	b.WriteString(headers + r.pageHeaders() + "Connection: close\r\n\r\n")
	if r.Method != http.MethodHead {
		b.Write(body)
	}
	_ = r.nc.SetWriteDeadline(time.Now().Add(fileTimeout))
	if _, err := r.nc.Write(b.Bytes()); err != nil {
		h.cfg.Log.Debug().Err(err).Msg("file not sent completely to the web client")
		return
	}
	r.markAnswered() // a freeze need not wait for this connection any more
	linger(r.nc)
}

// pageHeaders returns the security headers of every answer that a browser shows. The host must be
// in the guard's list.
//
// Styles may be inline, because xterm.js writes rules for its colours and its scrollbar into
// style elements of its own and knows no nonce. The other directives bound the addresses that a
// style could load. The WebSocket's scheme is listed because some browsers do not count it as
// 'self'.
func (r *request) pageHeaders() string {
	socket := strings.Replace(r.scheme(), "http", "ws", 1) + "://" + r.Host
	return "Content-Security-Policy: default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; connect-src 'self' " + socket +
		"; img-src 'self' data:; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n" +
		"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n" +
		"Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n"
}

// withPage adds an HTML page to a refusal, for people.
func (no *refusal) withPage(reason, nextStep string) *refusal {
	no.page = fmt.Sprintf("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Holdfast</title>\n<p>%s</p>\n<p>%s</p>\n</html>\n",
		html.EscapeString(reason), html.EscapeString(nextStep))
	return no
}
