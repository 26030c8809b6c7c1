package session

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/recorder"
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
	if s.cfg.Recorder == nil || mode == protocol.DurableOff || s.exit != nil {
		return
	}
	s.ringHolders.Add(1)
	s.isRecorded = true
	s.cfg.Recorder.Add(source{s}, past.Mode(mode))
}

// durable returns how much of the session is stored on disk.
func (s *Session) durable() protocol.Durable {
	if s.spec.Durable != "" {
		return s.spec.Durable
	}
	return s.cfg.Durable
}

// eraseRecording erases what is stored of a forgotten session.
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

// Frame returns the keyframe. If that is older than after, or has no history although lines is
// true, loop makes a new one. A keyframe during a flood of output has no history, unless the
// budget permits it.
func (r source) Frame(after uint64, lines bool) (f recorder.Frame, err error) {
	s := r.Session
	unanswered := s.ask(frameTime, func() { f, err = s.frame(after, lines) })
	if unanswered != nil {
		return f, unanswered
	}
	return f, err
}

func (s *Session) frame(after uint64, lines bool) (f recorder.Frame, err error) {
	k := &s.display.keyframe
	if k.offset < after || lines && !k.isWhole {
		n := noLines
		if lines || s.cfg.frames.flood.Allow() {
			n = allLines
		}
		s.display.writeKeyframe(n)
		s.noteChange() // saved.ScannedTo must be saved together with the keyframe
	}
	data, err := k.Read()
	if err != nil || len(data) < frameHead {
		return f, err
	}
	return recorder.Frame{Offset: binary.LittleEndian.Uint64(data), Data: data[frameHead:], IsWhole: k.isWhole}, nil
}

// Meta describes the session for the time after the machine has lost power. It contains values
// of environment variables only if their names are in storedEnv, because a variable may hold a
// secret.
func (r source) Meta() past.Meta {
	s := r.Session
	i := s.published.Load()
	m := past.Meta{
		Mode: past.Mode(s.durable()), Created: s.created, Argv: i.Argv, Cwd: i.Cwd, Size: i.Size, Labels: s.Labels(), Title: i.Title,
	}
	if seen, ok := postmortem.Observe(s.pty.PID()); ok {
		m.Cwd = cmp.Or(seen.Cwd, m.Cwd)
	}
	if i.Command != nil {
		m.LastCommand = i.Command.Line
	}
	if s.hasExited() {
		m.Exit = s.exit
	}
	known := s.identity
	known.token, known.early = "", 0 // of the request that created the session, which is over
	m.EnvNames, known.spec.Env = storedVariables(s.spec.Env)
	known.spec.SizePolicy = i.SizePolicy
	m.Spec, _ = known.save(s.Labels(), *s.cage.limits.Load()) // what came as JSON has a form as JSON
	return m
}

// storedEnv are the names of variables whose values are stored, besides those that begin with
// "LC_".
var storedEnv = []string{"COLORTERM", "EDITOR", "HOME", "LANG", "LANGUAGE", "LOGNAME", "PAGER", "PATH", "SHELL", "TERM", "TZ", "USER", "VISUAL"}

// storedVariables returns the names of all variables, and the variables whose values are stored.
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

// askedToStop is the client of an end of all sessions that a user has requested. Without it, a signal
// has stopped the supervisor, as the shutdown of a machine does.
const askedToStop = "supervisor stop"

// AddLost adds the sessions that the store has and that no process holds any more: the machine
// has lost power, or keeper and supervisor were killed at once. held are the instances that the
// keeper holds, although this table may not have adopted them. AddLost reads one screen after
// the other, while requests are served.
func (t *Table) AddLost(store *past.Store, held []protocol.Instance) {
	entries, err := store.List()
	if err != nil {
		t.cfg.Log.Error().Err(err).Msg("stored sessions not listed")
		return
	}
	latest := map[protocol.SessionID]time.Time{}
	for _, e := range entries {
		if e.Meta.Created.After(latest[e.ID]) {
			latest[e.ID] = e.Meta.Created
		}
	}
	entries = slices.DeleteFunc(entries, func(e past.Entry) bool {
		s := t.registry.get(e.ID)
		return slices.Contains(held, e.Instance) || s != nil && s.instance == e.Instance
	})
	// The latest instance of an id comes first. An earlier one was replaced by it, and is only
	// wanted if nothing of the latest can be shown.
	slices.SortFunc(entries, func(a, b past.Entry) int { return b.Meta.Created.Compare(a.Meta.Created) })
	for _, e := range entries {
		err := error(nil)
		if e.Meta.Created.Before(latest[e.ID]) && t.registry.get(e.ID) != nil {
			err = store.Forget(e.Life)
		} else {
			err = t.addLost(store, e)
		}
		if err != nil {
			t.cfg.Log.Error().Err(err).Str("recording", e.Life.String()).Msg("stored session not restored; its files stay")
		}
	}
}

func (t *Table) addLost(store *past.Store, e past.Entry) error {
	if e.Err != nil {
		return e.Err
	}
	if x := e.Meta.Exit; x != nil && (x.Reason != protocol.ReasonShutdown || x.EndedBy == askedToStop) {
		return store.Forget(e.Life) // it had ended before, or at the request of a user
	}
	s, err := t.loadLost(store, e)
	if err != nil {
		return err
	}
	if err := t.registry.adoptLost(s); err != nil {
		return err
	}
	s.resume()
	s.log.Info().Uint64("offset", s.lost.Offset).Time("seen", s.lost.SeenAt).Msg("session was lost with the machine; its screen is restored")
	return nil
}

// loadLost makes a session that has ended of a recording. Neither the keeper nor a successor
// gets it, because a successor reads the recording again.
func (t *Table) loadLost(store *past.Store, e past.Entry) (*Session, error) {
	r, err := store.Open(e.Life)
	if err != nil {
		return nil, err
	}
	bounds, err := r.Bounds()
	if err != nil {
		return nil, err
	}
	cfg := t.cfg
	cfg.Vault = nil
	s := &Session{cfg: &cfg, hub: t.hub, onExit: t.onExit, lost: &protocol.Lost{Offset: bounds.Exact, SeenAt: e.Modified, Cwd: e.Meta.Cwd}}
	s.entry.cfg, s.entry.log = s.cfg, &s.log
	v := newSavedState()
	v.Version, v.ID, v.Instance, v.Spec = savedVersion, e.ID, e.Instance, e.Meta.Spec
	v.State, v.Turns, v.LastIO = protocol.StateLost, []responderTurn{{0, unclaimed}}, e.Modified
	v.Title = e.Meta.Title
	v.Exit = &protocol.ExitRecord{ExitCode: -1, Reason: protocol.ReasonLost, StartedAt: e.Meta.Created, ExitedAt: e.Modified}
	s.makeChannels()
	if err := s.load(&v); err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	s.log = t.cfg.Log.With().Str(logging.Session, string(s.id)).Str(logging.Instance, string(s.instance)).Logger()
	shown := screen.New(e.Meta.Size.Normalize(), s.spec.ScrollbackLines)
	if bounds.Exact > 0 {
		if shown, err = storedScreen(r, bounds.Exact, s.spec.ScrollbackLines); err != nil {
			return nil, err
		}
	}
	shown.Replies() // no program is left to receive them
	shown.Events()  // published before
	shown.Heard()
	shown.Pack()
	s.size, s.adopted = shown.Size(), true
	if err := s.openLost(shown); err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	s.ringHolders.Store(1)
	s.publish()
	return s, nil
}

// openLost makes the files that each session has. The ring has no output.
func (s *Session) openLost(shown *screen.Screen) (err error) {
	if s.ring, err = ring.NewAt(ring.MinBytes, s.size, shown.Offset()); err != nil {
		return err
	}
	s.ring.Finish()
	if err = s.newSlates(); err != nil {
		return err
	}
	s.openDisplay()
	s.display.screen = shown
	if s.input.journal, err = journal.Adopt(make([]byte, journal.RoomBytes), noJournal, s.journalConfig()); err != nil {
		return err
	}
	return s.adoptPTY(pty.State{Ended: &pty.Status{Code: s.exit.ExitCode}}, &fileSet{}, vault.Entry{}, Heritage{})
}

// storedScreen returns the screen of a recording at an offset.
func storedScreen(r *past.Reader, offset uint64, scrollback int) (sc *screen.Screen, err error) {
	v, err := r.At(offset)
	if err != nil {
		return nil, err
	}
	sc = screen.New(v.Size.Normalize(), scrollback)
	if v.Keyframe != nil {
		from, err := screen.Restore(v.Keyframe, scrollback)
		if err != nil {
			return nil, err
		}
		for !from.Step(restoreSlice) {
		}
		sc = from.Screen()
		if size := v.Size; size != (protocol.Size{}) && size != sc.Size() {
			sc.Resize(size)
		}
	}
	sc.Skip(v.KeyframeAt)
	for p, err := range v.Replay {
		switch {
		case err != nil:
			return nil, err
		case p.Size != protocol.Size{}:
			sc.Resize(p.Size)
		case p.Missing > 0:
			sc.Skip(p.Offset + p.Missing)
		default:
			sc.Write(p.Output)
		}
	}
	return sc, nil
}

// saveScreen returns the screen with its history, for a new instance that shows it above its own
// output.
func (s *Session) saveScreen() (frame []byte, err error) {
	err = s.askScreen(func(sc *screen.Screen) {
		var b memory
		if err = sc.Save(&b, allLines); err == nil {
			frame = b
		}
	})
	return frame, err
}

// memory is an io.WriterAt.
type memory []byte

// WriteAt writes p at an offset. It never fails.
func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if end := int(off) + len(p); end > len(*m) {
		*m = append(*m, make([]byte, end-len(*m))...)
	}
	return copy((*m)[off:], p), nil
}

// continueScreen returns the screen of a new instance, below the lines of an old one.
func continueScreen(frame []byte, size protocol.Size, scrollback int, lost *protocol.Lost) (*screen.Screen, error) {
	between := "the session was started again"
	if lost != nil {
		between = "the machine stopped; what is above was stored at " + lost.SeenAt.Local().Format(time.DateTime)
	}
	return screen.Continue(frame, size, scrollback, between)
}
