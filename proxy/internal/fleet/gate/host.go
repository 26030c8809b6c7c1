package gate

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/nats-io/nkeys"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/logging"
)

// connectBus proves the key of a host, and connects the host with the bus until the connection ends.
func (g *Gate) connectBus(conn *tls.Conn, m *gate.Bus) {
	name := g.dir.Name(m.Key)
	if name == "" {
		g.refuse(conn, gate.RefusedUnauthorized, "the key of the host is unknown to the gate, or was revoked")
		return
	}
	isSigned := func(text, signature []byte) bool {
		public, err := nkeys.FromPublicKey(m.Key)
		return err == nil && public.Verify(text, signature) == nil
	}
	if !g.isProven(conn, m, isSigned, "the host has not proved that it has the seed of its key") {
		return
	}
	server, password, err := g.bus.Admit(m.Key)
	if err != nil {
		g.refuse(conn, gate.RefusedBusy, "the bus accepts no connection")
		return
	}
	defer g.bus.Forget(password)
	if !g.putOnBus(conn, m.Key) {
		_ = server.Close()
		if !g.hasMoved() { // otherwise the host connects again, with the successor
			g.refuse(conn, gate.RefusedUnauthorized, "the host was removed from the gate")
		}
		return
	}
	g.log.Info().Str("host", name).Str(logging.RemoteAddr, conn.RemoteAddr().String()).Msg("host connected")
	gates, err := g.store.Gates()
	if err == nil && g.answer(conn, gate.Accepted{Password: password, Gates: gates, Epoch: g.dir.Epoch(m.Key)}) == nil {
		copyBoth(conn, server, throttle{conn, g.budgetOf(m.Key)}, conn)
	}
	_ = server.Close() // the server may have closed it
	if g.takeOffBus(conn, m.Key) {
		g.log.Info().Str("host", name).Msg("host disconnected")
	}
}

// isProven reports whether the peer can sign a text that belongs to its request. Otherwise it refuses the connection and
// tells why. If the signature is only late, the peer may try again, because one of both may be short of processor time.
func (g *Gate) isProven(conn net.Conn, request protocol.Message, isSigned func(text, signature []byte) bool, why string) bool {
	nonce := protocol.NewToken(gate.TokenBytes)
	if g.answer(conn, gate.Challenge{Nonce: nonce}) != nil {
		return false
	}
	_ = conn.SetReadDeadline(time.Now().Add(firstLimit))
	m, err := gate.Read(conn, gate.MaxFirst)
	_ = conn.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		g.refuse(conn, gate.RefusedBusy, fmt.Sprintf("the proof has not arrived within %v; try again", firstLimit))
		return false
	}
	proof, ok := m.(*gate.Proof)
	if !ok || !isSigned(gate.SignedText(request, g.store.Fingerprint(), nonce), proof.Signature) {
		g.refuse(conn, gate.RefusedUnauthorized, why)
		return false
	}
	return true
}

// putOnBus makes conn the host's connection to the bus, and closes the one before. It returns false if
// the host has been removed, or has to connect with the successor of this gate.
func (g *Gate) putOnBus(conn net.Conn, key string) bool {
	if !g.belongs(conn, key) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isMoved {
		return false
	}
	if before := g.onBus[key]; before != nil {
		_ = abort(before)
		g.disconnected(key)
	}
	g.onBus[key], g.told[key] = conn, g.peerSets // connectBus tells the gates next
	return true
}

// takeOffBus notes the end of a host's connection. It returns false if the host has another one.
func (g *Gate) takeOffBus(conn net.Conn, key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.onBus[key] != conn {
		return false
	}
	delete(g.onBus, key)
	delete(g.told, key)
	delete(g.roster, key)
	g.disconnected(key)
	return true
}

// heard continues after the record of a host that is connected to this gate. If the connection has ended before the record
// was used, the host is not reachable over it. Otherwise heard tells the host the addresses of all gates if they have
// changed since it was told. A change between the acceptance of the host and its subscription does not reach it. A host
// that publishes has subscribed before.
func (g *Gate) heard(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.onBus[key] == nil {
		g.disconnected(key)
		return
	}
	if g.told[key] == g.peerSets {
		return
	}
	if g.bus.Publish(key, record.KindGates, record.Encode(record.Gates{Addresses: g.gates})) == nil {
		g.told[key] = g.peerSets
	}
}

// disconnected notes that the connection of a host to this gate has ended, and tells the other gates. mu
// is held.
func (g *Gate) disconnected(key string) {
	if lost := g.dir.Disconnect(key); lost != (record.Lost{}) {
		_ = g.bus.Announce(key, record.KindLost, record.Encode(lost)) // otherwise the others notice it after record.Late
	}
	g.failDials(func(d *dial) bool { return d.key == key && d.gate == g.address })
}

// failDials refuses the clients that wait for a host whose connection to the bus has ended. The message
// with their tickets may be lost, and a client that was connected before tries again at once. mu is held.
func (g *Gate) failDials(isLost func(*dial) bool) {
	for ticket, d := range g.dials {
		if isLost(d) {
			delete(g.dials, ticket)
			if g.hostDial[d.key]--; g.hostDial[d.key] == 0 {
				delete(g.hostDial, d.key)
			}
			d.arrived <- arrival{reason: lostHost, isLost: true}
		}
	}
}

// failDialsElsewhere refuses the clients that wait for a host at a gate to which it is not connected any more. With a NATS
// cluster, this gate learns of the end of another gate only in this way.
func (g *Gate) failDialsElsewhere(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hostDial[key] > 0 {
		now := g.dir.Gate(key)
		g.failDials(func(d *dial) bool { return d.key == key && d.gate != now })
	}
}

// publish sends a message to a host that is connected to the gate at.
func (g *Gate) publish(at, key, kind string, data []byte) error {
	if at == g.address {
		return g.bus.Publish(key, kind, data)
	}
	g.mu.Lock()
	p := g.peers[at]
	g.mu.Unlock()
	if p == nil {
		return fmt.Errorf("gate %s is not one of the gates", at)
	}
	return p.publish(key, kind, data)
}

// receive takes a message of a host that is connected to the gate at. The bus permits each host only
// messages about itself.
func (g *Gate) receive(at, key, kind string, data []byte) {
	g.receiving.RLock()
	defer g.receiving.RUnlock()
	if g.isOver {
		return
	}
	isStale := false
	var err error
	switch kind {
	case record.KindHost:
		var m record.Host
		if m, err = record.Decode[record.Host](data); err == nil {
			isStale = g.dir.Host(key, at, m, time.Now())
			if at == g.address {
				g.heard(key)
			}
			g.failDialsElsewhere(key)
		}
	case record.KindChange:
		var m record.Change
		if m, err = record.Decode[record.Change](data); err == nil {
			isStale = g.dir.Change(key, m)
		}
	case record.KindPiece:
		var m record.Piece
		if m, err = record.Decode[record.Piece](data); err == nil {
			isStale = g.dir.Piece(key, m)
		}
	case record.KindLeave:
		if at == g.address { // it tells the others
			_, err = g.revoke(g.dir.Name(key), "host left")
		}
	case record.KindLost:
		var m record.Lost
		if m, err = record.Decode[record.Lost](data); err == nil && at != g.address {
			if at == predecessor {
				g.hostLeft(key, m)
			} else {
				g.dir.Lost(key, at, m)
			}
			g.mu.Lock()
			g.failDials(func(d *dial) bool { return d.key == key && d.gate == at })
			g.mu.Unlock()
		}
	}
	if err != nil {
		g.refusals.Of(g.log).Warn().Bool(logging.Security, true).Err(err).Str("host", g.dir.Name(key)).Str(logging.Kind, kind).Msg("record of a host ignored")
	}
	if isStale {
		g.askRoster(at, key)
	}
}

// A rosterQuestion is the state of the questions to a host for all its sessions.
type rosterQuestion struct {
	askedAt   time.Time
	isPlanned bool // a timer will ask the next one
}

// askRoster asks a host, which is connected to the gate at, for all its sessions. If it was asked just now, the
// question waits until askPause has passed, because the answer may have been sent before the host's last change.
func (g *Gate) askRoster(at, key string) {
	g.mu.Lock()
	q, now := g.roster[key], time.Now()
	if q == nil {
		q = &rosterQuestion{}
		g.roster[key] = q
	}
	pause := askPause - now.Sub(q.askedAt)
	if pause <= 0 {
		q.askedAt = now
	} else if !q.isPlanned {
		q.isPlanned = true
		time.AfterFunc(pause, func() { g.askRosterAgain(key, q) })
	}
	g.mu.Unlock()
	if pause <= 0 {
		_ = g.publish(at, key, record.KindRoster, nil) // the next record of the host asks again
	}
}

// askRosterAgain asks the question that has waited, unless the host's connection to this gate has ended meanwhile. The host
// may have moved to another gate.
func (g *Gate) askRosterAgain(key string, q *rosterQuestion) {
	g.mu.Lock()
	q.isPlanned = false
	isCurrent := g.roster[key] == q && !g.isClosed
	g.mu.Unlock()
	if at := g.dir.Gate(key); isCurrent && at != "" {
		g.askRoster(at, key)
	}
}

// revoke removes a host, and closes all its connections. It reports whether the host had joined.
func (g *Gate) revoke(name, event string) (bool, error) {
	changed, err := g.change(func(now time.Time) (record.Members, error) { return g.store.Remove(name, now) })
	if changed.IsEmpty() {
		return false, err
	}
	g.log.Info().Bool(logging.Security, true).Str("host", name).Msg(event)
	return true, err
}

// drop forgets a host whose key was revoked, and closes all its connections.
func (g *Gate) drop(key string) {
	g.dir.Remove(key) // from here on, belongs refuses its connections
	g.mu.Lock()
	delete(g.roster, key)
	delete(g.budgets, key)
	g.mu.Unlock()
	g.abortAll(key)
}

// renewClientToken makes a new token of clients for all gates, and closes the connections that came with the
// one before.
func (g *Gate) renewClientToken() error {
	_, err := g.change(g.store.NewClientToken)
	return err
}

// abortAll closes the connections of an owner, and returns their number.
func (g *Gate) abortAll(owner string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn, of := range g.conns {
		if of == owner {
			n++
			_ = abort(conn)
		}
	}
	return n
}
