// Package terminal rebuilds the screen of a recording, so that the proxy shows it with the same terminal
// core as the supervisor.
//
// Invariant: a recording is not trusted. No output makes a method panic or run for more than some
// seconds.
//
// Not here: the files of a recording (package archive of the proxy), and the screens of sessions (package
// screen).
package terminal

import (
	"context"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

const (
	// maxCost bounds the work of a Terminal, in the unit of screen.WriteSome: some seconds. Ordinary
	// output needs less than a hundredth of it.
	maxCost  = 2 << 30
	stepCost = 1 << 20
)

// A Terminal is a terminal without a program. It must be used by one goroutine at a time.
type Terminal struct {
	screen *screen.Screen
	left   int // cost that may still be spent
}

// New returns a terminal of a size that has printed nothing. It keeps up to lines lines above the screen.
func New(size protocol.Size, lines int) *Terminal {
	return &Terminal{screen.New(size.Normalize(), lines), maxCost}
}

// Write prints output. The error is limit_exceeded if all output so far takes too long to be printed,
// internal after a defect of the terminal core, and that of ctx.
func (t *Terminal) Write(ctx context.Context, output []byte) (err error) {
	defer recovered(&err)
	for len(output) > 0 {
		before := t.screen.Offset()
		t.left -= t.screen.WriteSome(output, stepCost)
		output = output[t.screen.Offset()-before:]
		t.screen.Replies() // no program waits for them
		t.screen.Events()
		t.screen.Heard()
		if err := ctx.Err(); err != nil {
			return err
		}
		if t.left < 0 {
			return protocol.Errorf(protocol.CodeLimitExceeded, "the output takes too long to be shown again")
		}
	}
	return nil
}

// Resize changes the size of the terminal.
func (t *Terminal) Resize(size protocol.Size) (err error) {
	defer recovered(&err)
	t.screen.Resize(size.Normalize())
	return nil
}

// Content returns the part of the screen that spec selects. The fields Instance, Offset and PrintedAt
// are not set.
func (t *Terminal) Content(spec protocol.ScreenSpec) (c protocol.ScreenContent, err error) {
	defer recovered(&err)
	for rows := screen.Rows(spec); ; {
		var next int
		if c, next = t.screen.View(rows).Content(spec); next <= 0 {
			c.Offset = 0
			return c, nil
		}
		rows = next
	}
}

// recovered replaces a panic of the terminal core by an error, so that it ends nothing else.
func recovered(err *error) {
	if why := recover(); why != nil {
		*err = protocol.Errorf(protocol.CodeInternal, "the screen cannot be shown because of a defect of the terminal core: %v", why)
	}
}
