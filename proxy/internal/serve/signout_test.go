package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/shared/config"
	"holdfast/shared/testkit"
)

// A sign-out also holds for later proxies.
func TestSignedOut(t *testing.T) {
	dirs := config.Dirs{State: t.TempDir()}
	if at := readSignedOut(dirs, "p").at(); !at.IsZero() {
		t.Errorf("without a sign-out the time is %v", at)
	}
	now := time.Now()
	testkit.Must(t, readSignedOut(dirs, "p").set(now))
	if at := readSignedOut(dirs, "p").at(); !at.Equal(now) {
		t.Errorf("%v, want %v", at, now)
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dirs.State, "p.signed-out"), []byte("?"), 0o600))
	if at := readSignedOut(dirs, "p").at(); at.Before(now) {
		t.Errorf("after a damaged file, older cookies are valid: %v", at)
	}
}

// Without a state directory no browser is signed in, so a sign-out succeeds, and creates nothing. If the time cannot be saved for
// another reason, browsers stay signed in.
func TestSignOutWithoutProxy(t *testing.T) {
	dirs := config.Dirs{State: filepath.Join(t.TempDir(), "missing")}
	if err := SignOut(dirs, "p", time.Now()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dirs.State); !os.IsNotExist(err) {
		t.Errorf("the state directory: %v, want none", err)
	}
	if err := os.WriteFile(dirs.State, nil, 0o600); err != nil { // no file can be created below it
		t.Fatal(err)
	}
	if err := SignOut(dirs, "p", time.Now()); err == nil || !strings.Contains(err.Error(), "browsers are not signed out") {
		t.Errorf("if the time cannot be saved: %v", err)
	}
}
