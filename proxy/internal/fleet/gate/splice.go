package gate

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/protocol/gate"
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
	to := &clientWriter{to: client}
	g.mu.Lock()
	g.clients[to] = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.clients, to)
	}()
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

// lengthBytes is the size of the length with which a frame begins.
const lengthBytes = frame.HeaderLen - 1

// A clientWriter writes the frames of a host to a client unchanged. It reads the length of each frame, so
// that it can add a frame of the gate between two of them.
type clientWriter struct {
	to net.Conn

	mu       sync.Mutex // held while bytes are written
	length   [lengthBytes]byte
	have     int    // bytes of length
	missing  uint64 // bytes of the present frame that were not written
	isOdd    bool   // the host does not send frames, so that nothing can be added
	mustTell bool   // goaway must be added
}

// Write implements io.Writer.
func (w *clientWriter) Write(p []byte) (written int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.mustTell && len(p) > 0 && !w.isOdd {
		n, err := w.to.Write(p[:w.toBoundary(p)])
		written, p = written+n, p[n:]
		if err == nil {
			err = w.tell()
		}
		if err != nil {
			return written, err
		}
	}
	for rest := p; len(rest) > 0 && !w.isOdd; {
		rest = rest[w.toBoundary(rest):]
	}
	n, err := w.to.Write(p)
	return written + n, err
}

// toBoundary counts the first bytes of p up to the end of the present frame, or all of p if the frame is
// longer, and returns their number, which is at least 1.
func (w *clientWriter) toBoundary(p []byte) (n int) {
	if w.have < lengthBytes {
		n = copy(w.length[w.have:], p)
		if w.have += n; w.have < lengthBytes {
			return n
		}
		w.missing = uint64(binary.BigEndian.Uint32(w.length[:]))
		if w.missing == 0 || w.missing > frame.Max {
			w.isOdd = true
			return len(p)
		}
	}
	body := min(uint64(len(p)-n), w.missing)
	if w.missing -= body; w.missing == 0 {
		w.have = 0
	}
	return n + int(body)
}

// askToLeave asks the client to connect again, now or after the present frame. It waits as long as the
// client does not read.
func (w *clientWriter) askToLeave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustTell = true
	if err := w.tell(); err != nil {
		_ = abort(w.to)
	}
}

// tell adds goaway if it must be added and no frame is incomplete. mu is held.
func (w *clientWriter) tell() error {
	if !w.mustTell || w.have > 0 || w.isOdd {
		return nil
	}
	b, err := protocol.Encode(api.Goaway{Reason: "the gate is replaced"})
	if err == nil {
		_, err = w.to.Write(frame.Append(nil, frame.Control, b))
	}
	w.mustTell = false
	return err
}
