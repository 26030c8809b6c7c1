//go:build linux || darwin

package keeper

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxAnswers is how many answers may wait to be written; then nothing is read. A
// supervisor waits for each, or has few on their way.
const maxAnswers = 256

// talk writes to a supervisor until it is dead, and returns when nobody reads
// from it either.
func (k *keeper) talk(c *child, fresh bool) {
	defer close(c.done)
	if fresh {
		k.wrote(c, nil, k.introduce(c))
	}
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		k.guard(func() { k.listen(c) })
	}()
	for frame := k.next(c); frame != nil; frame = k.next(c) {
		n, err := c.conn.Send(frame, nil)
		k.wrote(c, frame[n:], err)
	}
	<-listened
}

// introduce tells all that is held. Records do not change meanwhile: nothing is
// read yet.
func (k *keeper) introduce(c *child) error {
	k.mu.Lock()
	hello := Message{Op: OpHello, Version: Version, Records: len(k.records), Starts: k.starts, Last: k.last, Status: k.status}
	ids, exits := slices.Sorted(maps.Keys(k.records)), k.inOrder()
	c.untold = nil // those are among exits
	k.mu.Unlock()
	err := c.send(hello, nil)
	for _, id := range ids {
		r := k.records[id]
		err = errors.Join(err, c.send(Message{Op: OpRecord, ID: id, PID: r.PID, Meta: r.Meta, FDs: len(r.FDs)}, r.FDs))
		if err != nil {
			return err
		}
	}
	for _, e := range exits {
		err = errors.Join(err, c.send(Message{Op: OpExit, PID: e.PID, Status: e.Status}, nil))
	}
	return errors.Join(err, c.send(Message{Op: OpEnd}, nil))
}

// send is for introduce alone. Too many references: descriptors under way are
// limited per user, until those before are received.
func (c *child) send(m Message, fds []int) error {
	frame, err := m.Frame()
	if err != nil {
		return err
	}
	for {
		_, err = c.conn.Send(frame, fds)
		if !errors.Is(err, unix.ETOOMANYREFS) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// next waits for what is to be written; nil is the end.
func (k *keeper) next(c *child) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ; ; k.changed.Wait() {
		c.parked = c.frozen
		switch {
		case c.dead || c.broken:
			c.out, c.untold = nil, nil
			return nil
		case c.frozen:
			k.changed.Broadcast()
		case len(c.out) > 0:
			frame := c.out[0]
			c.out = c.out[1:]
			k.changed.Broadcast()
			return frame
		case len(c.untold) > 0:
			if frame := k.nextExit(c); frame != nil {
				return frame
			}
		}
	}
}

// nextExit: what was forgotten since is not told.
func (k *keeper) nextExit(c *child) []byte {
	for len(c.untold) > 0 {
		e, known := k.exits[c.untold[0]]
		c.untold = c.untold[1:]
		if known {
			frame, _ := Message{Op: OpExit, PID: e.PID, Status: e.Status}.Frame()
			return frame
		}
	}
	return nil
}

// wrote keeps the rest of a frame that was interrupted by freeze.
func (k *keeper) wrote(c *child, rest []byte, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.out = slices.Insert(c.out, 0, rest)
	} else if err != nil {
		c.broken = true // it may live on; its end is what counts
		k.changed.Broadcast()
	}
}

// listen does what a supervisor asks for, in order.
func (k *keeper) listen(c *child) {
	for {
		k.waitForRoom(c)
		m, fds, err := c.conn.Receive()
		var bad *BadFrame
		if err != nil && !errors.As(err, &bad) {
			return
		}
		if bad == nil {
			err = k.handle(c, m, fds)
		}
		k.answer(c, m, err)
	}
}

func (k *keeper) waitForRoom(c *child) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(c.out) >= maxAnswers && !c.dead && !c.broken {
		k.changed.Wait()
	}
}

// handle takes the descriptors over. After a mistake of ours they stay open, as
// nobody knows who has them.
func (k *keeper) handle(c *child, m Message, fds []int) (err error) {
	mistake := k.guard(func() {
		if m.Op == OpExec {
			err = k.become(c, m, fds) // locks for itself
			closeAll(fds)
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if err = k.do(c, m, fds); err != nil || m.Op != OpPut {
			closeAll(fds)
		}
	})
	return errors.Join(err, mistake)
}

func (k *keeper) do(c *child, m Message, fds []int) error {
	switch m.Op {
	case OpHello:
		return nil // there is one version
	case OpPut:
		return k.put(m.ID, &record{m.PID, m.Meta, fds})
	case OpPID:
		return k.setPID(m.ID, m.PID)
	case OpDelete:
		return k.delete(m.ID)
	case OpReady:
		k.isReady(c)
		return nil
	case OpQuit:
		c.quit = true
		return nil
	}
	return fmt.Errorf("%.20q is not known here", m.Op)
}

// isReady opens what the supervisor runs now, which is not always what it was
// started with: it may have become another program since.
func (k *keeper) isReady(c *child) {
	c.ready, k.lived, k.failures = true, true, 0
	if c.dead {
		return
	}
	if fd := programOf(c.pid); fd > 0 {
		if k.good > 0 {
			unix.Close(k.good)
		}
		k.good = fd
	}
	if k.pending != 0 {
		c.pass(k.pending)
		k.pending = 0
	}
}

func (k *keeper) answer(c *child, m Message, err error) {
	reply := Message{Op: OpOK, Seq: m.Seq}
	if err != nil {
		reply = Message{Op: OpError, Seq: m.Seq, Message: err.Error()}
		if c.blamed++; c.blamed <= 10 { // enough to find out, too little to fill a disk
			k.log("supervisor %d: %.20q refused: %v", c.pid, m.Op, err)
		}
	}
	if err == nil && m.Seq == 0 {
		return
	}
	frame, _ := reply.Frame()
	k.mu.Lock()
	defer k.mu.Unlock()
	c.out = append(c.out, frame)
	k.changed.Broadcast()
}
