package session

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// A session goes on without a screen in two cases: for a moment, while a successor
// restores it, and for good, where our code for it has panicked. Its child, its
// viewers and what it printed are not touched by either.

// core has f do something with the screen, after it was restored. A panic in it is
// a mistake of ours that must not cost more than this screen.
func (s *Session) core(f func()) {
	s.finishRestore()
	s.guarded(f)
}

func (s *Session) guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.degrade(p, debug.Stack())
		}
	}()
	f()
}

// look has f look at the screen, in loop, as it is now. Errors: session_not_found, busy,
// and internal where the screen is lost.
func (s *Session) look(f func()) error {
	looked := false
	if err := s.ask(answerTime, func() {
		s.feed()
		s.core(func() { f(); looked = true })
		s.idle.touch()
	}); err != nil {
		return err
	}
	if !looked {
		return protocol.Errorf(protocol.CodeInternal, fmt.Sprintf("the screen of session %s is lost by a mistake of ours", s.id))
	}
	return nil
}

// degrade gives the screen up. In its place comes one that stays empty.
func (s *Session) degrade(why any, stack []byte) {
	_, end, _ := s.ring.Bounds()
	from := uint64(0)
	if s.screen != nil {
		from = s.screen.Offset()
	}
	s.log.Error().Uint64("offset", from).Bytes("stack", stack).Msgf("the screen is lost by a mistake of ours: %v", why)
	s.report(why, stack, from, end)
	s.title, s.cwd = s.titles()
	s.restoring, s.degraded, s.givenUpBy = nil, true, s.cfg.Program
	s.blank()
	s.tellAwaits()
	s.note()
	info := s.info()
	s.hub.Publish(protocol.EventDegraded, &info, nil)
}

// blank has a screen that stays empty be in place of the one that is lost.
func (s *Session) blank() {
	_, end, _ := s.ring.Bounds()
	s.screen = screen.New(s.size, 0)
	s.screen.Skip(end)
}

// shownTo is up to where the screen shows what was printed, or will before anybody
// looks.
func (s *Session) shownTo() uint64 {
	if s.restoring != nil {
		_, end, _ := s.ring.Bounds()
		return end
	}
	return s.screen.Offset()
}

// titles are the window's title and the directory, by the program.
func (s *Session) titles() (title, cwd string) {
	if s.restoring != nil || s.degraded || s.screen == nil {
		return s.title, s.cwd
	}
	return s.screen.Title(), s.screen.Cwd()
}

const (
	maxReports     = 16       // kept in a directory
	reportedBefore = 64 << 10 // bytes before those that were being shown
)

// A coreReport is what is needed to find a mistake in the terminal core. It has
// what the session printed, so it goes to a file of the user's and nowhere else.
type coreReport struct {
	Session  protocol.SessionID `json:"session"`
	At       time.Time          `json:"at"`
	Panic    string             `json:"panic"`
	Stack    string             `json:"stack"`
	Size     protocol.Size      `json:"size"`
	Offset   uint64             `json:"offset"`   // of the first byte
	Showing  uint64             `json:"showing"`  // from here on they were being shown
	Keyframe []byte             `json:"keyframe"` // the last one before
	Printed  []byte             `json:"printed"`
}

func (s *Session) report(why any, stack []byte, from, end uint64) {
	dir := s.cfg.ReportDir
	if dir == "" {
		return
	}
	old, _ := filepath.Glob(filepath.Join(dir, "core-*.json"))
	if len(old) >= maxReports {
		return
	}
	start, _, _ := s.ring.Bounds()
	r := coreReport{Session: s.id, At: time.Now(), Panic: fmt.Sprint(why), Stack: string(stack), Size: s.size, Showing: from}
	r.Offset = max(start, from-min(from, reportedBefore))
	r.Printed = make([]byte, end-min(end, r.Offset))
	n, err := s.ring.ReadAt(r.Printed, r.Offset)
	r.Printed = r.Printed[:n]
	if frame, frameErr := s.keyframe.Read(); frameErr == nil {
		r.Keyframe = frame
	}
	data, jsonErr := json.Marshal(r)
	path := filepath.Join(dir, fmt.Sprintf("core-%s-%d.json", s.instance, r.At.UnixMilli()))
	if err == nil {
		err = jsonErr
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		s.log.Error().Err(err).Msg("report not written")
		return
	}
	s.log.Error().Str("path", path).Msg("what the mistake needs to be found is in a file; it has what the session printed")
}
