package client

import (
	"context"
	"net"

	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
)

// dialer returns how the proxy is reached that serves the api under this file's
// name: on Windows over the named pipe that stands for the file (pipe.Here), else
// over the Unix socket. Both sides choose by the system alone, so that there is
// nothing to be set, and nothing in which they could differ.
func dialer(dirs config.Dirs, file string) (func(context.Context) (net.Conn, error), error) {
	if !pipe.Here {
		path := dirs.Socket(file)
		return func(ctx context.Context) (net.Conn, error) {
			nc, _, err := socket.Dial(ctx, path)
			if err != nil {
				return nil, err // and not a nil *net.UnixConn
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
