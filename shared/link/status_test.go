package link

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/shared/testkit"
)

// Status must return the supervisor's status, and must not wait for a supervisor that never answers.
func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(*Stream)
		check  func(*protocol.ProcessStatus, error) bool
	}{
		{"a status", func(st *Stream) { _ = st.Send(link.StatusReport{Supervisor: protocol.ProcessStatus{PID: 7}}) },
			func(s *protocol.ProcessStatus, err error) bool { return err == nil && s.PID == 7 }},
		{"another message", func(st *Stream) { _ = st.Send(link.OK{}) },
			func(_ *protocol.ProcessStatus, err error) bool { return protocol.CodeOf(err) == protocol.CodeBadFrame }},
		{"an error", func(st *Stream) { _ = st.Fail(protocol.Errorf(protocol.CodeBusy, "later")) },
			func(_ *protocol.ProcessStatus, err error) bool { return protocol.CodeOf(err) == protocol.CodeBusy }},
		{"no answer", func(*Stream) {},
			func(_ *protocol.ProcessStatus, err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy, supervisor := linked(t)
			answer(t, supervisor, func(st *Stream, _ protocol.Message) { tt.answer(st) })
			ctx := testkit.Soon(t)
			if tt.name == "no answer" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			}
			if s, err := proxy.Status(ctx); !tt.check(s, err) {
				t.Errorf("got %+v, %v", s, err)
			}
		})
	}
}

// AwaitStatus must continue after errors and undecided answers, and must return the decision of judge.
func TestAwaitStatus(t *testing.T) {
	asked := 0
	silent, refused := errors.New("no supervisor answers"), errors.New("it did not become another program")
	ask := func(context.Context) (*protocol.ProcessStatus, error) {
		if asked++; asked < 3 {
			return nil, silent
		}
		return &protocol.ProcessStatus{Upgrades: asked}, nil
	}
	decided, err := AwaitStatus(testkit.Soon(t), ask, func(s *protocol.ProcessStatus, err error) (bool, error) {
		return err == nil && s.Upgrades == 4, refused
	})
	if !decided || !errors.Is(err, refused) || asked != 4 {
		t.Errorf("decided %t, %v, after %d answers", decided, err, asked)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	asked = 0
	decided, err = AwaitStatus(ctx, ask, func(*protocol.ProcessStatus, error) (bool, error) { return false, nil })
	if decided || !errors.Is(err, silent) {
		t.Errorf("decided %t, %v", decided, err)
	}
}
