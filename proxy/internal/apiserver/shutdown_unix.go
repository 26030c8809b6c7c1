//go:build unix

package apiserver

import "golang.org/x/sys/unix"

func shutdownFD(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) } // it may already be closed by the other side
