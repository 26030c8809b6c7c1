package machine

import "syscall"

// Control calls f with the descriptor of c, which stays open during the call. The method Fd of a file is no alternative,
// because it makes the descriptor blocking for every process that shares it.
func Control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// Descriptor returns the descriptor of c. The caller must keep c open while it uses the descriptor.
func Descriptor(c syscall.Conn) (n int, err error) {
	err = Control(c, func(fd int) error { n = fd; return nil })
	return n, err
}
