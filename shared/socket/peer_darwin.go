package socket

import (
	"fmt"
	"net"

	"holdfast/shared/machine"

	"golang.org/x/sys/unix"
)

// PeerOf returns the process at the other end of conn, as the kernel reports it.
func PeerOf(conn *net.UnixConn) (Peer, error) {
	var peer Peer
	err := machine.Control(conn, func(fd int) error {
		cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err != nil {
			return fmt.Errorf("LOCAL_PEERCRED: %w", err)
		}
		pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		if err != nil {
			return fmt.Errorf("LOCAL_PEERPID: %w", err)
		}
		peer = Peer{UID: int(cred.Uid), PID: pid}
		return nil
	})
	return peer, err
}
