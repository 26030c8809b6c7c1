// Package crowd lets the read-only viewers of one session at a gate share one copy of its output.
//
// Without it, each viewer has a connection of its own to the host, so the host sends each byte once for
// every viewer. With it, a viewer attaches through its own connection, so that the host decides whether it may
// and sends the snapshot. When the viewer has caught up, the gate detaches it from the host, and feeds it from a
// bounded ring of frames, which one attachment of the gate fills.
//
//	            attached, caught up            the ring is read
//	own host ───────────────────────▶ crowd ─────────────────────▶ client
//	connection ◀──────────────────────┘
//	            fell behind, sent a frame, or the shared connection was lost
//
// A viewer that returns to a connection of its own attaches there at its offset. It receives output from that
// offset, or a gap with its length and a snapshot, as any viewer does. So a viewer that reads slowly costs
// nothing but its own connection.
//
//	down    one goroutine for each connection: writes to the client
//	up      one goroutine for each connection: reads from the client
//	fill    one goroutine for each crowd: reads the shared connection
//	detach  one goroutine, for a moment, for each viewer that has joined a crowd
//
// A connection is copied without being read as soon as it proves to be none of a read-only viewer: at its
// second frame, which must be an attach. Viewers share a copy if they would receive the same frames: the
// same instance, the same number of the attachment, and the same message for the end.
//
// Invariant: a viewer receives each byte once, or a gap with its length. A crowd holds at most ringBytes and one
// chunk for each viewer that is being written to; a Table has at most maxCrowds crowds. Attaches that may end in a crowd
// are admitted in groups of maxStarting, because a session has a limited number of attachments.
//
// Not here: connections with hosts, and the permission to reach them (package gate).
package crowd

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
)

// Limits and times.
const (
	ringBytes   = 2 << 20  // frames that a crowd holds
	chunkBytes  = 64 << 10 // frames that are written to a client at once
	maxCrowds   = 128
	maxHello    = 8 << 10 // bytes of the hello of a viewer, which is kept
	maxStarting = 48      // viewers of one session that are attached by connections of their own in order to join a crowd
	startLimit  = 3 * time.Second
	answerLimit = 20 * time.Second // for the answers of a host to hello and attach
	detachLimit = 10 * time.Second
	waitLimit   = time.Second      // for a crowd to come to the offset of a viewer
	slowPause   = 2 * time.Second  // after a viewer fell behind, until it joins a crowd again
	failedPause = 10 * time.Second // after a crowd could not begin
)

// A Visit is the connection of a client with a host, after the gate has connected them.
type Visit struct {
	Client     net.Conn
	FromClient io.Reader // reads frames from Client
	ToClient   io.Writer // writes frames to Client
	Host       net.Conn
	Name       string // of the host
	// Dial opens another connection with the host for the same client.
	Dial func() (net.Conn, error)
	// Close closes Client, Host or a connection of Dial at once. It may be called several times, by any goroutine.
	Close func(net.Conn)
}

// A Table contains the crowds of a gate.
type Table struct {
	log zerolog.Logger
	wg  sync.WaitGroup // of fill and detach

	viewers              atomic.Int64 // that crowds feed now
	received, sent, slow atomic.Uint64

	mu       sync.Mutex
	crowds   map[key]*crowd
	starting map[place]*entrance
}

// New returns a Table without crowds.
func New(log zerolog.Logger) *Table {
	return &Table{log: log, crowds: map[key]*crowd{}, starting: map[place]*entrance{}}
}

// Stats are the present numbers of a Table, and its counts since it began.
type Stats struct {
	Crowds   int    // that have a shared connection
	Viewers  int    // that crowds feed
	Received uint64 // bytes of frames over shared connections
	Sent     uint64 // bytes of frames from crowds to viewers
	Slow     uint64 // times that a viewer returned to a connection of its own because it fell behind
}

// Stats returns the statistics of the Table.
func (t *Table) Stats() Stats {
	s := Stats{Viewers: int(t.viewers.Load()), Received: t.received.Load(), Sent: t.sent.Load(), Slow: t.slow.Load()}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.crowds {
		if c.conn != nil {
			s.Crowds++
		}
	}
	return s
}

// Wait returns when all connections that the Table has opened are closed. Serve must have returned everywhere.
func (t *Table) Wait() { t.wg.Wait() }

// Serve copies the frames of a client and a host to each other until one of them ends, and then closes both.
func (t *Table) Serve(v Visit) {
	w := &viewer{t: t, visit: v, host: v.Host, wake: make(chan struct{}, 1), ended: make(chan struct{}), returned: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer w.end()
		w.up()
	})
	w.down()
	w.end()
	wg.Wait()
	w.quit()
}

// A key names the viewers that receive the same frames.
type key struct {
	host     string
	session  protocol.SessionID
	instance protocol.Instance
	number   uint32 // of the attachment
	// hasTerminalExit tells that the end of the session is terminal.exit.
	hasTerminalExit bool
	// look is the part of the appearance on which the frames depend: the pictures that the viewers show. isTerminal is not
	// set if the viewer has sent no appearance.
	look       protocol.Appearance
	isTerminal bool
}

// enlist adds a viewer, which receives output by its own connection, to the crowd of its key. The result is
// nil if the Table has too many crowds. When a crowd has two viewers, it begins.
func (t *Table) enlist(v *viewer, k key) *crowd {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.crowds[k]
	if c == nil {
		if len(t.crowds) >= maxCrowds {
			return nil
		}
		c = &crowd{t: t, key: k, members: map[*viewer]bool{}, parked: map[chan struct{}]bool{}, empty: make(chan struct{})}
		t.crowds[k] = c
		t.wg.Go(c.keep)
	}
	c.members[v] = true
	t.begin(c, v)
	return c
}

// begin opens the shared connection of a crowd that has two viewers and none yet. The crowd begins at the
// position of v. mu is held.
func (t *Table) begin(c *crowd, v *viewer) {
	if c.isBegun || len(c.members) < 2 || time.Now().Before(c.notBefore) {
		return
	}
	c.isBegun = true
	f := founder{v.visit, v.want.hello, v.want.attach.AttachSpec}
	f.spec.Resume = &protocol.Resume{Instance: c.key.instance, Offset: v.pos.Offset()}
	f.spec.Snapshot, f.spec.ScreenOnly, f.spec.Steal = false, false, false
	t.wg.Go(func() { c.fill(f) })
}

// quit removes a viewer from its crowd. The last one ends the crowd.
func (t *Table) quit(v *viewer, c *crowd) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(c.members, v)
	c.mu.Lock()
	delete(c.parked, v.wake)
	c.mu.Unlock()
	if len(c.members) == 0 {
		t.remove(c) // so that it gets no further member
		close(c.empty)
		if c.conn != nil {
			c.close(c.conn)
		}
	}
}

// remove removes a crowd, so that the next viewer begins another one. mu is held.
func (t *Table) remove(c *crowd) {
	if t.crowds[c.key] == c {
		delete(t.crowds, c.key)
	}
}

// A place is a session, as the attach of a client names it.
type place struct {
	host    string
	session protocol.SessionID
}

// An entrance admits viewers to one session.
type entrance struct {
	slots chan struct{}
	users int // that hold a slot or wait for one; guarded by Table.mu
}

// admit waits until the viewer may attach to the session by a connection of its own. release must be called
// when the viewer does not need the connection any more; it is called after startLimit in any case, so that
// viewers that stay on their own connections do not keep others out. ok is false if ended was closed before.
func (t *Table) admit(p place, ended <-chan struct{}) (release func(), ok bool) {
	t.mu.Lock()
	e := t.starting[p]
	if e == nil {
		e = &entrance{slots: make(chan struct{}, maxStarting)}
		t.starting[p] = e
	}
	e.users++
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if e.users--; e.users == 0 {
			delete(t.starting, p)
		}
	}
	select {
	case e.slots <- struct{}{}:
	case <-ended:
		forget()
		return func() {}, false
	}
	free := sync.OnceFunc(func() {
		<-e.slots
		forget()
	})
	timer := time.AfterFunc(startLimit, free)
	return func() {
		timer.Stop()
		free()
	}, true
}
