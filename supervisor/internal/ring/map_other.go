//go:build unix && !linux

package ring

import "os"

// mapFile maps a file of n bytes that has no name any more.
func mapFile(n int) (*os.File, []byte, error) {
	f, err := os.CreateTemp("", "holdfast-ring-")
	if err != nil {
		return nil, nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return mapFD(f, n)
}
