package gate

import (
	"crypto/tls"
	"net"
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
	if !g.isProven(conn, m.Key) {
		g.refuse(conn, gate.RefusedUnauthorized, "the host has not proved that it has the seed of its key")
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
		g.refuse(conn, gate.RefusedUnauthorized, "the host was removed from the gate")
		return
	}
	g.log.Info().Str("host", name).Str(logging.RemoteAddr, conn.RemoteAddr().String()).Msg("host connected")
	if g.answer(conn, gate.Accepted{Password: password}) == nil {
		splice(conn, server)
	}
	_ = server.Close() // the server may have closed it
	if g.takeOffBus(conn, m.Key) {
		g.log.Info().Str("host", name).Msg("host disconnected")
	}
}

// isProven reports whether the peer can sign with the seed of a key.
func (g *Gate) isProven(conn net.Conn, key string) bool {
	nonce := protocol.NewToken(gate.TokenBytes)
	if g.answer(conn, gate.Challenge{Nonce: nonce}) != nil {
		return false
	}
	_ = conn.SetReadDeadline(time.Now().Add(firstLimit))
	m, err := gate.Read(conn, gate.MaxFirst)
	_ = conn.SetReadDeadline(time.Time{})
	proof, ok := m.(*gate.Proof)
	if err != nil || !ok {
		return false
	}
	public, err := nkeys.FromPublicKey(key)
	return err == nil && public.Verify(gate.SignedText(g.store.Fingerprint(), nonce), proof.Signature) == nil
}

// putOnBus makes conn the host's connection to the bus, and closes the one before. It returns false if
// the host has been removed.
func (g *Gate) putOnBus(conn net.Conn, key string) bool {
	if !g.belongs(conn, key) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if before := g.onBus[key]; before != nil {
		_ = abort(before)
		g.failDials(key)
	}
	g.onBus[key] = conn
	g.dir.SetConnected(key, true)
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
	delete(g.askedAt, key)
	g.dir.SetConnected(key, false)
	g.failDials(key)
	return true
}

// failDials refuses the clients that wait for a host whose connection to the bus has ended. The message
// with their tickets may be lost, and a client that was connected before tries again at once. mu is held.
func (g *Gate) failDials(key string) {
	for ticket, d := range g.dials {
		if d.key == key {
			delete(g.dials, ticket)
			d.arrived <- arrival{reason: "it has lost its connection to the gate"}
		}
	}
	delete(g.hostDial, key)
}

// receive takes a message of a host. The bus permits each host only messages about itself.
func (g *Gate) receive(key, kind string, data []byte) {
	isStale := false
	var err error
	switch kind {
	case record.KindHost:
		var m record.Host
		if m, err = record.Decode[record.Host](data); err == nil {
			isStale = g.dir.Host(key, m, time.Now())
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
		_, err = g.revoke(g.dir.Name(key), "host left")
	}
	if err != nil {
		g.refusals.Of(g.log).Warn().Bool(logging.Security, true).Err(err).Str("host", g.dir.Name(key)).Str(logging.Kind, kind).Msg("record of a host ignored")
	}
	if isStale {
		g.askRoster(key)
	}
}

// askRoster asks a host for all its sessions, unless it was asked just now. The next record of the host
// shows whether the copy is still stale.
func (g *Gate) askRoster(key string) {
	g.mu.Lock()
	now := time.Now()
	isEarly := now.Sub(g.askedAt[key]) < askPause
	if !isEarly {
		g.askedAt[key] = now
	}
	g.mu.Unlock()
	if !isEarly {
		_ = g.bus.Publish(key, record.KindRoster, nil) // the next record of the host asks again
	}
}

// revoke removes a host, and closes all its connections. It reports whether the host had joined.
func (g *Gate) revoke(name, event string) (bool, error) {
	hadJoined, err := g.store.Remove(name)
	if err != nil || !hadJoined {
		return false, err
	}
	key, _ := g.dir.Resolve(name, time.Now())
	g.dir.Remove(key) // from here on, belongs refuses its connections
	g.abortAll(key)
	g.log.Info().Bool(logging.Security, true).Str("host", name).Msg(event)
	return true, nil
}

// renewClientToken makes a new token of clients, and closes the connections that came with the one before.
func (g *Gate) renewClientToken() error {
	if err := g.store.NewClientToken(); err != nil {
		return err
	}
	n := g.abortAll(ofClient)
	g.log.Info().Bool(logging.Security, true).Int(logging.Count, n).Msg("client token renewed; connections of clients closed")
	return nil
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
