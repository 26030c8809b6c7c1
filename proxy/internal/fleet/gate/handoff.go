package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// HandoffSocket is the name of the socket on which a gate offers itself to a successor.
const HandoffSocket = "gate.handoff.sock"

const (
	trialPause = 20 * time.Millisecond // between two questions to a successor
	endedPause = time.Second           // for the end of the gate before this one to be noticed
)

// The names of the files that a gate offers.
const (
	filesListener = "gate"
	filesControl  = "control"
	filesHandoff  = "handoff"
)

// records is the version of the states of connections. A gate passes on none.
var records = protocol.VersionRange{Min: 1, Max: 1}

// A trial is the address at which a successor serves before it takes over.
type trial struct {
	Address string `json:"address"` // 127.0.0.1:PORT
}

// Sockets are the listening sockets of a gate.
type Sockets struct {
	Listener net.Listener
	Control  Control
	Handoff  *socket.Listener // nil: the gate has no successor
}

func (s Sockets) close() error {
	err := errors.Join(s.Listener.Close(), s.Control.Close())
	if s.Handoff != nil {
		err = errors.Join(err, s.Handoff.Close())
	}
	return err
}

// release closes the descriptors of this process. The successor has its own.
func (s Sockets) release() error {
	err := errors.Join(s.Listener.Close(), s.Handoff.Release())
	if l, ok := s.Control.(*socket.Listener); ok {
		err = errors.Join(err, l.Release())
	}
	return err
}

// files returns duplicates of the sockets, which the caller must close.
func (s Sockets) files() (groups []handoff.Group, files []*os.File, err error) {
	listener, isListener := s.Listener.(syscall.Conn)
	control, isControl := s.Control.(*socket.Listener)
	if !isListener || !isControl {
		return nil, nil, errors.New("the sockets of this gate cannot be passed on")
	}
	add := func(name string, some []*os.File, addErr error) {
		groups, files, err = append(groups, handoff.Group{Name: name, Files: len(some)}), append(files, some...), errors.Join(err, addErr)
	}
	f, dupErr := machine.Duplicate(listener, "gate")
	if dupErr == nil {
		add(filesListener, []*os.File{f}, nil)
	}
	some, filesErr := control.Files()
	add(filesControl, some, errors.Join(dupErr, filesErr))
	some, filesErr = s.Handoff.Files()
	add(filesHandoff, some, filesErr)
	if err != nil {
		for _, f := range files {
			_ = f.Close() // err is returned
		}
	}
	return groups, files, err
}

// offer returns what this gate offers to successors.
func (g *Gate) offer(s Sockets) *handoff.Offer {
	var state []byte
	return &handoff.Offer{
		Files: func() ([]handoff.Group, []*os.File, error) {
			g.counts.handoffs.Add(1)
			if g.o.NATS.URL != "" { // both gates would have one address in the cluster
				return nil, nil, protocol.Errorf(protocol.CodeUnsupported, "a gate with a NATS cluster cannot be handed over; end it and start it again")
			}
			if !g.isAlone() {
				return nil, nil, protocol.Errorf(protocol.CodeLimitExceeded, "the gate before this one still moves its clients; try again in a minute")
			}
			return s.files()
		},
		Records:  records,
		Look:     g.tryOut,
		Move:     func(handoff.Pass) (int, error) { g.setMoved(s, true); return 0, nil },
		State:    func() []byte { state = g.web.TakeTickets(); return state },
		Back:     func() { _ = g.web.AddTickets(state); state = nil; g.setMoved(s, false) }, // they are its own tickets
		Leave:    func(isHanded bool) { g.leave(s, isHanded) },
		SignOut:  func() error { return errors.New("a gate has no browsers") },
		Settings: func() json.RawMessage { return nil },
		Build:    version.String(),
		Log:      g.log,
	}
}

// issueTicket returns a ticket for a browser. It returns errMoved if a successor serves, which would not know the ticket.
func (g *Gate) issueTicket() (string, error) {
	g.changes.Lock() // as in setMoved, after which the tickets are taken
	defer g.changes.Unlock()
	if g.hasMoved() {
		return "", errMoved
	}
	return g.web.Ticket()
}

// tryOut asks the successor, which serves at the address of a trial, for its hosts. It returns an error
// unless the successor reaches each host that this gate reaches, and knows as many of its sessions.
func (g *Gate) tryOut(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	var t trial
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, fmt.Errorf("the address of the successor: %w", err)
	}
	entry, err := g.store.ClientEntry()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handoff.Timeout/2)
	defer cancel()
	for {
		missing, err := g.missing(ctx, t.Address, entry.Secret)
		if err != nil {
			return nil, fmt.Errorf("the successor does not serve: %w", err)
		}
		if missing == "" {
			return nil, nil
		}
		select {
		case <-time.After(trialPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("the successor does not reach host %s, which this gate reaches", missing)
		}
	}
}

// missing returns the name of a host that this gate reaches and the gate at address does not, or "".
func (g *Gate) missing(ctx context.Context, address, token string) (name string, err error) {
	conn, _, err := gate.Dial(ctx, []string{address}, g.store.Fingerprint())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = abort(conn) })
	defer stop()
	theirs := map[string]gate.HostInfo{}
	for after := ""; ; {
		page, err := gate.Ask[*gate.HostList](conn, gate.Hosts{Token: token, After: after})
		if err != nil {
			return "", err
		}
		for _, h := range page.Hosts {
			theirs[h.Name] = h
		}
		if after = page.Next; after == "" {
			break
		}
	}
	for after := ""; ; {
		page, next := g.dir.Hosts(nil, after, time.Now())
		for _, h := range page {
			hasLeft := h.Gate == predecessor // the gate before has ended, and the host is not connected with this one yet
			if t := theirs[h.Name]; h.IsReachable && !hasLeft && (!t.IsReachable || t.Sessions != h.Sessions) {
				return h.Name, nil
			}
		}
		if after = next; after == "" {
			return "", nil
		}
	}
}

// setMoved tells whether a successor accepts connections. The connections that this gate has accepted and
// that have no host yet are passed on to it.
func (g *Gate) setMoved(s Sockets, isMoved bool) {
	g.changes.Lock()
	defer g.changes.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isMoved = isMoved
	deadline := time.Time{}
	if isMoved {
		deadline = time.Unix(1, 0)
	}
	if l, ok := s.Listener.(interface{ SetDeadline(time.Time) error }); ok {
		_ = l.SetDeadline(deadline) // if it fails, both gates accept connections
	}
}

// hasMoved reports whether a successor accepts connections.
func (g *Gate) hasMoved() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isMoved
}

// passOn connects a peer with the gate that serves at this gate's socket now, and sends it the first message.
// Hosts and other gates connect again by themselves, so that this gate does not stay for them.
func (g *Gate) passOn(conn net.Conn, first protocol.Message) {
	switch first.(type) {
	case *gate.Bus, *gate.Peer:
		return
	}
	ctx, cancel := context.WithTimeout(g.ctx, peerLimit)
	defer cancel()
	next, _, err := gate.Dial(ctx, []string{loopback(g.listenAddr)}, g.store.Fingerprint())
	if err != nil {
		g.log.Warn().Err(err).Str(logging.RemoteAddr, conn.RemoteAddr().String()).Msg("connection not passed on to the successor")
		return
	}
	defer func() { _ = next.Close() }()
	enter, isClient := first.(*gate.Enter)
	if !isClient {
		if g.answer(next, first) == nil {
			splice(conn, next)
		}
		return
	}
	_ = next.SetDeadline(time.Now().Add(2 * ticketLimit)) // if it fails, reading fails, too
	entered, err := gate.Ask[*gate.Entered](next, *enter)
	var refused *gate.Refused
	if errors.As(err, &refused) {
		_ = g.answer(conn, *refused) // the successor has logged it
	}
	if err != nil || g.answer(conn, *entered) != nil {
		return
	}
	_ = next.SetDeadline(time.Time{})
	g.spliceClient(conn, next, enter, copyBoth) // not earlier, because the client expects goaway only after entered
}

// loopback returns an address at which this machine reaches a listener.
func loopback(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	if tcp.IP.To4() != nil {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return fmt.Sprintf("[::1]:%d", tcp.Port)
}

// leave ends the gate. If a successor serves, the gate first asks the hosts, the other gates and the
// clients to connect again, and waits for that.
func (g *Gate) leave(s Sockets, isHanded bool) {
	if !isHanded {
		g.stop()
		return
	}
	_ = s.release() // a socket that is not released ends with this process
	g.mu.Lock()
	g.failDials(func(*dial) bool { return true }) // their clients are passed on
	for conn, owner := range g.conns {
		if owner == ofGate || g.onBus[owner] == conn {
			_ = abort(conn)
		}
	}
	g.mu.Unlock()
	g.wg.Go(func() {
		g.drain()
		g.stop()
	})
}

// drain asks all clients to leave, and returns when all connections have ended, or after drainLimit.
func (g *Gate) drain() {
	ctx, cancel := context.WithTimeout(g.ctx, g.drainLimit)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	g.wg.Go(func() {
		select {
		case <-g.recalled:
			cancel()
		case <-stop:
		}
	})
	begin := time.Now()
	asked := g.clients.Drain(ctx, g.wg.Go, func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.conns)
	})
	g.mu.Lock()
	count := len(g.conns)
	g.mu.Unlock()
	g.log.Info().Int(logging.Count, asked).Int("closed", count).Dur("took", time.Since(begin)).Msg("clients have left for the successor")
}
