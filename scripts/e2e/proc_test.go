package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"holdfast/shared/testkit"
	programs "holdfast/shared/testkit/world"
)

// pids returns the ids of all processes of the machine.
func pids() []int {
	var all []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// list returns the strings of a file of a process, such as its environ or cmdline.
func list(pid int, name string) []string {
	return programs.Strings(fmt.Sprintf("/proc/%d/%s", pid, name))
}

func environ(pid int) []string { return list(pid, "environ") }

// fds returns the targets of the open descriptors of a process by descriptor number.
func fds(pid int) map[int]string {
	open := map[int]string{}
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, p := range paths {
		n, _ := strconv.Atoi(filepath.Base(p))
		if to, err := os.Readlink(p); err == nil {
			open[n] = to
		}
	}
	return open
}

// status returns the first word of a line of /proc/PID/status.
func status(pid int, name string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			if f := strings.Fields(v); len(f) > 0 {
				return f[0]
			}
		}
	}
	return ""
}

// usage counts the resources of a process that it can leak.
type usage struct {
	FDs, Memfds, PTYs, Sockets int
	Recordings                 int // files of recorded sessions, not counted in FDs; they are open while a session prints
	Queues                     int // memory files of the input that a terminal has not read yet
	Mapped                     int // memory files in its address space
	Threads                    int
	Children                   int // includes zombies
	RSS                        int // KiB
}

func usageOf(pid int) usage {
	u := usage{}
	for _, to := range fds(pid) {
		if strings.Contains(to, "/sessions/") {
			u.Recordings++
			continue
		}
		u.FDs++
		if strings.Contains(to, "memfd:holdfast-input") {
			u.Queues++
		}
		switch {
		case strings.Contains(to, "memfd:"):
			u.Memfds++
		case strings.Contains(to, "ptmx"), strings.Contains(to, "/dev/pts/"):
			u.PTYs++
		case strings.HasPrefix(to, "socket:"):
			u.Sockets++
		}
	}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	u.Mapped = strings.Count(string(maps), "memfd:")
	u.Threads, _ = strconv.Atoi(status(pid, "Threads"))
	u.RSS, _ = strconv.Atoi(status(pid, "VmRSS"))
	u.Children = len(children(pid))
	return u
}

// children returns the ids of the processes whose parent is pid.
func children(pid int) []int {
	var of []int
	for _, p := range pids() {
		if f := testkit.StatFields(p); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			of = append(of, p)
		}
	}
	return of
}

// files returns the sorted names of the entries of a directory.
func files(dir string) []string {
	var names []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

// inode identifies a file independently of its name.
func inode(path string) string {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

func itoa(n int) string { return strconv.Itoa(n) }

func sha256Hex(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
