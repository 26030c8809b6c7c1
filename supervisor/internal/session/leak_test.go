//go:build linux || darwin

package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// Two hundred sessions begin and end, each in one of the ways of comeAndGo, and leave no goroutine, descriptor,
// memory mapping, child or entry behind.
// demand: M13
func TestNothingIsLeft(t *testing.T) {
	shutdown(t, newTable(t, Config{})) // makes the objects that a process makes once
	testkit.CheckLeaks(t)
	mapped := mappings(t)
	tb := NewTable(Config{Env: []string{"PATH=" + os.Getenv("PATH")}})
	defer shutdown(t, tb)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if err := comeAndGo(tb, worker*50+i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if list, live := tb.List(""), tb.Live(); len(list) != 0 || live != 0 || len(tb.registry.exited) != 0 || len(tb.registry.opening) != 0 {
		t.Errorf("got %d listed, %d live, %d exited, %d opening; want none", len(list), live, len(tb.registry.exited), len(tb.registry.opening))
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("got child %d, %v; want none", pid, err)
	}
	testkit.Eventually(t, patience, func() bool { return mappings(t) <= mapped }, "rings are unmapped")
}

// comeAndGo begins and ends a session in the i-th way.
func comeAndGo(tb *Table, i int) error {
	code := []string{"exit 3", "echo x; read y", "cat", "trap '' HUP; read y"}[i%4]
	s, err := tb.create("", bash(code), fmt.Sprint(i))
	if err != nil {
		return err
	}
	a, _, err := s.Attach(context.Background(), protocol.AttachSpec{})
	if err == nil {
		_ = a.Type(0, []byte("hello\n")) // fails if the child has ended, which does not matter
	} else if protocol.CodeOf(err) != protocol.CodeSessionExited {
		return err
	}
	grace := 10 * time.Millisecond
	if err := s.Terminate(End{Grace: &grace}); err != nil && protocol.CodeOf(err) != protocol.CodeSessionExited {
		return err
	}
	<-s.Exited()
	if i%3 == 0 {
		if s, err = tb.reopen(s.ID(), "", protocol.RespawnSpec{Argv: []string{"true"}}, ""); err != nil {
			return err
		}
		<-s.Exited()
	}
	if err := tb.Forget(s.ID(), s.Instance()); err != nil {
		return err
	}
	if a != nil { // later than the end of the session
		a.Close()
	}
	return nil
}

// mappings returns how many rings are mapped into memory.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := filepath.Glob("/proc/self/maps")
	if err != nil || len(maps) == 0 {
		return 0
	}
	text, err := os.ReadFile(maps[0])
	testkit.Must(t, err)
	return strings.Count(string(text), "holdfast-ring")
}
