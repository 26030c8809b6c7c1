//go:build linux || darwin

package session

import (
	"testing"
	"testing/synctest"
	"time"
)

// While somebody types in one session the others are polite, for a while; it
// itself is not.
func TestCourtesy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s, other := create(t, tb, bash("")), create(t, tb, bash(""))
		c := s.cfg.courtesy
		if c.due(s.instance) || c.due(other.instance) {
			t.Error("nobody has typed")
		}
		if _, err := s.Type("w", 0, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if c.due(s.instance) || !c.due(other.instance) {
			t.Errorf("polite: the one %v, the other %v", c.due(s.instance), c.due(other.instance))
		}
		time.Sleep(courtesyTime)
		if c.due(other.instance) {
			t.Error("polite for ever")
		}
	})
}
