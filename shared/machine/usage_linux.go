package machine

import (
	"bytes"
	"os"
	"strconv"
)

// addKernels sets the fields that the kernel reports in files of /proc.
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

// numbers returns the numbers at the beginning of a file, up to the first word that is none.
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
