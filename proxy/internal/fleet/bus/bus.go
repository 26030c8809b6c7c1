// Package bus carries small messages between a gate and its hosts over NATS.
//
// The server of NATS runs in the gate's process and listens on no port. The gate proves the key of a host
// first, and then connects the host's connection with the server, so that no stranger reaches the server's
// parser, and the fleet needs one port and one certificate. Messages are published and not stored: what is
// lost is noticed by its stamp and asked for again (package directory).
//
// Invariant: a host can publish only on its own subjects and subscribe only to its own subjects. A password
// is valid for one connection.
//
// Not here: the proof of the key (package gate), and the messages (package record).
package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"holdfast/protocol"
	"holdfast/proxy/internal/fleet/record"
)

// Limits and times of the bus.
const (
	startLimit  = 10 * time.Second
	pingEvery   = 5 * time.Second // with maxPings: a dead connection is noticed after about 20 s
	maxPings    = 3
	maxSubjects = 16      // subscriptions of a host
	maxPending  = 8 << 20 // bytes that wait for a host before it is disconnected; it connects again
	maxQueue    = 1 << 16 // messages that wait for the gate; what exceeds them is lost and asked for again
	retryMin    = 100 * time.Millisecond
	retryMax    = 5 * time.Second
)

// gateUser is the name of the gate on its own bus. It is no key of a host.
const gateUser = "gate"

// Subjects are holdfast.up.KEY.KIND from a host and holdfast.down.KEY.KIND to it.
const (
	prefixUp   = "holdfast.up."
	prefixDown = "holdfast.down."
)

// A Bus is the gate's end of the bus.
type Bus struct {
	server    *server.Server
	conn      *nats.Conn
	passwords *passwords
}

// Start starts the bus. It calls receive for each message of a host, one after the other.
func Start(receive func(key, kind string, data []byte)) (*Bus, error) {
	p := &passwords{users: map[string]string{}}
	srv, err := server.NewServer(&server.Options{
		ServerName: "holdfast-gate", DontListen: true, NoSigs: true, NoLog: true, NoSystemAccount: true,
		MaxPayload: record.MaxMessage, MaxPending: maxPending, MaxSubs: maxSubjects,
		PingInterval: pingEvery, MaxPingsOut: maxPings,
		CustomClientAuthentication: p,
	})
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	srv.Start()
	b := &Bus{server: srv, passwords: p}
	if !srv.ReadyForConnections(startLimit) {
		b.Close()
		return nil, fmt.Errorf("bus: the server did not start within %v", startLimit)
	}
	b.conn, err = nats.Connect("", nats.InProcessServer(srv), nats.UserInfo(gateUser, p.add(gateUser)), nats.NoReconnect())
	if err == nil {
		err = b.subscribe(receive)
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("bus: %w", err)
	}
	return b, nil
}

func (b *Bus) subscribe(receive func(key, kind string, data []byte)) error {
	s, err := b.conn.Subscribe(prefixUp+"*.*", func(m *nats.Msg) {
		if key, kind, ok := strings.Cut(strings.TrimPrefix(m.Subject, prefixUp), "."); ok {
			receive(key, kind, m.Data)
		}
	})
	if err != nil {
		return err
	}
	return errors.Join(s.SetPendingLimits(maxQueue, maxQueue*(4<<10)), b.conn.Flush())
}

// Publish sends a message to a host. If the host is not connected, the message is lost.
func (b *Bus) Publish(key, kind string, data []byte) error {
	return b.conn.Publish(prefixDown+key+"."+kind, data)
}

// Admit returns a new connection with the server, and the password with which the host of a key must log
// in on it.
func (b *Bus) Admit(key string) (conn net.Conn, password string, err error) {
	if conn, err = b.server.InProcessConn(); err != nil {
		return nil, "", err
	}
	return conn, b.passwords.add(key), nil
}

// Forget makes a password of Admit invalid that was not used.
func (b *Bus) Forget(password string) { b.passwords.take(password) }

// Close ends the bus and all its connections.
func (b *Bus) Close() {
	if b.conn != nil {
		b.conn.Close()
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// passwords are the passwords that were not used, with the user of each.
type passwords struct {
	mu    sync.Mutex
	users map[string]string
}

func (p *passwords) add(user string) (password string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	password = protocol.NewToken(32)
	p.users[password] = user
	return password
}

func (p *passwords) take(password string) (user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	user = p.users[password]
	delete(p.users, password)
	return user
}

// Check implements server.Authentication.
func (p *passwords) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	user := p.take(o.Password)
	if user == "" || user != o.Username {
		return false
	}
	u := &server.User{Username: user}
	if user != gateUser {
		u.Permissions = &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{prefixUp + user + ".*"}},
			Subscribe: &server.SubjectPermission{Allow: []string{prefixDown + user + ".*"}},
		}
	}
	c.RegisterUser(u)
	return true
}

// A HostOptions configures a host's end of the bus.
type HostOptions struct {
	Key string
	// Dial opens the connection of the bus, and returns the password of the host on it. It is called
	// again after each loss.
	Dial    func(ctx context.Context) (conn net.Conn, password string, err error)
	Receive func(kind string, data []byte) // called for each message of the gate, one after the other
	// Connected is called after each time that the connection was made, and Lost after each loss and
	// each attempt that failed.
	Connected func()
	Lost      func(error)
}

// A Host is a host's end of the bus.
type Host struct {
	o    HostOptions
	ctx  context.Context
	end  context.CancelFunc
	conn *nats.Conn

	mu       sync.Mutex
	password string
}

// Connect connects a host with its gate, now and after each loss, until Close is called.
func Connect(ctx context.Context, o HostOptions) (*Host, error) {
	h := &Host{o: o}
	h.ctx, h.end = context.WithCancel(ctx)
	conn, err := nats.Connect("",
		nats.InProcessServer(h), nats.UserInfoHandler(h.user),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.CustomReconnectDelay(delay),
		nats.ReconnectBufSize(-1), // what is published without a connection is lost; stamps show that
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(maxPings),
		nats.ConnectHandler(func(*nats.Conn) { o.Connected() }),
		nats.ReconnectHandler(func(*nats.Conn) { o.Connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { o.Lost(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { o.Lost(err) }),
	)
	if err != nil {
		h.end()
		return nil, fmt.Errorf("bus: %w", err)
	}
	h.conn = conn
	_, err = conn.Subscribe(prefixDown+o.Key+".*", func(m *nats.Msg) {
		o.Receive(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], m.Data)
	})
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("bus: %w", err)
	}
	return h, nil
}

// delay returns the pause before an attempt. It doubles with each attempt, and is random, so that the
// hosts of a gate do not all return at the same moment.
func delay(attempts int) time.Duration {
	d := min(retryMax, retryMin<<min(attempts, 10))
	return d/2 + rand.N(d)
}

// InProcessConn implements nats.InProcessConnProvider.
func (h *Host) InProcessConn() (net.Conn, error) {
	conn, password, err := h.o.Dial(h.ctx)
	if err != nil {
		h.o.Lost(err)
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.password = password
	return conn, nil
}

func (h *Host) user() (user, password string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.o.Key, h.password
}

// Publish sends a message to the gate. It returns an error if the host is not connected.
func (h *Host) Publish(kind string, data []byte) error {
	return h.conn.Publish(prefixUp+h.o.Key+"."+kind, data)
}

// Flush returns when the gate's server has received all messages.
func (h *Host) Flush(limit time.Duration) error { return h.conn.FlushTimeout(limit) }

// Close ends the connection.
func (h *Host) Close() {
	h.end()
	h.conn.Close()
}
