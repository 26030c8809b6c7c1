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
	"holdfast/shared/plain"
)

// A viewer joins a terminal and an attachment.
//
//	run     waits for an end, in the calling goroutine
//	show    writes what comes; ended by the attachment's end
//	typing  reads the terminal; ended by the process's end
//	follow  follows the terminal's size and looks; ended by run
//	watchLink  tells of a link that stalls; ended by run
type viewer struct {
	att    *client.Attachment
	term   *terminal
	keys   *keyFilter
	asking *asking // nil where the terminal is not asked what it looks like
	piped  bool    // what is typed comes through a pipe

	readOnly bool // it tells the session nothing

	leave  sync.Once
	detach chan struct{} // closed by the detach keys

	mu    sync.Mutex
	size  protocol.Size       // this terminal's, as last told
	looks protocol.Appearance // the same
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
		att: att, term: t, piped: !isTerminal(t.in), detach: make(chan struct{}), size: o.told.size, looks: o.told.looks,
		readOnly: o.readOnly,
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

// ask asks the terminal what it looks like, before it is shown anything.
func (v *viewer) ask() {
	if _, err := v.term.out.WriteString(questions()); err == nil {
		v.asking = ask(v.looks, v.keys.typed, v.appears)
		v.asking.initially = v.term.initially
	}
}

// appears tells what the terminal looks like, where that is news.
func (v *viewer) appears(looks protocol.Appearance) {
	if v.readOnly {
		return
	}
	v.mu.Lock()
	same := looks == v.looks
	v.looks = looks
	v.mu.Unlock()
	if !same {
		_ = v.att.SetAppearance(looks) // fails only after the end
	}
}

func (v *viewer) run(ctx context.Context) error {
	go v.typing()
	defer v.follow()()
	defer v.watchLink()()
	shown := make(chan error, 1)
	go func() { shown <- v.show() }()
	select {
	case err := <-shown:
		v.awaitAnswers()
		return err
	case <-v.detach:
		_ = v.att.Detach()
		v.awaitAnswers()
		return errDetached
	case <-ctx.Done(): // a signal
		_ = v.att.Detach()
		return ctx.Err()
	}
}

func (v *viewer) awaitAnswers() {
	if v.asking != nil {
		v.asking.leave()
	}
}

// show writes what comes until the attachment ends. The session's exit is no
// error.
func (v *viewer) show() error {
	if v.att.Info().Replay == protocol.ReplaySnapshot {
		v.term.clear(true)
	}
	for {
		m, err := v.att.Receive(-1)
		if err != nil {
			return err
		}
		switch m.Kind {
		case client.Output, client.Snapshot, client.View:
			if _, err := v.term.Write(m.Data); err != nil {
				return fmt.Errorf("write to the terminal: %w", err)
			}
		case client.Missed:
			if m.Missed > 0 && !v.term.isTerminal() { // a terminal is shown the screen as it is now
				fmt.Fprintf(stderr, "proxy: %d bytes of the output were skipped, because they were not read in time\n", m.Missed)
			}
			v.term.clear(!m.ScreenOnly)
		case client.Warned:
			if v.piped { // a terminal rings by itself
				warn(m.Err)
			}
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
	typed := v.keys.typed
	if v.asking != nil {
		typed = v.asking.typed
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := v.term.in.Read(buf)
		if n > 0 && typed(buf[:n]) {
			v.leaves()
		}
		select {
		case <-v.detach:
			if v.asking == nil || v.asking.over() {
				return // what follows is for whoever has the terminal next
			}
		default:
		}
		if err != nil {
			if v.asking != nil {
				v.asking.flush()
			}
			v.keys.flush()
			return
		}
	}
}

func (v *viewer) leaves() { v.leave.Do(func() { close(v.detach) }) }

// typed sends to the session what is for it.
func (v *viewer) typed(p []byte) {
	_, _ = v.att.Write(p) // fails only after the end
}

// look tells this terminal's size, and that of its cells, where they are news.
// Whose size the session has is not decided here.
func (v *viewer) look() {
	size := v.term.size()
	v.mu.Lock()
	same := size == v.size
	v.size = size
	looks := v.looks
	v.mu.Unlock()
	if !same && size != (protocol.Size{}) {
		_ = v.att.Resize(size.Cols, size.Rows) // fails only after the end
	}
	if v.asking != nil && v.asking.over() {
		now := v.term.looks()
		looks.CellWidth, looks.CellHeight = now.CellWidth, now.CellHeight
		v.appears(looks)
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
			v.look()
		}
	}()
	v.look() // it may have changed since we asked
	return func() { signal.Stop(c); close(c); <-done }
}

// report says how the viewing ended and returns what the command exits with.
func (v *viewer) report(ctx context.Context, c *client.Client, o *attachOptions, end error) error {
	info := v.att.Info().Session
	switch {
	case errors.Is(end, errDetached):
		v.say("[detached from %s]", info.ID)
		o.detached = true
		return nil
	case ctx.Err() != nil:
		if by, ok := context.Cause(ctx).(signalled); ok {
			v.say("[detached from %s by a signal]", info.ID)
			return &exitError{by.exitCode(), ""}
		}
		v.say("[detached from %s]", info.ID) // run's time is over
		return ctx.Err()
	case end != nil:
		v.say("[lost %s]", info.ID)
		return end
	}
	exit := v.att.Exit()
	if err := earlyExit(ctx, c, &info, o); err != nil {
		return err
	}
	if exit.Signal != "" {
		v.say("[%s ended by %s]", info.ID, printable(exit.Signal))
	}
	return childExit(exit.ExitCode)
}

func warn(err error) { fmt.Fprintln(stderr, "proxy: warning:", err) }

// say prints a line of ours under what the session has left, and clears the
// rest of it away.
func (v *viewer) say(format string, args ...any) {
	text := printable(fmt.Sprintf(format, args...))
	if v.term.isTerminal() && isTerminal(os.Stderr) {
		if v.term.escapes() {
			text = "\x1b[J" + text
		}
		text = "\r\n" + text
	}
	fmt.Fprintln(plain.Raw(stderr), text) // with the sequences above
}
