// Package gate lets clients enter the hosts that have joined it.
//
// A client and a host both connect to the gate by TLS. If a client wants to enter a host, the gate sends
// the host a ticket over the bus. The host opens another connection and shows the ticket, and the gate
// copies the bytes of the client and the host to each other. It reads only the lengths of frames, so every
// request and attachment of the api works through a gate. Only of read-only viewers it reads the frames, because they
// share the output of a session (package crowd). Browsers connect to the same port: a connection that begins with an
// HTTP request receives the page, or becomes a WebSocket, whose messages are the frames of other clients.
//
// Several gates serve the same hosts. They have the same certificate, token of clients and members, and
// each is connected to the bus of every other one. A host is connected to one of them, and all of them
// receive its records. If a client is at another gate, the ticket contains the address of that gate, and the
// host opens the connection for the client there. So the bytes of a client cross one gate.
//
// A gate is replaced while it serves (handoff.go). The state of a TLS connection cannot be moved to another
// process, so the successor receives the listening sockets, and the old gate keeps its connections until
// the clients have left it. The successor is connected with the bus of the old gate meanwhile.
//
//	accept     accepts connections; one goroutine for each of them
//	bus        calls receive for each message of a host, and receiveGate for each of a gate, one after the other
//	keepPeer   one goroutine for each other gate: connects with its bus, and calls receive for its hosts
//	useCluster one goroutine, if the gate has a NATS cluster, over which all messages of gates go then (cluster.go)
//	control    answers the commands of the gate's user on a Unix socket; one goroutine for each
//	handoffs   offers this gate to a successor
//	drain      asks the clients to leave for the successor
//	tellSums   tells the other gates the sum of the members
//
// Invariant: before a connection has shown a token, a ticket or a key, it can make the gate hold at most
// one frame or message of 64 KiB, or one request, each for at most firstLimit. A ticket is valid once, for one host, for ticketLimit. When
// revoke returns, no connection of the host is left. When renewClientToken returns, no connection is left that
// has shown the token before. Both hold for the connections that an old gate has kept, too.
//
// With a policy, the policy identifies the clients (identity.go). The gate shows a client the hosts and
// sessions of its workspace, and tells the host its principal. The policy of the host decides about its requests.
//
// Not here: the api, the directory (package directory), and the files on disk (package credential).
package gate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/crowd"
	"holdfast/proxy/internal/fleet/directory"
	"holdfast/proxy/internal/fleet/goaway"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/proxy/internal/metrics"
	"holdfast/proxy/internal/web"
	"holdfast/proxy/internal/web/page"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// Limits and times of connections.
const (
	maxConns     = 16_384
	maxPerPeer   = 4096 // connections of one address, which may be that of many clients
	maxUnproven  = 512  // connections that have not shown a token, a ticket or a key
	maxDials     = 1024 // clients that wait for a host
	maxHostDials = 128  // of one host
	firstLimit   = 5 * time.Second
	nextLimit    = 30 * time.Second // for the next question about the directory
	writeLimit   = 10 * time.Second // for an answer
	ticketLimit  = 10 * time.Second
	dialAgain    = time.Second // until a dial is sent again
	askPause     = time.Second // between two requests for the roster of a host, and two lists of all members to a gate
	sumEvery     = 10 * time.Second
	returnLimit  = 5 * time.Second // after a takeover: for a host that is not connected yet
	returnWait   = time.Second     // for a host that was connected just now, and may connect with another gate
	returnPause  = 10 * time.Millisecond
)

// A Gate serves clients and hosts.
type Gate struct {
	ctx      context.Context
	o        Options
	store    *credential.Store
	address  string // of this gate
	log      zerolog.Logger
	now      func() time.Time // the clock of the system
	refusals logging.Limiter  // of log lines that strangers cause
	dir      *directory.Directory
	bus      *bus.Bus
	cluster  clusterState
	crowds   *crowd.Table // the viewers that share the output of a session
	clients  goaway.Set   // that exchange frames of the api with a host
	wg       sync.WaitGroup
	web      *web.Handler // serves the page, the metrics, and WebSockets up to their first message
	counts   counts

	webCertificate tls.Certificate

	stop         context.CancelFunc // of ctx
	listenAddr   net.Addr           // of the socket for clients and hosts
	returnsUntil time.Time          // until then, hosts may return from the gate before this one
	drainLimit   time.Duration
	recalled     chan struct{} // is closed if the successor demands that this gate ends at once
	recallOnce   sync.Once

	receiving sync.RWMutex // held for reading while a message of the bus is used
	isOver    bool         // no further message may be used; guarded by receiving

	changes sync.Mutex // held during a change of the members and its effects; locked before mu
	sum     string     // of the members, or "" if they have changed since it was computed

	mu       sync.Mutex
	isClosed bool
	conns    map[net.Conn]string   // every connection, with the key of its host, or ofClient, or ""
	unproven map[net.Conn]stranger // connections that have not shown a token, a ticket or a key
	accepted uint64                // number of connections that were added
	perPeer  map[string]int
	dials    map[string]*dial // by ticket
	hostDial map[string]int   // number of dials by the key of the host
	onBus    map[string]net.Conn
	told     map[string]uint64          // value of peerSets when a host was told the gates, by the key of the host
	roster   map[string]*rosterQuestion // by the key of the host
	budgets  map[string]*rate.Limiter   // by the key of the host
	peers    map[string]*peer           // by address
	gates    []string                   // of the last call of setPeers
	peerSets uint64                     // number of these calls
	isMoved  bool                       // a successor accepts connections
	link     net.Conn                   // of the successor with the bus, or nil
	left     map[string]bool            // keys of hosts that have left the gate before this one
}

// ofClient marks, in Gate.conns, the connection of a client whose token was right. It is no key of a host.
const ofClient = "client"

// ofGate marks the connection of another gate in the same way.
const ofGate = "other gate"

// A dial is a client that waits for its host.
type dial struct {
	key     string
	gate    string       // to which the host is connected
	arrived chan arrival // has room for the one arrival
}

// lostHost is the reason of an arrival if the host has lost its connection to the bus.
const lostHost = "it has lost its connection to the gate"

// An arrival is the connection of a host for a client, or the reason why there is none.
type arrival struct {
	conn   net.Conn
	reason string
	isLost bool // the host has lost its connection to the bus
}

// Options change how a gate serves. Their zero value is a gate without a policy.
type Options struct {
	NATS   bus.ClusterOptions // over which the gates exchange messages, unless its URL is ""
	Policy policy.Policy      // identifies clients and decides about their requests; nil: a client needs the token of clients, and may do everything
	// Now tells the times that are stored and told to other gates; nil: time.Now. Intervals within this process
	// do not use it, because the clock of the system may jump.
	Now func() time.Time
}

// Run serves on the sockets until ctx is done, or until a successor has taken over.
func Run(ctx context.Context, store *credential.Store, s Sockets, log zerolog.Logger, o Options) error {
	g, err := newGate(ctx, store, log, o)
	if err != nil {
		return err
	}
	defer g.close()
	return g.run(s)
}

// newGate returns a gate that knows its members and serves nothing yet.
func newGate(ctx context.Context, store *credential.Store, log zerolog.Logger, o Options) (*Gate, error) {
	address, err := store.Address()
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	g := &Gate{
		o: o, now: o.Now, store: store, address: address, log: log, dir: directory.New(address), crowds: crowd.New(log), drainLimit: goaway.DrainLimit, recalled: make(chan struct{}),
		conns: map[net.Conn]string{}, unproven: map[net.Conn]stranger{}, perPeer: map[string]int{}, dials: map[string]*dial{}, hostDial: map[string]int{},
		onBus: map[string]net.Conn{}, told: map[string]uint64{}, roster: map[string]*rosterQuestion{}, budgets: map[string]*rate.Limiter{}, peers: map[string]*peer{}, left: map[string]bool{},
	}
	g.counts.refusals, g.counts.dialFailures = map[string]uint64{}, map[string]uint64{}
	g.web = web.New(web.Config{
		Gate: &web.Gate{Token: store.ClientToken, Serve: g.serveSocket}, Page: true, Files: page.Files(), Log: log,
		Metrics: metrics.NewGate(version.String(), g.metrics).Text, Health: func(context.Context) error { return nil }, Refused: g.counts.refusedWeb,
	})
	if g.webCertificate, err = store.WebCertificate(address, time.Now()); err != nil {
		return nil, fmt.Errorf("certificate for browsers: %w", err)
	}
	g.ctx, g.stop = context.WithCancel(ctx)
	members, err := g.learn()
	if err != nil {
		return nil, err
	}
	fromHost := func(key, kind string, data []byte) {
		g.receive(address, key, kind, data)
		if c := g.cluster.conn.Load(); c != nil {
			_ = c.Announce(key, kind, data) // if it is lost, the other gates notice that
		}
	}
	if g.bus, err = bus.Start(fromHost, g.receiveGate); err != nil {
		return nil, err
	}
	if o.NATS.URL != "" {
		if err := g.useCluster(); err != nil {
			g.close()
			return nil, err
		}
	}
	g.setPeers(members.Addresses())
	g.wg.Go(g.tellSums)
	return g, nil
}

// learn adds the hosts in the store to the directory, and removes those that were revoked.
func (g *Gate) learn() (record.Members, error) {
	members, err := g.store.Members()
	if err != nil {
		return members, fmt.Errorf("read the hosts of the gate: %w", err)
	}
	for key := range members.Revoked {
		g.drop(key)
	}
	for name, h := range members.Hosts {
		g.dir.Join(h.Key, name)
	}
	return members, nil
}

// close ends the gate and all its connections.
func (g *Gate) close() {
	g.stop()
	g.closeAll() // first, so that no goroutine begins after Wait
	g.wg.Wait()
	g.crowds.Wait()
	g.bus.Close()
	g.receiving.Lock() // the bus may still call for messages that it had received
	defer g.receiving.Unlock()
	g.isOver = true
}

// run serves on the sockets until ctx is done, or until a successor has taken over and all clients have left.
func (g *Gate) run(s Sockets) error {
	offer := g.offer(s)
	stop := context.AfterFunc(g.ctx, func() {
		g.closeAll()
		offer.Finish() // a successor may have the sockets already
		_ = s.close()  // the released sockets stay open in the successor
	})
	defer stop()
	g.listenAddr = s.Listener.Addr()
	g.wg.Go(func() { g.control(s.Control) })
	g.watchSocket(s.Control)
	if s.Handoff != nil {
		g.watchSocket(s.Handoff)
		g.wg.Go(func() {
			if err := offer.Serve(g.ctx, s.Handoff); err != nil {
				g.log.Error().Err(err).Msg("this gate cannot be handed over any more")
			}
		})
	}
	gates, err := g.store.Gates()
	if err != nil {
		return err
	}
	g.log.Info().Str(logging.RemoteAddr, g.listenAddr.String()).Int(logging.Count, len(g.dir.Keys())).Int("gates", len(gates)).Str("fingerprint", g.store.Fingerprint()).Msg("gate serves")
	err = g.accept(s.Listener)
	if g.hasMoved() {
		<-g.ctx.Done() // drain ends it
	}
	if g.ctx.Err() != nil {
		err = nil
	}
	return err
}

// watchSocket lets the socket of a Control be bound again if its file was removed, until the Control is closed.
func (g *Gate) watchSocket(c Control) {
	l, ok := c.(*socket.Listener)
	if !ok {
		return
	}
	g.wg.Go(func() {
		l.Watch(g.ctx, func(rebound bool, err error) {
			g.log.Warn().Err(err).Bool("rebound", rebound).Str(logging.Path, l.Path()).Msg("path of the socket was removed")
		})
	})
}

// accept accepts connections until ln is closed.
func (g *Gate) accept(ln net.Listener) error {
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: g.certificate}
	for {
		raw, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) { // a successor is taking over
			time.Sleep(returnPause)
			continue
		}
		if err != nil { // no descriptor is free
			g.refusals.Of(g.log).Warn().Err(err).Msg("connection not accepted")
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if c, ok := raw.(*net.TCPConn); ok {
			_ = c.SetKeepAliveConfig(gate.KeepAlive()) // without the probes, a dead peer is noticed later
		}
		conn := tls.Server(raw, config)
		if why := g.add(conn); why != "" {
			g.counts.refused(string(gate.RefusedBusy))
			g.refusals.Of(g.log).Warn().Bool(logging.Security, true).Str(logging.RemoteAddr, raw.RemoteAddr().String()).Str("why", why).Msg("connection closed at once")
			_ = raw.Close() // an answer would need a handshake, for which accept cannot wait
			continue
		}
		g.wg.Go(func() { g.serve(conn) })
	}
}

// certificate returns the certificate of all gates for a client that compares its fingerprint, and the one for
// browsers for a client that offers a protocol of HTTP, or that does not know the keys of the former.
func (g *Gate) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if len(hello.SupportedProtos) > 0 || !slices.Contains(hello.SignatureSchemes, tls.Ed25519) {
		return &g.webCertificate, nil
	}
	c := g.store.Certificate()
	return &c, nil
}

// A stranger is a connection that has not shown a token, a ticket or a key.
type stranger struct {
	peer   string // its address
	number uint64 // of the connection; a later one has a higher number
}

// add counts a connection. It returns the reason if the connection exceeds a limit.
func (g *Gate) add(conn net.Conn) (why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	peer := peerOf(conn)
	switch {
	case g.isClosed:
		return "the gate is stopping"
	case len(g.conns) >= maxConns:
		return fmt.Sprintf("the gate has %d connections", maxConns)
	case g.perPeer[peer] >= maxPerPeer:
		return fmt.Sprintf("the address has %d connections", maxPerPeer)
	case len(g.unproven) >= maxUnproven && !g.makeRoom(peer):
		return fmt.Sprintf("%d connections have shown nothing yet", maxUnproven)
	}
	g.conns[conn] = ""
	g.perPeer[peer]++
	g.accepted++
	g.unproven[conn] = stranger{peer, g.accepted}
	return ""
}

// makeRoom closes the oldest connection of the address that has the most connections which have shown nothing, so that one
// address cannot keep all others out. It reports whether it did. If that address would not have more of them than peer
// afterwards, nothing is closed, because many hosts may connect at a time, and those that wait longest are the next ones
// to show their keys. mu is held.
func (g *Gate) makeRoom(peer string) bool {
	counts := map[string]int{}
	most := peer
	for _, s := range g.unproven {
		if counts[s.peer]++; counts[s.peer] > counts[most] {
			most = s.peer
		}
	}
	if counts[most] <= counts[peer]+1 {
		return false
	}
	var oldest net.Conn
	for conn, s := range g.unproven {
		if s.peer == most && (oldest == nil || s.number < g.unproven[oldest].number) {
			oldest = conn
		}
	}
	g.counts.refused(string(gate.RefusedBusy))
	g.refusals.Of(g.log).Warn().Bool(logging.Security, true).Str(logging.RemoteAddr, oldest.RemoteAddr().String()).
		Int(logging.Count, counts[most]).Msg("connection closed for one of another address, because it has shown nothing yet")
	_ = abort(oldest)
	delete(g.unproven, oldest)
	return true
}

// remove closes a connection and counts it no longer.
func (g *Gate) remove(conn net.Conn) {
	_ = conn.Close() // the peer may have closed it
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.conns[conn]; !ok {
		return
	}
	delete(g.conns, conn)
	delete(g.unproven, conn)
	peer := peerOf(conn)
	if g.perPeer[peer]--; g.perPeer[peer] == 0 {
		delete(g.perPeer, peer)
	}
}

func peerOf(conn net.Conn) string {
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	return host
}

// belongs notes that a connection belongs to a host, so that revoke closes it. It returns false if the
// host has been removed.
func (g *Gate) belongs(conn net.Conn, key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed || g.dir.Name(key) == "" {
		return false
	}
	g.conns[conn] = key
	return true
}

func (g *Gate) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isClosed = true
	for conn := range g.conns {
		_ = abort(conn)
	}
	if g.link != nil {
		_ = g.link.Close() // last, because it tells the successor that the others are closed
	}
}

// abort closes a connection without the wait of a TLS alert, for which a peer that does not read would
// make it wait.
func abort(conn net.Conn) error {
	conn = base(conn)
	if c, ok := conn.(*tls.Conn); ok {
		return c.NetConn().Close()
	}
	return conn.Close()
}

// base returns the connection that carries a WebSocket, or conn itself. The maps of a Gate contain base
// connections alone.
func base(conn net.Conn) net.Conn {
	if c, ok := conn.(*web.GateConn); ok {
		return c.Base()
	}
	return conn
}

// prove notes that the first frame of a connection has arrived.
func (g *Gate) prove(conn net.Conn) {
	g.mu.Lock()
	delete(g.unproven, base(conn))
	g.mu.Unlock()
}

// serve serves a connection from its first byte to its end. The first byte of a frame is 0, because it
// belongs to a length of at most MaxFirst; that of an HTTP request is a letter.
func (g *Gate) serve(conn *tls.Conn) {
	_ = conn.SetDeadline(time.Now().Add(firstLimit)) // if it fails, reading fails, too
	begin := make([]byte, 1)
	n, err := conn.Read(begin)
	if err == nil && n == 1 && begin[0] >= 'A' && begin[0] <= 'Z' {
		_ = conn.SetDeadline(time.Time{})
		g.web.ServeConn(g.ctx, conn, begin)
		g.remove(conn)
		return
	}
	var first protocol.Message
	if err == nil {
		first, err = gate.Read(io.MultiReader(bytes.NewReader(begin[:n]), conn), gate.MaxFirst)
	}
	g.prove(conn)
	_ = conn.SetDeadline(time.Time{})
	if first != nil && g.hasMoved() {
		g.passOn(conn, first)
		g.remove(conn)
		return
	}
	switch m := first.(type) {
	case *gate.Arrive: // the client's goroutine closes the connection
		if g.arrive(conn, m) {
			return
		}
	case *gate.Enter:
		g.enter(conn, m)
	case *gate.Hosts, *gate.Sessions:
		g.questions(conn, first, "")
	case *gate.Join:
		g.join(conn, m)
	case *gate.Bus:
		g.connectBus(conn, m)
	case *gate.Peer:
		g.connectPeer(conn, m)
	case *gate.Enlist:
		g.enlist(conn, m)
	case nil:
		g.refuseFirst(conn, err)
	default:
		g.refuse(conn, gate.RefusedInvalid, fmt.Sprintf("a connection cannot begin with %s", first.MessageType()))
	}
	g.remove(conn)
}

// serveSocket serves a WebSocket from its first message to its end. A message without a token has that of
// the cookie.
func (g *Gate) serveSocket(conn *web.GateConn, cookie string) {
	_ = conn.SetDeadline(time.Now().Add(firstLimit))
	first, err := gate.Read(conn, gate.MaxFirst)
	g.prove(conn)
	_ = conn.SetDeadline(time.Time{})
	switch m := first.(type) {
	case *gate.Enter:
		m.Token = cmp.Or(m.Token, cookie)
		if g.hasMoved() {
			g.passOn(conn, m)
		} else {
			g.enter(conn, m)
		}
	case *gate.Hosts, *gate.Sessions:
		g.questions(conn, first, cookie)
	case nil:
		g.refuseFirst(conn, err)
	default:
		g.refuse(conn, gate.RefusedInvalid, fmt.Sprintf("a WebSocket cannot begin with %s", first.MessageType()))
	}
	_ = conn.Close()
}

// refuseFirst refuses a connection whose first frame was not read. If the frame is only late, the peer may try again,
// because one of both may be short of processor time.
func (g *Gate) refuseFirst(conn net.Conn, err error) {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed): // by the peer, or by makeRoom
	case errors.Is(err, os.ErrDeadlineExceeded):
		g.refuse(conn, gate.RefusedBusy, fmt.Sprintf("the first frame has not arrived within %v; try again", firstLimit))
	default:
		g.refuse(conn, gate.RefusedInvalid, "the first frame is not valid: "+err.Error())
	}
}

// answer sends a message.
func (g *Gate) answer(conn net.Conn, m protocol.Message) error {
	_ = conn.SetWriteDeadline(time.Now().Add(writeLimit))
	err := gate.Write(conn, m)
	_ = conn.SetWriteDeadline(time.Time{})
	return err
}

// refuse tells the peer why it is refused, and logs that. It is a security event unless a client that the
// gate knows has named a host that is not there.
func (g *Gate) refuse(conn net.Conn, code gate.Refusal, why string) {
	g.counts.refused(string(code))
	isSecurity := code != gate.RefusedUnknownHost && code != gate.RefusedUnreachable
	g.refusals.Of(g.log).Warn().Bool(logging.Security, isSecurity).Str(logging.RemoteAddr, conn.RemoteAddr().String()).
		Str(logging.Code, string(code)).Str("why", why).Msg("connection refused")
	_ = conn.SetDeadline(time.Now().Add(firstLimit))
	_ = gate.Write(conn, gate.Refused{Code: code, Message: why}) // the peer may be gone
}

// questions answers questions about the directory until the client closes the connection. A question without
// a token has that of the cookie.
func (g *Gate) questions(conn net.Conn, m protocol.Message, cookie string) {
	for {
		switch m := m.(type) {
		case *gate.Hosts:
			m.Token = cmp.Or(m.Token, cookie)
		case *gate.Sessions:
			m.Token = cmp.Or(m.Token, cookie)
		}
		if g.hasMoved() {
			g.passOn(conn, m)
			return
		}
		var answer protocol.Message
		now := time.Now()
		switch m := m.(type) {
		case *gate.Hosts:
			principal, isClient := g.identify(conn, m.Token, m.UserToken)
			if !isClient || !g.mayAsk(conn, principal) {
				return
			}
			list, next := g.dir.Hosts(principal, m.After, now)
			for i := range list {
				if list[i].Gate == predecessor {
					list[i].Gate = g.address
				}
			}
			answer = gate.HostList{Hosts: list, Next: next}
		case *gate.Sessions:
			principal, isClient := g.identify(conn, m.Token, m.UserToken)
			if !isClient || !g.mayAsk(conn, principal) {
				return
			}
			rows, next := g.dir.Sessions(directory.Filter{Who: principal, ID: m.ID, Host: m.Host, State: protocol.State(m.State), Labels: m.Labels, Command: m.Command}, m.After, now)
			answer = gate.SessionList{Sessions: rows, Next: next}
		default:
			g.refuse(conn, gate.RefusedInvalid, fmt.Sprintf("%s is no question about the directory", m.MessageType()))
			return
		}
		if g.hasMoved() { // the hosts may have left this gate before it has looked, because the policy took its time
			g.passOn(conn, m)
			return
		}
		if g.answer(conn, answer) != nil {
			return
		}
		var err error
		_ = conn.SetReadDeadline(now.Add(nextLimit))
		if m, err = gate.Read(conn, gate.MaxFirst); err != nil {
			return
		}
	}
}

// join admits a host.
func (g *Gate) join(conn net.Conn, m *gate.Join) {
	_, err := g.change(func(now time.Time) (record.Members, error) { return g.store.Join(*m, now) })
	if err != nil {
		var r *gate.Refused
		if errors.As(err, &r) {
			g.refuse(conn, r.Code, r.Message)
		}
		return
	}
	g.log.Info().Bool(logging.Security, true).Str("host", m.Name).Str(logging.RemoteAddr, conn.RemoteAddr().String()).Msg("host joined")
	_ = g.answer(conn, gate.Joined{}) // if it is lost, the host joins again under the same name
}

// enter connects a client with a host.
func (g *Gate) enter(conn net.Conn, m *gate.Enter) {
	principal, isClient := g.identify(conn, m.Token, m.UserToken)
	if !isClient || !g.mayEnter(conn, principal, m) {
		return
	}
	// If the client were refused at once when the gate of its host has died, it would come again and again, and
	// the handshakes of all such clients would delay the hosts.
	returnsUntil := g.returnsUntil
	if now := time.Now(); now.Add(returnWait).After(returnsUntil) && g.dir.WasHeard(m.Host, now) {
		returnsUntil = now.Add(returnWait)
	}
	for {
		host, code, why, mayReturn := g.reach(principal, m)
		switch {
		case why == "":
			defer g.remove(host)
			if c, ok := conn.(*web.GateConn); ok {
				c.SetLimit(frame.Max)
			}
			if g.answer(conn, gate.Entered{}) == nil {
				g.spliceClient(conn, host, m, g.sharing(principal, m))
			}
		case g.hasMoved():
			g.passOn(conn, m)
		case mayReturn && time.Now().Before(returnsUntil):
			time.Sleep(returnPause)
			continue
		default:
			g.refuse(conn, code, why)
		}
		return
	}
}

// mayEnter reports whether a client may reach a host, or its agent, and refuses the connection otherwise.
func (g *Gate) mayEnter(conn net.Conn, principal *protocol.Principal, m *gate.Enter) bool {
	if m.Agent && principal != nil && !principal.All { // first, because the answer must not tell whether there is such a host
		g.refuseByPolicy(conn, policy.Event{Principal: policy.Principal(*principal)},
			policy.Refuse(policy.CodePermissionDenied, "only a user who sees all workspaces may act on a host itself"))
		return false
	}
	if key, _ := g.dir.Resolve(m.Host, time.Now()); key != "" && !g.dir.IsVisible(principal, m.Host) {
		g.refuseHidden(conn, principal, m.Host)
		return false
	}
	return true
}

// reach opens a connection with the host that a client wants to enter. mayReturn tells that the host is
// not connected to a gate.
func (g *Gate) reach(principal *protocol.Principal, m *gate.Enter) (host net.Conn, code gate.Refusal, why string, mayReturn bool) {
	key, at := g.dir.Resolve(m.Host, time.Now())
	switch {
	case key == "":
		return nil, gate.RefusedUnknownHost, unknownHost(m.Host), false
	case at == "" || at == predecessor && g.hasLeft(key):
		return nil, gate.RefusedUnreachable, fmt.Sprintf("host %s is not connected to the gate", m.Host), true
	case !g.dir.IsVisible(principal, m.Host): // mayEnter may have asked before the first record of the host, which tells its workspace
		g.noteHidden(principal)
		return nil, gate.RefusedUnknownHost, unknownHost(m.Host), false
	}
	host, code, why, mayReturn = g.dial(key, at, record.Dial{
		Ticket: protocol.NewToken(gate.TokenBytes), Start: m.Start && g.mayStart(principal), Again: m.Again, Agent: m.Agent, Principal: principal,
	})
	g.counts.dialed(why != "", code)
	if why != "" {
		why = fmt.Sprintf("host %s: %s", m.Host, why)
	}
	return host, code, why, mayReturn
}

// dial asks a host, which is connected to the gate at, for a connection, and waits for it.
func (g *Gate) dial(key, at string, m record.Dial) (conn net.Conn, code gate.Refusal, why string, isLost bool) {
	if at != g.address && at != predecessor {
		m.Gate = g.address
	}
	d := &dial{key, at, make(chan arrival, 1)}
	g.mu.Lock()
	if len(g.dials) >= maxDials || g.hostDial[key] >= maxHostDials {
		g.mu.Unlock()
		return nil, gate.RefusedBusy, "too many clients wait for it; try again", false
	}
	if !g.isAt(key, at) {
		g.mu.Unlock()
		return nil, gate.RefusedUnreachable, lostHost, true
	}
	g.dials[m.Ticket] = d
	g.hostDial[key]++
	g.mu.Unlock()
	message := record.Encode(m)
	err := g.publish(at, key, record.KindDial, message)
	late := time.NewTimer(ticketLimit)
	defer late.Stop()
	// The message is lost with a server of a NATS cluster, and the ticket with the connection of the host. A host ignores a
	// ticket with which it is busy.
	again := time.NewTicker(dialAgain)
	defer again.Stop()
	for err == nil {
		select {
		case a := <-d.arrived:
			return a.conn, gate.RefusedUnreachable, a.reason, a.isLost
		case <-again.C:
			_ = g.publish(at, key, record.KindDial, message) // the first message may have arrived
		case <-late.C:
			err = fmt.Errorf("no connection of it has arrived within %v", ticketLimit)
		}
	}
	if g.takeDial(m.Ticket) == nil { // it has arrived at the last moment
		a := <-d.arrived
		return a.conn, gate.RefusedUnreachable, a.reason, a.isLost
	}
	return nil, gate.RefusedUnreachable, err.Error(), false
}

// isAt reports whether a host is connected to the gate at, and can show a ticket to this gate. The caller may have asked the
// directory before a change after which failDials was called. mu is held.
func (g *Gate) isAt(key, at string) bool {
	return !g.isMoved && g.dir.Gate(key) == at && g.dir.IsGateReachable(at) && (at != predecessor || !g.hasLeftLocked(key))
}

// takeDial returns the dial of a ticket, which is invalid from then on, or nil.
func (g *Gate) takeDial(ticket string) *dial {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.dials[ticket]
	if d == nil {
		return nil
	}
	delete(g.dials, ticket)
	if g.hostDial[d.key]--; g.hostDial[d.key] == 0 {
		delete(g.hostDial, d.key)
	}
	return d
}

// arrive passes the connection of a host on to the client that waits for it. It reports whether it did.
func (g *Gate) arrive(conn net.Conn, m *gate.Arrive) bool {
	d := g.takeDial(m.Ticket)
	switch {
	case d == nil:
		g.refuse(conn, gate.RefusedUnauthorized, "the ticket is wrong, was used before, or has expired")
		return false
	case m.Reason != "":
		d.arrived <- arrival{reason: m.Reason[:min(len(m.Reason), 1<<10)]}
		return false
	case !g.belongs(conn, d.key):
		d.arrived <- arrival{reason: "the host was removed from the gate"}
		return false
	}
	d.arrived <- arrival{conn: conn}
	return true
}
