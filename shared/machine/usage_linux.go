package machine

import (
	"bytes"
	"os"
	"strconv"
)

// addKernels adds what the kernel writes into files.
func (u *Usage) addKernels() {
	if statm := numbers("/proc/self/statm"); len(statm) > 1 {
		u.RSSBytes = statm[1] * uint64(os.Getpagesize())
	}
	for path, to := range map[string]*int{"/proc/sys/kernel/pty/nr": &u.PTYs, "/proc/sys/kernel/pty/max": &u.MaxPTYs} {
		if n := numbers(path); len(n) == 1 {
			*to = int(n[0])
		}
	}
}

// numbers returns a file's numbers, as far as there are no others.
func numbers(path string) (all []uint64) {
	b, _ := os.ReadFile(path)
	for _, f := range bytes.Fields(b) {
		n, err := strconv.ParseUint(string(f), 10, 64)
		if err != nil {
			break
		}
		all = append(all, n)
	}
	return all
}
