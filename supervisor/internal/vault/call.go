package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"holdfast/supervisor/internal/keeper/message"
)

// grace is how long the remainder of a frame may take when the connection is left. The keeper
// writes whole frames, so the remainder arrives as soon as the keeper is scheduled.
const grace = 5 * time.Second

// call sends a message and waits for its answer.
func (v *Vault) call(ctx context.Context, m message.Message, fds []int) error {
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

func (v *Vault) expect(m *message.Message) <-chan error {
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

// write sends a frame. If ctx ends or the kernel refuses the frame, write returns, and the next writer sends the remainder
// of a frame that was sent in part. So the connection stays usable after each error but its end, which read notices.
func (v *Vault) write(ctx context.Context, frame []byte, fds []int) error {
	select {
	case <-v.writing:
	case <-ctx.Done():
		return ctx.Err()
	case <-v.lost:
		return ErrLost
	}
	defer func() { v.writing <- struct{}{} }()
	_ = v.conn.SetWriteDeadline(time.Time{})
	deadlineSet := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = v.conn.SetWriteDeadline(time.Unix(1, 0))
		close(deadlineSet)
	})
	defer func() {
		if !stop() {
			<-deadlineSet // otherwise its deadline would concern the next writer
		}
	}()
	n, err := v.conn.Send(v.remainder, nil)
	if v.remainder = v.remainder[n:]; err == nil {
		n, err = v.conn.Send(frame, fds)
		if n > 0 {
			v.remainder = frame[n:]
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// read receives messages until the connection ends, or until Detach sets a deadline; then it
// ends at the end of a frame.
func (v *Vault) read() {
	defer close(v.readEnded)
	for {
		m, fds, err := v.conn.Receive()
		if errors.Is(err, os.ErrDeadlineExceeded) && v.conn.Partial() {
			_ = v.conn.SetReadDeadline(time.Now().Add(grace))
			m, fds, err = v.conn.Receive()
			_ = v.conn.SetReadDeadline(time.Unix(1, 0))
		}
		var bad *message.BadFrame
		switch {
		case err == nil:
			message.Close(fds) // messages have no descriptors after restore
			v.dispatch(m)
		case errors.As(err, &bad): // the frame is skipped
		case errors.Is(err, os.ErrDeadlineExceeded) && !v.conn.Partial():
			return
		default:
			close(v.lost)
			return
		}
	}
}

func (v *Vault) dispatch(m message.Message) {
	v.mu.Lock()
	answer := v.waiting[m.Seq]
	delete(v.waiting, m.Seq)
	v.mu.Unlock()
	switch {
	case m.Op == message.OpExit && v.exited != nil:
		v.exited(Exit{m.PID, m.Status})
	case m.Op == message.OpOK && answer != nil:
		answer <- nil
	case m.Op == message.OpError && answer != nil:
		answer <- errors.New(m.Message)
	}
}
