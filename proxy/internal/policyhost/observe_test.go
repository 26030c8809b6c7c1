//go:build unix

package policyhost

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"holdfast/proxy/policy"
	"holdfast/shared/testkit"
)

func (s *stage) observe(h *Host, from, n int) {
	s.t.Helper()
	for i := range n {
		testkit.Must(s.t, h.Observe(testkit.Soon(s.t), policy.Event{SessionID: fmt.Sprint(from + i), Labels: map[string]string{"a": "b"}}))
	}
}

// Events arrive in order. A program that does not react delays no caller, and events above the limit are dropped and
// counted.
func TestObserve(t *testing.T) {
	s := newStage(t, "served")
	h, p := s.start(s.config())
	s.observe(h, 0, 10)
	for i := range 10 {
		if got := testkit.Within(t, limit, "an event", p.told); got != fmt.Sprint(i) {
			t.Fatalf("got event %s, want %d", got, i)
		}
	}
	p.kill(t, syscall.SIGSTOP)
	const many = 3000
	s.observe(h, 10, many)
	dropped := int(h.Stats().EventsDropped)
	if dropped == 0 || dropped > many-maxEvents { // the program stops a moment after the signal
		t.Errorf("got %d dropped, want about all but %d", dropped, maxEvents)
	}
	p.kill(t, syscall.SIGCONT)
	for range many - dropped {
		testkit.Within(t, limit, "an event", p.told)
	}
	if lines := s.log.wait(t, "policy events were dropped", 1); len(lines) != 1 || lines[0]["count"] != float64(dropped) {
		t.Errorf("got %v, want one line with the count %d", lines, dropped)
	}
	if got := h.Stats(); got.Methods["observe"].Calls != many+10 || int(got.EventsDropped) != dropped || got.Crashes != 0 {
		t.Errorf("stats: %+v", got)
	}
}

// Close sends the events that wait.
func TestObserveBeforeClose(t *testing.T) {
	s := newStage(t, "served")
	cfg := s.config()
	cfg.Grace = limit
	h, p := s.start(cfg)
	s.observe(h, 0, 100)
	testkit.Must(t, h.Close())
	testkit.Within(t, limit, "the end of the program", p.gone)
	if n := len(p.told); n != 100 {
		t.Errorf("got %d events, want 100", n)
	}
}

// Events while the program does not run are dropped, and a program that does not support events does not count as one
// that hangs.
func TestObserveInVain(t *testing.T) {
	s := newStage(t, "raw") // does not support Observe
	cfg := s.config()
	cfg.FirstWait = time.Hour
	h, p := s.start(cfg)
	s.observe(h, 0, 10)
	testkit.Eventually(t, limit, func() bool { return h.Stats().EventsDropped == 10 }, "all are dropped")
	if got := h.Stats(); got.Methods["observe"].Failures != 10 || !got.Running {
		t.Errorf("stats: %+v", got)
	}
	p.kill(t, syscall.SIGKILL)
	down(t, h)
	s.observe(h, 10, 10)
	testkit.Eventually(t, limit, func() bool { return h.Stats().EventsDropped == 20 }, "all are dropped")
	testkit.Must(t, h.Close())
	if lines := s.log.with("policy events were dropped"); len(lines) != 1 || lines[0]["count"] != 20.0 {
		t.Errorf("got %v, want one line with the count 20", lines)
	}
}
