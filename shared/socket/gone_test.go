package socket

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAwaitGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	write := func() os.FileInfo {
		if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
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
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := AwaitGone(t.Context(), path, was); err != nil {
		t.Errorf("AwaitGone after the file was removed: %v", err)
	}
}
