package session

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// A program that drives a terminal waits for a change on the screen. It takes a mark, sends
// input, and then awaits the reaction with the mark. The reaction is found even if it came
// before the await request. Awaiting needs no polling: loop notifies the awaiters after output
// was shown, copies the lines that may match, some at a time, and the goroutine of the awaiter
// matches them. A session without awaiters has no cost.

const (
	// awaitEvery is the shortest time between two checks of an awaiter, 50 per second.
	awaitEvery = 20 * time.Millisecond
	// awaitShare bounds the load of awaiters on loop during a flood. Together they pause at
	// least three times as long as they have used loop.
	awaitShare = 3
	// maxAwaits bounds the awaiters of one session.
	maxAwaits = 64
)

// A mark consists of markVersion, the instance (uvarint length, bytes), the time (uvarint,
// milliseconds since 1970), the fingerprint of the screen, and the CRC-32 of all that.
const markVersion = 1

// mark is a parsed mark of this instance.
type mark struct {
	at     time.Time
	screen *screen.Fingerprint
}

// Mark returns a mark of the present screen. Errors: those of askScreen.
func (r *reading) Mark() (protocol.MarkInfo, error) {
	info := protocol.MarkInfo{Instance: r.instance}
	err := r.askScreen(func(sc *screen.Screen) error {
		m := sc.Fingerprint()
		info.Offset, info.Mark = m.Offset(), newMark(r.instance, r.now(), m)
		info.Inclusive = newMark(r.instance, r.now(), sc.Inclusive())
		return nil
	})
	return info, err
}

// newMark returns a mark of a screen for clients.
func newMark(of protocol.Instance, at time.Time, m *screen.Fingerprint) []byte {
	p := binary.AppendUvarint([]byte{markVersion}, uint64(len(of)))
	p = append(p, of...)
	p = binary.AppendUvarint(p, uint64(max(0, at.UnixMilli())))
	p = m.Append(p)
	return binary.LittleEndian.AppendUint32(p, crc32.ChecksumIEEE(p))
}

// parseMark parses a mark of the session. It returns nil if p is empty.
//
// Errors: invalid_argument; instance_mismatch if the mark belongs to another instance.
func (i *identity) parseMark(p []byte) (*mark, error) {
	if len(p) == 0 {
		return nil, nil
	}
	wrong := protocol.Errorf(protocol.CodeInvalidArgument, "since is not a mark; use the mark of an earlier reply unchanged")
	const check = 4
	if len(p) <= check || len(p) > protocol.MaxMark || p[0] != markVersion {
		return nil, wrong
	}
	body := p[:len(p)-check]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(p[len(body):]) {
		return nil, wrong
	}
	n, k := binary.Uvarint(body[1:])
	if k <= 0 || n > uint64(len(body)-1-k) {
		return nil, wrong
	}
	instance, body := body[1+k:1+k+int(n)], body[1+k+int(n):]
	at, k := binary.Uvarint(body)
	if k <= 0 || at > 1<<52 {
		return nil, wrong
	}
	m, err := screen.ParseFingerprint(body[k:])
	if err != nil {
		return nil, wrong
	}
	if string(instance) != string(i.instance) {
		return nil, protocol.Errorf(protocol.CodeInstanceMismatch, "the mark belongs to an earlier instance of session %s; take a new one", i.id)
	}
	return &mark{time.UnixMilli(int64(at)), m}, nil
}

// awaiter is one await request. loop sends to changed after output was shown.
type awaiter struct {
	s       *Session
	spec    protocol.AwaitSpec
	since   *mark
	text    *screen.Lookout // nil unless text is awaited
	changed chan struct{}
	pause   time.Duration // the least pause after the last check
}

// errRestoring means that the awaiter must wait until the screen is restored.
var errRestoring = errors.New("the screen is being restored")

// Await returns when the condition in spec is met, or with the exit record if the session ends
// before.
//
// Errors: ctx's; invalid_argument for an invalid pattern or mark; instance_mismatch for a mark
// of another instance; limit_exceeded if too many requests wait; internal if the screen is
// lost; busy; session_not_found.
func (s *Session) Await(ctx context.Context, spec protocol.AwaitSpec) (protocol.AwaitedInfo, error) {
	w := &awaiter{s: s, spec: spec, changed: make(chan struct{}, 1)}
	var err error
	if w.since, err = s.parseMark(spec.Since); err != nil {
		return protocol.AwaitedInfo{}, err
	}
	if spec.Text != "" {
		var shown *screen.Fingerprint
		if w.since != nil {
			shown = w.since.screen
		}
		if w.text, err = screen.NewLookout(spec.Text, shown); err != nil {
			return protocol.AwaitedInfo{}, err
		}
	}
	if err := s.request(func() error { s.display.restoreDropped(); return s.awaits.add(w, s.id) }); err != nil {
		return protocol.AwaitedInfo{}, err
	}
	defer func() {
		gone := func() {
			s.awaits.remove(w)
			s.idle.touch() // the screen was not dropped while w waited
		}
		if protocol.CodeOf(s.ask(noteTime, gone)) == protocol.CodeBusy {
			go s.do(gone) // the reply must not wait for a busy loop
		}
	}()
	return w.wait(ctx, w.check)
}

// awaiters are the await requests of a session. loop owns it.
type awaiters map[*awaiter]struct{}

// add adds an awaiter to those that are notified. Errors: limit_exceeded.
func (all *awaiters) add(w *awaiter, id protocol.SessionID) error {
	if len(*all) >= maxAwaits {
		return protocol.Errorf(protocol.CodeLimitExceeded, "%d requests already wait for session %s; retry when one has ended", maxAwaits, id)
	}
	if *all == nil {
		*all = make(awaiters)
	}
	(*all)[w] = struct{}{}
	return nil
}

func (all awaiters) remove(w *awaiter) { delete(all, w) }

// notify notifies the awaiters. It must be called after output was shown.
func (all awaiters) notify() {
	for w := range all {
		select {
		case w.changed <- struct{}{}:
		default: // a notification is pending already
		}
	}
}

// wait calls check until the condition is met or the session has ended.
func (w *awaiter) wait(ctx context.Context, check func() (info protocol.AwaitedInfo, found bool, again time.Duration, err error)) (protocol.AwaitedInfo, error) {
	for {
		over := w.s.hasExited() // must be read before the check, so that the check covers all output
		info, found, more, err := check()
		if errors.Is(err, errRestoring) {
			err, more = nil, 0 // the end of the restoration will notify this awaiter
		}
		if err != nil && !over && w.s.hasExited() {
			continue // it may be forgotten, too, so that it cannot be checked any more
		}
		if found || err != nil && !over {
			return info, err
		}
		if over && more >= 0 {
			return w.exitInfo(), nil
		}
		if err := w.sleep(ctx, more); err != nil {
			return info, err
		}
	}
}

// atOnce means that the last check did not reach all lines.
const atOnce time.Duration = -1

// sleep returns when the condition must be checked again: after the least pause, and then at
// the next notification or after the time again. If again is 0, there is no such time.
func (w *awaiter) sleep(ctx context.Context, again time.Duration) error {
	wait := w.pause
	if again != atOnce {
		wait = max(wait, awaitEvery)
	}
	pause := time.NewTimer(wait)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-w.s.exited:
	case <-ctx.Done():
		return ctx.Err()
	}
	if again == atOnce {
		return nil
	}
	var due <-chan time.Time
	if again > 0 {
		timer := time.NewTimer(again)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-w.changed:
	case <-due:
	case <-w.s.exited:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// exitInfo returns the reply for a session that has ended.
func (w *awaiter) exitInfo() protocol.AwaitedInfo {
	exit := *w.s.exit
	_, end, _ := w.s.ring.Bounds()
	return protocol.AwaitedInfo{Instance: w.s.instance, Offset: end, Exit: &exit}
}

// from returns the offset of the mark, or 0 if there is none.
func (w *awaiter) from() uint64 {
	if w.since == nil {
		return 0
	}
	return w.since.screen.Offset()
}

// check reports whether the condition is met. again tells when to check again without a
// notification: after this time, or atOnce; 0 means never.
func (w *awaiter) check() (info protocol.AwaitedInfo, found bool, again time.Duration, err error) {
	s := w.s
	info.Instance = s.instance
	more := false
	if unanswered := s.ask(answerTime, func() {
		began := time.Now()
		defer func() { w.pause = awaitShare * time.Since(began) * time.Duration(len(s.awaits)) }()
		if s.display.restoring != nil {
			err = errRestoring
			return
		}
		s.feed()
		if s.saved.Degraded && w.spec.IdleMS == 0 {
			err = screenLost(s.id)
			return
		}
		info.Offset = s.display.shownTo()
		switch {
		case w.text != nil:
			s.display.useRestored(func(sc *screen.Screen) { more = w.text.Take(sc) })
		case w.spec.Prompt:
			if found = s.exit == nil && s.saved.hasPrompt(w.from()); found {
				info.Command = maskCommand(s.saved.Command, s.masker)
			}
		default:
			if again = time.Duration(w.spec.IdleMS)*time.Millisecond - s.activity.silentFor(s.cfg.Now(), w.since); again <= 0 {
				found, again = s.exit == nil, 0
			}
		}
	}); protocol.CodeOf(unanswered) == protocol.CodeBusy {
		return info, false, awaitEvery, nil
	} else if unanswered != nil {
		return info, false, 0, unanswered
	}
	if w.text != nil && err == nil {
		if more {
			again = atOnce
		}
		began := time.Now()
		if f, ok := w.text.Match(); ok {
			info.Line, info.Groups, found = f.Line, f.Groups, true
		}
		w.pause = max(w.pause, time.Since(began))
	}
	return info, found, again, err
}
