package logging

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	// lineTime is how long a process waits for the disk, or the terminal, that takes its log. A line that takes longer
	// is written later, and the process waits for no other line until then.
	lineTime = 200 * time.Millisecond
	// maxLines is how many lines may wait. Further ones are dropped, and counted.
	maxLines = 1000
)

// A queue writes lines in a goroutine of its own, so that a disk that does not answer, such as a network file system
// without its server, a full pipe that nobody reads, or a paused terminal (Ctrl-S) does not stop the process. Otherwise a
// line is written when Write returns.
type queue struct {
	out     io.WriteCloser
	lines   chan line
	isLate  atomic.Bool   // a line was not written in time, and lines wait
	dropped atomic.Int64  // lines for which there was no room
	closed  chan struct{} // closed by Close
	ended   chan error    // receives the error of out.Close
}

type line struct {
	text    []byte
	written chan error
}

func newQueue(out io.WriteCloser) *queue {
	q := &queue{out: out, lines: make(chan line, maxLines), closed: make(chan struct{}), ended: make(chan error, 1)}
	go q.run()
	return q
}

func (q *queue) Write(p []byte) (int, error) {
	l := line{bytes.Clone(p), make(chan error, 1)}
	select {
	case q.lines <- l:
	default:
		q.dropped.Add(1)
		return len(p), nil // zerolog would write an error to standard error, which may be the log that does not answer
	}
	if q.isLate.Load() {
		return len(p), nil
	}
	select {
	case err := <-l.written:
		return len(p), err
	case <-q.closed:
		return len(p), nil
	case <-time.After(lineTime):
		q.isLate.Store(true)
		return len(p), nil
	}
}

func (q *queue) run() {
	for {
		select {
		case l := <-q.lines:
			q.write(l)
		case <-q.closed:
			for len(q.lines) > 0 {
				q.write(<-q.lines)
			}
			q.ended <- q.out.Close()
			return
		}
	}
}

func (q *queue) write(l line) {
	_, err := q.out.Write(l.text)
	l.written <- err
	if n := q.dropped.Swap(0); n > 0 {
		_, _ = fmt.Fprintf(q.out, `{"level":"warn","%s":%d,"message":"lines of the log dropped, because they could not be written"}`+"\n", Count, n)
	}
	if len(q.lines) == 0 {
		q.isLate.Store(false)
	}
}

// Close writes the lines that wait, if that takes no longer than lineTime, and closes the log. It must be called once.
func (q *queue) Close() error {
	close(q.closed)
	select {
	case err := <-q.ended:
		return err
	case <-time.After(lineTime):
		return nil // the disk does not answer
	}
}
