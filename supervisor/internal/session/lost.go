package session

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode"

	"holdfast/protocol"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/replay"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/vault"
)

// StopRequest is the asker of an end of all sessions that a user has requested. If an exit record
// does not name it, a signal has stopped the supervisor, as the shutdown of a machine does.
const StopRequest = "supervisor stop"

// isOver reports whether a session with this exit record has ended for good. If the shutdown of the
// machine has ended the session, it is not over but lost, and can be started again.
func isOver(x *protocol.ExitRecord) bool {
	return x != nil && (x.Reason != protocol.ReasonShutdown || x.EndedBy == StopRequest)
}

// stopTime is how long before a shutdown by a signal a child may have ended because of the same shutdown. The
// system sends the signal to all processes at once, and a busy machine delays the supervisor's.
const stopTime = 5 * time.Second

// endedWithMachine reports whether a session with this exit record may have ended because the machine stops: its child
// has ended by itself, and not longer than stopTime before the shutdown began. A program may end with any exit code
// when it is told to stop.
func endedWithMachine(x *protocol.ExitRecord, shutdown time.Time) bool {
	return x.Reason == protocol.ReasonExited && x.EndedBy == "" && shutdown.Sub(x.ExitedAt) <= stopTime
}

// AddLost adds the sessions that the store has and that no process holds any more: the machine
// has lost power, or keeper and supervisor were killed at once. held are the instances that the
// keeper holds, although this table may not have adopted them. AddLost reads one screen after
// the other, while requests are served.
//
// A recording of this supervisor does not belong to a lost session, and neither does one of a
// predecessor from which this supervisor has taken sessions over: the session runs, it has exited, or
// a user has forgotten it and its files are not erased yet. Such supervisors have the same
// Config.Supervisor. A recording of another supervisor that runs (Config.IsRunning) is left alone.
func (t *Table) AddLost(store *past.Store, held []protocol.Instance) {
	store.AwaitKey()
	if err := store.Sweep(); err != nil {
		t.cfg.Log.Warn().Err(err).Msg("files of forgotten sessions not erased")
	}
	entries, err := store.List()
	if err != nil {
		t.cfg.Log.Error().Err(err).Msg("stored sessions not listed")
		return
	}
	replaced := t.replaced(entries)
	ofOthers := 0
	entries = slices.DeleteFunc(entries, func(e past.Entry) bool {
		isOwn := t.cfg.Supervisor != "" && e.Meta.Supervisor == t.cfg.Supervisor
		if isOwn || slices.Contains(held, e.Instance) || t.cfg.Recorder.IsForgotten(e.Life) {
			return true
		}
		isOther := t.cfg.IsRunning != nil && t.cfg.IsRunning(e.Meta.Supervisor)
		if isOther {
			ofOthers++
		}
		return isOther
	})
	if ofOthers > 0 {
		t.cfg.Log.Warn().Int("recordings", ofOthers).Msg("another supervisor has the same state directory; its sessions are not listed here")
	}
	// The latest instance of an id comes first, because it may have replaced the earlier ones.
	slices.SortFunc(entries, func(a, b past.Entry) int { return b.Meta.Created.Compare(a.Meta.Created) })
	putReplacedLast(entries)
	for _, e := range entries {
		if err := t.addLost(store, e, replaced[e.Instance]); err != nil {
			t.cfg.Log.Error().Err(err).Str("recording", e.Life.String()).Msg("stored session not restored; its files stay")
		}
	}
}

// putReplacedLast moves an entry before the one that it has replaced, if that comes first because the clock was set
// back between them.
func putReplacedLast(entries []past.Entry) {
	for i, e := range entries {
		if e.Meta.Replaces == "" {
			continue
		}
		if j := slices.IndexFunc(entries[:i], func(o past.Entry) bool { return o.Instance == e.Meta.Replaces }); j >= 0 {
			copy(entries[j+1:], entries[j:i])
			entries[j] = e
		}
	}
}

// replaced returns the instances that another instance has replaced, because a user has started the
// session again.
func (t *Table) replaced(entries []past.Entry) map[protocol.Instance]bool {
	replaced := make(map[protocol.Instance]bool)
	for _, e := range entries {
		replaced[e.Meta.Replaces] = true
	}
	all, _ := t.registry.all()
	for _, s := range all { // the store may not have them yet
		replaced[s.replaces] = true
	}
	return replaced
}

func (t *Table) addLost(store *past.Store, e past.Entry, isReplaced bool) error {
	if errors.Is(e.Err, fs.ErrNotExist) {
		if isUnbegun, err := store.DiscardUnbegun(e.Life); isUnbegun || err != nil {
			return err
		}
	}
	if errors.Is(e.Err, past.ErrDamaged) || errors.Is(e.Err, fs.ErrNotExist) {
		t.cfg.Log.Error().Err(e.Err).Str("recording", e.Life.String()).Msg("description of a stored session not readable; it is listed as lost, without its command and labels")
		unknown := identity{spec: unknownSpec(t.cfg.ScrollbackLines), created: e.Modified}
		e.Meta = past.Meta{Mode: past.Mode(protocol.DurableFull), Created: e.Modified}
		e.Meta.Spec, e.Err = unknown.save(nil, protocol.Limits{})
	}
	if e.Err != nil { // a later version has written it, or the disk may return it later
		return e.Err
	}
	later := t.registry.get(e.ID)
	isReplaced = isReplaced && later != nil
	if e.Locked != nil && isReplaced {
		return e.Locked
	}
	if isOver(e.Meta.Exit) || isReplaced && t.registry.hasAside(e.ID) {
		t.cfg.Recorder.Forget(e.Life) // it had ended before, or was replaced twice
		return nil
	}
	s, err := t.loadLost(store, e)
	if errors.Is(err, past.ErrLocked) {
		t.cfg.Log.Error().Err(err).Str("recording", e.Life.String()).Msg("stored session is sealed; its files stay")
		s, err = t.loadLocked(e, err)
	}
	if err != nil {
		return err
	}
	if isReplaced { // less than asideTime before the loss
		s.resume()
		t.adoptAside(s, later)
		return nil
	}
	if err := t.registry.adoptLost(s); err != nil {
		return err
	}
	s.resume()
	if s.recording.isLocked {
		return nil
	}
	s.log.Info().Uint64("offset", s.recording.lost.Offset).Time("seen", s.recording.lost.SeenAt).Msg("session was lost with the machine; its screen is restored")
	return nil
}

// loadLost makes a session that has ended from its recording. The keeper gets no files of it, because
// a successor reads the recording again.
func (t *Table) loadLost(store *past.Store, e past.Entry) (*Session, error) {
	if e.Locked != nil {
		return nil, e.Locked
	}
	r, err := store.Open(e.Life)
	if err != nil {
		return nil, err
	}
	bounds, err := r.Bounds()
	if err != nil {
		return nil, err
	}
	s, err := t.newLost(e, bounds.Exact)
	if err != nil {
		return nil, err
	}
	shown := screen.New(e.Meta.Size.Normalize(), s.spec.ScrollbackLines)
	if bounds.Exact > 0 {
		if shown, err = replay.Stored(r, bounds.Exact, s.spec.ScrollbackLines); err != nil {
			return nil, err
		}
	}
	return s, s.finishLost(shown)
}

// loadLocked makes a lost session from a recording that cannot be read, because its key is missing or
// another one. The screen shows the cause. The files stay as they are.
func (t *Table) loadLocked(e past.Entry, cause error) (*Session, error) {
	known := identity{spec: protocol.SpawnSpec{Durable: protocol.Durable(e.Meta.Mode)}, replaces: e.Meta.Replaces, created: e.Meta.Created}
	spec, err := known.save(nil, protocol.Limits{})
	if err != nil {
		return nil, err
	}
	e.Meta.Spec = spec
	s, err := t.newLost(e, 0)
	if err != nil {
		return nil, err
	}
	s.recording.isLocked = true
	shown := screen.New(e.Meta.Size.Normalize(), s.spec.ScrollbackLines)
	shown.Write(fmt.Appendf(nil, "\x1b]2;sealed recording\x07The recording of this session is sealed, and cannot be read:\r\n%s\r\n\r\n"+
		"Make its key available by the setting durable_key, then run \"supervisor --upgrade\".\r\nIts files stay until \"proxy forget %s\".\r\n", printable(cause.Error()), e.ID))
	return s, s.finishLost(shown)
}

// printable replaces the control characters of an error text by spaces, because the text may contain
// file names and output of commands.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// newLost makes a lost session without its screen, which finishLost adds.
func (t *Table) newLost(e past.Entry, exact uint64) (*Session, error) {
	cfg := t.cfg
	cfg.Vault = nil
	s := &Session{cfg: &cfg, hub: t.hub, onExit: t.onExit}
	s.entry.cfg, s.entry.log = s.cfg, &s.log
	v := newSavedState()
	v.Version, v.ID, v.Instance, v.Spec = savedVersion, e.ID, e.Instance, e.Meta.Spec
	v.State, v.Turns, v.LastIO = protocol.StateLost, []responderTurn{{Writer: unclaimed}}, e.Modified
	v.Title = e.Meta.Title
	v.commands.restore(e.Meta.Commands, exact)
	v.Exit = &protocol.ExitRecord{ExitCode: -1, Reason: protocol.ReasonLost, StartedAt: e.Meta.Created, ExitedAt: e.Modified}
	s.connect()
	if err := s.load(&v); err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	s.recording.mode = protocol.Durable(e.Meta.Mode) // the setting may have changed
	s.recording.lost = &protocol.Lost{Offset: exact, SeenAt: e.Modified, Cwd: e.Meta.Cwd}
	s.unmasked = nil // the values of secret variables were masked, and were not stored
	s.log = s.logger(cfg.Log)
	return s, nil
}

// finishLost gives a lost session its screen. If it fails, it closes the files of the session.
func (s *Session) finishLost(shown *screen.Screen) error {
	shown.Replies() // no program is left to receive them
	shown.Events()  // published before
	shown.Heard()
	shown.Pack()
	s.size, s.adopted = shown.Size(), true
	if err := s.openLost(shown); err != nil {
		return errors.Join(err, s.closeFiles())
	}
	s.ringHolders.Store(1)
	s.publish()
	return nil
}

// openLost makes the files that each session has, and shows the screen. The ring has no output.
func (s *Session) openLost(shown *screen.Screen) (err error) {
	if s.sessionFiles, err = makeLostFiles(s.size, shown.Offset(), s.journalConfig()); err != nil {
		return err
	}
	s.useFiles()
	s.display.screen = shown
	return s.adoptPTY(pty.State{Ended: &pty.Status{Code: s.exit.ExitCode}}, &fileSet{}, vault.Entry{}, Heritage{})
}

// continueScreen returns the screen of a new instance, below the lines of an old one.
func continueScreen(frame []byte, size protocol.Size, scrollback int, lost *protocol.Lost) (*screen.Screen, error) {
	between := "the session was started again"
	if lost != nil {
		between = "the machine stopped; what is above was stored at " + lost.SeenAt.Local().Format(time.DateTime)
	}
	return screen.Continue(frame, size, scrollback, between)
}
