package session

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"holdfast/supervisor/internal/screen"
)

// A session that was adopted serves at once; its screen is made meanwhile, a slice
// at a time, of the keyframe and of what the ring has from there on. Who asks for
// the screen before waits for the rest.

const (
	// restoreSlice is how much is done at a time, in bytes: less than a millisecond.
	restoreSlice = 64 << 10
	// restoreAfter leaves the first moment to those who come again.
	restoreAfter = 250 * time.Millisecond
)

// A restoration is owned by loop. It goes from its keyframe to a restorer of that, and
// from there to a screen, which then is shown what was printed since.
type restoration struct {
	offset uint64 // what the keyframe stands for
	from   *screen.Restorer
	screen *screen.Screen
	told   uint64 // what the program asked before here was answered
	heard  uint64 // nothing is asked before here that was not

	resized bool // the size, in cells or pixels, has changed meanwhile, of which the program was not told
}

// at is up to where the restoration has come.
func (r *restoration) at() uint64 {
	if r.screen != nil {
		return r.screen.Offset()
	}
	return r.offset
}

// hurries reports whether what was printed up to end cannot wait: the ring would
// overtake the restoration, or the program may have asked what is ours to answer.
func (s *Session) hurries(end uint64) bool {
	at := s.restoring.at()
	if end-min(end, at) >= uint64(s.ring.Keep()/frameShare) {
		return true
	}
	from := max(at, s.restoring.heard)
	s.restoring.heard = end
	if s.answers.now() != "" {
		return false
	}
	for from < end {
		p := s.ring.View(from, int(end-from))
		if bytes.IndexByte(p, esc) >= 0 {
			return true
		}
		from += uint64(len(p))
	}
	return false
}

// emptyScreen is one that has shown nothing of what the ring has.
func (s *Session) emptyScreen() *screen.Screen {
	start, _, _ := s.ring.Bounds()
	sc := screen.New(s.ring.SizeAt(start), s.spec.ScrollbackLines)
	sc.Skip(start)
	return sc
}

// finishRestore does at once what is left.
func (s *Session) finishRestore() {
	for s.restoring != nil {
		s.restoreStep()
	}
}

// restoreStep does a slice and reports whether that was all. If our code dies in
// it, the next one shall know of what.
func (s *Session) restoreStep() (done bool) {
	if r := s.restoring; r != nil {
		if s.tries > 0 {
			defer s.cfg.suspects.enter()()
		}
		s.suspect(s.tries + 1)
		s.guarded(func() { s.step(r) })
		s.suspect(s.tries)
		if s.restoring == nil && !s.degraded {
			s.hear() // what nobody has
			s.lateLine()
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
		s.log.Error().Uint64("bytes", start-at).Msg("the ring has overtaken the keyframe")
		r.screen.Skip(start)
		at = start
	}
	if size := s.ring.SizeAt(at); size != r.screen.Size() {
		r.screen.Resize(size)
		r.screen.Replies() // it was told of that size
	}
	if at < end {
		s.replay(r, at, end)
		return
	}
	r.screen.SetAppearance(s.appearance)
	r.screen.Replies() // the program was told of that size in pixels
	r.screen.Events()  // told, or too old to be told
	s.screen, s.restoring = r.screen, nil
	if r.resized {
		s.screen.TellSize()
		s.answerFor(s.screen)
	}
	s.idle.touch()
	s.tellAwaits()
	s.tries = 0
}

// readKeyframe begins with the keyframe. One that cannot be read costs what is not in
// the ring any more.
func (s *Session) readKeyframe(r *restoration) {
	frame, err := s.keyframe.Read()
	if err == nil && len(frame) >= frameHead {
		r.from, err = screen.Restore(frame[frameHead:], s.spec.ScrollbackLines)
	}
	if err != nil {
		s.log.Error().Err(err).Msg("keyframe lost: the screen is made of what the ring has")
	}
	if r.from == nil {
		r.screen = s.emptyScreen()
	}
}

// replay shows a piece: up to where the size changes, or to where the program's
// questions were answered.
func (s *Session) replay(r *restoration, at, end uint64) {
	end = min(end, at+restoreSlice)
	if m, ok := s.ring.NextMark(at); ok {
		end = min(end, m.Offset)
	}
	if at < r.told {
		end = min(end, r.told)
	}
	if at < s.commands.heard {
		end = min(end, s.commands.heard)
	}
	for budget := pieceCost; at < end && budget > 0; {
		p := s.ring.View(at, int(end-at))
		if i := bytes.Index(p[1:], []byte(shellSays)); i >= 0 { // a prompt has the offset of the piece that it comes in
			p = p[:1+i]
		}
		budget -= r.screen.WriteSome(p, budget)
		at = r.screen.Offset()
	}
	if at <= s.commands.heard {
		r.screen.Heard() // told, and counted
	}
	if at > r.told {
		s.answerFor(r.screen)
	} else {
		r.screen.Replies()
	}
}

// shellSays is how a shell begins to tell of its prompts and commands.
const shellSays = "\x1b]133;"

// Words of the state slate, beside its content.
const (
	wordExit    = iota // how the child ended, written before it was reaped (exitWord)
	wordTold           // up to which offset the program's questions were answered
	wordSuspect        // how often the screen was to be restored and never was
)

// maxSuspect is how often a screen may be restored in vain before it is given up:
// it may be what our code dies of.
const maxSuspect = 3

// suspect notes how often restoring was begun without an end.
func (s *Session) suspect(n uint64) {
	if err := s.stateSlate.SetWord(wordSuspect, n); err != nil {
		s.log.Error().Err(err).Msg("state not written")
	}
}

// suspectAfter is how long a supervisor serves before it restores a screen at which one
// before it may have died: a program that dies soon anyway does not make a screen suspect.
const suspectAfter = 2 * time.Second

// suspects has the suspect screens of a table be restored one at a time, so that a death is
// one screen's.
type suspects struct {
	mu   sync.Mutex
	from time.Time // when the supervisor has served for suspectAfter
}

// enter waits until another slice of a suspect screen may be restored; leave ends that.
func (a *suspects) enter() (leave func()) {
	time.Sleep(time.Until(a.from))
	a.mu.Lock()
	return a.mu.Unlock
}

// openRestore begins the restoration of an adopted session. A screen that another program, or this
// one before an upgrade, gave up is tried again, once, of what the ring has.
func (s *Session) openRestore(h Heritage) error {
	again := s.degraded && (h.Own || s.givenUpBy != s.cfg.Program)
	if s.degraded && !again {
		s.blank()
		return nil
	}
	told, err := s.stateSlate.Word(wordTold)
	if err != nil {
		return err
	}
	if h.Crashed {
		if s.tries, err = s.stateSlate.Word(wordSuspect); err != nil {
			return err
		}
	}
	_, end, _ := s.ring.Bounds()
	s.commands.heard = min(s.commands.heard, end)
	if again {
		s.degraded, s.tries = false, maxSuspect-1
		told, s.commands.heard = end, end // what was asked and told meanwhile is too old for an answer
	}
	head, err := s.keyframe.ReadFirst(frameHead)
	if err != nil {
		return err
	}
	if s.tries >= maxSuspect {
		s.degrade(fmt.Sprintf("supervisors have died %d times while they restored it", s.tries), nil)
		return nil
	}
	s.restoring = &restoration{told: told, heard: end}
	if offset, ok := frameOffset(head); ok {
		s.restoring.offset, s.framed = offset, offset
	}
	return nil
}
