//go:build unix

package vault

import "golang.org/x/sys/unix"

func closeAll(records []Record) {
	for _, r := range records {
		for _, fd := range r.FDs {
			unix.Close(fd)
		}
	}
}
