//go:build !unix

package main

import (
	"holdfast/protocol"
	"holdfast/shared/config"
)

// A presence does not exist on this system, because there are no terminals.
type presence struct{}

func (*before) showPresence(config.Dirs, protocol.Instance) (*presence, error) {
	return &presence{}, nil
}

func (*presence) isRunning(protocol.Instance) bool { return false }
