//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/shared/config"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// A supervisor is known to run until its presence ends. The next one removes the presences of those that have ended.
func TestPresence(t *testing.T) {
	dirs := config.Dirs{State: t.TempDir()}
	first, err := new(before).showPresence(dirs, "first")
	testkit.Must(t, err)
	second, err := new(before).showPresence(dirs, "second")
	testkit.Must(t, err)
	if !second.isRunning("first") || !first.isRunning("second") || second.isRunning("other") || second.isRunning("") || second.isRunning("../supervisors/first") {
		t.Error("the presences are not known")
	}
	testkit.Must(t, first.lock.Close())
	if second.isRunning("first") {
		t.Error("a presence does not end with its supervisor")
	}
	third, err := new(before).showPresence(dirs, "third")
	testkit.Must(t, err)
	defer func() { _, _ = third.lock.Close(), second.lock.Close() }()
	files, err := os.ReadDir(filepath.Join(dirs.State, presenceDir))
	if err != nil || len(files) != 2 || !third.isRunning("second") {
		t.Errorf("the files are %v, %v; want those of the second and third supervisor", files, err)
	}
}

// An earlier release that served in between has not passed on the presence, but the keeper has it. This is no failure.
func TestPresenceOfKeeper(t *testing.T) {
	dirs := config.Dirs{State: t.TempDir()}
	keeper, err := new(before).showPresence(dirs, "self")
	testkit.Must(t, err)
	if _, err := new(before).showPresence(dirs, "self"); err != nil {
		t.Errorf("the keeper has the presence: %v", err)
	}
	if !keeper.isRunning("self") {
		t.Error("the presence has ended")
	}
}

// A supervisor that starts waits for one that runs without its lock in the same runtime directory, until that one has its lock
// again, has ended, or the time is over. It does not wait for a supervisor of another runtime directory or another boot.
func TestAwaitSeated(t *testing.T) {
	if machine.Boot() == "" {
		t.Fatal("this system tells no boot")
	}
	state, runtime := t.TempDir(), t.TempDir()
	dirs := config.Dirs{State: state, Runtime: runtime}
	begun := func(dirs config.Dirs) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- awaitSeated(dirs, time.Minute) }()
		return ended
	}
	if err := awaitSeated(dirs, time.Minute); err != nil {
		t.Errorf("no other supervisor runs: %v", err)
	}
	other, err := new(before).showPresence(dirs, "other")
	testkit.Must(t, err)
	if err := testkit.Within(t, 30*time.Second, "the start in another directory", begun(config.Dirs{State: state, Runtime: t.TempDir()})); err != nil {
		t.Errorf("a supervisor of another runtime directory runs: %v", err)
	}
	if err := awaitSeated(dirs, time.Millisecond); err != nil {
		t.Errorf("the time is over: %v", err)
	}

	ended := begun(dirs)
	lock, err := socket.Acquire(dirs.Socket(config.SupervisorSocket))
	testkit.Must(t, err)
	if err := testkit.Within(t, 30*time.Second, "the wait for the lock", ended); !errors.As(err, new(*socket.InUseError)) {
		t.Errorf("the other supervisor has its lock again: got %v", err)
	}
	testkit.Must(t, lock.Close())

	ended = begun(dirs)
	testkit.Must(t, other.lock.Close())
	if err := testkit.Within(t, 30*time.Second, "the wait for the end", ended); err != nil {
		t.Errorf("the other supervisor has ended: %v", err)
	}

	third, err := new(before).showPresence(dirs, "third")
	testkit.Must(t, err)
	defer func() { _ = third.lock.Close() }()
	testkit.Must(t, os.WriteFile(filepath.Join(state, presenceDir, "third.lock"), fmt.Appendf(nil, "%-*d%s", seatAt, 1, "another boot "+runtime), 0o600))
	if err := testkit.Within(t, 30*time.Second, "the start after another boot", begun(dirs)); err != nil {
		t.Errorf("the presence is of another boot: %v", err)
	}
}
