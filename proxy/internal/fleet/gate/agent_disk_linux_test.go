package gate

import (
	"context"
	"testing"

	"holdfast/proxy/internal/fleet/member"
	"holdfast/shared/testkit"
)

// On a full disk, a host is reachable also through an agent that has just started and cannot save its epoch, and through
// the next one, which begins with the same epoch. When there is room, an agent saves a later epoch than both.
func TestAgentOnFullDisk(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	b := newBench(t)
	a, _ := joinedHouse(b, "x")
	lift := testkit.LimitFiles(t, 8)
	agent := func(name string) {
		t.Helper()
		testkit.Eventually(t, limit, func() bool { return !b.info("x").IsReachable }, "the host is not reachable before "+name)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := member.Run(ctx, a.options())
			ended <- err
		}()
		testkit.Eventually(t, limit, func() bool { return b.info("x").IsReachable }, "the host is reachable: "+name)
		cancel()
		if err := testkit.Within(t, limit, "the agent ends", ended); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	agent("the first agent on a full disk")
	agent("the second agent on a full disk")
	written, err := member.Load(a.path())
	if err != nil || written.Epoch != 0 {
		t.Errorf("the full disk has epoch %d, %v", written.Epoch, err)
	}
	lift()
	agent("the agent with room")
	if written, err = member.Load(a.path()); err != nil || written.Epoch != 3 {
		t.Errorf("the epoch is %d, %v, want 3", written.Epoch, err)
	}
}
