package linkclient

import (
	"context"
	"errors"
	"testing"

	"holdfast/shared/testkit"
)

// Reconnect makes a lost link again, also to the next supervisor, and starts none.
func TestReconnect(t *testing.T) {
	s := newSupervisor(t)
	c, d := s.client(func(int) error { return errors.New("started") })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Reconnect(ctx) }()
	linked := func(n int) {
		t.Helper()
		testkit.Eventually(t, patience, func() bool { return c.Linked() && s.LinkCount() == n }, "the client has a link")
	}
	testkit.Eventually(t, patience, func() bool { tries, _ := d.get(); return tries > 0 }, "the client tries to connect")
	s.Listen()
	linked(1)
	s.Cut()
	linked(2)
	cancel()
	testkit.Within(t, soonish, "Reconnect ends", ended)
	if _, starts := d.get(); starts > 0 {
		t.Errorf("%d supervisors were started", starts)
	}
}
