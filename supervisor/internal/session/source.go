package session

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
)

// frameTime is how long a recording waits for loop until it continues without a new keyframe.
const frameTime = time.Second

// source is a session as its recording sees it. It implements recorder.Source.
type source struct{ *Session }

// record begins to record the session, or continues the recording of a predecessor.
func (s *Session) record() {
	if s.recording.isStored() && !s.isLost() {
		s.ringHolders.Add(1)
		s.recording.begin(source{s}, s.saved.Log)
	}
}

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
	if err := s.requestWithin(frameTime, func() (err error) { f, err = s.display.frame(after, lines); return err }); err != nil {
		return f, err
	}
	f.Data, err = screen.MaskRecord(f.Data, s.masker)
	return f, err
}

// Masker returns the masker of the session, or nil if it has no secrets.
func (r source) Masker() *mask.Masker { return r.masker }

// SetDoubted saves whether the recording must be written again. If the session was forgotten, nothing is saved.
func (r source) SetDoubted(isDoubted bool) {
	var word uint64
	if isDoubted {
		word = 1
	}
	if err := r.stateSlate.SetWord(wordDoubted, word); err != nil && !errors.Is(err, os.ErrClosed) {
		r.log.Error().Err(err).Msg("failed sync of the recording not saved; a successor would not write that output again")
	}
}

// IsDoubted reports whether the recording must be written again. If that cannot be read, it must: to write it again in vain
// costs little.
func (r source) IsDoubted() bool {
	word, err := r.stateSlate.Word(wordDoubted)
	return err != nil || word != 0
}

// Failed publishes that the session cannot be stored, or is stored again.
func (r source) Failed(err error) {
	kind := protocol.EventRecordingResumed
	if err != nil {
		kind = protocol.EventRecordingFailed
	}
	_ = r.ask(frameTime, func() { r.publishEvent(kind) }) // if the session is busy or gone, the log has it
}

// Meta describes the session for the time after the machine has lost power. It contains values
// of environment variables only if their names are in storedEnv, because a variable may hold a
// secret.
func (r source) Meta() past.Meta {
	s := r.Session
	i := s.published.Load() // without secrets
	m := past.Meta{
		Mode: past.Mode(s.recording.mode), Supervisor: s.cfg.Supervisor, Replaces: s.replaces, Clears: s.recording.clears.Load(), Created: s.created, Argv: i.Argv, Cwd: i.Cwd, Size: i.Size, Labels: i.Labels, Title: i.Title,
	}
	m.Commands = s.recording.commands()
	if s.hasExited() {
		m.Exit = s.exit
		if s.recording.isStopped.Load() {
			exit := *s.exit
			exit.Reason = protocol.ReasonShutdown
			m.Exit = &exit
		}
		m.Cwd = cmp.Or(s.exit.Cwd, m.Cwd)
	} else if seen, ok := postmortem.Observe(s.pty.PID()); ok {
		m.Cwd = s.masker.Text(cmp.Or(seen.Cwd, m.Cwd))
	}
	known := s.identity
	known.token, known.early = "", 0 // of the request that started this instance, which is over
	m.EnvNames, known.spec.Env = storedVariables(s.spec.Env)
	known.spec.Argv, known.spec.Env, known.spec.Cwd = s.masker.Texts(s.spec.Argv), s.masker.Texts(known.spec.Env), s.masker.Text(s.spec.Cwd)
	known.dir = i.Cwd
	known.spec.SizePolicy = i.SizePolicy
	m.Spec, _ = known.save(i.Labels, *s.cage.limits.Load()) // the spec came as JSON, so it can be encoded
	return m
}

// Clears returns how often lines were cleared for good.
func (r source) Clears() uint64 { return r.recording.clears.Load() }

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
