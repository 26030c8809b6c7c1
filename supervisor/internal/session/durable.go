package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/replay"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/vault"
)

// frameTime is how long a recording waits for loop until it continues without a new keyframe.
const frameTime = time.Second

// source is a session as its recording sees it. It implements recorder.Source.
type source struct{ *Session }

// record begins to record the session, or continues the recording of a predecessor.
func (s *Session) record() {
	mode := s.durable()
	if s.cfg.Recorder == nil || mode == protocol.DurableOff || s.isLost() {
		return
	}
	s.ringHolders.Add(1)
	s.isRecorded = true
	s.shareCommands()
	s.cfg.Recorder.Add(source{s}, past.Mode(mode))
}

// durable returns how much of the session is stored on disk.
func (s *Session) durable() protocol.Durable { return cmp.Or(s.spec.Durable, s.cfg.Durable) }

// eraseRecording erases the recording of a forgotten session.
func (s *Session) eraseRecording() {
	if s.cfg.Recorder != nil && s.durable() != protocol.DurableOff {
		s.cfg.Recorder.Forget(s.life())
	}
}

func (s *Session) life() past.Life { return past.Life{ID: s.id, Instance: s.instance} }

// Life returns the name of the recording.
func (r source) Life() past.Life { return r.life() }

// Ring returns the ring with the output.
func (r source) Ring() *ring.Ring { return r.ring }

// Release is called after the last use of the ring.
func (r source) Release() { r.releaseRing() }

// Frame returns the keyframe, with secrets masked. If the keyframe is older than after, or has no
// history although lines is true, loop makes a new one. If lines is false, the
// new keyframe has history only if the budget of all sessions permits it.
func (r source) Frame(after uint64, lines bool) (f recorder.Frame, err error) {
	s := r.Session
	if err := s.requestWithin(frameTime, func() (err error) { f, err = s.frame(after, lines); return err }); err != nil {
		return f, err
	}
	f.Data, err = screen.MaskRecord(f.Data, s.masker)
	return f, err
}

// Masker returns the masker of the session, or nil if it has no secrets.
func (r source) Masker() *mask.Masker { return r.masker }

// frame returns the keyframe, or makes a new one under the conditions of Frame. Secrets are not masked.
// Only loop may call it.
func (s *Session) frame(after uint64, lines bool) (f recorder.Frame, err error) {
	k := &s.display.keyframe
	if k.offset < after || lines && !k.isWhole {
		n := allLines
		if !lines {
			n = s.cfg.frames.linesInFlood()
		}
		if s.display.restoring == nil && s.display.ringSuffices() {
			s.cfg.trimmer.request()
			f.Offset, f.Data, err = s.display.frame(n)
			f.IsWhole = n == allLines
			return f, err
		}
		s.writeKeyframe(n)
	}
	offset, saved, err := k.read()
	s.cfg.trimmer.request() // the frame is garbage as soon as it is stored
	if err != nil || saved == nil {
		return f, err
	}
	return recorder.Frame{Offset: offset, Data: saved, IsWhole: k.isWhole}, nil
}

// Failed publishes that the session cannot be stored, or is stored again.
func (r source) Failed(err error) {
	kind := protocol.EventRecordingResumed
	if err != nil {
		kind = protocol.EventRecordingFailed
	}
	_ = r.ask(frameTime, func() { r.publishEvent(kind) }) // if the session is busy or gone, the log has it
}

// RecordingStatus counts the sessions that cannot be stored, and the lost sessions with recordings
// that cannot be read. It returns nil if there is neither.
func (t *Table) RecordingStatus() *protocol.RecordingStatus {
	if t.cfg.Recorder == nil {
		return nil
	}
	var st protocol.RecordingStatus
	if c, err := t.cfg.Recorder.Counts(); c.Failing > 0 && err != nil {
		st.Failing, st.Error = int(c.Failing), err.Error()
	}
	all, _ := t.registry.all()
	for _, s := range all {
		if s.isLocked {
			st.Sealed++
		}
	}
	if st == (protocol.RecordingStatus{}) {
		return nil
	}
	return &st
}

// Meta describes the session for the time after the machine has lost power. It contains values
// of environment variables only if their names are in storedEnv, because a variable may hold a
// secret.
func (r source) Meta() past.Meta {
	s := r.Session
	i := s.published.Load() // without secrets
	m := past.Meta{
		Mode: past.Mode(s.durable()), Supervisor: s.cfg.Supervisor, Replaces: s.replaces, Clears: s.clears.Load(), Created: s.created, Argv: i.Argv, Cwd: i.Cwd, Size: i.Size, Labels: i.Labels, Title: i.Title,
	}
	if c := s.lastCommands.Load(); c != nil {
		m.Commands = *c
	}
	if s.hasExited() {
		m.Exit = s.exit
		m.Cwd = cmp.Or(s.exit.Cwd, m.Cwd)
	} else if seen, ok := postmortem.Observe(s.pty.PID()); ok {
		m.Cwd = s.masker.Text(cmp.Or(seen.Cwd, m.Cwd))
	}
	known := s.identity
	known.token, known.early = "", 0 // of the request that created the session, which is over
	m.EnvNames, known.spec.Env = storedVariables(s.spec.Env)
	known.spec.Argv, known.spec.Env, known.spec.Cwd = s.masker.Texts(s.spec.Argv), s.masker.Texts(known.spec.Env), s.masker.Text(s.spec.Cwd)
	known.spec.SizePolicy = i.SizePolicy
	m.Spec, _ = known.save(i.Labels, *s.cage.limits.Load()) // the spec came as JSON, so it can be encoded
	return m
}

// Clears returns how often lines were cleared for good.
func (r source) Clears() uint64 { return r.clears.Load() }

// storedEnv are the names of the variables that are stored with their values, besides those that
// begin with "LC_".
var storedEnv = []string{"COLORTERM", "EDITOR", "HOME", "LANG", "LANGUAGE", "LOGNAME", "PAGER", "PATH", "SHELL", "TERM", "TZ", "USER", "VISUAL"}

// storedVariables returns the names of all variables, and the variables to store with their values.
func storedVariables(env []string) (names, stored []string) {
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
		if strings.HasPrefix(name, "LC_") || slices.Contains(storedEnv, name) {
			stored = append(stored, kv)
		}
	}
	return names, stored
}

// StopRequest is the asker of an end of all sessions that a user has requested. If an exit record
// does not name it, a signal has stopped the supervisor, as the shutdown of a machine does.
const StopRequest = "supervisor stop"

// isOver reports whether a session with this exit record has ended for good. If the shutdown of the
// machine has ended the session, it is not over but lost, and can be started again.
func isOver(x *protocol.ExitRecord) bool {
	return x != nil && (x.Reason != protocol.ReasonShutdown || x.EndedBy == StopRequest)
}

// eraseTime is how long an upgrade, or a request to forget a session, waits until the recording is
// erased.
const eraseTime = 500 * time.Millisecond

// awaitErased waits until the recordings of the forgotten sessions with an id are erased, or those of
// all forgotten sessions if id is empty. After the given time it returns the lives that the disk may
// still have.
func (t *Table) awaitErased(within time.Duration, id protocol.SessionID) []past.Life {
	if t.cfg.Recorder == nil {
		return nil
	}
	return t.cfg.Recorder.AwaitErased(within, func(l past.Life) bool { return id == "" || l.ID == id })
}

// eraseFor erases the recordings of the sessions that a predecessor has forgotten.
func (t *Table) eraseFor(forgotten []past.Life) {
	for _, l := range forgotten {
		if t.cfg.Recorder != nil {
			t.cfg.Recorder.Forget(l)
		}
	}
}

// AddLost adds the sessions that the store has and that no process holds any more: the machine
// has lost power, or keeper and supervisor were killed at once. held are the instances that the
// keeper holds, although this table may not have adopted them. AddLost reads one screen after
// the other, while requests are served.
//
// A recording of this supervisor does not belong to a lost session, and neither does one of a
// predecessor from which this supervisor has taken sessions over: the session runs, it has exited, or
// a user has forgotten it and its files are not erased yet. Such supervisors have the same
// Config.Supervisor.
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
	entries = slices.DeleteFunc(entries, func(e past.Entry) bool {
		isOwn := t.cfg.Supervisor != "" && e.Meta.Supervisor == t.cfg.Supervisor
		return isOwn || slices.Contains(held, e.Instance) || t.cfg.Recorder.IsForgotten(e.Life)
	})
	// The latest instance of an id comes first, because it may have replaced the earlier ones.
	slices.SortFunc(entries, func(a, b past.Entry) int { return b.Meta.Created.Compare(a.Meta.Created) })
	for _, e := range entries {
		if err := t.addLost(store, e, replaced[e.Instance]); err != nil {
			t.cfg.Log.Error().Err(err).Str("recording", e.Life.String()).Msg("stored session not restored; its files stay")
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
	if e.Err != nil {
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
	if s.isLocked {
		return nil
	}
	s.log.Info().Uint64("offset", s.lost.Offset).Time("seen", s.lost.SeenAt).Msg("session was lost with the machine; its screen is restored")
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
	s.isLocked = true
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
	s := &Session{cfg: &cfg, hub: t.hub, onExit: t.onExit, lost: &protocol.Lost{Offset: exact, SeenAt: e.Modified, Cwd: e.Meta.Cwd}}
	s.entry.cfg, s.entry.log = s.cfg, &s.log
	v := newSavedState()
	v.Version, v.ID, v.Instance, v.Spec = savedVersion, e.ID, e.Instance, e.Meta.Spec
	v.State, v.Turns, v.LastIO = protocol.StateLost, []responderTurn{{0, unclaimed}}, e.Modified
	v.Title = e.Meta.Title
	v.commands.restore(e.Meta.Commands, exact)
	v.Exit = &protocol.ExitRecord{ExitCode: -1, Reason: protocol.ReasonLost, StartedAt: e.Meta.Created, ExitedAt: e.Modified}
	s.makeChannels()
	if err := s.load(&v); err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	s.unmasked = nil // the values of secret variables were masked, and were not stored
	s.openLog()
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
