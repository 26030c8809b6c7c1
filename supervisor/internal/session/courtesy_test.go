//go:build linux || darwin

package session

import (
	"testing"
	"testing/synctest"
	"time"
)

// After input in one session the others are polite for a while. The session with the input is not.
func TestCourtesy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s, other := create(t, tb, bash("")), create(t, tb, bash(""))
		c := s.cfg.courtesy
		if c.due(s.instance) || c.due(other.instance) {
			t.Error("a session is polite although no input has arrived")
		}
		for _, writer := range []string{"w", ""} {
			if _, err := s.Type(writer, 0, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if c.due(s.instance) || !c.due(other.instance) {
				t.Errorf("writer %q: polite: the session with input %v, the other %v; want false, true", writer, c.due(s.instance), c.due(other.instance))
			}
			time.Sleep(courtesyTime)
			if c.due(other.instance) {
				t.Errorf("writer %q: the other session is still polite after the time of courtesy", writer)
			}
		}
	})
}
