package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// handoffsTyped is the number of handoffs in the tests of this file, node_test.go and chromium_test.go. Their
// WebSocket clients are programs and libraries of other projects, which do not reconnect.
const handoffsTyped = 5

// webProxy starts a proxy that serves WebSockets on TCP too, and returns the address and the token.
func (w *world) webProxy(args ...string) (address, token string) {
	w.T.Helper()
	w.Start(w.Command("proxy", append([]string{"serve", "--background", "--web", "127.0.0.1:0"}, args...)...))
	testkit.Eventually(w.T, limit, func() bool {
		log, _ := os.ReadFile(w.Path("proxy.log"))
		_, after, _ := strings.Cut(string(log), `"address":"`)
		address, _, _ = strings.Cut(after, `"`)
		return address != ""
	}, "the proxy serves WebSockets on TCP")
	b, err := os.ReadFile(w.Path("proxy.token"))
	testkit.Must(w.T, err)
	return address, strings.TrimSpace(string(b))
}

// rawURL returns the URL of a session's raw WebSocket on TCP, with a ticket.
func (w *world) rawURL(c *client.Client, address, id string) string {
	w.T.Helper()
	ticket, err := c.Ticket(w.ctx(), protocol.SessionID(id))
	testkit.Must(w.T, err)
	return fmt.Sprintf("ws://%s/v1/sessions/%s/raw?ticket=%s", address, id, ticket)
}

// echoAlone starts a session that echoes, and detaches, so that another client can attach.
func (w *world) echoAlone(c *client.Client, id string) {
	w.T.Helper()
	testkit.Must(w.T, w.echo(c, id).Detach())
}

// handOff replaces the running proxy.
func (w *world) handOff() {
	w.T.Helper()
	w.replaceProxy(w.Only("proxy"))
}

// WebSocket connections of a Go library other than the server's must stay open through handoffs. The client
// sends each message in two parts with a ping between them, and each message must be echoed once.
// demand: S9
func TestCoderWebSockets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address, token := w.webProxy()
	c := w.connect(client.Options{Name: "e2e"})
	unix := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.Path("proxy.web.sock"))
	}}}
	var all []*outsideClient
	for i := range 2 {
		raw := fmt.Sprint("raw-unix-", i)
		all = append(all,
			&outsideClient{name: fmt.Sprint("api-", i), url: "ws://" + address + "/v1/api", api: true, token: token},
			&outsideClient{name: fmt.Sprint("api-unix-", i), url: "ws://localhost/v1/api", api: true, http: unix},
			&outsideClient{name: fmt.Sprint("raw-", i)},
			&outsideClient{name: raw, url: "ws://localhost/v1/sessions/" + raw + "/raw", http: unix},
		)
	}
	var over atomic.Bool
	var wg sync.WaitGroup
	errs := make(chan error, len(all))
	for _, o := range all {
		w.echoAlone(c, o.name)
		if o.url == "" {
			o.url = w.rawURL(c, address, o.name)
		}
		stop, err := o.dial(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", o.name, err)
		}
		defer stop()
		wg.Go(func() {
			if err := o.typeNumbers(&over); err != nil {
				errs <- fmt.Errorf("%s, after %d messages: %w", o.name, o.echoed.Load(), err)
			}
		})
	}
	for range handoffsTyped {
		w.handOff()
		for _, o := range all {
			n := o.echoed.Load()
			testkit.Eventually(t, limit, func() bool { return o.echoed.Load() > n+1 || len(errs) > 0 }, o.name+" continues after a handoff")
		}
	}
	over.Store(true)
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	said, longest := int64(0), time.Duration(0)
	for _, o := range all {
		said, longest = said+o.echoed.Load(), max(longest, o.longest)
	}
	t.Logf("%d messages through %d handoffs, the longest took %v", said, handoffsTyped, longest)
}

// An outsideClient is a WebSocket client that types and waits for the echo.
type outsideClient struct {
	name, url, token string
	api              bool // false for a raw WebSocket
	http             *http.Client

	*websocket.Conn
	ctx      context.Context // its cause is the error that ended reading
	attached chan struct{}
	output   chan []byte
	unread   []byte
	typed    uint64
	echoed   atomic.Int64 // number of echoed messages
	longest  time.Duration
}

// dial connects, and attaches to the session of the same name.
func (o *outsideClient) dial(ctx context.Context) (stop func(), err error) {
	options := &websocket.DialOptions{HTTPClient: o.http}
	if o.api {
		options.Subprotocols = []string{api.Subprotocol}
	}
	if o.Conn, _, err = websocket.Dial(ctx, o.url, options); err != nil {
		return nil, err
	}
	o.SetReadLimit(-1)
	o.attached = make(chan struct{})
	o.output = make(chan []byte, 1024) // large enough that pongs are read although nobody receives the output before them
	late, cancel := context.WithTimeout(ctx, 4*limit)
	ended, end := context.WithCancelCause(late)
	o.ctx = ended
	go func() { end(o.receive()) }()
	stop = func() {
		cancel()
		_ = o.CloseNow()
	}
	if !o.api {
		return stop, nil
	}
	hello := api.Hello{Protocol: protocol.Supported(), Client: "coder/websocket", Token: o.token}
	attach := api.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: protocol.SessionID(o.name)}}
	if err := errors.Join(o.sendMessage(hello), o.sendMessage(attach)); err != nil {
		return stop, err
	}
	select {
	case <-o.attached:
		return stop, nil
	case <-o.ctx.Done():
		return stop, context.Cause(o.ctx)
	}
}

func (o *outsideClient) sendMessage(m protocol.Message) error {
	b, err := protocol.Encode(m)
	if err != nil {
		return err
	}
	return o.Write(o.ctx, websocket.MessageText, b)
}

// receive receives the output, including the snapshot, until the connection ends.
func (o *outsideClient) receive() error {
	var pos uint64
	begun := false
	for {
		typ, p, err := o.Read(o.ctx)
		switch {
		case err != nil:
			return err
		case o.api && typ == websocket.MessageText:
			m, _, err := api.Messages.Decode(p)
			switch m := m.(type) {
			case *api.Attached:
				pos, begun = m.Offset, true
				close(o.attached) // a second Attached would make this panic
			case *api.Welcome, *api.Accepted:
			default:
				return fmt.Errorf("unexpected message %+v, %w", m, err)
			}
			continue
		case o.api:
			kind := frame.Kind(p[0])
			_, offset, data, err := frame.ParseData(p[1:])
			if err != nil || !begun || offset != pos {
				return fmt.Errorf("frame of kind %d at offset %d, want offset %d: %w", kind, offset, pos, err)
			}
			if p = data; kind == frame.Output {
				pos += uint64(len(data))
			}
		}
		select {
		case o.output <- p:
		case <-o.ctx.Done():
			return o.ctx.Err()
		}
	}
}

// typeNumbers sends numbers, each after the echo of the one before.
func (o *outsideClient) typeNumbers(over *atomic.Bool) error {
	for n := 0; !over.Load() || n < 100; n++ {
		text := fmt.Sprintf("<%d>", n)
		begun := time.Now()
		if err := o.sendText(text); err != nil {
			return o.why(err)
		}
		if err := o.awaitEcho(text, n == 0); err != nil { // the first echo follows the snapshot
			return o.why(err)
		}
		if n > 0 {
			o.longest = max(o.longest, time.Since(begun))
		}
		o.echoed.Add(1)
	}
	return o.Close(websocket.StatusNormalClosure, "")
}

// why returns the cause that ended the connection, or err if it is open.
func (o *outsideClient) why(err error) error {
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	return err
}

// sendText sends text in a message of two parts. It waits for the answer to a ping between them, which proves
// that the first part has arrived, so that a handoff often begins between the parts.
func (o *outsideClient) sendText(text string) error {
	m := []byte(text)
	if o.api {
		m = append([]byte{byte(frame.Input)}, binary.BigEndian.AppendUint64([]byte{0, 0, 0, 1}, o.typed)...)
		m = append(m, text...)
	}
	o.typed += uint64(len(text))
	w, err := o.Writer(o.ctx, websocket.MessageBinary)
	if err != nil {
		return err
	}
	if _, err := w.Write(m[:len(m)/2]); err != nil {
		return err
	}
	if err := o.Ping(o.ctx); err != nil {
		return err
	}
	if _, err := w.Write(m[len(m)/2:]); err != nil {
		return err
	}
	return w.Close()
}

// awaitEcho waits for the echo of text. Unless behind is true, no other output may come before it.
func (o *outsideClient) awaitEcho(text string, behind bool) error {
	for {
		switch at := strings.Index(string(o.unread), text); {
		case at >= 0 && (behind || at == 0):
			o.unread = o.unread[at+len(text):]
			return nil
		case !behind && !strings.HasPrefix(text, string(o.unread)):
			return fmt.Errorf("the output is %q, want %q", o.unread, text)
		}
		select {
		case p := <-o.output:
			o.unread = append(o.unread, p...)
		case <-o.ctx.Done():
			return fmt.Errorf("waiting for %q: %w", text, o.ctx.Err())
		}
	}
}
