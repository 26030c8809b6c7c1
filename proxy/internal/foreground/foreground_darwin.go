package foreground

import (
	"golang.org/x/sys/unix"

	"holdfast/protocol"
)

const stopped = 4 // SSTOP of sys/proc.h

// of does not fill the directory and the children, because they would need libproc.
func of(pid int) *protocol.Foreground {
	leader, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(leader.Proc.P_pid) != pid {
		return nil
	}
	f := &protocol.Foreground{PID: pid, Name: unix.ByteSliceToString(leader.Proc.P_comm[:]), Stopped: leader.Proc.P_stat == stopped}
	if group := int(leader.Eproc.Tpgid); group > 0 && group != pid {
		if foreground, err := unix.SysctlKinfoProc("kern.proc.pid", group); err == nil && int(foreground.Proc.P_pid) == group {
			f.PID, f.Name = group, unix.ByteSliceToString(foreground.Proc.P_comm[:])
		}
	}
	return f
}

func reads(int, int) bool { return false }
