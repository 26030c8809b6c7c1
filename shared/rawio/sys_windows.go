package rawio

import "errors"

// sysRead and sysWrite fail, because Windows has no PTY to read or write.
func sysRead(uintptr, []byte) (int, error)  { return 0, errors.ErrUnsupported }
func sysWrite(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
