//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"holdfast/shared/config"
)

// A supervisor is known to run until its claim ends. The next one removes the claims of those that have ended.
func TestClaim(t *testing.T) {
	dirs := config.Dirs{State: t.TempDir()}
	first, err := claimRecordings(dirs, "first")
	if err != nil {
		t.Fatal(err)
	}
	second, err := claimRecordings(dirs, "second")
	if err != nil {
		t.Fatal(err)
	}
	if !second.isHeld("first") || !first.isHeld("second") || second.isHeld("other") || second.isHeld("") || second.isHeld("../supervisors/first") {
		t.Error("the claims are not known")
	}
	if err := first.lock.Close(); err != nil {
		t.Fatal(err)
	}
	if second.isHeld("first") {
		t.Error("a claim does not end with its supervisor")
	}
	third, err := claimRecordings(dirs, "third")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = third.lock.Close(), second.lock.Close() }()
	files, err := os.ReadDir(filepath.Join(dirs.State, claimsDir))
	if err != nil || len(files) != 2 || !third.isHeld("second") {
		t.Errorf("the files are %v, %v; want those of the second and third supervisor", files, err)
	}
}
