package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// A viewer joins a terminal and an attachment.
//
//	run     waits for an end, in the calling goroutine
//	show    writes what comes; ended by the attachment's end
//	typing  reads the terminal; ended by the process's end
//	follow  follows the terminal's size; ended by run
type viewer struct {
	att   *client.Attachment
	term  *terminal
	keys  *keyFilter
	sizes bool // the session's size is this terminal's business

	leave  sync.Once
	detach chan struct{} // closed by the detach keys

	mu   sync.Mutex
	size protocol.Size // the session's, as last told
}

// errDetached ends the viewer by its user's wish.
var errDetached = errors.New("detached")

func newViewer(att *client.Attachment, t *terminal, o *attachOptions) (*viewer, error) {
	keys, err := parseDetachKey(o.detachKey)
	if err != nil {
		return nil, err
	}
	if !isTerminal(t.in) {
		keys = nil // what comes through a pipe is no typing
	}
	v := &viewer{
		att: att, term: t, sizes: t.isTerminal() && !o.readOnly && !o.size,
		detach: make(chan struct{}), size: att.Info().Session.Size,
	}
	v.keys = newKeyFilter(keys, v.typed)
	if o.readOnly {
		interrupt := newKeyFilter(detachKey{{'c', true}}, func([]byte) {})
		v.keys.send = func(p []byte) {
			if interrupt.typed(p) {
				v.leaves()
			}
		}
	}
	return v, nil
}

func (v *viewer) run(ctx context.Context) error {
	go v.typing()
	defer v.follow()()
	shown := make(chan error, 1)
	go func() { shown <- v.show() }()
	select {
	case err := <-shown:
		return err
	case <-v.detach:
		_ = v.att.Detach()
		return errDetached
	case <-ctx.Done(): // a signal
		_ = v.att.Detach()
		return ctx.Err()
	}
}

// show writes what comes until the attachment ends. The session's exit is no
// error.
func (v *viewer) show() error {
	if v.att.Info().Replay == protocol.ReplaySnapshot {
		v.term.clear()
	}
	for {
		m, err := v.att.Receive(-1)
		if err != nil {
			return err
		}
		switch m.Kind {
		case client.Output, client.Snapshot:
			if _, err := v.term.Write(m.Data); err != nil {
				return fmt.Errorf("write to the terminal: %w", err)
			}
		case client.Missed:
			v.term.clear()
		case client.Resized:
			v.mu.Lock()
			v.size = m.Size
			v.mu.Unlock()
		case client.Exited:
			return nil
		case client.Stolen:
			return fmt.Errorf("%w: %s", client.ErrStolen, printable(m.By))
		case client.Failed:
			return m.Err
		}
	}
}

// typing brings what is typed to the session. The end of standard input ends
// the typing and not the viewing.
func (v *viewer) typing() {
	buf := make([]byte, 32<<10)
	for {
		n, err := v.term.in.Read(buf)
		if n > 0 && v.keys.typed(buf[:n]) {
			v.leaves()
			return
		}
		if err != nil {
			v.keys.flush()
			return
		}
	}
}

func (v *viewer) leaves() { v.leave.Do(func() { close(v.detach) }) }

// typed sends to the session what is for it. Of several viewers the one that
// typed last has its size; what begins with an escape may be the terminal's
// own answer or report, and does not count.
func (v *viewer) typed(p []byte) {
	if v.sizes && p[0] != 0x1b {
		v.resize(v.term.size())
	}
	_, _ = v.att.Write(p) // fails only after the end
}

// resize gives the session a size that it has not.
func (v *viewer) resize(size protocol.Size) {
	v.mu.Lock()
	same := size == v.size
	v.size = size
	v.mu.Unlock()
	if !same && size != (protocol.Size{}) {
		_ = v.att.Resize(size.Cols, size.Rows) // fails only after the end
	}
}

// follow follows the terminal's size from now on, and makes it raw again when
// it comes back from a shell.
func (v *viewer) follow() (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, sizeChanged, continued)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range c {
			if s == continued {
				v.term.rawAgain()
			}
			if v.sizes {
				v.resize(v.term.size())
			}
		}
	}()
	if v.sizes {
		v.resize(v.term.size()) // it may have changed since we asked
	}
	return func() { signal.Stop(c); close(c); <-done }
}

// report says how the viewing ended and returns what the command exits with.
func (v *viewer) report(ctx context.Context, c *client.Client, o *attachOptions, end error) error {
	info := v.att.Info().Session
	switch {
	case errors.Is(end, errDetached):
		v.say("[detached from %s]", info.ID)
		return nil
	case ctx.Err() != nil:
		v.say("[detached from %s by a signal]", info.ID)
		if by, ok := context.Cause(ctx).(signalled); ok {
			return &exitError{by.exitCode(), ""}
		}
		return ctx.Err()
	case end != nil:
		v.say("[lost %s]", info.ID)
		return end
	}
	exit := v.att.Exit()
	if err := earlyExit(ctx, c, &info, o.early); err != nil {
		return err
	}
	if exit.Signal != "" {
		v.say("[%s ended by %s]", info.ID, printable(exit.Signal))
	}
	return childExit(exit.ExitCode)
}

// say prints a line of ours under what the session has left, and clears the
// rest of it away.
func (v *viewer) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if v.term.isTerminal() && isTerminal(os.Stderr) {
		if v.term.escapes() {
			text = "\x1b[J" + text
		}
		text = "\r\n" + text
	}
	fmt.Fprintln(os.Stderr, text)
}
