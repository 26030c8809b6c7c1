//go:build linux || darwin

package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/supervisor/internal/keeper/message"
)

// A child is the supervisor that runs, and the state of the conversation with it.
type child struct {
	PID    int    `json:"pid"`
	Socket int    `json:"socket"` // -1: the connection failed, and no more messages can be sent
	Ready  bool   `json:"ready,omitempty"`
	Quit   bool   `json:"quit,omitempty"`   // the keeper ends when this supervisor exits with code 0
	New    bool   `json:"new,omitempty"`    // its program is state.New
	Unsent []byte `json:"unsent,omitempty"` // bytes of the frame that is being sent

	conn      *message.Conn
	unsentFDs []int    // descriptors that go with the first byte of Unsent
	unsentIDs []string // entries that are still to be sent
	hasAll    bool     // all entries and exits of its start were sent
	isLate    bool     // the keeper ended it because it did not serve
	hasLeft   bool     // it announced the exec of another program

	// spent is how long the keeper has waited for progress, or how long the child has
	// served. A time in which the keeper itself was stopped hardly counts.
	spent time.Duration
}

// timeLimit returns how long c may make no progress before it serves, or how long it must
// serve until its program is good; 0 is no limit.
func (k *keeper) timeLimit(c *child) time.Duration {
	switch {
	case c.Ready && c.New:
		return k.cfg.GoodTime
	case c.Ready || c.isLate:
		return 0
	}
	return k.cfg.StartTime << min(k.lateCount, 4)
}

// countTurn adds the duration of a turn to the time of c. At the limit, a supervisor
// that does not serve is ended, so that another one is started; the program of a
// supervisor that serves is good.
func (k *keeper) countTurn(c *child, began time.Time, limit time.Duration) {
	if k.Supervisor != c || k.timeLimit(c) != limit { // it has ended, or its state has changed
		return
	}
	c.spent += min(time.Since(began), limit/ticksPerLimit)
	switch {
	case c.spent < limit:
	case c.Ready:
		k.acceptProgram()
	default:
		k.log("supervisor %d ended by the keeper: it made no progress and did not serve within %v; %d vault entries are held", c.PID, limit, len(k.Entries))
		c.isLate = true
		k.lateCount++
		k.kill(c.PID, unix.SIGKILL)
	}
}

// noteProgress gives a supervisor that does not serve yet its whole time again.
func (c *child) noteProgress() {
	if !c.Ready {
		c.spent = 0
	}
}

// queueNext queues the next message for c, if there is one, and reports whether bytes
// are queued. Exits stay in state until they are sent, so that a supervisor that does not
// read needs no queue.
func (k *keeper) queueNext(c *child) bool {
	i := slices.IndexFunc(k.Exits, func(e exit) bool { return e.isUnsent })
	switch {
	case len(c.Unsent) > 0:
	case len(c.unsentIDs) > 0:
		id := c.unsentIDs[0]
		e := k.Entries[id]
		c.queue(message.Message{Op: message.OpRecord, ID: id, PID: e.PID, Meta: e.Meta, FDs: len(e.FDs)})
		c.unsentIDs, c.unsentFDs = c.unsentIDs[1:], e.FDs
	case i >= 0:
		k.Exits[i].isUnsent = false
		c.queue(message.Message{Op: message.OpExit, PID: k.Exits[i].PID, Status: k.Exits[i].Status})
	case !c.hasAll:
		c.hasAll = true
		c.queue(message.Message{Op: message.OpEnd})
	}
	return len(c.Unsent) > 0
}

// queue encodes a message to be sent. It cannot fail: a message is never longer than
// the frame that its content was received in.
func (c *child) queue(m message.Message) {
	frame, _ := m.Frame()
	c.Unsent = append(c.Unsent, frame...)
}

func (c *child) send() {
	n, err := c.conn.Send(c.Unsent, c.unsentFDs)
	c.Unsent = c.Unsent[n:]
	switch {
	case n > 0:
		c.unsentFDs = nil
		c.noteProgress()
	case errors.Is(err, unix.ETOOMANYREFS): // too many descriptors are in flight; the supervisor must receive some
		time.Sleep(10 * time.Millisecond)
	case !errors.Is(err, os.ErrDeadlineExceeded):
		c.Socket = -1
	}
}

// receive handles the next message of a supervisor, and reports whether there was one.
func (k *keeper) receive(c *child) bool {
	m, fds, err := c.conn.Receive()
	switch badFrame := new(message.BadFrame); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false
	case err == nil:
		c.noteProgress()
		err = k.recoverPanic(func() error { return k.handle(c, m, fds) })
	case !errors.As(err, &badFrame):
		c.Socket = -1
		return false
	}
	if err != nil {
		c.queue(message.Message{Op: message.OpError, Seq: m.Seq, Message: err.Error()})
	} else if m.Seq != 0 {
		c.queue(message.Message{Op: message.OpOK, Seq: m.Seq})
	}
	return true
}

// handle executes a message and owns its descriptors. After a panic they stay open.
func (k *keeper) handle(c *child, m message.Message, fds []int) (err error) {
	e := k.Entries[m.ID]
	switch {
	case m.Op == message.OpHello: // there is only one version
	case m.Op == message.OpPut:
		err = k.putEntry(&Entry{ID: m.ID, PID: m.PID, Meta: m.Meta, FDs: fds})
	case m.Op == message.OpPID && e != nil:
		k.setPID(e, m.PID)
	case m.Op == message.OpDelete && e != nil:
		k.deleteEntry(m.ID)
	case m.Op == message.OpReady:
		c.Ready, c.spent, k.failureCount, k.lateCount, k.isHeld = true, 0, 0, 0, false
		if k.Supervisor == c { // otherwise it is dead, and its pid may belong to another process
			k.handleReady(c, m.Argv)
		}
	case m.Op == message.OpLeave:
		c.Ready, c.New, c.hasLeft = false, false, true
	case m.Op == message.OpAlive: // receive has noted the progress
	case m.Op == message.OpExec && len(fds) == 1 && len(m.Argv) > 0 && k.Supervisor == c:
		err = k.exec(m, fds[0])
	case m.Op == message.OpQuit:
		c.Quit = true
	default:
		err = fmt.Errorf("cannot handle %.20q for vault entry %.50q: the entry or the operation is unknown", m.Op, m.ID)
	}
	if err != nil || m.Op != message.OpPut {
		message.Close(fds)
	}
	return err
}

// handleExit processes the remaining messages of a dead supervisor, then schedules a
// restart.
func (k *keeper) handleExit(c *child, status syscall.WaitStatus) {
	k.Supervisor = nil
	for k.receive(c) {
	}
	_ = c.conn.Close() // the peer is dead, so there is no data that an error could concern
	code := status.ExitStatus()
	k.Last, k.Status = fmt.Sprintf("exit code %d", code), uint32(status)
	if status.Signaled() {
		k.Last, code = unix.SignalName(status.Signal()), 128+int(status.Signal())
	}
	if c.isLate {
		k.Last = "did not serve in time and was ended"
	}
	k.scheduleRestart(c, code)
}

// scheduleRestart decides whether a supervisor follows one that has ended. The keeper ends as well
// if that was requested, or if it holds no session and no supervisor ever ran, because
// then the caller of this program has to learn of the failure.
func (k *keeper) scheduleRestart(c *child, code int) {
	neverServed := k.Starts == 1 && !c.Ready
	if neverServed {
		k.log("the first supervisor did not serve: %s", k.Last)
	}
	if c.Quit && code == 0 || k.holdsNoSession() && (c.Quit || k.stopSignal != 0 || neverServed) {
		k.exitCode = code
		return
	}
	k.log("supervisor %d ended: %s; %d vault entries are held", c.PID, k.Last, len(k.Entries))
	if c.New && k.New != nil {
		if k.New.Deaths++; k.New.Deaths >= maxNewDeaths {
			k.log("program given up after %d deaths without serving for %v; the keeper returns to the program before it", maxNewDeaths, k.cfg.GoodTime)
			k.dropNew()
		}
	}
	now := time.Now()
	k.deaths = append(slices.DeleteFunc(k.deaths, func(t time.Time) bool { return now.Sub(t) > time.Minute }), now)
	if n := len(k.deaths); n < k.cfg.Deaths && !k.isHeld {
		k.restartAt = now.Add(time.Duration(n-1) * k.cfg.Backoff)
	} else if k.stopSignal == unix.SIGTERM {
		k.exitCode = 128 + int(k.stopSignal)
	} else { // also after a SIGINT, which must come twice to end sessions
		k.stopSignal, k.isHeld, k.restartAt = 0, true, now.Add(k.cfg.HeldPause)
		k.log("no supervisor is started for %v, after %d deaths in a minute; to start one at once: kill -HUP %d", k.cfg.HeldPause, k.cfg.Deaths, os.Getpid())
		k.cfg.Held(k.cfg.Deaths)
	}
}
