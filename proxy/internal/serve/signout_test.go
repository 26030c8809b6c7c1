package serve

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/shared/config"
)

// A sign-out also holds for later proxies.
func TestSignedOut(t *testing.T) {
	dirs := config.Dirs{State: t.TempDir()}
	if at := readSignedOut(dirs, "p").at(); !at.IsZero() {
		t.Errorf("without a sign-out the time is %v", at)
	}
	now := time.Now()
	if err := readSignedOut(dirs, "p").set(now); err != nil {
		t.Fatal(err)
	}
	if at := readSignedOut(dirs, "p").at(); !at.Equal(now) {
		t.Errorf("%v, want %v", at, now)
	}
	if err := os.WriteFile(filepath.Join(dirs.State, "p.signed-out"), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if at := readSignedOut(dirs, "p").at(); at.Before(now) {
		t.Errorf("after a damaged file, older cookies are valid: %v", at)
	}
}
