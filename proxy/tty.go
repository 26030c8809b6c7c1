package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"holdfast/protocol"
)

// A terminal is the caller's: its state is changed by raw and put back by
// restore, together with the modes that programs in the session have set.
type terminal struct {
	in, out *os.File

	mu    sync.Mutex
	state *term.State // nil while it is not raw

	writing  sync.Mutex // held while something is shown, for as long as the terminal takes
	modes    modes
	restored bool
}

// The title of the window is the session's meanwhile.
const (
	pushTitle = "\x1b[22;0t"
	popTitle  = "\x1b[23;0t"
)

func openTerminal(in, out *os.File) *terminal { return &terminal{in: in, out: out} }

func (t *terminal) isTerminal() bool { return isTerminal(t.out) }

// escapes reports whether escape sequences mean anything there, so that we may
// use some of our own.
func (t *terminal) escapes() bool {
	kind := os.Getenv("TERM")
	return t.isTerminal() && kind != "" && kind != "dumb"
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// size is the terminal's, or nothing where there is none.
func (t *terminal) size() protocol.Size {
	cols, rows, err := term.GetSize(int(t.out.Fd()))
	if err != nil {
		return protocol.Size{}
	}
	return protocol.Size{Cols: cols, Rows: rows}
}

func ownSize() protocol.Size { return openTerminal(os.Stdin, os.Stdout).size() }

// raw makes keys go to the session as they are.
func (t *terminal) raw() error {
	if t.escapes() {
		_, _ = t.out.WriteString(pushTitle)
	}
	if !isTerminal(t.in) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	state, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return fmt.Errorf("make the terminal raw: %w", err)
	}
	t.state = state
	return nil
}

// rawAgain is for a process that was stopped: the shell has had the terminal.
func (t *terminal) rawAgain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != nil {
		_, _ = term.MakeRaw(int(t.in.Fd())) // if it fails, keys act as the shell has set them
	}
}

// restore puts the terminal back as it was; nothing is shown after it. It may
// be called again. The keys come first: a terminal that takes no output must
// not keep them.
func (t *terminal) restore() {
	t.mu.Lock()
	if t.state != nil {
		_ = term.Restore(int(t.in.Fd()), t.state) // it is gone if this fails
		t.state = nil
	}
	t.mu.Unlock()

	t.writing.Lock()
	defer t.writing.Unlock()
	if t.restored {
		return
	}
	t.restored = true
	if t.isTerminal() {
		_, _ = t.out.WriteString(t.modes.undo())
	}
	if t.escapes() {
		_, _ = t.out.WriteString(popTitle)
	}
}

// initially notes whether a mode is set in the terminal before anything is shown.
func (t *terminal) initially(mode string, on bool) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.modes.initial == nil {
		t.modes.initial = make(map[string]bool)
	}
	t.modes.initial[mode] = on
}

// Write shows output of the session.
func (t *terminal) Write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.restored {
		return 0, os.ErrClosed
	}
	t.modes.see(p)
	return t.out.Write(p)
}

// clear makes room for a snapshot. What was on the screen scrolls away, or is
// erased where the snapshot shows the same in other words: row by row, because
// some terminals keep a screen that is erased at once.
func (t *terminal) clear(scroll bool) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.restored || !t.escapes() {
		return
	}
	text, rows := t.modes.undo(), t.size().Rows
	if scroll {
		text += strings.Repeat("\n", max(0, rows-1)) + "\x1b[H\x1b[J"
	} else {
		text += "\x1b[H" + strings.Repeat("\x1b[2K\x1b[B", rows) + "\x1b[H"
	}
	_, _ = t.out.WriteString(text)
}
