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

// A session continues without a screen in two cases: for a short time while a successor
// restores the screen, and for good after the terminal core has panicked. Child, viewers and
// output are not affected in either case.

// useScreen finishes the restoration of the screen and then calls f, which may use the screen.
// If f panics, only the screen of this session is lost, because a panic there is a defect of
// the terminal core.
func (s *Session) useScreen(f func()) {
	s.finishRestore()
	s.recoverPanic(f)
}

func (s *Session) recoverPanic(f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.degrade(p, debug.Stack())
		}
	}()
	f()
}

// askScreen calls f in loop when the screen contains the output so far, as far as feed comes.
//
// Errors: session_not_found, busy, and internal if the screen is lost.
func (s *Session) askScreen(f func()) error {
	looked := false
	if err := s.ask(answerTime, func() {
		s.feed()
		s.useScreen(func() { f(); looked = true })
		s.idle.touch()
	}); err != nil {
		return err
	}
	if !looked {
		return protocol.Errorf(protocol.CodeInternal, fmt.Sprintf("the screen of session %s is lost because of a defect of the terminal core; reopen the session to have one again", s.id))
	}
	return nil
}

// degrade writes a report about a panic of the terminal core and replaces the screen by an
// empty one for good.
func (s *Session) degrade(why any, stack []byte) {
	_, end, _ := s.ring.Bounds()
	from := uint64(0)
	if s.screen != nil {
		from = s.screen.Offset()
	}
	s.log.Error().Uint64("offset", from).Bytes("stack", stack).Msgf("screen lost because of a defect of the terminal core: %v", why)
	s.report(why, stack, from, end)
	s.saved.Title, s.saved.Cwd = s.titles()
	s.restoring, s.saved.Degraded, s.saved.GivenUpBy = nil, true, s.cfg.Program
	s.setEmptyScreen()
	s.notifyAwaits()
	s.noteChange()
	s.publishEvent(protocol.EventDegraded)
}

// setEmptyScreen replaces the lost screen by an empty one that skips all output so far.
func (s *Session) setEmptyScreen() {
	_, end, _ := s.ring.Bounds()
	s.screen = screen.New(s.size, 0)
	s.screen.Skip(end)
}

// shownTo returns the offset up to which the screen contains the output. While the screen is
// being restored this is the end of the ring, because each user of the screen waits for the
// restoration.
func (s *Session) shownTo() uint64 {
	if s.restoring != nil {
		_, end, _ := s.ring.Bounds()
		return end
	}
	return s.screen.Offset()
}

// titles returns the window title and the directory that the program has reported.
func (s *Session) titles() (title, cwd string) {
	if s.restoring != nil || s.saved.Degraded || s.screen == nil {
		return s.saved.Title, s.saved.Cwd
	}
	return s.screen.Title(), s.screen.Cwd()
}

const (
	maxReports     = 16       // files in the directory; more reports are dropped
	reportedBefore = 64 << 10 // bytes of output in a report before those that the panic concerns
)

// coreReport contains the facts that are needed to reproduce a panic of the terminal core. It
// contains output of the session, so it must be written only to a file that belongs to the
// user.
type coreReport struct {
	Session  protocol.SessionID `json:"session"`
	At       time.Time          `json:"at"`
	Panic    string             `json:"panic"`
	Stack    string             `json:"stack"`
	Size     protocol.Size      `json:"size"`
	Offset   uint64             `json:"offset"`   // of the first byte in Printed
	Showing  uint64             `json:"showing"`  // bytes from this offset on were being written to the screen
	Keyframe []byte             `json:"keyframe"` // the last keyframe before the panic
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
		s.log.Error().Err(err).Msg("report about the terminal core not written")
		return
	}
	s.log.Error().Str("path", path).Msg("report about the terminal core written; please send it to the developers, but read it before, because it contains output of the session")
}
