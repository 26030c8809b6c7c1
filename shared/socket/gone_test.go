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
		t.Errorf("while it is there: %v", err)
	}
	write()
	if err := AwaitGone(t.Context(), path, was); err != nil {
		t.Errorf("another file is there: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := AwaitGone(t.Context(), path, was); err != nil {
		t.Errorf("no file is there: %v", err)
	}
}
