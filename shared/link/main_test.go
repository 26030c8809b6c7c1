package link

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/link"
	"holdfast/shared/testkit"
)

// patience is the time limit of events that must happen.
const patience = 30 * time.Second

// silence is the longest time in which a silent peer must be given up.
const silence = 5 * time.Second

// pair returns both ends of a connection on a Unix socket.
func pair(t testing.TB) (proxy, supervisor net.Conn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(testkit.Dir(t), "s"))
	testkit.Must(t, err)
	defer ln.Close()
	if proxy, err = net.Dial("unix", ln.Addr().String()); err == nil {
		supervisor, err = ln.Accept()
	}
	testkit.Must(t, err)
	t.Cleanup(func() { proxy.Close(); supervisor.Close() })
	return proxy, supervisor
}

var (
	someHello = link.Hello{
		Protocol: protocol.Supported(), Capabilities: protocol.Capabilities{"tea", "coffee"},
		PID: 11, Version: "1.2.3", Instance: "proxy-life", Name: "proxy", Secret: "hush",
	}
	someWelcome = link.Welcome{Capabilities: protocol.Capabilities{"cake"}, PID: 12, Version: "4.5.6", Instance: "supervisor-life"}
)

func welcomed(*link.Hello) (link.Welcome, []protocol.SessionInfo, error) {
	return someWelcome, nil, nil
}

// accepted is the result of Accept.
type accepted struct {
	conn  *Conn
	hello *link.Hello
	err   error
}

// accept calls Accept in a goroutine, and closes its link after the test.
func accept(t testing.TB, nc net.Conn, answer Welcomer) <-chan accepted {
	got := make(chan accepted, 1)
	go func() {
		conn, hello, err := Accept(nc, answer, zerolog.Nop())
		if err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		got <- accepted{conn, hello, err}
	}()
	return got
}

// linked returns both ends of a link.
func linked(t testing.TB) (proxy, supervisor *Conn) {
	t.Helper()
	a, b := pair(t)
	got := accept(t, b, welcomed)
	proxy, _, _, err := Dial(a, someHello, zerolog.Nop())
	testkit.Must(t, err)
	t.Cleanup(func() { proxy.Close() })
	return proxy, (<-got).conn
}

// answer calls how for each stream until the link ends.
func answer(t testing.TB, c *Conn, how func(*Stream, protocol.Message)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			st, err := c.Accept()
			if err != nil {
				return
			}
			request, err := st.Receive()
			if err != nil {
				st.Abort()
				continue
			}
			how(st, request)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
}

// A bare is an end of a link without hello, so that a test can break the rules of the protocol.
type bare struct{ *Conn }

func bareProxy(t testing.TB, nc net.Conn) bare      { return newBare(t, nc, proxySide) }
func bareSupervisor(t testing.TB, nc net.Conn) bare { return newBare(t, nc, supervisorSide) }

func newBare(t testing.TB, nc net.Conn, side func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error)) bare {
	t.Helper()
	c, err := newConn(nc, zerolog.Nop(), side)
	testkit.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return bare{c}
}

// stream opens a stream and writes bytes to it.
func (b bare) stream(t testing.TB, raw []byte) *Stream {
	t.Helper()
	st, err := b.open()
	if err == nil && len(raw) > 0 {
		err = st.SendRaw(raw)
	}
	testkit.Must(t, err)
	return st
}

// control returns a control frame with a text.
func control(text string) []byte { return frame.Append(nil, frame.Control, []byte(text)) }

// receiveMessage returns the next message, and fails the test if there is none.
func receiveMessage(t testing.TB, st *Stream) protocol.Message {
	t.Helper()
	_ = st.SetDeadline(time.Now().Add(patience))
	m, err := st.Receive()
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	return m
}

// wantCode checks the code of an error, "" for no error.
func wantCode(t testing.TB, what string, err error, want protocol.Code) {
	t.Helper()
	if got := protocol.CodeOf(err); got != want {
		t.Errorf("%s: got %v, want code %q", what, err, want)
	}
}
