//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"holdfast/shared/config"
)

// A supervisor is known to run until its presence ends. The next one removes the presences of those that have ended.
func TestPresence(t *testing.T) {
	dirs := config.Dirs{State: t.TempDir()}
	first, err := new(before).showPresence(dirs, "first")
	if err != nil {
		t.Fatal(err)
	}
	second, err := new(before).showPresence(dirs, "second")
	if err != nil {
		t.Fatal(err)
	}
	if !second.isRunning("first") || !first.isRunning("second") || second.isRunning("other") || second.isRunning("") || second.isRunning("../supervisors/first") {
		t.Error("the presences are not known")
	}
	if err := first.lock.Close(); err != nil {
		t.Fatal(err)
	}
	if second.isRunning("first") {
		t.Error("a presence does not end with its supervisor")
	}
	third, err := new(before).showPresence(dirs, "third")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if _, err := new(before).showPresence(dirs, "self"); err != nil {
		t.Errorf("the keeper has the presence: %v", err)
	}
	if !keeper.isRunning("self") {
		t.Error("the presence has ended")
	}
}
