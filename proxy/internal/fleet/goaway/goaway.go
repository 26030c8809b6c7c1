// Package goaway asks clients to connect again, so that the process through which their frames pass can end.
//
// Gates and the agents of hosts copy the frames of the api without reading them. A Writer adds one frame of its
// own between two frames of a host: goaway. A client of this release then opens the next connection before it leaves
// the old one. A Set asks many clients, in groups.
//
// Invariant: the bytes of a host arrive unchanged and in order, and a goaway is never inside another frame.
//
// Not here: the end of connections whose clients do not leave.
package goaway

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

const (
	// DrainLimit is how long a process that has a successor stays for clients that do not leave.
	DrainLimit = 30 * time.Second
	// pause is the time between two groups of clients that are asked to leave, so that they do not all enter
	// their hosts again at the same moment.
	groupSize = 32
	pause     = 50 * time.Millisecond
	// lengthBytes is the size of the length with which a frame begins.
	lengthBytes = frame.HeaderLen - 1
)

// A Writer writes the frames of a host to a client unchanged. It reads the length of each frame, so that it can add
// goaway between two of them.
type Writer struct {
	to     net.Conn
	reason string
	abort  func() // closes to at once

	mu       sync.Mutex // held while bytes are written
	length   [lengthBytes]byte
	have     int    // bytes of length
	missing  uint64 // bytes of the present frame that were not written
	isOdd    bool   // the host does not send frames, so that nothing can be added
	mustTell bool   // goaway must be added
}

// NewWriter returns a Writer that writes to a client. goaway has the reason. abort must close the connection at
// once; it is called if goaway cannot be written.
func NewWriter(to net.Conn, reason string, abort func()) *Writer {
	return &Writer{to: to, reason: reason, abort: abort}
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (written int, err error) {
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
func (w *Writer) toBoundary(p []byte) (n int) {
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

// Ask asks the client to connect again, now or after the present frame. It waits as long as the client does not
// read.
func (w *Writer) Ask() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustTell = true
	if err := w.tell(); err != nil {
		w.abort()
	}
}

// tell adds goaway if it must be added and no frame is incomplete. mu is held.
func (w *Writer) tell() error {
	if !w.mustTell || w.have > 0 || w.isOdd {
		return nil
	}
	b, err := protocol.Encode(api.Goaway{Reason: w.reason})
	if err == nil {
		_, err = w.to.Write(frame.Append(nil, frame.Control, b))
	}
	w.mustTell = false
	return err
}

// A Set contains the Writers of the clients of a process. The zero Set is empty.
type Set struct {
	mu       sync.Mutex
	isAsked  map[*Writer]bool // has all Writers of the Set
	askCount int
}

// Add adds a Writer until remove is called.
func (s *Set) Add(w *Writer) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAsked == nil {
		s.isAsked = map[*Writer]bool{}
	}
	s.isAsked[w] = false
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.isAsked, w)
	}
}

// Drain asks all clients of the Set to leave, also those that are added meanwhile, and returns when remaining
// returns 0, or when ctx is done. It calls start with each function that needs a goroutine. askCount is the number of
// clients that were asked.
func (s *Set) Drain(ctx context.Context, start func(func()), remaining func() int) (askCount int) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		for _, w := range s.nextGroup() {
			start(w.Ask)
		}
		if remaining() == 0 {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.askCount
}

// nextGroup returns some Writers whose clients were not asked before.
func (s *Set) nextGroup() (group []*Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w, isAsked := range s.isAsked {
		if len(group) == groupSize {
			break
		}
		if !isAsked {
			s.isAsked[w] = true
			group = append(group, w)
		}
	}
	s.askCount += len(group)
	return group
}
