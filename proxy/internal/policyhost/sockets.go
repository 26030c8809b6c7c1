package policyhost

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// abandoned is the age from which a directory without a program is one that was
// left behind: longer than any start.
const abandoned = 10 * time.Minute

// sweepSockets removes what hosts left in dir that were killed. Directories of
// programs that run, another proxy's, are known by their sockets.
func sweepSockets(dir string) {
	for _, d := range below(dir, "plugin-dir") {
		fi, err := os.Lstat(d)
		if err == nil && fi.IsDir() && time.Since(fi.ModTime()) > abandoned && !listened(d) {
			_ = os.RemoveAll(d)
		}
	}
}

// listened reports whether a program may listen in the directory.
func listened(dir string) bool {
	for _, s := range below(dir, "") {
		conn, err := net.Dial("unix", s)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return true
		}
	}
	return false
}

func below(dir, prefix string) (paths []string) {
	entries, _ := os.ReadDir(dir) // what cannot be read stays
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}
