//go:build !linux && !darwin

package foreground

import "holdfast/protocol"

func of(int) *protocol.Foreground { return nil }

func reads(int, int) bool { return false }
