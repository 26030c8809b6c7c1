package doctor

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory on a read-only file system is private, but no process can start there.
func TestReadOnlyDirectory(t *testing.T) {
	m := healthy(t)
	dir := filepath.Join(m.dir, "read-only")
	m.must(os.Mkdir(dir, 0o700))
	m.Dirs.State = dir
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread with its own mounts ends with this goroutine
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
		}
		if err == nil {
			err = unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, "mode=700")
		}
		if err != nil {
			t.Logf("only root can mount a file system: %v", err)
			return
		}
		got := (&inspection{Facts: m.Facts}).directories()
		if len(got) != 1 || got[0].Severity != Error || !strings.Contains(got[0].Finding, dir+" cannot be written: read-only file system") {
			t.Errorf("got %+v", got)
		}
	}()
	<-done
}
