package web

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

func TestAPI(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), "/v1/api")
	c.hello("")
	c.message(api.List{Request: protocol.Request{RequestID: "r"}})
	got := receive[api.Sessions](c)
	if got.RequestID != "r" || len(got.Sessions) != 1 || got.Sessions[0].ID != "echo" {
		t.Errorf("sessions %+v", got)
	}
	c.frame(ws.OpClose, true, ws.NewCloseFrameBody(4999, "bye"))
	if status, _ := c.closing(); status != 4999 {
		t.Errorf("close answered with %d, want the client's 4999", status)
	}
}

// wide returns n bytes, which are more than one data frame and have every value.
func wide(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i ^ i>>8)
	}
	return p
}

func TestAPIBinary(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), "/v1/api")
	c.hello("")
	c.message(api.Attach{Attachment: 7, AttachSpec: protocol.AttachSpec{SessionID: "echo"}})
	if a := receive[api.Attached](c); a.Attachment != 7 || a.SnapshotBytes != len(snapshot) {
		t.Errorf("attached %+v", a)
	}
	if got := c.data(frame.Snapshot, len(snapshot)); string(got) != snapshot {
		t.Errorf("snapshot %q", got)
	}
	// One input in fragments, with headers of every size.
	want := wide(100_000)
	raw := frame.AppendData(nil, frame.Input, 7, 0, want)[4:]
	c.frame(ws.OpBinary, false, raw[:10])
	c.frame(ws.OpContinuation, false, raw[10:1000])
	c.frame(ws.OpPing, true, []byte("between"))
	c.frame(ws.OpContinuation, true, raw[1000:])
	if got := pongThen(c, len(want)); !bytes.Equal(got, want) {
		t.Errorf("echo of %d bytes differs, got %d", len(want), len(got))
	}
}

// pongThen reads n bytes of output and one pong, which may come between any two messages.
func pongThen(c *client, n int) []byte {
	c.t.Helper()
	var got []byte
	for pong := false; len(got) < n || !pong; {
		op, p := c.next()
		switch op {
		case ws.OpPong:
			pong = true
			if string(p) != "between" {
				c.t.Errorf("pong %q", p)
			}
		case ws.OpBinary:
			if id := binary.BigEndian.Uint32(p[1:]); p[0] != byte(frame.Output) || id != 7 {
				c.t.Fatalf("head % x", p[:frame.DataHeadLen+1])
			}
			got = append(got, p[1+frame.DataHeadLen:]...)
		}
	}
	return got
}

func TestAPIFaults(t *testing.T) {
	e := newEnv(t)
	addr := e.listen(e.handler(true))
	unmasked, err := ws.CompileFrame(ws.NewTextFrame([]byte("{}")))
	testkit.Must(t, err)
	compressed := masked(ws.OpText, true, []byte("{}"))
	compressed[0] |= 0x40
	tests := []struct {
		name   string
		hello  bool
		send   []byte
		code   protocol.Code
		status ws.StatusCode
	}{
		{"unmasked", true, unmasked, protocol.CodeBadFrame, 1002},
		{"compressed", true, compressed, protocol.CodeBadFrame, 1002},
		{"too large", true, masked(ws.OpBinary, true, make([]byte, frame.Max+1)), protocol.CodeFrameTooLarge, 1009},
		{"text too large by its kind", true, masked(ws.OpText, true, bytes.Repeat([]byte(" "), frame.Max)), protocol.CodeFrameTooLarge, 1009},
		{"too large before hello", false, masked(ws.OpText, true, bytes.Repeat([]byte(" "), frame.MaxHello)), protocol.CodeFrameTooLarge, 1009},
		{"not UTF-8", true, masked(ws.OpText, true, []byte("\"\xff\"")), protocol.CodeBadFrame, 1007},
		{"no kind", true, masked(ws.OpBinary, true, nil), protocol.CodeBadFrame, 1002},
		{"no JSON", true, masked(ws.OpText, true, []byte("{")), protocol.CodeBadFrame, 1002},
		{"no hello", false, masked(ws.OpText, true, []byte(`{"type":"list"}`)), protocol.CodeHelloRequired, 1008},
		{"bad close", true, masked(ws.OpClose, true, []byte{3, 237}), protocol.CodeBadFrame, 1002}, // the status 1005 must not be sent
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t, addr, "/v1/api")
			if tt.hello {
				c.hello("")
			}
			c.send(string(tt.send))
			if got := receive[api.Error](c); got.Code != tt.code {
				t.Errorf("error %s, want %s", got.Code, tt.code)
			}
			if status, reason := c.closing(); status != tt.status {
				t.Errorf("close %d %q, want %d", status, reason, tt.status)
			}
		})
	}
}

func TestLargestMessageIsTaken(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), "/v1/api")
	c.hello("")
	request := `{"type":"list","request_id":"r","x":"`
	c.frame(ws.OpText, true, []byte(request+strings.Repeat("x", frame.Max-1-len(request)-2)+`"}`))
	if got := receive[api.Sessions](c); got.RequestID != "r" {
		t.Errorf("got %+v", got)
	}
}

func TestPipelined(t *testing.T) {
	e := newEnv(t)
	addr := e.listen(e.handler(true))
	hello, err := protocol.Encode(api.Hello{Protocol: protocol.Supported(), Client: "test"})
	testkit.Must(t, err)
	behind := string(frames(masked(ws.OpText, true, hello), masked(ws.OpText, true, []byte(`{"type":"list","request_id":"r"}`))))
	all := handshake(addr, "/v1/api") + behind
	for _, cut := range []int{len(all), len(all) - len(behind) + 3, len(all) - 5, len(all) - len(behind) - 1, 10} {
		c := dial(t, addr)
		c.send(all[:cut])
		c.send(all[cut:])
		c.opened()
		receive[api.Welcome](c)
		if got := receive[api.Sessions](c); got.RequestID != "r" {
			t.Errorf("cut at %d: %+v", cut, got)
		}
	}
}

func TestTokenInHello(t *testing.T) {
	e := newEnv(t)
	addr := e.listen(e.handler(false))
	open(t, addr, "/v1/api").hello(token)
	for _, wrong := range []string{"", "x"} {
		c := open(t, addr, "/v1/api", "Origin: http://"+addr.String())
		c.message(api.Hello{Protocol: protocol.Supported(), Client: "test", Token: wrong})
		if got := receive[api.Error](c); got.Code != protocol.CodeUnauthorized {
			t.Errorf("token %q: %s", wrong, got.Code)
		}
		if status, reason := c.closing(); status != 1008 || reason != "unauthorized" {
			t.Errorf("token %q: close %d %q", wrong, status, reason)
		}
	}
}

// ticket requests a ticket.
func (c *client) ticket(id protocol.SessionID) string {
	c.t.Helper()
	c.message(api.Ticket{SessionID: id})
	return receive[api.TicketIssued](c).Ticket
}

func TestTicketIsGoodOnce(t *testing.T) {
	e := newEnv(t)
	addr := e.listen(e.handler(false))
	c := open(t, addr, "/v1/api")
	c.hello(token)
	forAny, forEcho, forGone := c.ticket(""), c.ticket("echo"), c.ticket("gone")
	tests := []struct {
		name, path string
		status     int
	}{
		{"the api", "/v1/api?ticket=" + forAny, 101},
		{"again", "/v1/api?ticket=" + forAny, 401},
		{"a session's", rawURL("echo", "ticket="+forEcho), 101},
		{"again", rawURL("echo", "ticket="+forEcho), 401},
		{"another session's", rawURL("echo", "ticket="+forGone), 401},
		{"tried elsewhere, used up", rawURL("gone", "ticket="+forGone), 401},
		{"a session's for the api", "/v1/api?ticket=" + c.ticket("echo"), 401},
		{"two", "/v1/api?ticket=" + c.ticket("") + "&ticket=" + c.ticket(""), 401},
		{"unknown", "/v1/api?ticket=x", 401},
		{"empty", "/v1/api?ticket=", 401},
	}
	for _, tt := range tests {
		d := dial(t, addr)
		d.send(handshake(addr, tt.path))
		if tt.status == http.StatusSwitchingProtocols {
			d.opened()
			if strings.HasPrefix(tt.path, "/v1/api") {
				d.hello("")
			}
			continue
		}
		if status, err := d.refusal(); status != tt.status || err.Code != protocol.CodeUnauthorized {
			t.Errorf("%s: %d %v, want %d", tt.name, status, err, tt.status)
		}
	}
	if log := e.log.String(); strings.Contains(log, forAny) || strings.Contains(log, forEcho) || strings.Contains(log, token) {
		t.Errorf("a ticket or token is in the log:\n%s", log)
	}
}

func TestGoaway(t *testing.T) {
	e := newEnv(t)
	h := e.handler(true)
	addr := e.listen(h)
	c := open(t, addr, "/v1/api")
	c.hello("")
	raw := open(t, addr, rawURL("echo"))
	raw.bytes(len(snapshot))
	waiting := dial(t, addr) // has no request in progress
	waiting.send("GET ")
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.server.Goaway("upgrade", time.Second)
		h.Goaway()
	}()
	if got := receive[api.Goaway](c); got.RetryAfterMS != 1000 {
		t.Errorf("goaway %+v", got)
	}
	if status, _ := c.closing(); status != 1012 {
		t.Errorf("the api is closed with %d, want 1012", status)
	}
	if status, _ := raw.closing(); status != 1012 {
		t.Errorf("the raw WebSocket is closed with %d, want 1012", status)
	}
	_, _ = waiting.br.ReadByte()
	_ = waiting.nc.Close()
	<-done
	late := dial(t, addr)
	if status, err := late.refusal(); status != 503 || err.Code != protocol.CodeClosed {
		t.Errorf("after the end: %d %v, want 503 closed", status, err)
	}
}

func TestConnectionsEndWithTheirContext(t *testing.T) {
	e := newEnv(t)
	addr := e.listen(e.handler(true))
	c := open(t, addr, "/v1/api")
	c.hello("")
	raw := open(t, addr, rawURL("echo"))
	raw.bytes(len(snapshot))
	e.stop()
	for _, c := range []*client{c, raw} {
		if status, _ := c.closing(); status != 1001 {
			t.Errorf("closed with %d, want 1001", status)
		}
	}
}

// The input of a client that writes before it reads is accepted, although its pongs must wait.
func TestPingsOfAClientThatDoesNotRead(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), rawURL("echo"))
	v := e.viewer()
	go func() { // until the client closes
		for v.print(make([]byte, frame.MaxData)) == nil {
		}
	}()
	e.sup.mu.Lock()
	e.sup.silent = true
	e.sup.mu.Unlock()
	want := wide(25 * 4096) // below sendWindow, because acknowledgements come behind the output
	for p := want; len(p) > 0; p = p[4096:] {
		c.frame(ws.OpPing, true, []byte("still there?"))
		c.frame(ws.OpBinary, true, p[:4096])
	}
	eventually(t, func() bool { return bytes.Equal(e.sup.typedSoFar(), want) }, "the input is taken")
	_ = c.nc.Close()
	<-v.over
}
