// Package bus carries small messages between gates and hosts over NATS.
//
// A server of NATS runs in each gate's process and listens on no port. The gate proves the key of a host
// first, and then connects the host's connection with the server, so that no stranger reaches the server's
// parser, and the fleet needs one port and one certificate. Messages are published and not stored. If
// one is lost, the receiver notices that by the stamps, and asks for the state again (package directory).
//
// A gate is a client of its own server and of the servers of all other gates: it receives there the records
// of their hosts, and publishes there to these hosts and to the gate. The servers are not connected with each
// other, because the routes of a NATS cluster need a port on which the server listens, while a client can be
// connected over the port of the gates. So each message crosses one server, and messages cannot turn in a circle.
//
// Instead, the gates may exchange these messages over a NATS cluster of others (cluster.go). Hosts are
// connected with the server in the gate's process in any case, because it gives each host its own subjects.
//
// Invariant: a host can publish only on its own subjects and subscribe only to its own subjects. A password
// is valid for one connection. A message that came over a cluster was made by a gate that has the same key.
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
	"sync/atomic"
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
	maxSubjects = 16       // subscriptions of a host
	maxPending  = 64 << 20 // bytes that wait for a host or gate before it is disconnected; it connects again
	maxQueue    = 1 << 16  // messages that wait for the gate; further ones are lost, and the gate asks for the state again
	retryMin    = 20 * time.Millisecond
	retryMax    = 5 * time.Second
	writeLimit  = 10 * time.Second // for a connection that accepts no bytes
)

// GateUser is the name of each gate on the bus. It is no key of a host.
const GateUser = "gate"

// Subjects are holdfast.up.KEY.KIND from or about a host, holdfast.down.KEY.KIND to it, and
// holdfast.gates.KIND from another gate to the gate of the server.
const (
	prefixUp    = "holdfast.up."
	prefixDown  = "holdfast.down."
	prefixGates = "holdfast.gates."
)

// A Bus is the gate's end of the bus.
type Bus struct {
	server    *server.Server
	conn      *nats.Conn
	passwords *passwords
}

// Start starts the bus. It calls fromHost for each message of a host, and fromGate for each message of
// another gate, both one after the other.
func Start(fromHost func(key, kind string, data []byte), fromGate func(kind string, data []byte)) (*Bus, error) {
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
	b.conn, err = nats.Connect("", // again after each loss: the server closes this connection, too, if more than maxPending bytes wait for it
		nats.InProcessServer(srv), nats.UserInfoHandler(func() (user, password string) { return GateUser, p.add(GateUser) }),
		nats.MaxReconnects(-1), nats.CustomReconnectDelay(delay),
	)
	if err == nil {
		err = subscribeUp(b.conn, fromHost)
	}
	if err == nil {
		_, err = b.conn.Subscribe(prefixGates+"*", func(m *nats.Msg) { fromGate(strings.TrimPrefix(m.Subject, prefixGates), m.Data) })
	}
	if err == nil {
		err = b.conn.Flush()
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("bus: %w", err)
	}
	return b, nil
}

// subscribeUp calls receive for each message from or about a host of a server.
func subscribeUp(conn *nats.Conn, receive func(key, kind string, data []byte)) error {
	s, err := conn.Subscribe(prefixUp+"*.*", func(m *nats.Msg) {
		if key, kind, ok := strings.Cut(strings.TrimPrefix(m.Subject, prefixUp), "."); ok {
			receive(key, kind, m.Data)
		}
	})
	if err != nil {
		return err
	}
	return s.SetPendingLimits(maxQueue, maxQueue*(4<<10))
}

// Publish sends a message to a host of this server. If the host is not connected, the message is lost.
func (b *Bus) Publish(key, kind string, data []byte) error {
	return b.conn.Publish(prefixDown+key+"."+kind, data)
}

// Announce sends a message about a host of this server to all gates, also to this one.
func (b *Bus) Announce(key, kind string, data []byte) error {
	return b.conn.Publish(prefixUp+key+"."+kind, data)
}

// Admit returns a new connection with the server, and the password with which the host of a key, or a
// gate with the key GateUser, must log in on it.
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
	if user != GateUser {
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
	LinkOptions
	Receive func(kind string, data []byte) // called for each message of a gate, one after the other
}

// LinkOptions configure a connection with the server of a gate.
type LinkOptions struct {
	// Dial opens the connection, and returns the password on it. It is called again after each loss.
	Dial func(ctx context.Context) (conn net.Conn, password string, err error)
	// Connected is called after each time that the connection was made, Lost after each loss and each
	// attempt that failed, and Failed for an error that the connection survives.
	Connected func()
	Lost      func(error)
	Failed    func(error)
}

// A link is a connection with the server of a gate, which is made again after each loss.
type link struct {
	o    LinkOptions
	name string // of the user
	ctx  context.Context
	end  context.CancelFunc
	conn *nats.Conn
	lane *lane
	isUp atomic.Bool

	mu       sync.Mutex
	password string
}

// errNotConnected tells that a message was not published.
var errNotConnected = errors.New("bus: not connected")

// publish publishes a message soon.
func (l *link) publish(subject string, data []byte) error {
	if !l.isUp.Load() {
		return errNotConnected
	}
	return l.lane.add(outgoing{subject: subject, data: data})
}

func (l *link) connected() {
	l.isUp.Store(true)
	l.o.Connected()
}

func (l *link) lost(err error) {
	l.isUp.Store(false)
	l.o.Lost(err)
}

// IsConnected reports whether messages can be published.
func (l *link) IsConnected() bool { return l.isUp.Load() }

// connect returns after the first attempt to connect, also if it has failed.
func connect(ctx context.Context, name string, o LinkOptions) (*link, error) {
	l := &link{o: o, name: name}
	l.ctx, l.end = context.WithCancel(ctx)
	conn, err := nats.Connect("",
		nats.InProcessServer(l), nats.UserInfoHandler(l.user),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.CustomReconnectDelay(delay),
		nats.ReconnectBufSize(-1), // messages that are published without a connection are lost; stamps show that
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(maxPings), nats.FlusherTimeout(writeLimit),
		nats.ConnectHandler(func(*nats.Conn) { l.connected() }),
		nats.ReconnectHandler(func(*nats.Conn) { l.connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { l.lost(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { o.Failed(err) }),
	)
	if err != nil {
		l.end()
		return nil, fmt.Errorf("bus: %w", err)
	}
	l.conn, l.lane = conn, newLane(conn)
	return l, nil
}

// delay returns the pause before an attempt, of which the first has the number 1. It doubles with each attempt,
// and is random, so that the hosts of a gate do not all return at the same moment. The first one is short, because
// the clients of a host wait for it.
func delay(attempts int) time.Duration {
	d := min(retryMax, retryMin<<min(max(attempts-1, 0), 10))
	return d/2 + rand.N(d)
}

// InProcessConn implements nats.InProcessConnProvider.
func (l *link) InProcessConn() (net.Conn, error) {
	l.isUp.Store(false) // the call of lost may be late
	conn, password, err := l.o.Dial(l.ctx)
	if err != nil {
		l.o.Lost(err)
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.password = password
	return conn, nil
}

func (l *link) user() (user, password string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name, l.password
}

// Close ends the connection.
func (l *link) Close() {
	l.end()
	l.lane.close()
	l.conn.Close()
}

// A Host is a host's end of the bus.
type Host struct{ *link }

// Connect connects a host with one of its gates, now and after each loss, until Close is called.
func Connect(ctx context.Context, o HostOptions) (*Host, error) {
	l, err := connect(ctx, o.Key, o.LinkOptions)
	if err != nil {
		return nil, err
	}
	_, err = l.conn.Subscribe(prefixDown+o.Key+".*", func(m *nats.Msg) {
		o.Receive(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], m.Data)
	})
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("bus: %w", err)
	}
	return &Host{l}, nil
}

// Publish sends a message to the gate. It returns an error if the host is not connected.
func (h *Host) Publish(kind string, data []byte) error {
	return h.publish(prefixUp+h.name+"."+kind, data)
}

// A Peer is the connection of a gate with the server of another gate.
type Peer struct{ *link }

// ConnectPeer connects a gate with the server of another gate, now and after each loss, until Close is
// called. It calls receive for each message from or about a host of the other gate, one after the other.
func ConnectPeer(ctx context.Context, o LinkOptions, receive func(key, kind string, data []byte)) (*Peer, error) {
	l, err := connect(ctx, GateUser, o)
	if err != nil {
		return nil, err
	}
	if err := subscribeUp(l.conn, receive); err != nil {
		l.Close()
		return nil, fmt.Errorf("bus: %w", err)
	}
	return &Peer{l}, nil
}

// Publish sends a message to a host of the other gate.
func (p *Peer) Publish(key, kind string, data []byte) error {
	return p.publish(prefixDown+key+"."+kind, data)
}

// Tell sends a message to the other gate.
func (p *Peer) Tell(kind string, data []byte) error { return p.publish(prefixGates+kind, data) }
