package socket

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

func TestAwaitGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	write := func() os.FileInfo {
		testkit.Must(t, os.WriteFile(path+".new", nil, 0o600))
		testkit.Must(t, os.Rename(path+".new", path))
		info, err := os.Lstat(path)
		testkit.Must(t, err)
		return info
	}
	was := write()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := AwaitGone(ctx, path, was); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("AwaitGone while the file exists: %v", err)
	}
	write()
	if err := AwaitGone(t.Context(), path, was); err != nil {
		t.Errorf("AwaitGone after the file was replaced: %v", err)
	}
	testkit.Must(t, os.Remove(path))
	if err := AwaitGone(t.Context(), path, was); err != nil {
		t.Errorf("AwaitGone after the file was removed: %v", err)
	}
}
