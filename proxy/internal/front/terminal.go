// Package front is the terminal in front of a person: it shows the output of a session there, sends
// the person's keys to the session, and restores the terminal afterwards.
//
// A viewer's terminal is raw, so each key reaches the session. Three readers remove a part of the
// input before that: asking removes the terminal's answers to queries about its appearance, a
// keyFilter removes the detach keys, and a picker reads the keys of a person who chooses a session.
//
// Invariant: after Restore, the terminal is in the state in which the command found it, whatever the
// session has printed, and no output is written after that. Input is passed on unchanged and in
// order, unless it is an answer to an own query or a detach key.
//
// Not here: the attachment, which resumes after an interruption (package proxy/client); the sequences
// that show a session's screen (the supervisor); which session is attached, and the exit code of the
// command (package proxy/internal/cli).
package front

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/term"

	"holdfast/protocol"
	"holdfast/shared/plain"
)

// A Terminal is the terminal of this command. Raw changes its state. Restore restores that state, and
// resets the modes that programs in the session have set.
type Terminal struct {
	in  *input
	out *os.File

	mu    sync.Mutex
	state *term.State // nil unless the terminal is raw

	writing  sync.Mutex // held while output is written, for as long as the terminal takes
	to       io.Writer  // what own has returned for out, from the first Write on
	modes    modes
	restored bool

	refused int // bytes of input that View has read, and could not send any more
}

// Refused returns how many bytes of input View has read and could not send to the session, because the attachment ended
// while they waited for room.
func (t *Terminal) Refused() int { return t.refused }

// The session sets the title of the window meanwhile.
const (
	pushTitle = "\x1b[22;0t"
	popTitle  = "\x1b[23;0t"
)

// Open returns the terminal of two files, which need not be terminals. It changes nothing.
func Open(in, out *os.File) *Terminal { return &Terminal{in: &input{file: in}, out: out} }

// Again returns the terminal as Open does, for use after Restore. Input that t has not processed is not lost.
func (t *Terminal) Again() *Terminal { return &Terminal{in: t.in, out: t.out} }

// Unread makes p the input that is read before any other. It does not wait for a read that is pending.
func (t *Terminal) Unread(p []byte) {
	t.in.mu.Lock()
	defer t.in.mu.Unlock()
	t.in.unread = slices.Concat(p, t.in.unread)
}

// IsTerminal reports whether the output goes to a terminal.
func (t *Terminal) IsTerminal() bool { return IsTerminal(t.out) }

// HasKeyboard reports whether the input comes from a terminal.
func (t *Terminal) HasKeyboard() bool { return IsTerminal(t.in.file) }

// Escapes reports whether the terminal understands escape sequences.
func (t *Terminal) Escapes() bool {
	kind := os.Getenv("TERM")
	return t.IsTerminal() && kind != "" && kind != "dumb"
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Size returns the size of the output's terminal, or zero if the output is no terminal.
func (t *Terminal) Size() protocol.Size {
	cols, rows, err := term.GetSize(int(t.out.Fd()))
	if err != nil {
		return protocol.Size{}
	}
	return protocol.Size{Cols: cols, Rows: rows}
}

// OwnSize returns the size of standard output's terminal, or zero if standard output is no terminal.
func OwnSize() protocol.Size { return Open(os.Stdin, os.Stdout).Size() }

// Raw makes the terminal pass keys on unchanged, if the input is a terminal, and saves the title of the
// window. Restore must be called after it, even after a panic.
func (t *Terminal) Raw() error {
	if t.Escapes() {
		_, _ = t.out.WriteString(pushTitle)
	}
	if !IsTerminal(t.in.file) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	state, err := term.MakeRaw(int(t.in.file.Fd()))
	if err != nil {
		return fmt.Errorf("make the terminal raw: %w", err)
	}
	t.state = state
	return nil
}

// suspend stops this process. The shell receives the terminal in the state in which the command found it.
func (t *Terminal) suspend() {
	t.mu.Lock()
	if t.state != nil {
		_ = term.Restore(int(t.in.file.Fd()), t.state) // if this fails, the terminal is gone
	}
	t.mu.Unlock()

	t.writing.Lock() // no output is written while the shell has the terminal
	defer t.writing.Unlock()
	if t.Escapes() && !t.restored {
		_, _ = t.out.WriteString(t.modes.undo() + popTitle)
		defer func() { _, _ = t.out.WriteString(pushTitle) }()
	}
	stopProcess()
}

// rawAgain makes the terminal raw again after this process was stopped, because the shell has
// changed the terminal.
func (t *Terminal) rawAgain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != nil {
		_, _ = term.MakeRaw(int(t.in.file.Fd())) // if this fails, keys act as in the shell
	}
}

// Restore restores the terminal; no output is written after it. It may be called more than once.
// Input is restored first, because a terminal that blocks output must not stay raw.
func (t *Terminal) Restore() {
	t.mu.Lock()
	if t.state != nil {
		_ = term.Restore(int(t.in.file.Fd()), t.state) // if this fails, the terminal is gone
		t.state = nil
	}
	t.mu.Unlock()

	t.writing.Lock()
	defer t.writing.Unlock()
	if t.restored {
		return
	}
	t.restored = true
	if t.IsTerminal() {
		_, _ = t.out.WriteString(t.modes.undo())
	}
	if t.Escapes() {
		_, _ = t.out.WriteString(popTitle)
	}
}

// initially records the state of a mode before any output of the session.
func (t *Terminal) initially(mode string, on bool) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.modes.initial == nil {
		t.modes.initial = make(map[string]bool)
	}
	t.modes.initial[mode] = on
}

// Write writes output of the session, and records the modes that it sets. After Restore it fails with
// os.ErrClosed.
func (t *Terminal) Write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.restored {
		return 0, os.ErrClosed
	}
	if t.to == nil {
		t.to = own(t.out)
	}
	n, err := t.to.Write(p)
	t.modes.record(p) // while the terminal draws it
	return n, err
}

// leaveAlternate shows the normal screen, and has no effect if it is shown. A viewer that was killed may have left the
// alternate screen, which would show its text behind that of the session.
const leaveAlternate = "\x1b[?1047l"

// clear makes room for a snapshot. With scroll, the previous screen scrolls away. Otherwise the
// snapshot shows the same screen, so the rows are erased one by one, because some terminals save a
// screen that is erased as a whole.
func (t *Terminal) clear(scroll bool) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.restored || !t.Escapes() {
		return
	}
	text, rows := t.modes.undo(), t.Size().Rows
	if scroll {
		text += leaveAlternate + strings.Repeat("\n", max(0, rows-1)) + "\x1b[H\x1b[J"
	} else {
		text += "\x1b[H" + strings.Repeat("\x1b[2K\x1b[B", rows) + "\x1b[H"
	}
	_, _ = t.out.WriteString(text)
}

// Say prints a line on standard error, below the output of the session, and erases the rest of the terminal.
func (t *Terminal) Say(format string, args ...any) {
	text := plain.Text(fmt.Sprintf(format, args...))
	if t.IsTerminal() && IsTerminal(os.Stderr) {
		if t.Escapes() {
			text = "\x1b[J" + text
		}
		text = "\r\n" + text
	}
	fmt.Fprintln(plain.Raw(plain.Stderr), text) // because of the sequences above
}
