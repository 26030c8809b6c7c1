package apiserver

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/internal/pass"
	"holdfast/proxy/policy"
	"holdfast/shared/testkit"
)

// sharing returns the origin of a client that has a link to one instance of a session.
func sharing(id protocol.SessionID, instance protocol.Instance, left time.Duration) Origin {
	return Origin{Transport: TransportWeb, Trusted: true, Cookie: true, Share: &Share{id, instance, time.Now().Add(left)}}
}

// by returns a client from an origin.
func (w *world) by(from Origin) *client {
	w.t.Helper()
	c := w.connect(from)
	c.hello()
	return c
}

// mayByLink are the requests that a share link permits on purpose.
var mayByLink = []string{"info", "scrollback", "screen", "history", "search"}

// ways are variants of permitted messages that a link must not permit.
var ways = map[string][]protocol.Message{
	"attach": {
		api.Attach{Request: req("r"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine"}},
		api.Attach{Request: req("r"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeShared}},
		api.Attach{Request: req("r"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeExclusive}},
		api.Attach{Request: req("r"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeReadOnly, Steal: true}},
		api.Attach{Request: req("r"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeReadOnly, Env: []string{"A=b"}}},
		api.Attach{Request: req("r"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeReadOnly, Typed: true}},
	},
	"scrollback": {api.Scrollback{Request: req("r"), SessionID: "mine", Past: true}},
	"screen": {
		api.Screen{Request: req("r"), ScreenSpec: protocol.ScreenSpec{SessionID: "mine", At: &protocol.Moment{Command: -1}}},
	},
}

// A link permits reading one session. Every message either does no more than that, or is refused and not executed.
func TestSharedVerbByVerb(t *testing.T) {
	for _, name := range api.Messages.Types() {
		if slices.Contains([]string{"hello", "list", "events", "detach", "ping"}, name) {
			continue // TestShared checks attach and events, a second hello has no reply, and a ping is about no session
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Token, c.Web = "own", "127.0.0.1:1" })
			v := newVault(w, map[protocol.SessionID]string{"mine": "a", "other": ""})
			c := w.by(sharing("mine", "life-mine", time.Hour))
			tries := ways[name]
			if ask, ok := verbs[name]; ok && slices.Contains(mayByLink, name) {
				for _, id := range []protocol.SessionID{"other", "nobody"} {
					c.send(ask(id))
					c.wantError(protocol.CodeSessionNotFound)
				}
				c.send(ask("mine"))
				if e, ok := c.mustNext().(*api.Error); ok {
					t.Errorf("received %+v", e)
				}
				for _, m := range v.did() {
					if f := reflect.ValueOf(m).Elem().FieldByName("Instance"); f.String() != "life-mine" {
						t.Errorf("executed on another instance: %+v", m)
					}
				}
				// Another instance with the id is another session.
				v.put("mine", "next", "a")
				c.send(ask("mine"))
				c.wantError(protocol.CodeSessionNotFound)
			} else if ok {
				tries = append(tries, ask("mine"))
			} else if len(tries) == 0 { // whatever fields it has
				c.raw(text(`{"type":"` + name + `","request_id":"r","session_id":"mine"}`))
				c.wantError(protocol.CodePermissionDenied)
			}
			for _, m := range tries {
				c.send(m)
				if e := c.wantError(protocol.CodePermissionDenied); !strings.Contains(e.Message, "share link") {
					t.Errorf("received %+v for %+v", e, m)
				}
			}
			if did := v.did(); len(did) > 0 {
				t.Errorf("a request was executed: %+v", did)
			}
		})
	}
}

// The sessions, events and attachments that a client with a link can see.
func TestShared(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Token, c.Web = "own", "127.0.0.1:1" })
	v := newVault(w, map[protocol.SessionID]string{"mine": "a", "other": ""})
	mine := v.sessions["mine"]
	mine.Argv, mine.Originator, mine.Viewers = []string{"sh", "-c", "secret"}, "app", []protocol.ViewerInfo{{Client: "bob"}}
	mine.Labels[protocol.LabelTitle] = "work"
	v.sessions["mine"] = mine
	other, later := v.sessions["other"], mine
	later.Instance = "next"
	ended := mine
	ended.Exit = &protocol.ExitRecord{ExitCode: 3, Cwd: "/secret", EndedBy: "bob"}
	ended.Labels = map[string]string{protocol.LabelTitle: "work", protocol.LabelParentAgent: "bob"}
	v.events = []wire.Event{
		{Seq: 1, Event: protocol.EventBell, Session: &other}, {Seq: 2, Event: "unheard-of"}, {Seq: 3, Event: protocol.EventBell, Session: &later},
		{Seq: 4, Event: protocol.EventTitle, Session: &mine}, {Seq: 5, Event: protocol.EventExited, Session: &ended},
	}
	c := w.by(sharing("mine", "life-mine", time.Hour))
	check := func(i protocol.SessionInfo) {
		t.Helper()
		if i.ID != "mine" || len(i.Argv) != 1 || i.Originator != "" || i.Viewers != nil || len(i.Labels) != 1 || i.Labels[protocol.LabelTitle] != "work" {
			t.Errorf("shown %+v", i)
		}
	}
	c.send(api.List{Request: req("l")})
	if m := expect[*api.Sessions](c); len(m.Sessions) != 1 {
		t.Errorf("listed %+v", m.Sessions)
	} else {
		check(m.Sessions[0])
	}
	c.send(api.Info{Request: req("i"), SessionID: "mine"})
	check(expect[*api.Session](c).Session)
	c.send(api.Events{Request: req("e")})
	expect[*api.Subscribed](c)
	if m := expect[*api.Event](c); m.Event != protocol.EventTitle || m.Seq == 4 {
		t.Errorf("the event is %+v", m)
	} else {
		check(*m.Session)
	}
	if m := expect[*api.PTYExited](c); m.ExitCode != 3 || m.SessionTitle != "work" || m.ParentAgent != nil {
		t.Errorf("the exit is %+v", m)
	}
	v.did()
	for _, writer := range []string{"", "bob's", "share-1"} {
		writer = strings.ReplaceAll(writer, "'", "")
		c.send(api.Attach{Request: req("a"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeReadOnly, Client: "bob", Writer: writer}})
		check(expect[*api.Attached](c).Session)
		if m := v.did()[0].(*wire.Attach); m.Client != sharedClient || !strings.HasPrefix(m.Writer, "share-") || len(m.Writer) <= len("share-") {
			t.Errorf("the attach has the client %q, the writer %q", m.Client, m.Writer)
		}
		c.raw(frame.AppendData(nil, frame.Input, 1, 0, []byte("x")))
		c.wantError(protocol.CodePermissionDenied)
		c.send(api.Detach{Request: req("d"), Attachment: 1})
		expect[*api.Detached](c)
	}
	// A link may have its own view, which does not resize the session.
	c.send(api.Attach{Request: req("a"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeReadOnly}})
	expect[*api.Attached](c)
	n := uint32(1)
	c.send(api.Resize{Request: req("w"), Attachment: &n, Cols: 5})
	for m := c.mustNext(); ; m = c.mustNext() { // the vault ends an attachment's stream at the first message, which the client receives as an error
		if _, ok := m.(*api.OK); ok {
			break
		}
		if e, ok := m.(*api.Error); ok && e.RequestID != "" {
			t.Fatalf("received %+v", e)
		}
	}
}

// A link can be made for a session that its owner sees, and has the owner's principal.
func TestShare(t *testing.T) {
	w, _ := guarded(t, &house{}, map[protocol.SessionID]string{"mine": "a", "theirs": "b"})
	c := w.as("ann@a")
	for ttl, want := range map[int64]time.Duration{0: time.Hour, 1000: time.Second, maxShareLife.Milliseconds(): maxShareLife} {
		c.send(api.Share{Request: req("s"), SessionID: "mine", TTLMS: ttl})
		m := expect[*api.Shared](c)
		if left := time.Until(m.ExpiresAt); left > want || left < want-patience {
			t.Errorf("%d: valid for %v", ttl, left)
		}
		u, err := url.Parse(m.URL)
		if err != nil || u.Host != "127.0.0.1:1" || u.Path != "/share" {
			t.Errorf("link %s, %v", m.URL, err)
		}
		p, err := pass.NewKey("own").Open(u.Query().Get("key"), pass.Share, time.Now())
		if err != nil || p.Session != "mine" || p.Instance != "life-mine" || p.Principal == nil || p.Principal.User != "ann" || !p.Expires.Equal(m.ExpiresAt) {
			t.Errorf("the link has %+v, %v", p, err)
		}
	}
	for _, ttl := range []int64{-1, maxShareLife.Milliseconds() + 1, 1 << 62} {
		c.send(api.Share{Request: req("s"), SessionID: "mine", TTLMS: ttl})
		c.wantError(protocol.CodeInvalidArgument)
	}
	// A link shows no more than its owner may see, even if that has become less.
	from := sharing("theirs", "life-theirs", time.Hour)
	from.Principal = &policy.Principal{User: "ann", Workspace: "a"}
	d := w.by(from)
	d.send(api.Info{Request: req("i"), SessionID: "theirs"})
	d.wantError(protocol.CodeSessionNotFound)

	off := newWorld(t, nil)
	newVault(off, map[protocol.SessionID]string{"mine": ""})
	e := off.client()
	e.send(api.Share{Request: req("s"), SessionID: "mine"})
	e.wantError(protocol.CodeUnsupported)

	unbuilt := newWorld(t, func(cfg *Config) { cfg.Token, cfg.Web, cfg.NoPage = "token", "127.0.0.1:7681", true })
	newVault(unbuilt, map[protocol.SessionID]string{"mine": ""})
	e = unbuilt.client()
	e.send(api.Share{Request: req("s"), SessionID: "mine"})
	e.wantError(protocol.CodeUnsupported)
}

// A connection ends when its link expires, also in the next proxy.
func TestShareExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Link: linkclient.New(linkclient.Config{}), Log: zerolog.Nop()})
		connect := func(left time.Duration) *client {
			a, b := net.Pipe()
			c := &client{t: t, nc: a, frames: frame.NewReader(a, frame.Max), served: make(chan struct{})}
			go func() {
				defer close(c.served)
				s.Accept(context.Background(), NewStream(b, nil), sharing("mine", "life-mine", left))()
			}()
			return c
		}
		begun := time.Now()
		c := connect(patience / 2)
		c.hello()
		if e := c.wantError(protocol.CodeUnauthorized); e.RequestID != "" {
			t.Errorf("received %+v", e)
		}
		if took := time.Since(begun); took != patience/2 {
			t.Errorf("the connection ended after %v", took)
		}
		c.wantEnd()
		late := connect(-time.Second)
		late.wantError(protocol.CodeUnauthorized)
		late.wantEnd()
	})
}

// A page does not know the proxy's secret, but the cookie's issuer did.
func TestCookieStandsForSecret(t *testing.T) {
	for _, tt := range []struct {
		name   string
		from   Origin
		secret string
		ok     bool
	}{
		{"a cookie", Origin{Transport: TransportWeb, Trusted: true, Cookie: true}, "", true},
		{"a ticket", Origin{Transport: TransportWeb, Trusted: true}, "", false},
		{"a ticket with the secret", Origin{Transport: TransportWeb, Trusted: true}, "hush", true},
		{"a share link", sharing("mine", "life-mine", time.Hour), "", true},
		{"a cookie that is none", Origin{Transport: TransportWeb}, "hush", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Secret = "hush" })
			c := w.connect(tt.from)
			c.send(api.Hello{Protocol: protocol.Supported(), Client: "page", Secret: tt.secret})
			if tt.ok {
				expect[*api.Welcome](c)
			} else {
				c.wantError(protocol.CodeUnauthorized)
			}
		})
	}
}

// SignOut ends the connections with a cookie, and no others.
func TestSignOut(t *testing.T) {
	w := newWorld(t, nil)
	page := w.connect(Origin{Transport: TransportWeb, Trusted: true, Cookie: true})
	page.hello()
	others := []*client{w.by(sharing("mine", "life-mine", time.Hour)), w.by(Origin{Transport: TransportWeb, Trusted: true}), w.by(Origin{Transport: TransportUnix, Trusted: true})}
	w.server.SignOut()
	page.wantError(protocol.CodeUnauthorized)
	testkit.Eventually(t, patience, func() bool { return w.server.Clients() == len(others) }, "the page's connection ends")
	for _, c := range others {
		c.send(api.Status{Request: req("s")})
		c.mustNext()
	}
}

// A meetingTransport ends its connection when those of all browsers are about to end.
type meetingTransport struct {
	Transport
	arrive sync.Once
	all    *sync.WaitGroup
}

func (m *meetingTransport) Close() error {
	m.arrive.Do(m.all.Done)
	m.all.Wait()
	return m.Transport.Close()
}

// A browser that does not read does not delay the end of the connections of other browsers.
func TestSignOutOfSlowBrowsers(t *testing.T) {
	w := newWorld(t, nil)
	var all sync.WaitGroup
	for range 3 {
		a, b := w.pair()
		all.Add(1)
		meeting := &meetingTransport{Transport: NewStream(b, nil), all: &all}
		w.wg.Go(func() {
			w.server.Accept(context.Background(), meeting, Origin{Transport: TransportWeb, Trusted: true, Cookie: true})()
		})
		c := &client{t: t, nc: a, frames: frame.NewReader(a, frame.Max)}
		c.hello()
	}
	signedOut := make(chan struct{})
	go func() { defer close(signedOut); w.server.SignOut() }()
	testkit.Within(t, patience, "all browsers are signed out", signedOut)
}

// The record of a connection with a link has the restriction of the link.
func TestShareMoves(t *testing.T) {
	w := newWorld(t, nil)
	newVault(w, map[protocol.SessionID]string{"mine": ""})
	w.by(sharing("mine", "life-mine", time.Hour))
	var given []*Frozen
	take := func(f []*Frozen) error { given = append(given, f...); return nil }
	if _, err := w.server.Freeze(testkit.Soon(t), 12, take); err != nil || len(given) != 1 {
		t.Fatalf("%d connections were frozen, %v", len(given), err)
	}
	if r := given[0].Record; r.Version != 3 || r.From.Share == nil || r.From.Share.Session != "mine" {
		t.Errorf("the record is %+v", r)
	}
	w.server.Forget()
}

// A client whose cookie, of the page or of a share link, is void in the next proxy is refused there, because its token
// is another one. A client with a ticket, and each client of a proxy with the same token, continues.
func TestPassesMove(t *testing.T) {
	link, page, ticket := sharing("mine", "life-mine", time.Hour), Origin{Transport: TransportWeb, Trusted: true, Cookie: true}, Origin{Transport: TransportWeb, Trusted: true}
	for _, tt := range []struct {
		name      string
		from      Origin
		token     string // of the next proxy; that of the first is "own"
		isNew     bool   // the next proxy has made its token
		isEarlier bool   // the record is one of an earlier release, which does not name the key
		want      bool
	}{
		{name: "a link, the same token", from: link, token: "own", want: true},
		{name: "a link, another token", from: link, token: "other"},
		{name: "a link, another token that is new", from: link, token: "other", isNew: true},
		{name: "a link, no token", from: link},
		{name: "a link of an earlier release", from: link, token: "own", isEarlier: true, want: true},
		{name: "a link of an earlier release, a new token", from: link, token: "other", isEarlier: true, isNew: true},
		{name: "a page, the same token", from: page, token: "own", want: true},
		{name: "a page, another token", from: page, token: "other"},
		{name: "a ticket, another token", from: ticket, token: "other", isNew: true, want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first := newWorld(t, func(c *Config) { c.Token = "own" })
			newVault(first, map[protocol.SessionID]string{"mine": ""})
			c := first.by(tt.from)
			var given []*Frozen
			take := func(f []*Frozen) error { given = append(given, f...); return nil }
			if _, err := first.server.Freeze(testkit.Soon(t), 12, take); err != nil || len(given) != 1 {
				t.Fatalf("%d connections were frozen, %v", len(given), err)
			}
			text, err := json.Marshal(given[0].Record)
			if err != nil || strings.Contains(string(text), `"own"`) {
				t.Fatalf("the record is %s, %v", text, err)
			}
			var r Record
			testkit.Must(t, json.Unmarshal(text, &r))
			if tt.isEarlier {
				r.PassKey = ""
			}
			file, err := given[0].Client().(*net.UnixConn).File() // the next proxy has a duplicate, too
			testkit.Must(t, err)
			nc, err := net.FileConn(file)
			file.Close()
			testkit.Must(t, err)
			first.server.Forget()
			next := newWorld(t, func(c *Config) { c.Token, c.IsTokenNew = tt.token, tt.isNew })
			newVault(next, map[protocol.SessionID]string{"mine": ""})
			owned := make(chan struct{})
			close(owned)
			c.served = make(chan struct{})
			next.wg.Go(func() {
				defer close(c.served)
				next.server.Restore(context.Background(), NewStream(nc, r.In), &r, func() {}, owned)
			})
			if !tt.want {
				if e := c.wantError(protocol.CodeUnauthorized); e.RequestID != "" {
					t.Errorf("received %+v", e)
				}
				c.wantEnd()
				return
			}
			c.send(api.Info{Request: req("i"), SessionID: "mine"})
			expect[*api.Session](c)
		})
	}
}

// A not-found error takes the same time for a session of another workspace as for an unknown id, although their
// look-ups differ in cost.
func TestNotFoundTakesItsTime(t *testing.T) {
	for name, as := range map[string]func(w *world) *client{
		"workspace": func(w *world) *client { return w.as("ann@a") },
		"share":     func(w *world) *client { return w.by(sharing("mine", "life-mine", time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			w, v := guarded(t, &house{}, map[protocol.SessionID]string{"mine": "a", "other": "b"})
			v.between = func(m protocol.Message) {
				if i, ok := m.(*wire.Info); ok && i.SessionID == "other" {
					time.Sleep(notFoundTime / 4) // the look-up of an existing session takes longer
				}
			}
			c := as(w)
			for _, id := range []protocol.SessionID{"other", "nobody"} {
				begun := time.Now()
				c.send(api.Info{Request: req("i"), SessionID: id})
				c.wantError(protocol.CodeSessionNotFound)
				if took := time.Since(begun); took < notFoundTime {
					t.Errorf("%s: after %v, want at least %v", id, took, notFoundTime)
				}
			}
		})
	}
}

// A session of another workspace that takes the id during the look-up is not shown.
func TestInfoRace(t *testing.T) {
	for name, as := range map[string]func(w *world) *client{
		"workspace": func(w *world) *client { return w.as("ann@a") },
		"share": func(w *world) *client {
			from := sharing("mine", "life-mine", time.Hour)
			from.Principal = &policy.Principal{User: "root", All: true}
			return w.by(from)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, v := guarded(t, &house{}, map[protocol.SessionID]string{"mine": "a"})
			asked := 0
			v.between = func(m protocol.Message) {
				if _, ok := m.(*wire.Info); ok {
					if asked++; asked == 2 {
						v.put("mine", "another", "b")
					}
				}
			}
			c := as(w)
			c.send(api.Info{Request: req("i"), SessionID: "mine"})
			c.wantError(protocol.CodeSessionNotFound)
		})
	}
}
