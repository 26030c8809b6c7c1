package socket

import (
	"context"
	"fmt"
	"os"
	"time"
)

// gonePoll is the pause between two looks of AwaitGone.
const gonePoll = 2 * time.Millisecond

// AwaitGone returns when the path no longer names the file was, which os.Lstat returned for a socket
// before its process was asked to end. It does not take the socket's lock, so that it disturbs no
// process that listens next.
func AwaitGone(ctx context.Context, path string, was os.FileInfo) error {
	for {
		now, err := os.Lstat(path)
		if err != nil || !os.SameFile(was, now) {
			return nil
		}
		select {
		case <-time.After(gonePoll):
		case <-ctx.Done():
			return fmt.Errorf("the socket %s is still there: %w", path, ctx.Err())
		}
	}
}
