package machine

import (
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// On a read-only file system, a file that does not exist is removed already.
func TestRemoveFileReadOnly(t *testing.T) {
	dir := t.TempDir()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread with its own mounts ends with this goroutine
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
		}
		if err == nil {
			err = unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, "")
		}
		if err != nil {
			t.Logf("only root can mount a file system: %v", err)
			return
		}
		if err := RemoveFile(filepath.Join(dir, "file")); err != nil {
			t.Error(err)
		}
	}()
	<-done
}
