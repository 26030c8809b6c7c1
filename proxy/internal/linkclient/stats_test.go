package linkclient

import (
	"context"
	"testing"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// Stats and Answers make no link and start no supervisor, and return within their time-out.
func TestStats(t *testing.T) {
	s := newSupervisor(t)
	s.Listen()
	c, dials := s.client(nil)
	_, err := c.Stats(testkit.Soon(t))
	wantCode(t, "without a link", err, protocol.CodeSupervisorUnreachable)
	wantCode(t, "without a link", c.Answers(testkit.Soon(t)), protocol.CodeSupervisorUnreachable)
	if tries, starts := dials.get(); tries+starts > 0 {
		t.Errorf("%d dials, %d starts", tries, starts)
	}
	if _, err := c.Conn(testkit.Soon(t)); err != nil {
		t.Fatal(err)
	}
	s.Answer(func(st *link.Stream, m protocol.Message) {
		if _, ok := m.(*wire.Stats); ok {
			_ = st.Send(wire.StatsReport{Spawns: 7})
			return
		}
		_ = st.Send(wire.StatusReport{})
	})
	if r, err := c.Stats(testkit.Soon(t)); err != nil || r.Spawns != 7 {
		t.Errorf("received %+v, %v", r, err)
	}
	if err := c.Answers(testkit.Soon(t)); err != nil {
		t.Errorf("Answers returned %v", err)
	}
	s.Answer(func(st *link.Stream, m protocol.Message) {
		_ = st.Fail(protocol.Errorf(protocol.CodeUnsupported, "%s", m.MessageType()))
	})
	_, err = c.Stats(testkit.Soon(t))
	wantCode(t, "a refusal", err, protocol.CodeUnsupported)

	asked := make(chan struct{})
	s.Answer(func(st *link.Stream, _ protocol.Message) {
		close(asked)
		_, _ = st.Next() // until the caller has canceled
	})
	ctx, cancel := context.WithCancel(testkit.Soon(t))
	failed := make(chan error, 1)
	go func() { failed <- c.Answers(ctx) }()
	testkit.Within(t, patience, "the supervisor receives the request", asked)
	began := time.Now()
	cancel()
	wantCode(t, "a silent supervisor", testkit.Within(t, soonish, "the call returns", failed), protocol.CodeSupervisorUnreachable)
	if took := time.Since(began); took > soonish {
		t.Errorf("canceled after %v", took)
	}
}
