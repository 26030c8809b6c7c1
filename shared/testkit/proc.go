package testkit

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// StatFields are those of /proc/PID/stat (proc_pid_stat(5)) from the third on; the
// second, the program's name, may have blanks in it. They are none where there is no
// such process, and where the system has no /proc.
func StatFields(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.Fields(rest)
}

// Stat returns a process's state and start time, nothing if there is none. One whose
// first thread alone has ended is "dying": the others hold its files.
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

// Parent is the pid of who started a process, or of who has it now; 0 is nobody.
func Parent(pid int) int {
	f := StatFields(pid)
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1])
	return parent
}
