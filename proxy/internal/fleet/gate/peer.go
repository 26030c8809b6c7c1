package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/logging"
)

// peerLimit is the time for a connection with another gate, and for its first messages.
const peerLimit = 10 * time.Second

// A peer is another gate of the same hosts.
type peer struct {
	address string
	end     context.CancelFunc
	dial    func(ctx context.Context) (conn net.Conn, password string, err error)
	ended   chan struct{} // of the predecessor: is closed after the connection was lost

	mu     sync.Mutex
	link   peerLink  // nil before the first attempt to connect has ended
	reason string    // why the last attempt has failed
	sentAt time.Time // when this gate has sent it all members
}

// A peerLink is the way to another gate and its hosts.
type peerLink interface {
	Publish(key, kind string, data []byte) error
	Tell(kind string, data []byte) error
	IsConnected() bool
}

var errNoLink = errors.New("the other gate is not connected")

func (p *peer) publish(key, kind string, data []byte) error {
	link, err := p.current()
	if err != nil {
		return err
	}
	return link.Publish(key, kind, data)
}

func (p *peer) tell(kind string, data []byte) error {
	link, err := p.current()
	if err != nil {
		return err
	}
	return link.Tell(kind, data)
}

func (p *peer) current() (peerLink, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil {
		return nil, errNoLink
	}
	return p.link, nil
}

// setPeers keeps a connection with each of the gates, and tells the hosts of this gate their addresses.
func (g *Gate) setPeers(gates []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed {
		return
	}
	g.gates = gates
	g.peerSets++
	for address, p := range g.peers {
		if address != predecessor && !slices.Contains(gates, address) {
			p.end()
			delete(g.peers, address)
		}
	}
	for _, address := range gates {
		if address == g.address || g.peers[address] != nil {
			continue
		}
		ctx, end := context.WithCancel(g.ctx)
		p := &peer{address: address, end: end, dial: func(ctx context.Context) (net.Conn, string, error) { return g.dialPeer(ctx, address) }}
		g.peers[address] = p
		if g.o.NATS.URL == "" {
			g.wg.Go(func() { g.keepPeer(ctx, p) })
			continue
		}
		p.link = clusterLink{g, address}
		p.end = func() {
			end()
			g.dir.SetGate(address, false)
		}
		if c := g.cluster.conn.Load(); c != nil && c.IsConnected() {
			g.wg.Go(func() { g.greet(p) })
		}
	}
	for key := range g.onBus {
		_ = g.bus.Publish(key, record.KindGates, record.Encode(record.Gates{Addresses: gates})) // a host that has not subscribed yet learns them after its next record
	}
}

// keepPeer keeps a connection with the bus of another gate until ctx is done.
func (g *Gate) keepPeer(ctx context.Context, p *peer) {
	defer p.end()
	connected := make(chan struct{}, 1)
	link, err := bus.ConnectPeer(ctx, bus.LinkOptions{
		Dial: p.dial,
		Connected: func() {
			select {
			case connected <- struct{}{}:
			default:
			}
		},
		Lost:   func(err error) { g.lostPeer(p, err) },
		Failed: func(err error) { g.log.Warn().Err(err).Str("gate", p.address).Msg("messages of another gate lost") },
	}, func(key, kind string, data []byte) { g.receive(p.address, key, kind, data) })
	if err != nil {
		g.log.Error().Err(err).Str("gate", p.address).Msg("other gate not connected")
		return
	}
	defer func() {
		link.Close()
		g.lostPeer(p, errors.New("the gate was removed"))
	}()
	p.mu.Lock()
	p.link = link
	p.mu.Unlock()
	for {
		select {
		case <-connected:
			g.greet(p)
		case <-ctx.Done():
			return
		}
	}
}

// greet begins to use a new connection with another gate. The hosts there publish their records, because
// the last ones have not come over this connection.
func (g *Gate) greet(p *peer) {
	p.mu.Lock()
	p.reason, p.sentAt = "", time.Time{}
	p.mu.Unlock()
	link, err := p.current()
	g.mu.Lock()
	// If the connection was lost already, disconnectPeer may have been called, and would not be called again soon.
	isCurrent := g.peers[p.address] == p && err == nil && link.IsConnected()
	if isCurrent {
		g.dir.SetGate(p.address, true)
	}
	g.mu.Unlock()
	if !isCurrent {
		return
	}
	g.log.Info().Str("gate", p.address).Msg("connected with another gate")
	g.tellSum(p)
	for _, key := range g.dir.Keys() {
		if p.publish(key, record.KindHello, nil) != nil {
			return // the next connection begins again
		}
	}
}

// lostPeer notes that another gate cannot be reached. It logs the first of several errors with the same
// text.
func (g *Gate) lostPeer(p *peer, err error) {
	if p.address == predecessor {
		g.predecessorEnded(p)
		return
	}
	reason := fmt.Sprint(err)
	p.mu.Lock()
	isNew := p.reason != reason
	p.reason = reason
	p.mu.Unlock()
	g.disconnectPeer(p)
	if isNew && g.ctx.Err() == nil {
		g.log.Warn().Err(err).Str("gate", p.address).Msg("other gate not connected; this gate tries again")
	}
}

// disconnectPeer makes the hosts of another gate unreachable.
func (g *Gate) disconnectPeer(p *peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.peers[p.address]; now == nil || now == p { // otherwise the gate was removed and added again
		g.dir.SetGate(p.address, false)
		g.failDials(func(d *dial) bool { return d.gate == p.address })
	}
}

// dialPeer opens a connection for the bus of another gate. The fingerprint proves the other gate, and a
// signature proves this one.
func (g *Gate) dialPeer(ctx context.Context, address string) (conn net.Conn, password string, err error) {
	ctx, cancel := context.WithTimeout(ctx, peerLimit)
	defer cancel()
	if conn, _, err = gate.Dial(ctx, []string{address}, g.store.Fingerprint()); err != nil {
		return nil, "", err
	}
	_ = conn.SetDeadline(time.Now().Add(peerLimit))
	request := gate.Peer{Address: g.address}
	challenge, err := gate.Ask[*gate.Challenge](conn, request)
	var accepted *gate.Accepted
	if err == nil {
		var signature []byte
		if signature, err = g.store.Sign(gate.SignedText(request, g.store.Fingerprint(), challenge.Nonce)); err == nil {
			accepted, err = gate.Ask[*gate.Accepted](conn, gate.Proof{Signature: signature})
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, "", fmt.Errorf("gate %s: %w", address, err)
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, accepted.Password, nil
}

// connectPeer connects another gate with the bus of this one until the connection ends.
func (g *Gate) connectPeer(conn *tls.Conn, m *gate.Peer) {
	switch {
	case !gate.ValidAddress(m.Address):
		g.refuse(conn, gate.RefusedInvalid, fmt.Sprintf("%.80q is no address of a gate", m.Address))
		return
	case !g.isProven(conn, m, g.store.IsSigned, "the gate has not proved that it has the key of the certificate"):
		return
	case m.Address == g.address:
		g.refuse(conn, gate.RefusedInvalid, fmt.Sprintf("two gates have the address %s; start one of them with another --address", m.Address))
		return
	}
	_, err := g.change(func(now time.Time) (record.Members, error) { return g.store.AddGate(m.Address, now) })
	if err != nil {
		g.refuse(conn, gate.RefusedBusy, err.Error())
		return
	}
	g.mu.Lock()
	isOpen := !g.isMoved && !g.isClosed
	if isOpen {
		g.conns[conn] = ofGate
	}
	g.mu.Unlock()
	if !isOpen {
		return // the other gate connects again, with the successor
	}
	server, password, err := g.bus.Admit(bus.GateUser)
	if err != nil {
		g.refuse(conn, gate.RefusedBusy, "the bus accepts no connection")
		return
	}
	defer g.bus.Forget(password)
	if g.answer(conn, gate.Accepted{Password: password}) == nil {
		splice(conn, server)
	}
	_ = server.Close() // the server may have closed it
}

// Enlist asks the gate that has made e for its identity, and stores it in the directory of a new gate.
func Enlist(ctx context.Context, dir string, e gate.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, peerLimit)
	defer cancel()
	conn, _, err := gate.Dial(ctx, e.Addresses[:1], e.Fingerprint)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(peerLimit))
	identity, err := gate.Ask[*gate.Identity](conn, gate.Enlist{Secret: e.Secret})
	if err != nil {
		return fmt.Errorf("gate %s: %w", e.Addresses[0], err)
	}
	return credential.Adopt(dir, *identity)
}

// enlist gives the identity of the gates to a new one.
func (g *Gate) enlist(conn net.Conn, m *gate.Enlist) {
	identity, err := g.store.Enlist(*m, g.now())
	if err != nil {
		var r *gate.Refused
		if errors.As(err, &r) {
			g.refuse(conn, r.Code, r.Message)
		}
		return
	}
	g.log.Info().Bool(logging.Security, true).Str(logging.RemoteAddr, conn.RemoteAddr().String()).Msg("identity given to a new gate")
	_ = g.answer(conn, identity) // if it is lost, the new gate needs another token
}

// change changes the members in the store, applies the change to this gate, and sends it to the other
// gates.
func (g *Gate) change(f func(now time.Time) (record.Members, error)) (record.Members, error) {
	g.changes.Lock()
	if g.hasMoved() {
		g.changes.Unlock()
		return record.Members{}, errMoved
	}
	changed, err := f(g.now())
	if len(changed.Revoked) > 0 || changed.Client.Text != "" {
		g.recallPredecessor()
	}
	if !changed.IsEmpty() {
		g.sum = ""
		if changed.Client.Text != "" {
			n := g.abortAll(ofClient)
			g.log.Info().Bool(logging.Security, true).Int(logging.Count, n).Msg("client token renewed; connections of clients closed")
		}
		for key := range changed.Revoked {
			g.drop(key)
		}
		for name, h := range changed.Hosts {
			g.dir.Join(h.Key, name)
		}
		if len(changed.Gates) > 0 {
			gates, gatesErr := g.store.Gates()
			if gatesErr == nil {
				g.setPeers(gates)
			}
			err = errors.Join(err, gatesErr)
		}
	}
	told := g.store.WithFormer(changed)
	g.changes.Unlock()
	g.tell(g.allPeers(), told)
	for _, h := range changed.Hosts { // its record has come before it was known, if it is connected to another gate
		for _, p := range g.allPeers() {
			_ = p.publish(h.Key, record.KindHello, nil)
		}
	}
	return changed, err
}

func (g *Gate) allPeers() (all []*peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.peers {
		all = append(all, p)
	}
	return all
}

// tell tells members to other gates. A gate that is not connected learns them when it is.
func (g *Gate) tell(peers []*peer, m record.Members) {
	for _, part := range m.Split() {
		data := record.Encode(part)
		for _, p := range peers {
			_ = p.tell(record.KindMembers, data)
		}
	}
}

// memberSum returns the sum of the members of this gate.
func (g *Gate) memberSum() (string, error) {
	g.changes.Lock()
	defer g.changes.Unlock()
	if g.sum == "" {
		m, err := g.store.Members()
		if err != nil {
			return "", err
		}
		g.sum = m.Sum()
	}
	return g.sum, nil
}

// tellSum tells the sum of the members to another gate, which compares it with its own.
func (g *Gate) tellSum(p *peer) {
	sum, err := g.memberSum()
	if err != nil {
		g.log.Error().Err(err).Msg("members of the gate not read")
		return
	}
	_ = p.tell(record.KindSum, record.Encode(record.MemberSum{From: g.address, Sum: sum})) // tellSums sends another one soon
}

// tellSums sends the sum of the members to all other gates, again and again until the gate ends.
func (g *Gate) tellSums() {
	tick := time.NewTicker(sumEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, p := range g.allPeers() {
				g.tellSum(p)
			}
		case <-g.ctx.Done():
			return
		}
	}
}

// receiveGate takes a message of another gate.
func (g *Gate) receiveGate(kind string, data []byte) {
	g.receiving.RLock()
	defer g.receiving.RUnlock()
	if g.isOver {
		return
	}
	var err error
	switch kind {
	case record.KindRecall:
		if g.hasMoved() {
			g.recallOnce.Do(func() { close(g.recalled) })
		}
	case record.KindMembers:
		var m record.Members
		if m, err = record.Decode[record.Members](data); err == nil {
			err = g.merge(m)
		}
	case record.KindSum:
		var m record.MemberSum
		if m, err = record.Decode[record.MemberSum](data); err == nil {
			err = g.compare(m)
		}
	}
	if err != nil {
		g.refusals.Of(g.log).Warn().Bool(logging.Security, true).Err(err).Str(logging.Kind, kind).Msg("message of another gate ignored")
	}
}

// merge adds the knowledge of another gate about the members. What is new here is told to all other gates, because
// they may be connected to this gate alone.
func (g *Gate) merge(m record.Members) error {
	changed, err := g.change(func(time.Time) (record.Members, error) { return g.store.Merge(m) })
	for key := range changed.Revoked {
		g.log.Info().Bool(logging.Security, true).Str("key", key).Msg("host revoked at another gate")
	}
	for name := range changed.Hosts {
		g.log.Info().Bool(logging.Security, true).Str("host", name).Msg("host joined at another gate")
	}
	if changed.Gates[g.address].IsRemoved { // a gate that serves is not gone
		_, addErr := g.change(func(now time.Time) (record.Members, error) { return g.store.AddGate(g.address, now) })
		err = errors.Join(err, addErr)
	}
	return err
}

// compare tells all members to another gate if its sum differs from that of this gate.
func (g *Gate) compare(m record.MemberSum) error {
	sum, err := g.memberSum()
	if err != nil || sum == m.Sum {
		return err
	}
	g.mu.Lock()
	p := g.peers[m.From]
	g.mu.Unlock()
	if p == nil {
		return nil // it receives all members when it is connected
	}
	now := time.Now()
	p.mu.Lock()
	isEarly := now.Sub(p.sentAt) < askPause
	if !isEarly {
		p.sentAt = now
	}
	p.mu.Unlock()
	if isEarly {
		return nil // it will send its sum again
	}
	members, err := g.store.Members()
	if err != nil {
		return err
	}
	g.tell([]*peer{p}, members)
	g.tellSum(p)
	return nil
}
