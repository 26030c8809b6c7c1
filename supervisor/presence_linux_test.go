package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/shared/config"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// If the directory of the state was removed, too, or was moved, a supervisor that starts waits for one that has the lock open.
func TestAwaitSeatedWithoutState(t *testing.T) {
	for name, takeAway := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"moved":   func(dir string) error { return os.Rename(dir, dir+" in the trash") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "all")
			dirs := config.Dirs{State: filepath.Join(dir, "state"), Runtime: filepath.Join(dir, "runtime")}
			makeRuntime := func() {
				testkit.Must(t, os.MkdirAll(dirs.Runtime, 0o700))
			}
			makeRuntime()
			lock, err := socket.Acquire(dirs.Socket(config.SupervisorSocket))
			testkit.Must(t, err)
			p, err := (&before{}).showPresence(dirs, "1")
			testkit.Must(t, err)
			testkit.Must(t, takeAway(dir))
			makeRuntime()
			begun := func() <-chan error {
				ended := make(chan error, 1)
				go func() { ended <- awaitSeated(dirs, time.Minute) }()
				return ended
			}
			ended := begun()
			again, err := socket.Acquire(dirs.Socket(config.SupervisorSocket))
			testkit.Must(t, err)
			if err := testkit.Within(t, 30*time.Second, "the wait for the lock", ended); !errors.As(err, new(*socket.InUseError)) {
				t.Errorf("the other supervisor has its lock again: got %v", err)
			}
			_, _, _ = lock.Close(), again.Close(), p.lock.Close() // they are descriptors of files of which nothing is read any more
			if err := testkit.Within(t, 30*time.Second, "a start without another supervisor", begun()); err != nil {
				t.Errorf("no other supervisor runs: %v", err)
			}
		})
	}
}
