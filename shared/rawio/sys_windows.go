package rawio

import "errors"

// There is no PTY on Windows to read or write.
func sysRead(uintptr, []byte) (int, error)  { return 0, errors.ErrUnsupported }
func sysWrite(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
