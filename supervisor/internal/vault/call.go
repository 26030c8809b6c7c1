package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"holdfast/supervisor/internal/keeper/wire"
)

// grace is how long the rest of a frame may take when the vault is left: the
// keeper writes whole ones, and only has to be run for it.
const grace = 5 * time.Second

// call sends a message and waits for its answer.
func (v *Vault) call(ctx context.Context, m wire.Message, fds []int) error {
	answer := v.expect(&m)
	defer v.forget(m.Seq)
	frame, err := m.Frame()
	if err == nil {
		err = v.write(ctx, frame, fds)
	}
	if err == nil {
		select {
		case err = <-answer:
		case <-ctx.Done():
			err = ctx.Err()
		case <-v.lost:
			err = ErrLost
		}
	}
	if err != nil {
		return fmt.Errorf("vault: %s: %w", m.Op, err)
	}
	return nil
}

func (v *Vault) expect(m *wire.Message) <-chan error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seq++
	m.Seq = v.seq
	answer := make(chan error, 1)
	v.waiting[m.Seq] = answer
	return answer
}

func (v *Vault) forget(seq uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.waiting, seq)
}

// write gives up when ctx ends; a frame that has begun is then ended by whoever
// writes next.
func (v *Vault) write(ctx context.Context, frame []byte, fds []int) error {
	select {
	case <-v.writing:
	case <-ctx.Done():
		return ctx.Err()
	case <-v.lost:
		return ErrLost
	}
	defer func() { v.writing <- struct{}{} }()
	if v.broken {
		return ErrLost
	}
	v.conn.SetWriteDeadline(time.Time{})
	hurried := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		v.conn.SetWriteDeadline(time.Unix(1, 0))
		close(hurried)
	})
	defer func() {
		if !stop() {
			<-hurried // its deadline is not for the next one
		}
	}()
	n, err := v.conn.Send(v.rest, nil)
	if v.rest = v.rest[n:]; err == nil {
		n, err = v.conn.Send(frame, fds)
		if n > 0 {
			v.rest = frame[n:]
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ctx.Err()
	case err != nil:
		v.broken = true
	}
	return err
}

// read ends with the keeper, or at the end of a frame when the vault is left.
func (v *Vault) read() {
	defer close(v.still)
	for {
		m, fds, err := v.conn.Receive()
		if errors.Is(err, os.ErrDeadlineExceeded) && v.conn.Partial() {
			v.conn.SetReadDeadline(time.Now().Add(grace))
			m, fds, err = v.conn.Receive()
			v.conn.SetReadDeadline(time.Unix(1, 0))
		}
		var bad *wire.BadFrame
		switch {
		case err == nil:
			wire.Close(fds) // no message has any now
			v.take(m)
		case errors.As(err, &bad): // nothing for us
		case errors.Is(err, os.ErrDeadlineExceeded) && !v.conn.Partial():
			return
		default:
			close(v.lost)
			return
		}
	}
}

func (v *Vault) take(m wire.Message) {
	v.mu.Lock()
	answer := v.waiting[m.Seq]
	delete(v.waiting, m.Seq)
	v.mu.Unlock()
	switch {
	case m.Op == wire.OpExit && v.exited != nil:
		v.exited(Exit{m.PID, m.Status})
	case m.Op == wire.OpOK && answer != nil:
		answer <- nil
	case m.Op == wire.OpError && answer != nil:
		answer <- errors.New(m.Message)
	}
}
