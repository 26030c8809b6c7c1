package config

import (
	"fmt"

	"holdfast/protocol"
)

// SupervisorSocket is the file of the link's socket. It carries no version: one
// supervisor serves them all.
const SupervisorSocket = "supervisor.sock"

// DefaultProxy is the name of the proxy where no other is said.
const DefaultProxy = "proxy"

// maxProxyName leaves room for the longest suffix within maxSocketName.
const maxProxyName = 24

// CheckProxyName returns invalid_argument unless name can be a proxy's.
func CheckProxyName(name string) error {
	if !protocol.ValidID(name) || len(name) > maxProxyName || name == "supervisor" {
		return protocol.Errorf(protocol.CodeInvalidArgument,
			fmt.Sprintf("a proxy's name is 1 to %d of [a-zA-Z0-9_-] and not supervisor, it is %.40q", maxProxyName, name))
	}
	return nil
}

// The files of a proxy's sockets, by the proxy's name.
func APISocket(proxy string) string     { return proxy + ".sock" }
func WebSocket(proxy string) string     { return proxy + ".web.sock" }
func ControlSocket(proxy string) string { return proxy + ".control.sock" }
