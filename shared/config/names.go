package config

import (
	"holdfast/protocol"
)

// SupervisorSocket is the file name of the supervisor's socket. The name contains no version,
// because one supervisor serves proxies of all versions.
const SupervisorSocket = "supervisor.sock"

// DefaultProxy is the name of a proxy if the user has not named it.
const DefaultProxy = "proxy"

// maxProxyName is the longest name of a proxy, in bytes. It leaves room for the longest
// suffix of a socket's name within maxSocketName.
const maxProxyName = 24

// CheckProxyName returns invalid_argument unless name is valid for a proxy.
func CheckProxyName(name string) error {
	if !protocol.ValidID(name) || len(name) > maxProxyName || name == "supervisor" {
		return protocol.Errorf(protocol.CodeInvalidArgument,
			"a proxy's name must have 1 to %d of the characters [a-zA-Z0-9_-] and must not be supervisor, but it is %.40q", maxProxyName, name)
	}
	return nil
}

// APISocket, WebSocket and ControlSocket return the file names of a proxy's sockets.
func APISocket(proxy string) string     { return proxy + ".sock" }
func WebSocket(proxy string) string     { return proxy + ".web.sock" }
func ControlSocket(proxy string) string { return proxy + ".control.sock" }
