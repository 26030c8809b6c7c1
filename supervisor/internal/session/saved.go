package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/shared/machine"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
)

// A session outlives its supervisor in files that a successor adopts. The successor is the next
// program of this process, or the supervisor that the keeper starts after this one has died.
// The ring has the output and the sizes, its room has the input, and the keyframe (keyframe.go)
// has the screen. This file has the rest of the state, which is small and is written again
// after each change.

// The versions of saved that this program reads. New fields do not need a new version, because
// unknown fields are ignored. The version must change when the meaning of a field changes.
const (
	savedVersion    = 1
	savedVersionMin = 1
)

// savedState is the part of a session's state that a successor needs, and as JSON the content
// of the state slate. loop owns it and changes its fields directly, so that a new persistent
// field is added here and nowhere else. Such a field needs omitempty or omitzero. A state of an
// older program does not have the field; it then has its zero value, or the value that
// parseSaved gives it.
//
// The fields marked "collected" are copies for the successor. The session has their content at
// another place, because goroutines besides loop use it; save collects it, and load distributes
// it.
type savedState struct {
	Version  int                `json:"version"`               // collected
	ID       protocol.SessionID `json:"id"`                    // collected
	Instance protocol.Instance  `json:"instance"`              // collected
	Spec     json.RawMessage    `json:"spec"`                  // a savedSpec
	PTY      pty.State          `json:"pty"`                   // collected
	State    protocol.State     `json:"state"`                 // see state.go
	LastIO   time.Time          `json:"last_io"`               // collected
	LastUse  time.Duration      `json:"last_use_ns,omitempty"` // collected: LastIO by machine.Uptime; absent if the system has none

	AttachCount uint64 `json:"attached,omitempty"` // counts all attachments, also past ones; gives each viewer its number
	sizing
	Lost       []savedViewer       `json:"lost,omitempty"` // collected; also the attached viewers, because they attach again
	Appearance protocol.Appearance `json:"appearance"`
	focus
	Turns []responderTurn `json:"turns"` // collected
	heldReplies
	unanswered
	doubtedInput
	PendingLine pendingLine `json:"line,omitempty"`
	displayState
	Cage string `json:"cage,omitempty"` // collected: its directory; absent if the session has none
	Owed bool   `json:"owed,omitempty"` // collected: the vault has not confirmed the present entry

	commands
	Programs    programs `json:"programs,omitzero"`
	ClearOffset uint64   `json:"cleared,omitempty"`     // collected: the screen's offset at the last Clear, or 0
	ClearEnd    uint64   `json:"cleared_end,omitempty"` // end of the output at the last Clear, which viewers may show, or 0
	Clears      uint64   `json:"clears,omitempty"`      // collected
	ScannedTo   uint64   `json:"heard"`                 // shell marks and bells before this offset are counted in Command and Away
	quiet
	Away      *away    `json:"away,omitempty"`       // never nil in a session
	ViewerEnv []string `json:"viewer_env,omitempty"` // environment of the last viewer that sent one; replaced, and never changed

	ChildInfo postmortem.Seen      `json:"seen"`             // facts about the child that the exit record needs
	Signaler  *savedSignal         `json:"signal,omitempty"` // collected: the last signal that was requested
	Ending    *savedEnding         `json:"ending,omitempty"` // collected
	Exit      *protocol.ExitRecord `json:"exit,omitempty"`   // collected
}

// newSavedState returns the state of a new session.
func newSavedState() savedState {
	return savedState{State: protocol.StateStarting, Away: &away{Open: true}}
}

type savedSignal struct {
	Asker protocol.Asker `json:"asker"`
	Name  string         `json:"name"`
}

// savedEnding is a requested end that is not finished.
type savedEnding struct {
	Asker    protocol.Asker  `json:"asker"`
	Reason   protocol.Reason `json:"reason"`
	TimedOut bool            `json:"timed_out,omitempty"`
	Soft     int             `json:"soft"`
	GraceMS  int64           `json:"grace_ms"`
	Hard     bool            `json:"hard,omitempty"`
	All      bool            `json:"all,omitempty"` // also the processes of the cage
	Over     bool            `json:"over,omitempty"`
	Left     []int           `json:"survivors,omitempty"`
}

func (v *savedState) validate() error {
	if v.Version < savedVersionMin || v.Version > savedVersion {
		return fmt.Errorf("saved state has version %d, but this program reads only %d to %d", v.Version, savedVersionMin, savedVersion)
	}
	if err := v.ID.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if v.Instance == "" || len(v.Turns) == 0 || v.Away == nil || (v.State == protocol.StateExited) != (v.Exit != nil) {
		return fmt.Errorf("%w: session %s: instance, turns, away log or exit record is missing", errDamaged, v.ID)
	}
	return nil
}

// outdated tells loop what it must save and publish. loop owns it.
type outdated struct {
	isUnsaved     bool // the saved state differs from the current one
	isUnpublished bool // the published info differs from the current one
}

// noteChange marks the saved state and the published info as outdated. It must be called after
// each change of a field of savedState.
func (o *outdated) noteChange() { o.isUnsaved, o.isUnpublished = true, true }

// settle saves and publishes changes. The save comes first, so that no client sees a change
// that a crash would undo. Viewers that have left learn it last.
func (s *Session) settle() {
	s.write()
	s.publish()
	s.viewers.notifyDeparted()
}

// write saves changes. It does not save that the session is forgotten: a state of that kind is valid for no program, and one on
// trial may still read it, or a successor if this process dies before the entry is deleted.
func (s *Session) write() {
	if !s.isUnsaved || s.saved.State == protocol.StateForgotten {
		return
	}
	s.isUnsaved = false
	if err := s.writeState(); err != nil {
		s.log.Error().Err(err).Msg("session state not saved; recent changes would be lost with this process")
	}
}

func (s *Session) writeState() error {
	v := s.save()
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.stateSlate.Write(data)
}

// save returns the state for the slate.
func (s *Session) save() *savedState {
	v := s.saved
	v.Version, v.ID, v.Instance = savedVersion, s.id, s.instance
	v.PTY, v.Turns, v.Cage, v.Exit = ptyState(s.pty), s.answers.saved(), s.cage.Dir(), s.exit
	v.LastIO, v.LastUse = s.activity.save(s.cfg.Now(), machine.Uptime())
	v.Owed = s.entry.pause > 0
	v.Lost, v.Clears, v.ClearOffset = s.viewers.saved(), s.recording.clears.Load(), s.recording.clearedTo.Load()
	v.Title, v.Cwd = s.display.titles()
	if sig := s.orders.signalled.Load(); sig != nil {
		v.Signaler = &savedSignal{sig.asker, sig.name}
	}
	if e := s.orders.ending.Load(); e != nil {
		v.Ending = &savedEnding{
			Asker: e.asker, Reason: e.reason, TimedOut: e.timedOut, Soft: int(e.soft), GraceMS: e.grace.Milliseconds(),
			Hard: e.hard, Over: e.over, Left: e.survivors, All: e.all,
		}
	}
	return &v
}

// newSavedSpec encodes the spec. It is called only at the start and when labels or limits
// change, because an environment may be long.
func (s *Session) newSavedSpec() error {
	data, err := s.identity.save(s.Labels(), *s.cage.limits.Load())
	if err != nil {
		return err
	}
	s.saved.Spec = data
	return nil
}

// load makes v the session's state.
func (s *Session) load(v *savedState) error {
	own, labels, err := loadIdentity(v)
	if err != nil {
		return err
	}
	s.identity = own
	s.findSecrets(s.cfg)
	s.recording.use(&s.identity, s.cfg)
	s.labels.present.Store(&labels)
	s.cage.limits.Store(&s.spec.Limits)
	s.answers.startedAt, s.answers.held = time.Now(), &s.saved.heldReplies
	s.activity.load(v, s.cfg.Now(), machine.Uptime())
	s.recording.clears.Store(v.Clears)
	s.recording.clearedTo.Store(v.ClearOffset)
	s.exit = v.Exit
	s.orders.isSealed = s.exit != nil
	if s.exit == nil {
		s.viewers.restore(v.Lost)
		v.State = protocol.StateRunning // loop itself finds out whether the session drains
	} else {
		close(s.exited)
	}
	s.answers.turns = v.Turns
	if sig := v.Signaler; sig != nil {
		s.orders.signalled.Store(&signalled{sig.Asker, sig.Name})
	}
	if e := v.Ending; e != nil {
		s.orders.ending.Store(&ending{
			asker: e.Asker, reason: e.Reason, timedOut: e.TimedOut, soft: syscall.Signal(e.Soft), grace: time.Duration(e.GraceMS) * time.Millisecond,
			hard: e.Hard, over: e.Over, survivors: e.Left, all: e.All, adopted: true,
		})
	}
	s.saved = *v
	s.saved.Lost, s.saved.Turns, s.saved.Signaler, s.saved.Ending, s.saved.Exit = nil, nil, nil, nil, nil // save collects them again
	return nil
}

func (w *responders) saved() []responderTurn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.turns)
}

// ptyState returns the state of the terminal that a successor needs. A fake terminal of a test
// has only a pid.
func ptyState(terminal PTY) pty.State {
	if p, ok := terminal.(*pty.PTY); ok {
		return p.State()
	}
	return pty.State{PID: terminal.PID()}
}
