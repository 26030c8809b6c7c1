package foreground

import (
	"golang.org/x/sys/unix"

	"holdfast/protocol"
)

const stopped = 4 // SSTOP of sys/proc.h

// of leaves out the directory and the children: they would need libproc.
func of(pid int) *protocol.Foreground {
	leader, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(leader.Proc.P_pid) != pid {
		return nil
	}
	f := &protocol.Foreground{PID: pid, Name: unix.ByteSliceToString(leader.Proc.P_comm[:]), Stopped: leader.Proc.P_stat == stopped}
	if group := int(leader.Eproc.Tpgid); group > 0 && group != pid {
		if now, err := unix.SysctlKinfoProc("kern.proc.pid", group); err == nil && int(now.Proc.P_pid) == group {
			f.PID, f.Name = group, unix.ByteSliceToString(now.Proc.P_comm[:])
		}
	}
	return f
}
