// Package member is the agent of a host that has joined its gates.
//
// The agent is a process of its own, because the state of a TLS connection cannot be moved to another
// process of Go, while a Unix socket can. It holds one connection for the bus, and one for each client,
// which it copies to the proxy's socket. A handoff of the proxy and an upgrade of the supervisor are
// therefore invisible to clients of the gate. Proxy and supervisor do not know the gate.
//
//	publish   owns the roster; sends all records, so that their stamps are in order
//	watch     follows the events of the local proxy, and sends lists to publish
//	client    one goroutine for each client of the gate
//
// An agent of another program can take over (handoff.go). It connects with the gates and the local proxy before the
// old agent ends, and the old agent asks its clients to connect again, through the new one.
//
// The agent is connected with the bus of one gate, and with another one as soon as that is lost. A gate
// tells it the addresses of all gates, which it keeps in its file. A client may wait at another gate than
// that of the bus.
//
// Invariant: the agent connects with gates whose certificate has the fingerprint that the user has named,
// at addresses that the user or such a gate has named. No other message can change that. If the local proxy
// cannot be reached, the last roster stays, and the record of the host tells that no proxy serves.
//
// Not here: the connection with the local proxy (the functions in Options), and the gate.
package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/goaway"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/logging"
	"holdfast/shared/version"
)

// Limits and times of the agent.
const (
	maxClients   = 1024
	maxOfUser    = 512                    // clients of one user of a policy, so that other users find room
	maxRefusing  = 16                     // clients that are told at the same time that there is no room
	dialLimit    = 10 * time.Second       // for a connection with the gate, and for its first messages
	watchPause   = time.Second            // after the local proxy was lost
	listPause    = 100 * time.Millisecond // between two lists of the sessions, at least
	listPauseMax = 2 * time.Second
	listEvery    = time.Minute            // after the last list, if nothing changes
	listShare    = 10                     // at most one part of so many of the time is spent on lists
	arrivePause  = 100 * time.Millisecond // after a connection for a client that has failed
	leavePause   = 20 * time.Millisecond  // before a leave is told again
	flushLimit   = 5 * time.Second
	refusedPause = time.Minute     // gates that refuse the host are asked again after this time
	rivalPause   = 5 * time.Second // between two connections, if another agent has the key of the host
)

// Options are the settings and functions that the agent needs of its program.
type Options struct {
	Path  string // of the file of the State
	Log   zerolog.Logger
	Leave <-chan chan error // a channel of it receives the result of the leave, or is closed if a successor must be asked
	Link  *Link             // the agent notes here whether it is connected; may be nil
	// Sockets are passed on to an agent that takes over. If they are nil, no agent can.
	Sockets *Sockets
	// Connect returns a client of the local proxy. It starts a proxy if a supervisor runs or sessions
	// are stored, unless a user has stopped the proxy.
	Connect func(ctx context.Context) (*client.Client, error)
	// Ready returns nil if the local proxy accepts connections. It starts a proxy as Connect does, and also if
	// starts is set. If again is not set, it also starts a proxy that a user has stopped.
	Ready func(ctx context.Context, starts, again bool) error
	// Serve connects a stream of the api's frames with the local proxy until one of them ends. If principal is
	// not nil, the gate has authenticated the client as this principal, and the proxy must treat it as such.
	Serve func(ctx context.Context, stream net.Conn, principal *protocol.Principal) error
	// Run runs a command on this host, and returns its exit code. It returns a *gate.Refused if clients of
	// the gate may not run it.
	Run func(ctx context.Context, args []string, stdout, stderr io.Writer) (exitCode int, err error)
	// Upgrade serves a client that asks for an upgrade of this host, until the conversation ends. ctx is that
	// of the agent.
	Upgrade func(ctx context.Context, stream net.Conn, request gate.Upgrade) error
}

// A Link tells whether the agent is connected with a gate.
type Link struct {
	mu     sync.Mutex
	isMade bool
	err    error // of the last loss or attempt
}

// Status reports whether the agent is connected, and otherwise the reason why it is not.
func (l *Link) Status() (isConnected bool, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return l.isMade, "it has not connected yet"
	}
	return false, l.err.Error()
}

func (l *Link) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isMade, l.err = err == nil, err
}

// ErrNoAnswer tells that a gate may have accepted a host, because the request was sent and the reply was
// lost, or the gate has failed to store all of it.
var ErrNoAnswer = errors.New("the gate may know this host now; repeat the command with the same text")

// Join makes the host of s known to the gates. secret is that of a join token, which is valid at the first
// gate of s alone. It may be repeated if the error matches ErrNoAnswer.
func Join(ctx context.Context, s State, secret string) error {
	_, key, err := s.pair()
	if err != nil {
		return err
	}
	conn, err := dialGate(ctx, s.Gates[0], s.Fingerprint)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = ask[*gate.Joined](conn, gate.Join{Secret: secret, Name: s.Name, Key: key})
	var refused *gate.Refused
	if err != nil && (!errors.As(err, &refused) || refused.Code == gate.RefusedBusy) {
		err = fmt.Errorf("%w; %w", err, ErrNoAnswer)
	}
	return err
}

func dialGate(ctx context.Context, address, fingerprint string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, _, err := gate.Dial(ctx, []string{address}, fingerprint)
	return conn, err
}

// ask sends a message and returns the answer, which must come within dialLimit.
func ask[T protocol.Message](conn net.Conn, m protocol.Message) (answer T, err error) {
	_ = conn.SetDeadline(time.Now().Add(dialLimit))
	if answer, err = gate.Ask[T](conn, m); err != nil {
		return answer, err
	}
	return answer, conn.SetDeadline(time.Time{})
}

// An agent is the running agent.
type agent struct {
	o     Options
	state State
	pair  nkeys.KeyPair
	key   string
	bus   *bus.Host
	say   func(kind string, data []byte) error // publishes a message on the bus
	end   context.CancelFunc                   // ends the agent
	wg    sync.WaitGroup

	wake    chan struct{} // the host's record must be published now
	rosters chan struct{} // the gate asks for the roster
	lists   chan list     // from watch
	places  places        // of the clients

	refusing chan struct{} // has an element for each client that is being told that it has no place
	commands chan struct{} // has an element for each command of a client that runs

	// refusedAt is the time of the first refusal since a gate has accepted this host, and notBefore that of the next attempt to
	// connect. dialBus alone uses them. The pause is not a part of the attempt that was refused, because serve waits for the
	// first attempt.
	refusedAt, notBefore time.Time

	leaving goaway.Set    // the clients of the local proxy
	visits  atomic.Int64  // number of connections of clients with the local proxy, also those that are being opened
	handed  chan struct{} // is closed when a successor has taken over
	// committed is closed when this agent has the sockets for itself.
	committed chan struct{}
	back      chan struct{} // a successor has failed after it may have published
	arrived   chan struct{} // is closed when the bus was connected for the first time
	once      sync.Once     // closes arrived

	mu        sync.Mutex
	denied    error           // the last refusal, so that it is logged once
	gates     []string        // addresses of all gates
	current   string          // address of the gate of the bus, or of the last one; "" before the first
	links     uint64          // number of times that the bus was connected
	tickets   map[string]bool // of the clients that are being connected, or are connected
	isOver    bool            // the host leaves, so that no successor may take over, and the file must not be written again
	isServing bool            // the local proxy serves, as far as publish knows
	isUnknown bool            // all gates have refused the key of the host since the last connection
	// moving is not nil while a successor is about to take over. It is closed when that is decided. Meanwhile this
	// agent does not connect again, because it would replace the connection of the successor, and does not write the
	// file, because the successor does.
	moving    chan struct{}
	successor Successor
}

// A list has the sessions of the local proxy, which watch sends to publish.
type list struct {
	isServing bool
	sessions  []protocol.SessionInfo // all sessions, if isServing is set
}

// Run runs the agent until ctx is done, the host leaves the gate, or a successor has taken over and the clients have
// left. In the last case, next is the successor.
func Run(ctx context.Context, o Options) (next *Successor, err error) {
	a, err := newAgent(o)
	if err != nil {
		return nil, err
	}
	close(a.committed)
	return a.serve(ctx)
}

const epochNotSaved = "epoch of the agent not saved"

// newAgent returns an agent with the next epoch of the host, and saves the epoch before the first message. If the epoch
// cannot be saved, for example because the disk is full, the agent serves nevertheless, because clients may come to make
// room. The next agent may then begin with the same epoch, and learnEpoch begins another one.
func newAgent(o Options) (*agent, error) {
	state, err := Load(o.Path)
	if err != nil {
		return nil, err
	}
	state.Epoch++
	if err := state.Save(o.Path); err != nil {
		o.Log.Error().Err(err).Msg(epochNotSaved)
	}
	if o.Link == nil {
		o.Link = &Link{}
	}
	a := &agent{
		o: o, state: state, gates: state.Gates, wake: make(chan struct{}, 1), rosters: make(chan struct{}, 1), lists: make(chan list), tickets: make(map[string]bool), refusing: make(chan struct{}, maxRefusing), commands: make(chan struct{}, maxCommands),
		handed: make(chan struct{}), committed: make(chan struct{}), back: make(chan struct{}, 1), arrived: make(chan struct{}),
	}
	a.pair, a.key, err = state.pair()
	return a, err
}

// serve does the work of Run.
func (a *agent) serve(ctx context.Context) (next *Successor, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer a.wg.Wait()
	defer cancel()
	a.end = cancel
	visiting, endVisits := context.WithCancel(ctx)
	defer endVisits()
	a.bus, err = bus.Connect(ctx, bus.HostOptions{
		Key: a.key, LinkOptions: bus.LinkOptions{Dial: a.dialBus, Connected: a.connected, Lost: a.lost, Failed: a.lost},
		Receive: func(kind string, data []byte) { a.receive(ctx, visiting, kind, data) },
	})
	if err != nil {
		return nil, err
	}
	defer a.bus.Close()
	a.say = a.bus.Publish
	a.o.Log.Info().Str("host", a.state.Name).Strs("gates", a.state.Gates).Msg("agent starts")
	if a.o.Sockets != nil {
		a.wg.Go(func() { a.serveHandoffs(ctx, cancel) })
	}
	watching, endWatch := context.WithCancel(ctx)
	defer endWatch()
	a.wg.Go(func() { a.watch(watching) })
	if a.o.Sockets != nil {
		a.watchSocket(watching, a.o.Sockets.Commands)
		a.watchSocket(watching, a.o.Sockets.Handoff)
	}
	a.signal(a.wake)
	a.publish(ctx)
	endWatch()
	select {
	case <-a.handed:
		a.bus.Close() // so that no client comes here any more
		go a.refuseLeaves(ctx)
		a.drain(ctx, endVisits)
		a.mu.Lock()
		defer a.mu.Unlock()
		return &a.successor, nil
	default:
		return nil, nil
	}
}

// signal sends to a channel that has room for one element, which then stands for both.
func (*agent) signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// dialBus opens a connection for the bus of the first gate that accepts the host. It proves the host's key.
func (a *agent) dialBus(ctx context.Context) (conn net.Conn, password string, err error) {
	if err := pause(ctx, time.Until(a.notBefore)); err != nil {
		return nil, "", err
	}
	if err := a.awaitDecision(ctx); err != nil {
		return nil, "", err
	}
	var accepted *gate.Accepted
	errs := gate.Reach(ctx, a.order(), a.state.Fingerprint, dialLimit, func(c net.Conn, address string) (err error) {
		if accepted, err = a.prove(c); err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		conn = c
		a.mu.Lock()
		a.current = address
		isFirst := a.links == 0
		a.links++
		a.mu.Unlock()
		a.learn(accepted.Gates)
		a.learnEpoch(accepted.Epoch, isFirst)
		return nil
	})
	if len(errs) == 0 {
		a.refusedAt = time.Time{}
		return conn, accepted.Password, nil
	}
	err = gate.JoinErrors(errs)
	isDenied := func(err error) bool {
		var refused *gate.Refused
		return errors.As(err, &refused) && refused.Code == gate.RefusedUnauthorized
	}
	if slices.ContainsFunc(errs, isDenied) { // and no other gate has accepted it
		isUnknown := !slices.ContainsFunc(errs, func(err error) bool { return !isDenied(err) })
		a.mu.Lock()
		a.isUnknown = isUnknown
		a.mu.Unlock()
		a.lost(err)
		if isUnknown && a.hasNoFile() { // a leave has removed it, and this agent was not asked, or its message was lost
			a.o.Log.Info().Msg("agent ends, because the gates do not know the host and the file of the join is gone")
			a.end()
		}
		now := time.Now()
		if a.refusedAt.IsZero() {
			a.refusedAt = now
		}
		wait := refusedPause // a revoked host must not ask every few seconds for ever
		if !isUnknown {      // a gate that is back soon may know the host
			wait = min(wait, now.Sub(a.refusedAt))
		}
		a.notBefore = now.Add(wait)
	}
	return nil, "", err
}

// order returns the gates in the order in which the agent tries them. The first attempt begins with the
// gate that the host has joined or that was first before, because the others may not know the host yet.
// Later ones are random, so that the hosts of a gate that dies spread over the others.
func (a *agent) order() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	gates := slices.Clone(a.gates)
	if a.current != "" {
		rand.Shuffle(len(gates), func(i, j int) { gates[i], gates[j] = gates[j], gates[i] })
	}
	return gates
}

// prove shows a gate that this host has the seed of its key.
func (a *agent) prove(conn net.Conn) (*gate.Accepted, error) {
	request := gate.Bus{Key: a.key}
	challenge, err := ask[*gate.Challenge](conn, request)
	if err != nil {
		return nil, err
	}
	signature, err := a.pair.Sign(gate.SignedText(request, a.state.Fingerprint, challenge.Nonce))
	if err != nil {
		return nil, err
	}
	return ask[*gate.Accepted](conn, gate.Proof{Signature: signature})
}

// learn takes the addresses of all gates from a gate, and keeps them in the file. The address of the
// current gate stays, because the gate may be reached from this host by that one alone.
func (a *agent) learn(gates []string) {
	if (record.Gates{Addresses: gates}).Check() != nil || len(gates) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	learned := slices.Clone(gates)
	if !slices.Contains(learned, a.current) {
		learned = append([]string{a.current}, learned...)
	}
	slices.SortStableFunc(learned, func(x, y string) int { // the order of the file stays
		return cmp.Compare(rank(a.gates, x), rank(a.gates, y))
	})
	if slices.Equal(learned, a.gates) || a.isOver || a.moving != nil {
		return
	}
	a.gates = learned
	if a.hasNoFile() { // a leave has removed it
		return
	}
	state := a.state
	state.Gates = learned
	if err := state.Save(a.o.Path); err != nil {
		a.o.Log.Error().Err(err).Msg("addresses of the gates not saved")
	}
}

// hasNoFile reports whether the file of the join is gone.
func (a *agent) hasNoFile() bool {
	_, err := Load(a.o.Path)
	return errors.Is(err, ErrNotJoined)
}

// learnEpoch begins an epoch after the last one that a gate knows, if that is not an earlier one of this agent. The file
// has an older epoch than the gate if the host was restored from a backup or a snapshot, or if its disk was full. The gate would then ignore the
// records of this agent. Before the first connection of this agent, an equal epoch is that of another agent, too. If the gate
// knows a later epoch afterwards, another agent with the same key has connected meanwhile. dialBus calls learnEpoch.
func (a *agent) learnEpoch(known uint64, isFirst bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known < a.state.Epoch || known == a.state.Epoch && !isFirst || a.isOver || a.moving != nil {
		return
	}
	if isFirst {
		a.o.Log.Warn().Uint64("epoch", a.state.Epoch).Uint64("known", known).Msg("the gate knows this epoch of the host or a later one, because the file of the join was restored or was not saved; the agent begins another epoch")
	} else { // both agents would take the connection from each other many times a second
		a.o.Log.Warn().Bool(logging.Security, true).Uint64("epoch", a.state.Epoch).Uint64("known", known).Msg("another agent has the key of this host, for example on a copy of its machine; delete the file of the join there, and join again")
		a.notBefore = time.Now().Add(rivalPause)
	}
	a.beginEpoch(known)
}

// beginEpoch begins an epoch after known and after that of the file, and saves it. mu must be held.
func (a *agent) beginEpoch(known uint64) {
	a.state.Epoch = max(a.state.Epoch, known)
	written, err := Load(a.o.Path)
	if err == nil {
		a.state.Epoch = max(a.state.Epoch, written.Epoch)
	}
	a.state.Epoch++
	if err == nil {
		written.Epoch = a.state.Epoch
		err = written.Save(a.o.Path)
	}
	if err != nil {
		a.o.Log.Error().Err(err).Msg(epochNotSaved)
	}
}

// epoch returns the epoch of this agent.
func (a *agent) epoch() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.Epoch
}

// rank returns the index of s in list, or its length.
func rank(list []string, s string) int {
	if i := slices.Index(list, s); i >= 0 {
		return i
	}
	return len(list)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *agent) connected() {
	a.o.Link.set(nil)
	a.mu.Lock()
	a.denied, a.isUnknown = nil, false
	a.mu.Unlock()
	a.o.Log.Info().Msg("connected with the gate")
	a.signal(a.wake)
	a.once.Do(func() { close(a.arrived) })
}

// lost logs the first of several errors with the same text.
func (a *agent) lost(err error) {
	if err == nil {
		err = errors.New("the connection has ended")
	}
	a.o.Link.set(err)
	a.mu.Lock()
	isNew := a.denied == nil || a.denied.Error() != err.Error()
	a.denied = err
	a.mu.Unlock()
	if isNew {
		a.o.Log.Warn().Err(err).Msg("gate not connected; the agent tries again")
	}
}

// receive takes a message of the gate. visiting is the context of the connections of clients with the local proxy, and
// ctx that of requests to this agent.
func (a *agent) receive(ctx, visiting context.Context, kind string, data []byte) {
	switch kind {
	case record.KindHello:
		a.signal(a.wake)
	case record.KindRoster:
		a.signal(a.rosters)
	case record.KindGates:
		m, err := record.Decode[record.Gates](data)
		if err != nil {
			a.o.Log.Warn().Err(err).Msg("message of the gate ignored")
			return
		}
		a.learn(m.Addresses)
	case record.KindDial:
		m, err := record.Decode[record.Dial](data)
		if err != nil {
			a.o.Log.Warn().Err(err).Msg("message of the gate ignored")
			return
		}
		address, isKnown := a.addressOf(m)
		if !isKnown {
			a.o.Log.Warn().Bool(logging.Security, true).Str("gate", m.Gate).Msg("client refused: it waits at an unknown gate")
			return
		}
		if !a.beginTicket(m.Ticket) {
			return // a gate sends a ticket again if no connection arrives
		}
		leave, why := a.places.enter(m.Principal)
		if why != "" {
			a.o.Log.Warn().Str("why", why).Msg("client refused")
			a.tellRefused(ctx, address, gate.Arrive{Ticket: m.Ticket, Reason: why})
			return
		}
		if !m.Agent {
			ctx = visiting
			a.visits.Add(1)
		}
		a.wg.Go(func() {
			a.client(ctx, address, m)
			a.endTicket(m.Ticket)
			if !m.Agent {
				a.visits.Add(-1)
			}
			leave()
		})
	}
}

// tellRefused tells a client why it has no place, unless too many others are being told. Such a client receives its
// ticket again, or waits until its gate gives up.
func (a *agent) tellRefused(ctx context.Context, address string, m gate.Arrive) {
	select {
	case a.refusing <- struct{}{}:
	default:
		a.endTicket(m.Ticket)
		return
	}
	a.wg.Go(func() {
		defer func() { <-a.refusing }()
		defer a.endTicket(m.Ticket)
		if conn, err := a.arrive(ctx, address, m); err == nil {
			_ = conn.Close()
		}
	})
}

// beginTicket notes a ticket until endTicket is called. It returns false if the ticket is noted already.
func (a *agent) beginTicket(ticket string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tickets[ticket] {
		return false
	}
	a.tickets[ticket] = true
	return true
}

func (a *agent) endTicket(ticket string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tickets, ticket)
}

// addressOf returns the address of the gate at which a client waits, and whether it is one of the gates.
func (a *agent) addressOf(m record.Dial) (address string, isKnown bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.Gate == "" {
		return a.current, true
	}
	return m.Gate, slices.Contains(a.gates, m.Gate)
}

// client connects the client that has a ticket at the gate of an address with the local proxy, or with this
// agent.
func (a *agent) client(ctx context.Context, address string, m record.Dial) {
	arrive := gate.Arrive{Ticket: m.Ticket}
	if !m.Agent {
		if err := a.o.Ready(ctx, m.Start, m.Again); err != nil {
			arrive.Reason = err.Error()
		}
	}
	conn, err := a.arrive(ctx, address, arrive)
	if err != nil {
		a.o.Log.Warn().Err(err).Msg("client not reached")
		return
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if arrive.Reason != "" {
		return
	}
	serve := a.answer
	if !m.Agent {
		to := goaway.NewWriter(conn, "the agent of the host is replaced", func() { _ = conn.Close() })
		defer a.leaving.Add(to)()
		serve = func(ctx context.Context, conn net.Conn) error { return a.o.Serve(ctx, visit{conn, to}, m.Principal) }
	}
	if err := serve(ctx, conn); err != nil && ctx.Err() == nil {
		a.o.Log.Debug().Err(err).Msg("connection of a client has ended")
	}
}

// A visit is the connection of a client whose frames are written through a goaway.Writer.
type visit struct {
	net.Conn
	to io.Writer
}

func (v visit) Write(p []byte) (int, error) { return v.to.Write(p) }

// arrive connects with the gate at which a client waits, and shows the ticket. If the connection cannot be made, or
// breaks before the ticket is sent, it tries again, because the client waits as long as the ticket is valid.
func (a *agent) arrive(ctx context.Context, address string, m gate.Arrive) (conn net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	for {
		if conn, err = dialGate(ctx, address, a.state.Fingerprint); err == nil {
			_ = conn.SetWriteDeadline(time.Now().Add(dialLimit)) // if it fails, writing fails, too
			if err = gate.Write(conn, m); err == nil {
				return conn, conn.SetWriteDeadline(time.Time{})
			}
			_ = conn.Close()
		}
		if pause(ctx, arrivePause) != nil {
			return nil, err
		}
	}
}

// watch sends the sessions of the local proxy to publish, after each event that may change a record.
func (a *agent) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := a.follow(ctx); err != nil && ctx.Err() == nil {
			a.o.Log.Debug().Err(err).Msg("local proxy not reached")
			a.send(ctx, list{})
		}
		_ = pause(ctx, watchPause)
	}
}

func (a *agent) send(ctx context.Context, l list) {
	select {
	case a.lists <- l:
	case <-ctx.Done():
	}
}

// follow follows the events of the local proxy until it cannot be reached.
func (a *agent) follow(ctx context.Context) error {
	c, err := a.o.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	events, err := c.Events(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			e, err := events.Next()
			if err != nil {
				cancel(err)
				return
			}
			if changesRecord(e.Event) {
				a.signal(changed)
			}
		}
	}()
	defer func() {
		_ = events.Close()
		<-ended
	}()
	for {
		begun := time.Now()
		sessions, err := c.List(ctx, "")
		if err != nil {
			return err
		}
		took := time.Since(begun)
		a.send(ctx, list{true, sessions})
		select {
		case <-changed: // many events come together, for example when all clients of a gate connect again
			_ = pause(ctx, max(listPause, min((listShare-1)*took, listPauseMax)))
		case <-time.After(listEvery): // a session that the machine has lost may be listed without an event
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// changesRecord reports whether an event may change the record of a session. Many events do not: a busy shell sends some for
// each command.
func changesRecord(kind protocol.EventKind) bool {
	switch kind {
	case protocol.EventAttached, protocol.EventDetached, protocol.EventCwd, protocol.EventBell, protocol.EventNotification,
		protocol.EventFrozen, protocol.EventThawed, protocol.EventRecordingFailed, protocol.EventRecordingResumed,
		protocol.EventOutputIdle, protocol.EventCommandStarted, protocol.EventCommandFinished, protocol.EventProgramStatus:
		return false
	}
	return true
}

// publish sends records until ctx is done, the host leaves, or a successor has taken over.
//
// It answers a question for the roster only after it has received the sessions of the local proxy for the first time. The
// roster is empty before, and a gate that received it would delete the sessions, which live on while the proxy is stopped
// or while an agent takes over from another one.
func (a *agent) publish(ctx context.Context) {
	r, isServing := newRoster(a.epoch()), false
	var rosters <-chan struct{} // a.rosters after the first list
	tick := time.NewTicker(record.Every)
	defer tick.Stop()
	host := func() {
		a.put(record.KindHost, record.Encode(record.Host{
			Stamp: r.next(), Link: a.link(), Release: version.String(), System: runtime.GOOS + "/" + runtime.GOARCH, Labels: a.state.Labels,
			IsServing: isServing, CPUs: runtime.NumCPU(), Count: len(r.sessions), Sum: r.sum.String(), IsUnlisted: rosters == nil,
		}))
	}
	for {
		select {
		case l := <-a.lists:
			if l.isServing {
				rosters = a.rosters
				for _, change := range r.update(l.sessions) {
					a.put(record.KindChange, record.Encode(change))
				}
			}
			if l.isServing != isServing {
				isServing = l.isServing
				a.mu.Lock()
				a.isServing = isServing
				a.mu.Unlock()
				host()
			}
		case <-rosters:
			for _, piece := range r.pieces() {
				a.put(record.KindPiece, record.Encode(piece))
			}
		case <-a.wake:
			r.begin(a.epoch()) // it is a later one if the gate that was just connected knows one
			host()
		case <-tick.C:
			host()
		case result := <-a.o.Leave:
			if !a.beginLeave(ctx) {
				close(result)
				return
			}
			err := a.sayLeave(ctx)
			a.o.Log.Info().Err(err).Msg("host leaves the gate")
			result <- err
			return
		case <-a.back:
			r.begin(a.nextEpoch())
			host()
		case <-a.handed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sayLeave tells the gate that the host leaves, until the gates do not know the host any more. A gate that has removed the
// host closes the connection, and refuses the next one. A gate that has only received the message may end before it has
// removed the host. After flushLimit, sayLeave returns an error.
func (a *agent) sayLeave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushLimit)
	defer cancel()
	for !a.isForgotten() {
		err := a.bus.Publish(record.KindLeave, nil)
		if pause(ctx, leavePause) == nil {
			continue
		}
		if isConnected, reason := a.o.Link.Status(); !isConnected {
			err = errors.New(reason)
		}
		return cmp.Or(err, errors.New("the gate does not answer"))
	}
	return nil
}

// isForgotten reports whether no gate knows this host any more.
func (a *agent) isForgotten() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.isUnknown
}

// link returns the number of times that the bus was connected.
func (a *agent) link() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.links
}

// put publishes a message. A message that is lost is noticed by the gate, which asks for the roster.
func (a *agent) put(kind string, data []byte) {
	if err := a.say(kind, data); err != nil {
		a.o.Log.Debug().Err(err).Str(logging.Kind, kind).Msg("the record was not published")
	}
}
