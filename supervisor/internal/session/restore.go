package session

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"holdfast/shared/escseq"
	"holdfast/shared/rawio"
	"holdfast/supervisor/internal/screen"
)

// An adopted session serves its clients at once. Its screen is restored meanwhile, one slice at
// a time, from the keyframe and the output after it. A request that needs the screen before has
// to wait until the restoration is finished.

const (
	// restoreSlice is the work of one step, in bytes: less than a millisecond.
	restoreSlice = 64 << 10
	// restoreAfter delays the restorations, so that clients can attach again before.
	restoreAfter = 250 * time.Millisecond
)

// restoration is owned by loop. It has three stages: first it has neither from nor screen, then
// from reads the keyframe, and at last screen reads the output after the keyframe.
type restoration struct {
	offset     uint64 // the screen in the keyframe was at this offset
	from       *screen.Restorer
	screen     *screen.Screen
	answeredTo uint64 // queries in output before this offset have been answered
	scannedTo  uint64 // output before this offset holds no unanswered query

	urgent bool // it cannot wait (isUrgent), so loop does it before it receives more output

	resized bool // the size, in cells or pixels, has changed since, and the program was not notified on its terminal
}

// at returns the offset up to which the output has been restored.
func (r *restoration) at() uint64 {
	if r.screen != nil {
		return r.screen.Offset()
	}
	return r.offset
}

// isUrgent reports whether the restoration of output up to end cannot wait. It cannot if the
// ring would soon overwrite output that is still needed, or if the output may contain a query
// that the session must answer.
func (s *Session) isUrgent(end uint64) bool {
	at := s.restoring.at()
	if end-min(end, at) >= uint64(s.ring.Keep()/frameShare) {
		return true
	}
	from := max(at, s.restoring.scannedTo)
	s.restoring.scannedTo = end
	if s.responders.current() != "" {
		return false
	}
	for from < end {
		p := s.ring.View(from, int(end-from))
		if bytes.IndexByte(p, escseq.ESC) >= 0 {
			return true
		}
		from += uint64(len(p))
	}
	return false
}

// emptyScreen returns a screen without content at the start of the ring.
func (s *Session) emptyScreen() *screen.Screen {
	start, _, _ := s.ring.Bounds()
	sc := screen.New(s.ring.SizeAt(start), s.spec.ScrollbackLines)
	sc.Skip(start)
	return sc
}

// finishRestore finishes the restoration, and yields to other goroutines between the steps.
func (s *Session) finishRestore() {
	for s.restoring != nil {
		s.restoreStep()
		rawio.Yield()
	}
}

// restoreStep does one step and reports whether the restoration is finished. It first saves the
// number of tries. If the supervisor dies during the step, its successor knows that this screen
// may be the cause.
func (s *Session) restoreStep() (done bool) {
	if r := s.restoring; r != nil {
		if s.restoreTries > 0 {
			defer s.cfg.suspects.waitTurn()()
		}
		s.saveRestoreTries(s.restoreTries + 1)
		s.recoverPanic(func() { s.step(r) })
		s.saveRestoreTries(s.restoreTries)
		if s.restoring == nil && !s.saved.Degraded {
			s.processHeard() // publishes what no predecessor has published
			if s.saved.Away.setLeftLine(s.firstOpenLine) {
				s.noteChange()
			}
		}
	}
	return s.restoring == nil
}

func (s *Session) step(r *restoration) {
	switch {
	case r.screen != nil:
	case r.from == nil:
		s.readKeyframe(r)
		return
	default:
		if r.from.Step(restoreSlice) {
			r.screen, r.from = r.from.Screen(), nil
		}
		return
	}
	start, end, _ := s.ring.Bounds()
	at := r.screen.Offset()
	if at < start {
		s.log.Error().Uint64("bytes", start-at).Msg("ring has overtaken the keyframe; the screen misses output")
		r.screen.Skip(start)
		at = start
	}
	if size := s.ring.SizeAt(at); size != r.screen.Size() {
		r.screen.Resize(size)
		r.screen.Replies() // the program was notified of this size
	}
	if at < end {
		s.replay(r, at, end)
		return
	}
	r.screen.SetAppearance(s.saved.Appearance)
	r.screen.Replies() // the program was notified of the size in pixels
	r.screen.Events()  // already published, or too old
	s.screen, s.restoring = r.screen, nil
	if r.resized {
		s.screen.ReportSize()
		s.sendReplies(s.screen)
	}
	s.idle.touch()
	s.notifyAwaits()
	s.restoreTries = 0
}

// readKeyframe opens the keyframe. If the keyframe cannot be read, the screen is restored from
// the ring alone.
func (s *Session) readKeyframe(r *restoration) {
	frame, err := s.keyframe.Read()
	if err == nil {
		r.from, err = openFrame(frame, s.spec.ScrollbackLines)
	}
	if err != nil {
		s.log.Error().Err(err).Msg("keyframe unreadable; the screen is restored from the ring alone")
	}
	if r.from == nil {
		r.screen = s.emptyScreen()
	}
}

// replay writes one piece of output to the screen. The piece ends where the terminal's size
// changes, and at the offsets up to which queries were answered and shell marks were published.
func (s *Session) replay(r *restoration, at, end uint64) {
	end = min(end, at+restoreSlice)
	if m, ok := s.ring.NextMark(at); ok {
		end = min(end, m.Offset)
	}
	if at < r.answeredTo {
		end = min(end, r.answeredTo)
	}
	if at < s.saved.ScannedTo {
		end = min(end, s.saved.ScannedTo)
	}
	for budget := pieceCost; at < end && budget > 0; {
		p := s.ring.View(at, int(end-at))
		if i := bytes.Index(p[1:], []byte(shellMarkPrefix)); i >= 0 { // a prompt's offset is the start of its piece, so each shell mark must begin a new piece
			p = p[:1+i]
		}
		budget -= r.screen.WriteSome(p, budget)
		at = r.screen.Offset()
	}
	if at <= s.saved.ScannedTo {
		r.screen.Heard() // already published and counted
	}
	if at > r.answeredTo {
		s.sendReplies(r.screen)
	} else {
		r.screen.Replies()
	}
}

// shellMarkPrefix begins the shell marks for prompts and commands (OSC 133).
const shellMarkPrefix = "\x1b]133;"

// Words of the state slate, beside its content.
const (
	wordExit         = iota // exit status of the child (exitWord), saved before the child is reaped
	wordAnswered            // offset up to which queries have been answered
	wordRestoreTries        // how often supervisors died while they restored the screen, and 1 more during a try
)

// maxRestoreTries is how often supervisors may die while they restore a screen until the screen
// is given up, because restoring it may be the cause.
const maxRestoreTries = 3

// saveRestoreTries saves how many restorations were begun and not finished.
func (s *Session) saveRestoreTries(n uint64) {
	if err := s.stateSlate.SetWord(wordRestoreTries, n); err != nil {
		s.log.Error().Err(err).Msg("number of restore attempts not saved")
	}
}

// suspectAfter is how long a supervisor must serve before it restores a suspect screen, which
// is one at which a predecessor may have died. If a supervisor dies early for another reason,
// the screen is then not blamed.
const suspectAfter = 2 * time.Second

// suspects lets the suspect screens of a table be restored only one at a time, so that each
// death is attributed to one screen.
type suspects struct {
	mu      sync.Mutex
	startAt time.Time // when this supervisor has served for suspectAfter
}

// waitTurn waits until a slice of a suspect screen may be restored. leave must be called after
// it.
func (a *suspects) waitTurn() (leave func()) {
	time.Sleep(time.Until(a.startAt))
	a.mu.Lock()
	return a.mu.Unlock
}

// openRestore prepares the restoration of an adopted session. If another program has given up
// the screen, or this program before an upgrade, the screen is tried once more, from the ring.
// A screen that was being restored at the deaths of maxRestoreTries supervisors is given up.
func (s *Session) openRestore(h Heritage) error {
	again := s.saved.Degraded && (h.Own || s.saved.GivenUpBy != s.cfg.Program)
	if s.saved.Degraded && !again {
		s.setEmptyScreen()
		return nil
	}
	told, err := s.stateSlate.Word(wordAnswered)
	if err != nil {
		return err
	}
	if h.Crashed {
		if s.restoreTries, err = s.stateSlate.Word(wordRestoreTries); err != nil {
			return err
		}
	}
	_, end, _ := s.ring.Bounds()
	s.saved.ScannedTo = min(s.saved.ScannedTo, end)
	if again {
		s.saved.Degraded, s.restoreTries = false, maxRestoreTries-1
		told, s.saved.ScannedTo = end, end // queries and shell marks of that time are too old to be answered or published
	}
	offset, ok, err := s.keyframe.readOffset()
	if err != nil {
		return err
	}
	if s.restoreTries >= maxRestoreTries {
		s.degrade(fmt.Sprintf("supervisors died %d times while they restored the screen", s.restoreTries), nil)
		return nil
	}
	s.restoring = &restoration{answeredTo: told, scannedTo: end}
	if ok {
		s.restoring.offset, s.keyframe.offset = offset, offset
	}
	return nil
}
