//go:build unix

package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// A pipe in the place of the key or of the settings is refused, and not waited for. So is a file without an end.
func TestNoRegularFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	testkit.Must(t, syscall.Mkfifo(pipe, 0o600))
	if _, err := (Config{DurableKey: pipe}).ReadDurableKey(context.Background()); err == nil {
		t.Error("the pipe was read as a key")
	}
	for _, path := range []string{pipe, "/dev/zero", filepath.Dir(pipe)} {
		if _, err := readFile(path); err == nil || !strings.Contains(err.Error(), "regular file") {
			t.Errorf("settings in %s: %v", path, err)
		}
	}
	long := filepath.Join(filepath.Dir(pipe), "long")
	testkit.Must(t, errors.Join(os.WriteFile(long, nil, 0o600), os.Truncate(long, maxFile+1)))
	if _, err := readFile(long); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("settings in a long file: %v", err)
	}
}

// The key must be read from a private file, or from a command, whose output must not be in an error.
func TestReadDurableKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	testkit.Must(t, os.WriteFile(path, []byte("the key\n"), 0o600))
	for _, tt := range []struct{ setting, want, wrong string }{
		{path, "the key\n", ""},
		{"!cat " + path, "the key\n", ""},
		{path + "x", "", "no such file"},
		{"!echo secret; echo locked >&2; exit 3", "", "exit status 3: locked"},
		{"!yes | head -c 1000000", strings.Repeat("y\n", maxKeyText/2), ""},
	} {
		got, err := Config{DurableKey: tt.setting}.ReadDurableKey(context.Background())
		if got != tt.want || (err == nil) != (tt.wrong == "") || err != nil && (!strings.Contains(err.Error(), tt.wrong) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %d bytes, %v", tt.setting, len(got), err)
		}
	}
	testkit.Must(t, os.Chmod(path, 0o644))
	if _, err := (Config{DurableKey: path}).ReadDurableKey(context.Background()); err == nil {
		t.Error("ReadDurableKey accepts a file that other users can read")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := (Config{DurableKey: "!exec sleep 1000"}).ReadDurableKey(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ReadDurableKey with a command that hangs: %v", err)
	}
}
