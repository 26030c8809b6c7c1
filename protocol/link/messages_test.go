package link

import (
	"testing"

	"holdfast/protocol/internal/drift"
)

func TestWire(t *testing.T) { drift.CheckWire(t, "link", Messages, "..") }
