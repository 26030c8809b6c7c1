//go:build unix

package agent

import (
	"os"
	"syscall"
)

func isOwn(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
