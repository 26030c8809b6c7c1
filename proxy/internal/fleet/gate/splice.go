package gate

import (
	"errors"
	"io"
	"net"
	"sync"

	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/goaway"
)

// splice copies bytes in both directions until one side ends, and closes both connections. Because the
// api's client and proxy resume by offset, no byte that is lost with a connection is lost for them.
func splice(a, b net.Conn) { copyBoth(a, b, a, a) }

// A carrier copies frames between a client and a host until one of them ends. It reads those of the client from fromClient,
// and writes those for the client to toClient.
type carrier func(client, host net.Conn, fromClient io.Reader, toClient io.Writer)

// spliceClient is like splice, counts the bytes, and lets carry copy frames of the api. While it runs, a drain of the
// gate can ask the client to connect again, unless the client has asked for the agent, with which it exchanges no such
// frames.
func (g *Gate) spliceClient(client, host net.Conn, m *gate.Enter, carry carrier) {
	g.counts.splices.Add(1)
	defer g.counts.splices.Add(-1)
	from := countingReader{client, &g.counts.toHosts}
	if m.Agent {
		copyBoth(client, host, from, countingWriter{client, &g.counts.toClients})
		return
	}
	to := goaway.NewWriter(client, "the gate is replaced", func() { _ = abort(client) })
	defer g.clients.Add(to)()
	carry(client, host, from, countingWriter{to, &g.counts.toClients})
}

// copyBoth copies from b to toA, which writes to a, and from fromA, which reads from a, to b. It is a carrier.
func copyBoth(a, b net.Conn, fromA io.Reader, toA io.Writer) {
	var wg sync.WaitGroup
	one := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // the end of a connection is no error
		_ = errors.Join(abort(a), abort(b))
	}
	wg.Go(func() { one(toA, b) })
	wg.Go(func() { one(b, fromA) })
	wg.Wait()
}
