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

// The page: files that are the same for everybody, and the ways by which a browser
// comes to be let in. All of it is on TCP alone.
//
//	GET /                 the page's index.html
//	GET /?ticket=T        a ticket for a cookie, then 303 to /
//	GET /v1/page          what the cookie is good for: {"signed_in", "expires_at"}
//	POST /v1/sign-out     takes the cookie from this browser; of the page's own Origin
//	GET /v1/api           the WebSocket; the cookie stands for the token in hello
//
//	GET /share?key=K      a share link for a cookie, then 303 to /share/NAME/
//	GET /share/NAME/      index.html again
//	GET /share/NAME/page  as /v1/page, and "session_id" and "instance"
//	GET /share/NAME/api   the WebSocket, of one session, to look at
//
//	GET /assets/...       files with their hash in the name, cached for ever
//	GET /...              the other files of the build, which sit beside index.html
//
// What the page has to know of this:
//
//   - It is built for the base "/" and names its files from there.
//   - Where location.pathname begins with /share/ it is the page of a share link:
//     it takes "page" and "api" beside itself, in place of /v1/page and /v1/api.
//   - It asks for .../page first. That always answers 200; "signed_in": false is for
//     whoever has no cookie that is good, and is told to run "proxy web".
//   - Its hello has no token. A cookie that is not good any more is answered as a
//     wrong token is: error unauthorized, then the close 1008 "unauthorized". A share
//     link's is refused before that, with 401. Where a link expires while somebody
//     looks, the connection ends with error unauthorized and 1008.
//   - With a share link it may list, info, attach (mode read_only), detach, resize its
//     attachment, screen, history, search, scrollback and events, for one session. All
//     else is permission_denied.
//   - Scripts and styles come from files; style attributes and elements may be made by
//     scripts, for xterm.js does. Images may be data: URLs. Nothing is framed, and no
//     form is sent.

const (
	pageLife    = 7 * 24 * time.Hour // of a cookie; it begins anew with each load
	fileTimeout = 5 * time.Second    // for a client to take a file
)

// page answers what belongs to the page; ok is false for paths that do not.
func (h *Handler) page(ctx context.Context, r *request) (ok bool, err error) {
	if share, below, ok := sharePath(r.URL.Path); ok && below == "api" && r.Method == http.MethodGet {
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
		return true, refuse(http.StatusMethodNotAllowed, protocol.CodeUnsupported, "there is only GET and HEAD")
	case !wanted(r.Header):
		return true, forbid(http.StatusForbidden, protocol.CodePermissionDenied, "this is for no other site")
	}
	return true, do(r)
}

// pageFor returns what answers a path of the page.
func (h *Handler) pageFor(r *request) func(*request) error {
	switch p := r.URL.Path; p {
	case "/":
		return h.front
	case "/v1/page":
		return h.tellPage
	case "/share":
		return h.enterShare
	default:
		if name, below, ok := sharePath(p); ok {
			switch below {
			case "":
				return h.index
			case "page":
				return func(r *request) error { return h.tellShare(r, name) }
			}
		}
		if name := p[1:]; h.hasFile(name) {
			return func(r *request) error { return h.file(r, name, "") }
		}
	}
	return nil
}

// sharePath takes /share/NAME/BELOW apart.
func sharePath(p string) (name, below string, ok bool) {
	rest, ok := strings.CutPrefix(p, "/share/")
	if !ok {
		return "", "", false
	}
	name, below, ok = strings.Cut(rest, "/")
	return name, below, ok && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// wanted reports whether a browser fetches for our page, or for who opens it in a
// window of its own. What is no browser does not say.
func wanted(h http.Header) bool {
	switch h.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site": // the latter is another port of this host
		return h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document"
	}
	return true
}

// front lets a browser in that has a ticket, and shows the page. A ticket is used up
// also by a browser that is let in already, so that nobody else who has seen it
// signs in. Such a browser needs none: its history may still have an old one.
func (h *Handler) front(r *request) error {
	mine := h.pagePass(r)
	ticket, asked := r.query["ticket"]
	switch {
	case asked && r.Method == http.MethodHead: // whoever looks ahead does not use a ticket up
		return h.redirect(r, "/", "")
	case asked:
		who, ok := h.cfg.Server.Redeem(ticket[0], "")
		if (!ok || len(ticket) != 1) && mine != nil {
			return h.redirect(r, "/", "")
		}
		if !ok || len(ticket) != 1 {
			return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the ticket is used up, too old, or not for this").
				shown("This link is used up, or too old.", again)
		}
		cookie, err := h.pageCookie(r, &pass.Pass{Principal: who})
		if err != nil {
			return refuseFor(err).shown("This link cannot be used.", protocol.AsError(err).Message)
		}
		if h.cfg.Used != nil {
			h.cfg.Used(ticket[0])
		}
		h.tellSign(r, who, "browser signed in")
		return h.redirect(r, "/", cookie)
	case mine != nil && mine.Principal == nil: // else a policy is to be asked again some day
		cookie, err := h.pageCookie(r, mine)
		if err != nil {
			return refuseFor(err)
		}
		return h.file(r, "index.html", cookie)
	}
	return h.index(r)
}

// signOut takes the cookie from the browser that asks. A page of another site has
// another Origin, so that it signs nobody out.
func (h *Handler) signOut(r *request) error {
	switch {
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, protocol.CodeUnsupported, "there is only POST")
	case !ownOrigin(r):
		return forbid(http.StatusForbidden, protocol.CodePermissionDenied, "only the page itself signs out")
	}
	if mine := h.pagePass(r); mine != nil {
		h.tellSign(r, mine.Principal, "browser signed out")
	}
	h.reply(r, http.StatusOK, "application/json", "Cache-Control: no-store\r\n"+setCookie(pageCookieName(r), "", "/", 0), []byte(`{"signed_in":false}`))
	return nil
}

// tellSign logs who has signed in or out, and from where.
func (h *Handler) tellSign(r *request, who *policy.Principal, event string) {
	line := h.cfg.Log.Info().Bool(logging.Security, true).Str(logging.RemoteAddr, r.nc.RemoteAddr().String()).Str("browser", cut(r.Header.Get("User-Agent")))
	if who != nil {
		line = line.Str("user", who.User).Str("workspace", who.Workspace)
	}
	line.Msg(event)
}

// again says how to come by a link.
const again = "Run proxy web: it opens this page, or with --no-open prints a link to it."

func (h *Handler) index(r *request) error { return h.file(r, "index.html", "") }

// enterShare lets a browser in that has a share link. The link stays good until it
// expires, for as many browsers as have it.
func (h *Handler) enterShare(r *request) error {
	keys := r.query["key"]
	if len(keys) != 1 {
		keys = []string{""}
	}
	p, err := h.passes.Open(keys[0], pass.Share, h.now())
	switch {
	case err != nil:
		return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the share link is too old, or none").
			shown("This link is too old, or was not copied whole.", "Ask whoever gave it to you for another one.")
	case r.Method == http.MethodHead:
		return h.redirect(r, "/share/"+pass.Name(keys[0])+"/", "")
	}
	at := "/share/" + pass.Name(keys[0]) + "/"
	h.cfg.Log.Info().Bool(logging.Security, true).Str(logging.Session, string(p.Session)).
		Str(logging.RemoteAddr, r.nc.RemoteAddr().String()).Str("browser", cut(r.Header.Get("User-Agent"))).Msg("share link opened")
	return h.redirect(r, at, setCookie(shareCookie(r), keys[0], at, p.Expires.Sub(h.now())))
}

// told is what the page is told of its cookie.
type told struct {
	SignedIn  bool               `json:"signed_in"`
	ExpiresAt *time.Time         `json:"expires_at,omitempty"`
	SessionID protocol.SessionID `json:"session_id,omitempty"`
	Instance  protocol.Instance  `json:"instance,omitempty"`
}

func (h *Handler) tellPage(r *request) error { return h.tell(r, h.pagePass(r)) }

func (h *Handler) tellShare(r *request, name string) error { return h.tell(r, h.sharePass(r, name)) }

func (h *Handler) tell(r *request, p *pass.Pass) error {
	t := told{}
	if p != nil {
		t = told{true, &p.Expires, p.Session, p.Instance}
	}
	body, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("tell of a cookie: %w", err)
	}
	h.reply(r, http.StatusOK, "application/json", "Cache-Control: no-store\r\n", body)
	return nil
}

// sharedAPI is api for who has a share link.
func (h *Handler) sharedAPI(ctx context.Context, r *request, name string) error {
	if err := checkSocket(r.Header); err != nil {
		return err
	}
	p := h.sharePass(r, name)
	if p == nil || !ownOrigin(r) {
		return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the share link is too old, or this is not its page")
	}
	return h.serveAPI(ctx, r, apiserver.Origin{
		Transport: apiserver.TransportWeb, PID: peerPID(r.nc), Trusted: true, Cookie: true, Principal: p.Principal,
		Share: &apiserver.Share{Session: p.Session, Instance: p.Instance, Expires: p.Expires},
	})
}

// Cookies have names of their own for each port, since browsers send them to all
// ports of a host. A share link's goes nowhere but to the paths below its name: so a
// browser may have several, and its user's own beside them.
func pageCookieName(r *request) string { return "holdfast-" + port(r) }
func shareCookie(r *request) string    { return "holdfast-share-" + port(r) }

func port(r *request) string {
	if a, ok := r.nc.LocalAddr().(*net.TCPAddr); ok {
		return strconv.Itoa(a.Port)
	}
	return "0"
}

// pageCookie returns the header of a cookie that begins now.
func (h *Handler) pageCookie(r *request, p *pass.Pass) (string, error) {
	n, _ := strconv.Atoi(port(r)) // it is one
	text, err := h.passes.Seal(pass.Pass{Kind: pass.Page, Port: n, Principal: p.Principal, Issued: h.now(), Expires: h.now().Add(pageLife)})
	if err != nil {
		return "", err
	}
	return setCookie(pageCookieName(r), text, "/", pageLife), nil
}

// setCookie returns a header. There is no TLS here, and so no Secure.
func setCookie(name, value, at string, life time.Duration) string {
	return fmt.Sprintf("Set-Cookie: %s=%s; Path=%s; Max-Age=%d; HttpOnly; SameSite=Strict\r\n", name, value, at, int(life.Seconds()))
}

// pagePass returns what the request's cookie says, nil where it has none that is
// good here and now.
func (h *Handler) pagePass(r *request) *pass.Pass {
	for _, c := range r.CookiesNamed(pageCookieName(r)) { // others may have set one of this name
		p, err := h.passes.Open(c.Value, pass.Page, h.now())
		if err == nil && strconv.Itoa(p.Port) == port(r) && (h.cfg.SignedOut == nil || !p.Issued.Before(h.cfg.SignedOut())) {
			return p
		}
	}
	return nil
}

// sharePass is pagePass for the share link of a name.
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

// ownOrigin reports whether a WebSocket is the page's own. A browser always says
// whose it is; and of those that may connect, others have no use of our cookies.
func ownOrigin(r *request) bool {
	origin := r.Header["Origin"]
	return len(origin) == 1 && strings.EqualFold(origin[0], "http://"+r.Host)
}

func (h *Handler) now() time.Time {
	if h.cfg.Now != nil {
		return h.cfg.Now()
	}
	return time.Now()
}

// hasFile reports whether a name is one of the page's files.
func (h *Handler) hasFile(name string) bool {
	if h.cfg.Files == nil || !fs.ValidPath(name) || isCompressed(name) {
		return false
	}
	info, err := fs.Stat(h.cfg.Files, name)
	return err == nil && info.Mode().IsRegular()
}

// file answers with a file, and further headers.
func (h *Handler) file(r *request, name, headers string) error {
	if h.cfg.Files == nil {
		return refuse(http.StatusNotImplemented, protocol.CodeUnsupported, "this program was built without the page").
			shown("This program was built without the page.", "In its sources run scripts/web, which needs Node and npm, then go build, then proxy --handoff. A release has the page built in.")
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
	case strings.HasPrefix(name, "assets/"): // another content has another name
		headers += "Cache-Control: public, max-age=31536000, immutable\r\n"
	case path.Ext(name) == ".html":
		headers += "Cache-Control: no-store\r\n"
	default:
		headers += "Cache-Control: no-cache\r\n"
	}
	h.reply(r, http.StatusOK, contentType, headers, body)
	return nil
}

// encodings are the content codings that the build makes of a file, the smaller one
// first, and what each adds to the file's name.
var encodings = []struct{ name, ext string }{{"br", ".br"}, {"gzip", ".gz"}}

// isCompressed reports whether a name is of a file in a content coding, which is sent in
// place of the file itself and has no path of its own.
func isCompressed(name string) bool {
	for _, e := range encodings {
		if path.Ext(name) == e.ext {
			return true
		}
	}
	return false
}

// readFile returns a file in the first content coding that the build made and the client
// accepts; encoding is empty if that is the file as it is.
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

// accepts reports whether Accept-Encoding names a content coding with a weight above 0.
// "*" does not count: a client that means a coding names it.
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

// contentTypes are ours, and not the system's, which may say what it likes.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".json": "application/json", ".map": "application/json", ".webmanifest": "application/manifest+json", ".txt": "text/plain; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2", ".wasm": "application/wasm",
}

func (h *Handler) redirect(r *request, to, headers string) error {
	h.reply(r, http.StatusSeeOther, "text/plain; charset=utf-8", "Location: "+to+"\r\nCache-Control: no-store\r\n"+headers, []byte("see "+to+"\n"))
	return nil
}

// reply writes a whole answer, the last thing on its connection.
func (h *Handler) reply(r *request, status int, contentType, headers string, body []byte) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n", status, http.StatusText(status), contentType, len(body))
	b.WriteString(headers + pageHeaders(r.Host) + "Connection: close\r\n\r\n")
	if r.Method != http.MethodHead {
		b.Write(body)
	}
	_ = r.nc.SetWriteDeadline(time.Now().Add(fileTimeout))
	if _, err := r.nc.Write(b.Bytes()); err != nil {
		h.cfg.Log.Debug().Err(err).Msg("file not taken")
		return
	}
	r.answered() // nobody need wait for it any more
	linger(r.nc)
}

// pageHeaders are of all that a browser shows, for a host that is in our list.
//
// Styles may be inline: xterm.js writes rules into style elements of its own, for
// its colours and its scrollbar, and knows no nonce. What a style could fetch is
// bounded by the other lines. The WebSocket's scheme is not 'self' to every browser.
func pageHeaders(host string) string {
	return "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self' ws://" + host +
		"; img-src 'self' data:; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n" +
		"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n" +
		"Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n"
}

// shown makes a refusal one that people read.
func (no *refusal) shown(what, then string) *refusal {
	no.page = fmt.Sprintf("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Holdfast</title>\n<p>%s</p>\n<p>%s</p>\n</html>\n",
		html.EscapeString(what), html.EscapeString(then))
	return no
}
