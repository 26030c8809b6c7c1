package front

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/plain"
)

// A viewer connects a terminal and an attachment. It has these goroutines:
//
//	run        waits for an end, in the calling goroutine
//	show       writes output; ends with the attachment
//	readInput  reads the terminal; ends with the first input after run
//	deliver    sends the keyboard's input to the session, and waits for room; ends when it has sent all
//	follow     follows the terminal's size and appearance; ended by run
//	watchLink  reports a link that stalls; ended by run
type viewer struct {
	att    *client.Attachment
	term   *Terminal
	keys   *keyFilter
	asking *asking // nil if the terminal is not queried
	piped  bool    // input comes through a pipe

	readOnly bool // no input, size or appearance is sent to the session

	sending sync.Mutex
	sent    *sync.Cond // signalled when deliver has sent a part of the input; its lock is sending
	typed   []byte     // input that deliver has not sent yet
	refused int        // bytes of input that the attachment refused, because it had ended

	leave  sync.Once
	detach chan struct{} // closed by the detach keys, and if the terminal is gone
	isGone atomic.Bool   // the terminal is gone
	over   chan struct{} // closed at the end of run

	mu    sync.Mutex
	size  protocol.Size       // the size that was sent last
	looks protocol.Appearance // the appearance that was sent last
}

// ErrDetached is the error of View if the user has detached.
var ErrDetached = errors.New("detached")

// ErrGone is the error of View and of Pick if their terminal is gone, as when its window was closed, and no signal tells so.
var ErrGone = errors.New("the terminal is gone")

// hangUpTime is how long the signal that tells that a terminal is gone may come after the error of a read or a write. It does
// not come at all if this process ignores it, or if the shell waits for this process before it deals with its own.
const hangUpTime = time.Second

// ViewOptions are the options of View.
type ViewOptions struct {
	DetachKey  DetachKey
	ReadOnly   bool                // no input, size or appearance is sent to the session, and ctrl-c detaches
	Size       protocol.Size       // the size that the attach request has sent
	Appearance protocol.Appearance // the appearance that the attach request has sent
}

// View connects the terminal t with an attachment. The caller must have made t raw. View returns nil
// when the session has ended, ErrDetached when the user has detached, ErrGone when the terminal is gone, and the error of ctx
// when ctx is done. It does not restore t.
func View(ctx context.Context, att *client.Attachment, t *Terminal, o ViewOptions) error {
	v := newViewer(att, t, o)
	if t.canAsk() {
		v.ask()
	}
	return v.run(ctx)
}

// newViewer returns a viewer that is not running yet.
func newViewer(att *client.Attachment, t *Terminal, o ViewOptions) *viewer {
	v := &viewer{
		att: att, term: t, piped: !t.HasKeyboard(), detach: make(chan struct{}), over: make(chan struct{}), size: o.Size, looks: o.Appearance,
		readOnly: o.ReadOnly,
	}
	v.sent = sync.NewCond(&v.sending)
	keys := o.DetachKey
	if v.piped {
		keys = nil // detach keys apply only to a keyboard
	}
	v.keys = newKeyFilter(keys, v.sendInput)
	if o.ReadOnly {
		interrupt := newKeyFilter(DetachKey{{'c', true}}, func([]byte) {})
		v.keys.send = func(p []byte) {
			if interrupt.filter(p) {
				v.endView()
			}
		}
	}
	return v
}

// ask sends the queries to the terminal, before any output of the session.
func (v *viewer) ask() {
	if _, err := v.term.out.WriteString(questions()); err == nil {
		v.asking = ask(v.looks, v.keys.filter, v.setAppearance)
		v.asking.initially = v.term.initially
	}
}

// setAppearance sends the terminal's appearance to the session if it has changed.
func (v *viewer) setAppearance(looks protocol.Appearance) {
	if v.readOnly {
		return
	}
	v.mu.Lock()
	same := looks == v.looks
	v.looks = looks
	v.mu.Unlock()
	if !same {
		_ = v.att.SetAppearance(looks) // fails only after the end of the attachment
	}
}

// run views the session until it ends, the user detaches, or ctx is done.
func (v *viewer) run(ctx context.Context) error {
	go v.readInput()
	defer close(v.over)
	defer v.follow()()
	defer v.watchLink()()
	shown := make(chan error, 1)
	go func() { shown <- v.show() }()
	select {
	case err := <-shown:
		if err != nil {
			v.leaveSession(ctx, 0)
		}
		v.awaitAnswers()
		return err
	case <-v.detach:
		v.leaveSession(ctx, deliverTime)
		if v.isGone.Load() {
			return ErrGone
		}
		v.awaitAnswers()
		return ErrDetached
	case <-ctx.Done(): // a signal
		v.leaveSession(context.WithoutCancel(ctx), deliverTime/2)
		return ctx.Err()
	}
}

// deliverTime is how long a viewer that detaches waits until the session has acknowledged the input. A proxy that
// crashed is started again within this time.
const deliverTime = time.Second

// leaveSession detaches when the session has acknowledged all input, or when the time is over.
func (v *viewer) leaveSession(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = v.att.Detach() })() // refuses input that waits for room
	v.awaitSent()
	_ = v.att.Flush(ctx) // the attachment counts the input that is not acknowledged
	_ = v.att.Detach()
	v.sending.Lock()
	defer v.sending.Unlock()
	v.term.refused += v.refused
}

// awaitSent waits until no input waits for room.
func (v *viewer) awaitSent() {
	v.sending.Lock()
	defer v.sending.Unlock()
	for len(v.typed) > 0 {
		v.sent.Wait()
	}
}

// awaitAnswers waits for missing answers of the terminal.
func (v *viewer) awaitAnswers() {
	if v.asking != nil {
		v.asking.leave()
	}
}

// show writes output until the attachment ends. The session's exit is no error. If the terminal is gone, show drops output,
// because the input still has to reach the session.
func (v *viewer) show() error {
	isTerminal, isGone := v.term.IsTerminal(), false
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
			if isGone {
				continue
			}
			if _, err := v.term.Write(m.Data); err != nil {
				if isGone = isTerminal && !v.term.IsTerminal(); !isGone {
					return fmt.Errorf("write to the terminal: %w", err)
				}
				go v.hangUp()
			}
		case client.Missed:
			if m.Missed > 0 && !v.term.IsTerminal() { // a terminal is shown the current screen instead
				fmt.Fprintf(plain.Stderr, "%s: %d bytes of the output were skipped, because they were not read in time\n", installed.Name(), m.Missed)
			}
			v.term.clear(!m.ScreenOnly)
		case client.Warned:
			if v.piped { // a terminal rings its bell instead
				fmt.Fprintln(plain.Stderr, installed.Name()+": warning:", m.Err)
			}
		case client.Exited:
			return nil
		case client.Stolen:
			return StolenError(m)
		case client.Failed:
			return m.Err
		}
	}
}

// StolenError returns the error of a message of the kind Stolen. It is client.ErrStolen with the name of the other client.
func StolenError(m *client.Message) error {
	if m.Detached {
		return detachedBy(m.By)
	}
	return fmt.Errorf("%w: %s", client.ErrStolen, plain.Text(m.By))
}

// detachedBy is client.ErrStolen if the client of this name has only detached this one.
type detachedBy string

func (d detachedBy) Error() string {
	return "another client has detached this one: " + plain.Text(string(d))
}

func (detachedBy) Is(target error) bool { return target == client.ErrStolen }

// hangUp ends the view because the terminal is gone, unless a signal does so first.
func (v *viewer) hangUp() {
	select {
	case <-v.over:
		return
	case <-time.After(hangUpTime):
	}
	v.isGone.Store(true)
	v.endView()
}

// readInput sends the terminal's input to the session. The end of standard input does not end the
// view, unless it was a terminal, which is gone.
func (v *viewer) readInput() {
	typed := v.keys.filter
	if v.asking != nil {
		typed = v.asking.filter
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := v.term.in.read(buf, v.over)
		if errors.Is(err, errGone) {
			return
		}
		if n > 0 && typed(buf[:n]) {
			v.endView()
		}
		if v.hasRefused() {
			return // further input belongs to the program that uses the input next
		}
		select {
		case <-v.detach:
			if v.asking == nil || v.asking.over() {
				return // further input belongs to the program that uses the terminal next
			}
		default:
		}
		if err != nil {
			if v.asking != nil {
				v.asking.flush()
			}
			v.keys.flush()
			if !v.piped && !v.term.HasKeyboard() {
				v.hangUp()
			}
			return
		}
	}
}

// endView ends the view.
func (v *viewer) endView() { v.leave.Do(func() { close(v.detach) }) }

// Limits of the input of a keyboard. The keyboard is read also if the session accepts no input, because the detach keys must
// end the view of a program that does not read.
const (
	maxTyped   = 16 << 20 // bytes of input that wait for room at the attachment
	maxUnacked = 64 << 10 // bytes without an acknowledgement up to which the attachment certainly has room
)

// sendInput sends input to the session, or leaves it to deliver if the attachment may have no room. Another goroutine for each
// key would delay its echo. Input from a pipe, which has no detach keys, waits for room.
func (v *viewer) sendInput(p []byte) {
	v.sending.Lock()
	defer v.sending.Unlock()
	if v.piped || len(v.typed) == 0 && v.att.Unacknowledged()+len(p) <= maxUnacked {
		n, _ := v.att.Write(p)
		v.refused += len(p) - n // the attachment has ended
		return
	}
	if len(v.typed) == 0 {
		go v.deliver()
	}
	v.typed = append(v.typed, p...)
	for len(v.typed) > maxTyped {
		v.sent.Wait()
	}
}

// deliver sends the input in typed, and waits for room.
func (v *viewer) deliver() {
	v.sending.Lock()
	defer v.sending.Unlock()
	for len(v.typed) > 0 {
		p := v.typed[:min(len(v.typed), 32<<10)]
		v.sending.Unlock()
		n, _ := v.att.Write(p)
		v.sending.Lock()
		v.refused += len(p) - n
		v.typed = v.typed[len(p):]
		v.sent.Broadcast()
	}
	v.typed = nil
}

// hasRefused reports whether the attachment has ended before it has accepted all input.
func (v *viewer) hasRefused() bool {
	v.sending.Lock()
	defer v.sending.Unlock()
	return v.refused > 0
}

// sendSize sends the sizes of the terminal and of its cells if they have changed. The size policy
// of the session decides whether they change the session's size.
func (v *viewer) sendSize() {
	size := v.term.Size()
	v.mu.Lock()
	same := size == v.size
	v.size = size
	looks := v.looks
	v.mu.Unlock()
	if !same && size != (protocol.Size{}) {
		_ = v.att.Resize(size.Cols, size.Rows) // fails only after the end of the attachment
	}
	if v.asking != nil && v.asking.over() {
		now := v.term.Appearance()
		looks.CellWidth, looks.CellHeight = now.CellWidth, now.CellHeight
		v.setAppearance(looks)
	}
}

// follow sends changes of the terminal's size until stop is called. It stops this process if the user demands that, and
// makes the terminal raw again and the session paint its screen when this process continues after a stop.
func (v *viewer) follow() (stop func()) {
	// Each signal has a channel of its own, because a signal for which a channel has no room is lost.
	sizes, stops, continues := make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(sizes, sizeChanged)
	signal.Notify(stops, suspended)
	signal.Notify(continues, continued)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-stops:
				if hasShell() {
					v.term.suspend()
				}
				continue // SIGCONT follows
			case <-continues:
				v.term.rawAgain()
				if v.term.Escapes() {
					v.att.Repaint()
				}
			case <-sizes:
			}
			v.sendSize()
		}
	}()
	v.sendSize() // the size may have changed since the attach request
	return func() {
		for _, c := range []chan os.Signal{sizes, stops, continues} {
			signal.Stop(c)
		}
		close(quit)
		<-done
	}
}
