package testkit

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// StatFields returns the fields of /proc/PID/stat (proc_pid_stat(5)) from the third on. The
// first two are left out because the second, the program's name, may contain spaces. If there
// is no such process, or if the system has no /proc, StatFields returns none.
func StatFields(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, fields, _ := strings.Cut(string(b), ") ")
	return strings.Fields(fields)
}

// Stat returns the state and the start time of a process, or "" if there is no such process. The
// state is "dying" if only the first thread has ended, because the other threads still hold the
// files of the process.
func Stat(pid int) (state, start string) {
	f := StatFields(pid)
	if len(f) < 20 {
		return "", ""
	}
	if f[0] == "Z" && f[17] > "1" {
		return "dying", f[19]
	}
	return f[0], f[19]
}

// Parent returns the pid of the parent of a process, or 0 if there is no such process.
func Parent(pid int) int {
	f := StatFields(pid)
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1])
	return parent
}
