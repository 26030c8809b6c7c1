package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A visitor is a browser without a screen. It stores cookies, follows redirects, and sends the origin of its
// page with a WebSocket.
type visitor struct {
	w    *world
	http *http.Client
}

func (w *world) visitor() *visitor {
	jar, err := cookiejar.New(nil)
	testkit.Must(w.T, err)
	return &visitor{w, &http.Client{Jar: jar, Timeout: limit}}
}

// visit opens a page, and returns the final URL and the status.
func (v *visitor) visit(link string) (at *url.URL, status int) {
	v.w.T.Helper()
	r, err := v.http.Get(link)
	testkit.Must(v.w.T, err)
	_ = r.Body.Close()
	return r.Request.URL, r.StatusCode
}

// signedIn returns whether the page's cookie signs it in.
func (v *visitor) signedIn(at string) bool {
	v.w.T.Helper()
	r, err := v.http.Get(at)
	testkit.Must(v.w.T, err)
	defer func() { _ = r.Body.Close() }()
	var told struct {
		SignedIn bool `json:"signed_in"`
	}
	testkit.Must(v.w.T, json.NewDecoder(r.Body).Decode(&told))
	return told.SignedIn
}

// A pageSocket is a page's WebSocket.
type pageSocket struct {
	t testing.TB
	*websocket.Conn
	ctx context.Context
}

// open opens a WebSocket as the page of an address does, and sends hello.
func (v *visitor) open(address, path string) *pageSocket {
	v.w.T.Helper()
	s, err := v.dial(address, path)
	testkit.Must(v.w.T, err)
	s.send(api.Hello{Protocol: protocol.Supported(), Client: "page"})
	receiveMessage[*api.Welcome](s)
	return s
}

func (v *visitor) dial(address, path string) (*pageSocket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	v.w.T.Cleanup(cancel)
	conn, _, err := websocket.Dial(ctx, "ws://"+address+path, &websocket.DialOptions{
		HTTPClient: v.http, Subprotocols: []string{api.Subprotocol}, HTTPHeader: http.Header{"Origin": {"http://" + address}},
	})
	if err != nil {
		return nil, err
	}
	v.w.T.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(2 << 20)
	return &pageSocket{v.w.T, conn, ctx}, nil
}

func (s *pageSocket) send(m protocol.Message) {
	s.t.Helper()
	b, err := protocol.Encode(m)
	if err == nil {
		err = s.Write(s.ctx, websocket.MessageText, b)
	}
	testkit.Must(s.t, err)
}

// receiveMessage receives messages until one of type M comes.
func receiveMessage[M protocol.Message](s *pageSocket) M {
	s.t.Helper()
	for {
		kind, b, err := s.Read(s.ctx)
		if err != nil {
			s.t.Fatalf("waiting for %T: %v", *new(M), err)
		}
		if kind != websocket.MessageText {
			continue
		}
		if m, _, err := api.Messages.Decode(b); err == nil {
			if m, ok := m.(M); ok {
				return m
			}
		}
	}
}

// refused sends a request and reports whether the answer is permission_denied.
func (s *pageSocket) refused(m protocol.Message) bool {
	s.t.Helper()
	s.send(m)
	return receiveMessage[*api.Error](s).Code == protocol.CodePermissionDenied
}

// needPage skips a test if the page was not built before the programs. If HOLDFAST_REQUIRE_ORACLE is 1, it
// fails the test instead.
func needPage(t *testing.T) {
	t.Helper()
	_, err := os.Stat(filepath.Join("..", "..", "proxy", "internal", "web", "page", "dist", "index.html"))
	if err != nil && os.Getenv("HOLDFAST_REQUIRE_ORACLE") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("%v; scripts/web builds the page", err)
	}
}

// A link signs a browser in. The browser must stay signed in through a handoff, a crash and a new start of
// the proxy, and no URL may contain a secret afterwards.
func TestPageSignsIn(t *testing.T) {
	t.Parallel()
	needPage(t)
	w := newWorld(t)
	address, token := w.webProxy()
	v, stranger := w.visitor(), w.visitor()
	var link struct {
		URL    string `json:"url"`
		Opened bool   `json:"opened"`
	}
	if err := json.Unmarshal([]byte(w.Must("proxy", "web", "--json")), &link); err != nil || link.Opened || !strings.HasPrefix(link.URL, "http://"+address+"/?ticket=") {
		t.Fatalf("proxy web prints %+v, %v", link, err)
	}
	if at, _ := v.visit(link.URL); at.Path != "/" || at.RawQuery != "" {
		t.Errorf("the link leads to %s", at)
	}
	if _, status := stranger.visit(link.URL); status != http.StatusUnauthorized {
		t.Errorf("a used link signs another browser in: %d", status)
	}
	if _, err := stranger.dial(address, "/share/x/api"); err == nil {
		t.Error("a browser without a share link has opened its WebSocket")
	}
	c := w.connect(client.Options{Name: "e2e"})
	w.echoAlone(c, "s")
	s := v.open(address, "/v1/api")
	s.send(api.Attach{Request: protocol.Request{RequestID: "a"}, Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "s"}, Text: true})
	receiveMessage[*api.Attached](s)
	types := func(text string) {
		t.Helper()
		s.send(api.TerminalData{SessionID: "s", Data: []byte(text + "\n")})
		for printed := ""; !strings.Contains(printed, text); {
			printed += string(receiveMessage[*api.TerminalData](s).Data)
		}
	}
	types("before")
	w.handOff()
	types("behind")
	if err := c.Close(); err != nil { // this client would start a proxy without a page
		t.Fatal(err)
	}
	for _, replace := range []func(){func() {}, func() {
		w.Kill(w.Only("proxy"))
		w.webProxyAt(address)
	}, func() {
		w.Must("proxy", "stop")
		w.webProxyAt(address)
	}} {
		replace()
		if !v.signedIn("http://"+address+"/v1/page") || stranger.signedIn("http://"+address+"/v1/page") {
			t.Error("the browser is not signed in, or the stranger is")
		}
		v.open(address, "/v1/api")
	}
	for _, secret := range []string{token, strings.Split(link.URL, "=")[1]} {
		if strings.Contains(w.Logs(), secret) {
			t.Error("a log contains a secret")
		}
	}
}

// webProxyAt starts a proxy with a web address. It tries again as long as a killed proxy still holds its
// sockets.
func (w *world) webProxyAt(address string) {
	w.T.Helper()
	d := w.Start(w.Command("proxy", "serve", "--background", "--web", address))
	if !eventually(func() bool {
		select {
		case <-d.Ended:
			d = w.Start(w.Command("proxy", "serve", "--background", "--web", address))
		default:
		}
		return w.Holder("proxy.control.sock") == d.PID && strings.Contains(w.Must("proxy", "status"), "http://"+address+"\n")
	}) {
		w.T.Fatal("no proxy serves the page")
	}
}

// On a terminal the proxy must print a link, which must be in no log.
func TestPageIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must("proxy", "new", "-d", "--id", "s", "--size", "200x20", "--", w.Program("proxy"), "serve", "--proxy", "second", "--web", "127.0.0.1:0")
	link := ""
	if !eventually(func() bool {
		for _, word := range strings.Fields(w.Must("proxy", "screen", "s")) {
			if strings.Contains(word, "/?ticket=") {
				link = word
			}
		}
		return link != ""
	}) {
		t.Fatalf("no link on the screen:\n%s", w.Must("proxy", "screen", "s"))
	}
	at, _ := w.visitor().visit(link)
	if at.RawQuery != "" || strings.Contains(w.Logs(), strings.Split(link, "=")[1]) {
		t.Errorf("the link leads to %s, or a log contains its ticket", at)
	}
}

// If the proxy serves no page, web must replace it by a proxy with a page, without an interruption for
// clients, and the page must stay through the next handoff. Sharing alone must not open a web address.
func TestNoPage(t *testing.T) {
	t.Parallel()
	needPage(t)
	w := newWorld(t)
	w.Must("proxy", "start") // this starts proxy and supervisor
	c := w.connect(client.Options{Name: "e2e"})
	v := w.echo(c, "s")
	if r := w.Run("proxy", "share", "s"); r.Code == 0 || r.Out != "" || !strings.Contains(r.Errout, "run proxy web") {
		t.Errorf("share: %v", r)
	}
	old := w.Only("proxy")
	link := w.Must("proxy", "web", "--no-open")
	if w.Only("proxy") == old {
		t.Error("the same proxy serves the page")
	}
	again := w.Must("proxy", "web", "--no-open")
	w.Must("proxy", "--handoff")
	for _, link := range []string{link, again, w.Must("proxy", "web", "--no-open")} {
		if at, _ := w.visitor().visit(strings.TrimSpace(link)); at.RawQuery != "" {
			t.Errorf("%s leads to %s", link, at)
		}
	}
	v.ask("through all that")

	// If the proxy dies, its successor must serve the page at the same address. If it is stopped, its
	// successor must serve no page.
	page := func() string {
		t.Helper()
		var s client.Status
		testkit.Must(t, json.Unmarshal([]byte(w.Must("proxy", "status", "--json")), &s))
		return s.Web
	}
	was := page()
	for range 2 {
		w.Kill(w.Only("proxy"))
		if now := page(); now != was || was == "" {
			t.Errorf("the page was at %q; after the death of the proxy it is at %q", was, now)
		}
	}
	v.ask("and that")
	w.Kill(w.Only("proxy"))
	other, err := net.Listen("tcp", was)
	testkit.Must(t, err)
	defer other.Close()
	if now := page(); now != "" {
		t.Errorf("the page is at %q, although another process listens there", now)
	}
	v.ask("without it")
	w.Must("proxy", "web", "--no-open")
	w.Must("proxy", "stop")
	if now := page(); now != "" {
		t.Errorf("after a stop the page is at %q, want none", now)
	}
}

// If the user removes the token and replaces the proxy, the viewer of a share link and the user's own page must be
// told that they are unauthorized, and their connections must end. Through a handoff before that, they must stay.
func TestShareLinkRevoked(t *testing.T) {
	t.Parallel()
	needPage(t)
	w := newWorld(t)
	address, _ := w.webProxy()
	c := w.connect(client.Options{Name: "e2e"})
	shown := w.echo(c, "shown")
	v := w.visitor()
	v.visit(strings.TrimSpace(w.Must("proxy", "web", "--no-open")))
	at, _ := v.visit(strings.TrimSpace(w.Must("proxy", "share", "shown")))
	link, page := v.open(address, at.Path+"api"), v.open(address, "/v1/api")
	link.send(api.Attach{Request: protocol.Request{RequestID: "a"}, Attachment: 1, Text: true, AttachSpec: protocol.AttachSpec{SessionID: "shown", Mode: protocol.ModeReadOnly}})
	receiveMessage[*api.Attached](link)
	w.handOff()
	shown.ask("through a handoff")
	for printed := ""; !strings.Contains(printed, "through a handoff"); {
		printed += string(receiveMessage[*api.TerminalData](link).Data)
	}
	page.send(api.Info{Request: protocol.Request{RequestID: "i"}, SessionID: "shown"})
	receiveMessage[*api.Session](page)
	testkit.Must(t, os.Remove(w.Path("proxy.token")))
	w.handOff()
	for _, s := range []*pageSocket{link, page} {
		if e := receiveMessage[*api.Error](s); e.Code != protocol.CodeUnauthorized {
			t.Errorf("after the token was removed, the browser receives %+v", e)
		}
		if _, _, err := s.Read(s.ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("closed with %v", err)
		}
	}
	if _, err := v.dial(address, at.Path+"api"); err == nil || v.signedIn(at.String()+"page") {
		t.Error("the revoked share link is still valid")
	}
	shown.ask("after the revocation")
}

// A share link must show one session alone, through a handoff, until it expires. The browser must also stay
// signed in as before.
func TestShareLink(t *testing.T) {
	t.Parallel()
	needPage(t)
	w := newWorld(t)
	address, _ := w.webProxy()
	c := w.connect(client.Options{Name: "e2e"})
	shown := w.echo(c, "shown")
	w.echoAlone(c, "other")
	v := w.visitor()
	v.visit(strings.TrimSpace(w.Must("proxy", "web", "--no-open")))
	link := strings.TrimSpace(w.Must("proxy", "share", "shown"))
	at, _ := v.visit(link)
	if at, _ := v.visit(link); at.RawQuery != "" || !strings.HasPrefix(at.Path, "/share/") || !v.signedIn(at.String()+"page") || !v.signedIn("http://"+address+"/v1/page") {
		t.Errorf("the link leads to %s", at)
	}
	s := v.open(address, at.Path+"api")
	s.send(api.List{Request: protocol.Request{RequestID: "l"}})
	if m := receiveMessage[*api.Sessions](s); len(m.Sessions) != 1 || m.Sessions[0].ID != "shown" {
		t.Errorf("the list of a share link is %+v", m.Sessions)
	}
	s.send(api.Attach{Request: protocol.Request{RequestID: "a"}, Attachment: 1, Text: true, AttachSpec: protocol.AttachSpec{SessionID: "shown", Mode: protocol.ModeReadOnly}})
	receiveMessage[*api.Attached](s)
	seen := func(text string) {
		t.Helper()
		if _, err := shown.Write([]byte(text + "\n")); err != nil {
			t.Fatal(err)
		}
		for printed := ""; !strings.Contains(printed, text); {
			printed += string(receiveMessage[*api.TerminalData](s).Data)
		}
	}
	for i := range 2 {
		seen(fmt.Sprint("line ", i))
		for _, m := range []protocol.Message{
			api.Spawn{Request: protocol.Request{RequestID: "r"}, SpawnSpec: protocol.SpawnSpec{Argv: []string{"true"}}},
			api.Input{Request: protocol.Request{RequestID: "r"}, SessionID: "shown", Data: []byte("x")},
			api.TerminalData{SessionID: "shown", Data: []byte("x")},
			api.Ticket{Request: protocol.Request{RequestID: "r"}},
			api.Share{Request: protocol.Request{RequestID: "r"}, SessionID: "shown"},
			api.Terminate{Request: protocol.Request{RequestID: "r"}, SessionID: "shown"},
		} {
			if !s.refused(m) {
				t.Errorf("%s through a share link is not refused", m.MessageType())
			}
		}
		s.send(api.Info{Request: protocol.Request{RequestID: "i"}, SessionID: "other"})
		if e := receiveMessage[*api.Error](s); e.Code != protocol.CodeSessionNotFound {
			t.Errorf("info of another session through a share link: %+v", e)
		}
		if i == 0 {
			w.handOff()
		}
	}
	// A share link with a short life must end by itself, in any proxy.
	at, _ = v.visit(strings.TrimSpace(w.Must("proxy", "share", "shown", "--ttl", "4s")))
	begun := time.Now()
	s = v.open(address, at.Path+"api")
	w.handOff()
	if e := receiveMessage[*api.Error](s); e.Code != protocol.CodeUnauthorized {
		t.Errorf("when the link expires, the page receives %+v", e)
	}
	if _, _, err := s.Read(s.ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("closed with %v after %v", err, time.Since(begun))
	}
	if _, err := v.dial(address, at.Path+"api"); err == nil || v.signedIn(at.String()+"page") {
		t.Error("the expired share link is still valid")
	}
}
