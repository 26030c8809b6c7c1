//go:build !linux

package rawio

import (
	"io"
	"net"
	"os"
	"runtime"
)

// Conn returns c unchanged, because raw system calls exist only on Linux.
func Conn(c net.Conn) net.Conn { return c }

// File returns f unchanged, for the same reason.
func File(f *os.File) io.ReadWriter { return f }

// Yield lets other goroutines run. That suffices, because the scheduler knows of every call.
func Yield() { runtime.Gosched() }
