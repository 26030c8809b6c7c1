package chaos

import (
	"context"
	"net"
	"sync"
	"time"
)

// pieceSize is the size of the pieces in which a relay copies, in bytes. It is small so that a cut divides frames.
const pieceSize = 4 << 10

// slowPiece is how long a piece takes while connections are slow.
const slowPiece = 20 * time.Millisecond

// A Relay copies between the app and the proxy, and cuts and slows down their connections.
type Relay struct {
	dial func(context.Context) (net.Conn, error)
	wg   sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool // of the app
	isSlow bool
	isOver bool
}

// NewRelay returns a relay that connects each connection which accept returns with one of dial. It ends when accept
// returns an error; Close must be called then.
func NewRelay(accept func() (net.Conn, error), dial func(context.Context) (net.Conn, error)) *Relay {
	r := &Relay{dial: dial, conns: map[net.Conn]bool{}}
	r.wg.Go(func() {
		for {
			conn, err := accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.carry(conn) })
		}
	})
	return r
}

// Close ends all connections, and returns when the goroutines have ended.
func (r *Relay) Close() {
	r.mu.Lock()
	r.isOver = true
	r.mu.Unlock()
	r.Cut()
	r.wg.Wait()
}

// carry connects a connection of the app with the proxy. If the proxy does not serve, the app's connection is closed,
// so that its client tries again.
func (r *Relay) carry(app net.Conn) {
	defer func() { _ = app.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	proxy, err := r.dial(ctx)
	if err != nil {
		return
	}
	defer func() { _ = proxy.Close() }()
	r.mu.Lock()
	if r.isOver {
		r.mu.Unlock()
		return
	}
	r.conns[app] = true
	r.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{app, proxy}, {proxy, app}} {
		both.Go(func() {
			r.copy(way[0], way[1])
			_ = app.Close()
			_ = proxy.Close()
		})
	}
	both.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, app)
}

// copy copies one direction until one of the connections is closed.
func (r *Relay) copy(to, from net.Conn) {
	piece := make([]byte, pieceSize)
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		r.mu.Lock()
		isSlow := r.isSlow
		r.mu.Unlock()
		if isSlow {
			time.Sleep(slowPiece)
		}
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}

// Cut closes all connections of the app, with the bytes that are under way.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		_ = conn.Close()
	}
}

// Slow makes all connections slow, or ends that.
func (r *Relay) Slow(isSlow bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isSlow = isSlow
}
