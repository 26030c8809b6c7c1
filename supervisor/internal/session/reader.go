package session

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
)

// reader reads the output of the child into the ring, and sends loop the place of each piece. It
// can be halted, and it waits for a viewer that paces the child (pace.go). run is a goroutine of its
// own; loop calls the other methods.
type reader struct {
	source  outputSource
	ring    *ring.Ring
	counter *atomic.Uint64 // bytes read

	chunks  chan chunk
	poke    chan struct{}         // wakes run, so that it checks halting
	halting atomic.Pointer[halt]  // the halt that run must obey, or nil; loop changes it
	pacer   atomic.Pointer[pacer] // the viewer that the child waits for, or nil; loop changes it

	pacerTimedOut bool // the child has waited for the pacer in vain; owned by run

	// Owned by loop.
	isOver     bool  // chunks is closed and empty
	unfinished *halt // run stays stopped after this halt until loop has caught up
}

// outputSource is the part of a PTY that a reader uses.
type outputSource interface {
	ReadEach(to pty.Memory, each func(n int)) (int, error)
	SetReadDeadline(time.Time) error
	Done() <-chan struct{}
}

// chunk says that the ring has n new bytes at offset.
type chunk struct {
	offset uint64
	n      int
}

// makeChannels makes the channels. The ring has eight times the room of one read. At most six reads
// lie between loop and the end of the ring: four in chunks, one that loop handles, and one that run
// has reserved. Therefore the ring never overwrites bytes that loop still views.
func (r *reader) makeChannels() { r.chunks, r.poke = make(chan chunk, 4), make(chan struct{}, 1) }

// run reads until the child has ended and its output is read, and then closes chunks.
func (r *reader) run() {
	defer close(r.chunks)
	var ended time.Time // when run first noticed that the child has ended
	// deadline was set here, and no output has come since; otherwise it is zero. loop sets the
	// first deadline. It may have expired before run had read the output that is there, so that
	// it does not count. Neither does one that had expired before the read began, because run
	// was not scheduled in time.
	var deadline time.Time
	for {
		r.pace()
		last := isClosed(r.source.Done())
		quiet := !deadline.IsZero() && time.Now().Before(deadline)
		n, err := r.source.ReadEach(r.ring, r.forward)
		if n > 0 {
			r.ring.Wake()
			quiet, deadline = false, time.Time{}
		}
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if h := r.halting.Load(); h != nil {
				h.wait()
				continue
			}
			// If there is no halt, loop has set the deadline because the child has ended.
			if ended.IsZero() {
				ended = time.Now()
			}
			if !quiet && time.Since(ended) < drainMax {
				deadline = time.Now().Add(drainQuiet)
				r.setDeadline(deadline)
				continue
			}
			return
		}
		if last { // otherwise the child lived when the read began, and may have opened its terminal again since
			return
		}
		select {
		case <-r.source.Done():
		case <-r.poke:
		case <-time.After(reopenPoll):
		}
	}
}

// setDeadline ends a read in progress at a time. It fails only on a terminal on which a read ends by
// itself.
func (r *reader) setDeadline(at time.Time) { _ = r.source.SetReadDeadline(at) }

// maxTTYRead is the most that the kernel returns for one read of a terminal. A read of this
// size means that more output waits.
const maxTTYRead = 4095

// forward sends n bytes that were read to loop. If more output waits, forward yields to loop, and
// the kernel fills its buffer meanwhile; that buffer holds no more than one read. Viewers are woken
// only when no more output waits, so that each message to them is long. If loop is busy, they are
// woken at once, because no viewer may wait for loop.
func (r *reader) forward(n int) {
	r.counter.Add(uint64(n))
	c := chunk{r.ring.Commit(n), n}
	select {
	case r.chunks <- c:
	default:
		r.ring.Wake()
		r.chunks <- c
	}
	if n >= maxTTYRead {
		runtime.Gosched()
	}
}

// expectEnd makes run end when no more output comes for drainQuiet, because the child has ended.
func (r *reader) expectEnd() {
	if !r.isOver {
		r.setDeadline(time.Now().Add(drainQuiet))
	}
}

// halt is a time in which a session is halted.
type halt struct {
	readerStopped chan struct{} // receives when run has stopped
	resumed       chan struct{} // closed when run may continue
}

func newHalt() *halt { return &halt{make(chan struct{}), make(chan struct{})} }

// wait stops run until the halt ends.
func (h *halt) wait() {
	h.readerStopped <- struct{}{}
	<-h.resumed
}

// longAgo is a deadline that ends a read or write in progress.
var longAgo = time.Unix(1, 0)

// stop begins a halt. It returns when run has stopped or ended, and receive was called with all
// output that was read.
func (r *reader) stop(h *halt, receive func(chunk)) {
	r.halting.Store(h)
	if r.isOver {
		return
	}
	r.setDeadline(longAgo)
	r.release() // run is still stopped by the previous halt; it continues into this one
	select {
	case r.poke <- struct{}{}:
	default: // a wake-up is pending already
	}
	for isStopped := false; !isStopped || len(r.chunks) > 0; {
		select {
		case c, ok := <-r.chunks:
			if !ok {
				r.isOver = true // loop finds it out as well
				return
			}
			receive(c)
		case <-h.readerStopped:
			isStopped = true
		}
	}
}

// resume ends the halt, but run continues only when release is called: otherwise more output than
// the ring permits could lie between loop and the end of the ring.
func (r *reader) resume(h *halt) {
	r.halting.Store(nil)
	r.unfinished = h
	select {
	case <-r.poke: // run did not need the wake-up
	default:
	}
}

// release lets run continue after a halt.
func (r *reader) release() {
	if r.unfinished != nil {
		close(r.unfinished.resumed)
		r.unfinished = nil
	}
}
