//go:build !unix

package main

import (
	"holdfast/protocol"
	"holdfast/shared/config"
)

// A claim does not exist on this system, because there are no terminals.
type claim struct{}

func claimRecordings(config.Dirs, protocol.Instance) (*claim, error) { return &claim{}, nil }

func (*claim) isHeld(protocol.Instance) bool { return false }
