package socket

import (
	"fmt"
	"net"

	"holdfast/shared/machine"

	"golang.org/x/sys/unix"
)

// PeerOf returns the process at the other end of conn, as the kernel reports it.
func PeerOf(conn *net.UnixConn) (Peer, error) {
	var cred *unix.Ucred
	err := machine.Control(conn, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return Peer{}, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	return Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, nil
}
