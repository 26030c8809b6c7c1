package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// Programs that drive a terminal wait for what it shows. They take a mark, type, and
// await what comes of it with the mark: however fast that is, it is found. Nobody polls:
// loop says when something was shown, the lines that may match are taken in loop, some at
// a time, and looked at in the goroutine of who waits. A session that nobody waits for
// pays nothing.

const (
	// awaitEvery is how often who waits looks at most; 50 times a second is at once.
	awaitEvery = 20 * time.Millisecond
	// awaitShare is how much longer than loop was held up all rest together, in a flood:
	// it has that much for others.
	awaitShare = 3
	// maxAwaits is how many wait for one session.
	maxAwaits = 64
)

// A mark is markVersion, the instance (uvarint, bytes), when it was made (uvarint, in
// milliseconds since 1970), what the screen showed, and the CRC-32 of all that.
const markVersion = 1

// mark is a mark that is ours and whole.
type mark struct {
	at     time.Time
	screen *screen.Fingerprint
}

// Mark returns where the session is. Errors are look's.
func (s *Session) Mark() (protocol.MarkInfo, error) {
	info := protocol.MarkInfo{Instance: s.instance}
	err := s.look(func() {
		m := s.screen.Fingerprint()
		p := binary.AppendUvarint([]byte{markVersion}, uint64(len(s.instance)))
		p = append(p, s.instance...)
		p = binary.AppendUvarint(p, uint64(max(0, s.cfg.Now().UnixMilli())))
		p = m.Append(p)
		info.Offset, info.Mark = m.Offset(), binary.LittleEndian.AppendUint32(p, crc32.ChecksumIEEE(p))
	})
	return info, err
}

// parseMark returns nil for none.
//
// Errors: invalid_argument, and instance_mismatch for one of another life.
func (s *Session) parseMark(p []byte) (*mark, error) {
	if len(p) == 0 {
		return nil, nil
	}
	wrong := protocol.Errorf(protocol.CodeInvalidArgument, "since is not a mark")
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
	if string(instance) != string(s.instance) {
		return nil, protocol.Errorf(protocol.CodeInstanceMismatch, fmt.Sprintf("the mark is of another life of session %s", s.id))
	}
	return &mark{time.UnixMilli(int64(at)), m}, nil
}

// awaited is one who waits. loop pokes news when something was shown.
type awaited struct {
	s     *Session
	spec  protocol.AwaitSpec
	since *mark
	text  *screen.Lookout // where text is awaited
	news  chan struct{}
	rests time.Duration // for so long after a look
}

// errRestoring is of a screen that is on its way.
var errRestoring = errors.New("the screen is being restored")

// Await returns when what spec asks for is so, or with the exit where the session ends
// before.
//
// Errors: ctx's; invalid_argument for a pattern or a mark that is none, instance_mismatch
// for one of another life, limit_exceeded where too many wait, internal where the screen
// is lost, session_not_found.
func (s *Session) Await(ctx context.Context, spec protocol.AwaitSpec) (protocol.AwaitedInfo, error) {
	w := &awaited{s: s, spec: spec, news: make(chan struct{}, 1)}
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
	if err := s.addAwait(w); err != nil {
		return protocol.AwaitedInfo{}, err
	}
	defer func() {
		gone := func() { delete(s.awaits, w) }
		if protocol.CodeOf(s.ask(noteTime, gone)) == protocol.CodeBusy {
			go s.do(gone) // the answer does not wait for it
		}
	}()
	return w.wait(ctx)
}

// addAwait has loop know of one who waits.
func (s *Session) addAwait(w *awaited) error {
	return s.request(func() error {
		if len(s.awaits) >= maxAwaits {
			return protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("%d wait for session %s already", maxAwaits, s.id))
		}
		if s.awaits == nil {
			s.awaits = make(map[*awaited]struct{})
		}
		s.awaits[w] = struct{}{}
		return nil
	})
}

// tellAwaits is called in loop when something was shown.
func (s *Session) tellAwaits() {
	for w := range s.awaits {
		select {
		case w.news <- struct{}{}:
		default: // it has yet to look
		}
	}
}

func (w *awaited) wait(ctx context.Context) (protocol.AwaitedInfo, error) {
	for {
		over := isClosed(w.s.exited) // before the look, which then is at all there was
		info, found, more, err := w.look()
		if errors.Is(err, errRestoring) {
			err, more = nil, 0 // it is told when that is over
		}
		if found || err != nil && !over {
			return info, err
		}
		if over && more >= 0 {
			return w.ended(), nil
		}
		if err := w.rest(ctx, more); err != nil {
			return info, err
		}
	}
}

// atOnce says that there is more to look at.
const atOnce time.Duration = -1

// rest returns when it is time to look again: not before a while, and then with the next
// news, or at a time that was asked for, 0 for none.
func (w *awaited) rest(ctx context.Context, again time.Duration) error {
	wait := w.rests
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
	case <-w.news:
	case <-due:
	case <-w.s.exited:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// ended is the answer of a session that has.
func (w *awaited) ended() protocol.AwaitedInfo {
	exit := *w.s.exit
	_, end, _ := w.s.ring.Bounds()
	return protocol.AwaitedInfo{Instance: w.s.instance, Offset: end, Exit: &exit}
}

// look reports whether it is so. again is when to look again whatever happens: after a
// time, or atOnce.
func (w *awaited) look() (info protocol.AwaitedInfo, found bool, again time.Duration, err error) {
	s := w.s
	info.Instance = s.instance
	more := false
	if unanswered := s.ask(answerTime, func() {
		began := time.Now()
		defer func() { w.rests = awaitShare * time.Since(began) * time.Duration(len(s.awaits)) }()
		if s.restoring != nil {
			err = errRestoring
			return
		}
		s.feed()
		if s.degraded && w.spec.IdleMS == 0 {
			err = protocol.Errorf(protocol.CodeInternal, fmt.Sprintf("the screen of session %s is lost by a mistake of ours", s.id))
			return
		}
		info.Offset = s.shownTo()
		switch {
		case w.text != nil:
			s.core(func() { more = w.text.Take(s.screen) })
		case w.spec.Prompt:
			if found = s.promptShown(w.since); found {
				info.Command = s.commands.info
			}
		default:
			if again = time.Duration(w.spec.IdleMS)*time.Millisecond - s.silence(w.since); again <= 0 {
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
		w.rests = max(w.rests, time.Since(began))
	}
	return info, found, again, err
}

// promptShown reports whether the shell waits for a command, and has come to that since
// a mark. The end of a session is no prompt.
func (s *Session) promptShown(since *mark) bool {
	c := &s.commands
	return c.now().Prompt && s.exit == nil && (since == nil || c.promptAt >= since.screen.Offset())
}

// silence is for how long nothing was printed; since a mark only that counts which came
// after it.
func (s *Session) silence(since *mark) time.Duration {
	now := s.cfg.Now()
	from := s.printedAt
	if since != nil && since.at.After(from) && !since.at.After(now) {
		from = since.at
	}
	return max(0, now.Sub(from))
}
