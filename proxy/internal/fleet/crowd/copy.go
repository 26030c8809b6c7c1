package crowd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/logging"
)

// A crowd is the viewers of one session that share a copy of its output, and the ring with the last frames
// of the copy.
type crowd struct {
	t   *Table
	key key

	// Guarded by Table.mu.
	members   map[*viewer]bool
	empty     chan struct{} // is closed when the last member has left
	isBegun   bool
	notBefore time.Time      // of the next attempt to begin
	conn      net.Conn       // the shared connection, or nil
	close     func(net.Conn) // closes conn

	mu      sync.Mutex
	isReady bool // frames are added
	isOver  bool // no further frame is added
	hasExit bool // the last frame is the end of the session
	first   *chunk
	last    *chunk
	size    int // bytes that the chunks occupy
	pos     protocol.Position
	parked  map[chan struct{}]bool // of the viewers that wait for a frame; one that is woken for another reason waits again
}

// A chunk has some frames of a crowd. Its frames are complete, and do not change any more when they were added.
type chunk struct {
	frames  []byte
	begin   uint64            // output offset before the frames
	pos     protocol.Position // of a viewer that has received the frames
	next    *chunk
	isApart bool // the frames are a gap and its snapshot, after which no viewer can join
	isGone  bool // the ring has dropped the chunk
}

// A cursor is the place of a viewer in the ring.
type cursor struct {
	chunk *chunk
	read  int // bytes of its frames
}

// A founder is the viewer with whose rights a crowd attaches to the session.
type founder struct {
	visit Visit
	hello []byte
	spec  protocol.AttachSpec
}

// fill opens the shared connection and adds its frames to the ring until the session or the connection ends.
func (c *crowd) fill(f founder) {
	begin := time.Now()
	err := c.receive(f)
	c.mu.Lock()
	wasReady := c.isReady
	c.mu.Unlock()
	c.t.mu.Lock()
	if c.conn != nil {
		c.close(c.conn)
	}
	c.conn = nil
	if wasReady {
		c.t.remove(c)
	} else {
		c.isBegun, c.notBefore = false, time.Now().Add(failedPause)
	}
	c.t.mu.Unlock()
	c.mu.Lock()
	c.isOver = wasReady
	c.wakeAll()
	c.mu.Unlock()
	c.t.log.Info().Err(err).Str("host", c.key.host).Str(logging.Session, string(c.key.session)).Dur(logging.Took, time.Since(begin)).Msg("shared copy of a session ended")
}

// receive does the work of fill. Its error tells why the copy ended.
func (c *crowd) receive(f founder) error {
	spec := f.spec
	spec.Client, spec.Writer, spec.Attempt = "viewers at a gate", "", 0
	spec.Cols, spec.Rows, spec.Term, spec.Env, spec.Appearance, spec.IsTTY = 0, 0, "", nil, nil, false
	if c.key.isTerminal {
		spec.Appearance = &c.key.look
	}
	conn, err := f.visit.Dial()
	if err != nil {
		return err
	}
	c.t.mu.Lock()
	c.conn, c.close = conn, f.visit.Close
	isNeeded := len(c.members) > 0
	c.t.mu.Unlock()
	if !isNeeded {
		return errors.New("no viewer is left")
	}
	frames, attached, err := attach(conn, f.hello, c.key.number, &spec)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.pos.Attached(attached.AttachInfo, spec.Resume)
	if attached.SnapshotBytes == 0 { // viewers can join before the first frame, which may be late
		c.addChunk(c.newChunk(attached.Offset, chunkBytes, false))
	}
	c.isReady = true
	c.mu.Unlock()
	c.t.log.Info().Str("host", c.key.host).Str(logging.Session, string(c.key.session)).Msg("viewers share one copy of a session")
	c.pokeAll()
	for {
		raw, err := frames.NextRaw()
		if err != nil {
			return err
		}
		c.t.received.Add(uint64(len(raw)))
		end, err := c.add(raw)
		if end || err != nil {
			return err
		}
	}
}

// isOpen reports whether viewers can join.
func (c *crowd) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isReady && !c.isOver
}

// hasEnded reports whether the shared connection has ended, so that another crowd is necessary.
func (c *crowd) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isOver
}

// pokeAll lets each member that has a connection of its own check whether it can join.
func (c *crowd) pokeAll() {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	for v := range c.members {
		v.poke()
	}
}

// keep calls pokeAll again and again until the crowd has no members. A viewer that may join later than it has
// caught up would otherwise wait for the next output.
func (c *crowd) keep() {
	tick := time.NewTicker(slowPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.pokeAll()
		case <-c.empty:
			return
		}
	}
}

// add adds a frame to the ring. It reports whether it is the last one of the session.
func (c *crowd) add(raw []byte) (isLast bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, isApart, isComplete := c.pos.Offset(), false, false
	switch frame.Kind(raw[4]) {
	case frame.Output:
		_, offset, data, err := frame.ParseData(raw[frame.HeaderLen:])
		if err != nil {
			return false, err
		}
		c.pos.Output(offset, len(data))
		before = offset
	case frame.Snapshot:
		_, _, data, err := frame.ParseData(raw[frame.HeaderLen:])
		if err != nil {
			return false, err
		}
		isApart, isComplete = true, c.pos.Snapshot(len(data)) == 0
	case frame.Control:
		m, _, err := api.Messages.Decode(raw[frame.HeaderLen:])
		if err != nil && protocol.CodeOf(err) != protocol.CodeUnsupported {
			return false, err
		}
		switch m := m.(type) {
		case *api.Resync:
			c.pos.Resync(m.Offset, m.BytesMissed, m.SnapshotBytes, m.View)
			isApart = true
		case *api.PTYExited, *api.TerminalExit:
			isLast, c.hasExit = true, true
		case *api.Error, *api.Stolen, *api.Goaway:
			return false, fmt.Errorf("the host has sent %s", m.MessageType())
		}
	}
	if c.last == nil || c.last.isApart != isApart || len(c.last.frames)+len(raw) > cap(c.last.frames) {
		c.addChunk(c.newChunk(before, max(chunkBytes, len(raw)), isApart))
	}
	c.last.frames = append(c.last.frames, raw...)
	c.last.pos = c.pos
	if isComplete {
		c.addChunk(c.newChunk(c.pos.Offset(), chunkBytes, false))
	}
	c.wakeAll()
	return isLast, nil
}

func (c *crowd) newChunk(begin uint64, size int, isApart bool) *chunk {
	return &chunk{frames: make([]byte, 0, size), begin: begin, pos: c.pos, isApart: isApart}
}

// addChunk adds a chunk to the ring, and drops the oldest ones if the ring is full. A viewer that still
// writes a dropped chunk keeps that chunk alone in memory, because the chunk loses its successor.
func (c *crowd) addChunk(n *chunk) {
	if c.last == nil {
		c.first = n
	} else {
		c.last.next = n
	}
	c.last = n
	c.size += cap(n.frames)
	for c.size > ringBytes && c.first != c.last {
		old := c.first
		c.first, c.size = old.next, c.size-cap(old.frames)
		old.isGone, old.next = true, nil
	}
}

func (c *crowd) wakeAll() {
	for wake := range c.parked {
		signal(wake)
	}
	clear(c.parked)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// joinResult is a result of join.
type joinResult int

const (
	joined    joinResult = iota
	notJoined            // the ring does not have the offset
	isAhead              // the offset has not arrived yet, so the viewer may wait
)

// join returns the place in the ring from which a viewer continues that has received all output before offset
// and knows the terminal's size. The viewer must receive first before the frames of that place. If the result is isAhead,
// wake is signalled when a further frame has arrived.
func (c *crowd) join(offset uint64, size protocol.Size, wake chan struct{}) (at cursor, first []byte, result joinResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isReady || c.isOver {
		return at, nil, notJoined
	}
	if c.pos.Offset() < offset {
		c.parked[wake] = true
		return at, nil, isAhead
	}
	for n := c.first; n != nil; n = n.next {
		if !n.isApart && n.begin <= offset && offset <= n.pos.Offset() {
			at.chunk = n
			at.read, first = n.seek(offset, size, c.key.number)
			return at, first, joined
		}
	}
	return at, nil, notJoined
}

// seek returns the number of bytes of the chunk before the frames from offset on, and first, which a viewer that
// continues there must receive before them: the rest of an output frame that contains offset, or a size that the
// connection of the viewer has not received.
func (n *chunk) seek(offset uint64, size protocol.Size, number uint32) (read int, first []byte) {
	for at := n.begin; read < len(n.frames); {
		raw := n.frames[read:]
		raw = raw[:frame.HeaderLen-1+int(binary.BigEndian.Uint32(raw))]
		payload := raw[frame.HeaderLen:]
		switch frame.Kind(raw[4]) {
		case frame.Output:
			_, from, data, err := frame.ParseData(payload)
			end := from + uint64(len(data))
			if err != nil || from >= offset {
				return read, first
			}
			if end > offset {
				return read + len(raw), frame.AppendData(nil, frame.Output, number, offset, data[offset-from:])
			}
			at = end
		case frame.Control:
			m, _, _ := api.Messages.Decode(payload) // add has decoded it
			resized, ok := m.(*api.Resized)
			if !ok && at == offset {
				return read, first
			}
			if ok && at == offset {
				first = nil
				if (protocol.Size{Cols: resized.Cols, Rows: resized.Rows}) != size {
					first = raw
				}
			}
		}
		read += len(raw)
	}
	return read, first
}

// nextResult is a result of next.
type nextResult int

const (
	hasFrames nextResult = iota
	mustWait             // wake is signalled when a further frame has arrived
	isBehind             // the ring has dropped the frames
	isExited             // the viewer has received the end of the session
	isLost               // the shared connection was lost
)

// next returns the frames after the cursor, and the position of a viewer that has received them, and moves
// the cursor.
func (c *crowd) next(at *cursor, wake chan struct{}) (frames []byte, pos protocol.Position, result nextResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case at.chunk.isGone:
		return nil, pos, isBehind
	case at.read == len(at.chunk.frames) && at.chunk.next != nil:
		*at = cursor{chunk: at.chunk.next}
	}
	switch {
	case at.read < len(at.chunk.frames):
		frames = at.chunk.frames[at.read:]
		at.read = len(at.chunk.frames)
		return frames, at.chunk.pos, hasFrames
	case c.isOver && c.hasExit:
		return nil, pos, isExited
	case c.isOver:
		return nil, pos, isLost
	}
	c.parked[wake] = true
	return nil, pos, mustWait
}
