//go:build unix

package machine

import "syscall"

// UseOwnFiles removes the permissions of the owner from the umask, so that this process and its children can use the files and
// directories that they make. A shell has such a umask if a key was written there after "umask 0177". UseOwnFiles must be
// called before another goroutine makes files.
func UseOwnFiles() { syscall.Umask(syscall.Umask(0o077) &^ 0o700) }
