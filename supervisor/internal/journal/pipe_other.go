//go:build !linux

package journal

import "errors"

// There is no pipe on these systems, because they cannot splice to a terminal.
const pipeBytes = 16 << 10

func newPipe() (int, error)              { return -1, nil }
func writePipe(int, []byte) (int, error) { return 0, errors.ErrUnsupported }
func readPipe(int, []byte) error         { return nil }
func setUpPipe(fd int) (int, error) {
	if fd >= 0 {
		return 0, errors.ErrUnsupported
	}
	return 0, nil
}
