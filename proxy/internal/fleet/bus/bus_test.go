package bus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"holdfast/shared/testkit"
)

const limit = 30 * time.Second

type message struct{ key, kind, data string }

// start returns a bus, and what the gate receives.
func start(t *testing.T) (*Bus, chan message) {
	t.Helper()
	up := make(chan message, 16)
	b, err := Start(
		func(key, kind string, data []byte) { up <- message{key, kind, string(data)} },
		func(kind string, data []byte) { up <- message{GateUser, kind, string(data)} },
	)
	testkit.Must(t, err)
	t.Cleanup(b.Close)
	return b, up
}

// connectHost connects a host, and returns what it receives and a function that cuts its connection.
func connectHost(t *testing.T, b *Bus, key string) (h *Host, down chan message, cut func()) {
	t.Helper()
	down = make(chan message, 16)
	connected := make(chan bool, 16)
	o, end := linkTo(b, key, connected)
	h, err := Connect(t.Context(), HostOptions{
		Key: key, LinkOptions: o, Receive: func(kind string, data []byte) { down <- message{key, kind, string(data)} },
	})
	testkit.Must(t, err)
	t.Cleanup(h.Close)
	testkit.Within(t, limit, "the host connects", connected)
	return h, down, func() {
		end()
		testkit.Within(t, limit, "the host connects again", connected)
	}
}

// linkTo returns the options of a connection with b, and a function that cuts it.
func linkTo(b *Bus, user string, connected chan<- bool) (o LinkOptions, cut func()) {
	var last atomic.Pointer[net.Conn]
	return LinkOptions{
		Dial: func(context.Context) (net.Conn, string, error) {
			conn, password, err := b.Admit(user)
			last.Store(&conn)
			return conn, password, err
		},
		Connected: func() { connected <- true }, Lost: func(error) {}, Failed: func(error) {},
	}, func() { _ = (*last.Load()).Close() }
}

// A gate receives the messages of its hosts, and reaches them, also after the server has closed the connection of the gate,
// as it does if too many messages wait for the gate.
func TestOwnConnectionIsLost(t *testing.T) {
	b, up := start(t)
	h, down, _ := connectHost(t, b, "A")
	clients, err := b.server.Connz(&server.ConnzOptions{Username: true})
	testkit.Must(t, err)
	for _, c := range clients.Conns {
		if c.AuthorizedUser == GateUser {
			err = b.server.DisconnectClientByID(c.Cid)
		}
	}
	testkit.Must(t, err)
	testkit.Eventually(t, limit, func() bool { return h.Publish("host", nil) == nil && len(up) > 0 }, "the gate receives a message of the host")
	testkit.Eventually(t, limit, func() bool { return b.Publish("A", "hello", nil) == nil && len(down) > 0 }, "the host receives a message of the gate")
}

// A gate that is connected with the bus of another one receives the messages of the hosts there, and
// reaches these hosts and the other gate, also after its connection was cut.
func TestPeer(t *testing.T) {
	b, up := start(t)
	h, down, _ := connectHost(t, b, "A")
	connected, heard := make(chan bool, 16), make(chan message, 16)
	o, cut := linkTo(b, GateUser, connected)
	p, err := ConnectPeer(t.Context(), o, func(key, kind string, data []byte) { heard <- message{key, kind, string(data)} })
	testkit.Must(t, err)
	defer p.Close()
	for range 3 {
		testkit.Within(t, limit, "the gate connects", connected)
		testkit.Must(t, errors.Join(p.conn.Flush(), h.Publish("host", []byte("up"))))
		for _, c := range []chan message{up, heard} {
			if got := testkit.Within(t, limit, "a message of the host", c); got != (message{"A", "host", "up"}) {
				t.Errorf("a gate receives %v", got)
			}
		}
		testkit.Must(t, errors.Join(p.Publish("A", "dial", []byte("down")), p.Tell("sum", []byte("x"))))
		if got := testkit.Within(t, limit, "a message of the other gate", down); got != (message{"A", "dial", "down"}) {
			t.Errorf("the host receives %v", got)
		}
		if got := testkit.Within(t, limit, "a message for the gate", up); got != (message{GateUser, "sum", "x"}) {
			t.Errorf("the gate receives %v", got)
		}
		testkit.Must(t, b.Announce("A", "lost", nil))
		for _, c := range []chan message{up, heard} {
			if got := testkit.Within(t, limit, "an announcement", c); got != (message{"A", "lost", ""}) {
				t.Errorf("a gate receives %v", got)
			}
		}
		cut()
	}
}

func TestBothWays(t *testing.T) {
	b, up := start(t)
	h, down, cut := connectHost(t, b, "A")
	for range 3 {
		testkit.Must(t, h.Publish("host", []byte("up")))
		if got := testkit.Within(t, limit, "a message of the host", up); got != (message{"A", "host", "up"}) {
			t.Errorf("the gate receives %v", got)
		}
		testkit.Must(t, b.Publish("A", "dial", []byte("down")))
		if got := testkit.Within(t, limit, "a message of the gate", down); got != (message{"A", "dial", "down"}) {
			t.Errorf("the host receives %v", got)
		}
		cut()
	}
}

// A host that publishes on the subjects of another host, or subscribes to them, is refused.
func TestSubjects(t *testing.T) {
	b, up := start(t)
	for _, attempt := range []func(*nats.Conn) error{
		func(c *nats.Conn) error { return c.Publish(prefixUp+"A.host", nil) },
		func(c *nats.Conn) error { return c.Publish(prefixDown+"A.dial", nil) },
		func(c *nats.Conn) error { return c.Publish("other", nil) },
		func(c *nats.Conn) error { return c.Publish(prefixGates+"members", nil) },
		func(c *nats.Conn) error { _, err := c.SubscribeSync(prefixGates + "*"); return err },
		func(c *nats.Conn) error { _, err := c.SubscribeSync(prefixDown + "A.dial"); return err },
		func(c *nats.Conn) error { _, err := c.SubscribeSync(prefixUp + ">"); return err },
		func(c *nats.Conn) error { _, err := c.SubscribeSync("$SYS.>"); return err },
	} {
		conn, password, err := b.Admit("B")
		testkit.Must(t, err)
		refused := make(chan error, 4)
		c, err := nats.Connect("", nats.InProcessServer(provider{conn}), nats.UserInfo("B", password), nats.NoReconnect(),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		testkit.Must(t, err)
		testkit.Must(t, attempt(c))
		if err := testkit.Within(t, limit, "the refusal", refused); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("got %v", err)
		}
		c.Close()
	}
	if len(up) > 0 {
		t.Errorf("the gate receives %v", <-up)
	}
}

// A password is valid once, for the host that it was made for.
func TestPasswords(t *testing.T) {
	b, _ := start(t)
	// admits reports whether the server accepts a login. It waits for the end of a connection that is refused. The server
	// sends a reason first, but leaves it out if it cannot write it within 100 ms.
	admits := func(user, password string) bool {
		conn, err := b.server.InProcessConn()
		testkit.Must(t, err)
		defer func() { _ = conn.Close() }()
		go func() { _, _ = fmt.Fprintf(conn, "CONNECT {\"user\":%q,\"pass\":%q}\r\nPING\r\n", user, password) }() // the server closes the connection if it refuses
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			line := lines.Text()
			if line == "PONG" {
				return true
			}
			if strings.HasPrefix(line, "-ERR") && line != "-ERR 'Authorization Violation'" {
				t.Errorf("the server refuses a login with %s", line)
			}
		}
		return false
	}
	used, forgotten, others := b.passwords.add("A"), b.passwords.add("A"), b.passwords.add("B")
	if !admits("A", used) {
		t.Fatal("a new password is refused")
	}
	b.Forget(forgotten)
	for _, password := range []string{used, forgotten, others, ""} {
		if admits("A", password) {
			t.Errorf("the password %q is accepted", password)
		}
	}
	if admits(GateUser, "") {
		t.Error("the gate's own name is accepted without a password")
	}
}

// A provider has one connection.
type provider struct{ net.Conn }

func (p provider) InProcessConn() (net.Conn, error) { return p.Conn, nil }

// While a connection is made again, and the other end is silent, a message is not published, and nobody
// waits for it, also not if the callback of the connection before comes late.
func TestPublishWithoutConnection(t *testing.T) {
	b, _ := start(t)
	connected, lost, dials, silent := make(chan bool, 16), make(chan bool, 16), make(chan bool, 16), make(chan struct{})
	o, cut := linkTo(b, GateUser, connected)
	o.Lost = func(error) { lost <- true }
	dial := o.Dial
	isFirst := true
	o.Dial = func(ctx context.Context) (net.Conn, string, error) {
		if isFirst {
			isFirst = false
			return dial(ctx)
		}
		dials <- true
		<-silent
		return nil, "", errors.New("the other end is silent")
	}
	p, err := ConnectPeer(t.Context(), o, func(string, string, []byte) {})
	testkit.Must(t, err)
	t.Cleanup(p.Close)
	defer close(silent)
	testkit.Within(t, limit, "the first connection", connected)
	cut()
	testkit.Within(t, limit, "the second connection is being made", dials)
	told := make(chan error, 2)
	go func() { told <- p.Tell("kind", nil); told <- p.Publish("A", "kind", nil) }()
	for range 2 {
		if err := testkit.Within(t, limit, "the call returns", told); !errors.Is(err, errNotConnected) {
			t.Errorf("got %v", err)
		}
	}
	testkit.Within(t, limit, "the loss is noticed", lost) // otherwise it may come after the next call, and undo it
	p.connected()
	go func() { told <- p.Tell("kind", nil) }()
	if err := testkit.Within(t, limit, "the call returns", told); err != nil {
		t.Error(err)
	}
}
