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

// abandoned is the age from which a directory without a listening program was left behind. It is
// longer than any start takes.
const abandoned = 10 * time.Minute

// sweepSockets removes the directories that killed hosts have left in dir. It keeps the
// directories of running programs, which another proxy may own; their sockets accept connections.
func sweepSockets(dir string) {
	for _, d := range entriesOf(dir, "plugin-dir") {
		fi, err := os.Lstat(d)
		if err == nil && fi.IsDir() && time.Since(fi.ModTime()) > abandoned && !isListening(d) {
			_ = os.RemoveAll(d)
		}
	}
}

// isListening reports whether a program may listen on a socket in the directory.
func isListening(dir string) bool {
	for _, s := range entriesOf(dir, "") {
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

func entriesOf(dir, prefix string) (paths []string) {
	entries, _ := os.ReadDir(dir) // entries that cannot be read are kept
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}
