package client

import (
	"context"
	"net"

	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
)

// DialAPI connects to the proxy with a name that serves in dirs, and sends nothing.
func DialAPI(ctx context.Context, dirs config.Dirs, proxy string) (net.Conn, error) {
	dial, err := dialer(dirs, config.APISocket(proxy))
	if err != nil {
		return nil, err
	}
	return dial(ctx)
}

// dialer returns a function that connects to the proxy that serves the api under this file's
// name. On Windows it uses the named pipe for that file (see pipe.Here), and elsewhere the Unix
// socket. Proxy and client choose by the operating system alone, so no setting can make them
// differ.
func dialer(dirs config.Dirs, file string) (func(context.Context) (net.Conn, error), error) {
	if !pipe.Here {
		path := dirs.Socket(file)
		return func(ctx context.Context) (net.Conn, error) {
			nc, _, err := socket.Dial(ctx, path)
			if err != nil {
				return nil, err // must not return a nil *net.UnixConn in a net.Conn
			}
			return nc, nil
		}, nil
	}
	name, err := pipe.Own(dirs.Runtime, file)
	return func(ctx context.Context) (net.Conn, error) {
		nc, _, err := pipe.Dial(ctx, name)
		return nc, err
	}, err
}
