package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
)

// What of a session outlives its supervisor lies in files that a successor
// adopts: the next program of this process, or the supervisor that the keeper
// starts when this one has died. The ring has what was printed and the sizes, its
// room has what was typed, the keyframe (keyframe.go) has the screen. This is the
// rest: little, and written anew each time it changes.

// The versions of saved that are read. Fields are only ever added, and an unknown
// one is skipped: the version counts changes of what a field means.
const (
	savedVersion    = 1
	savedVersionMin = 1
)

// saved is what the state slate holds, as JSON.
type saved struct {
	Version  int                `json:"version"`
	ID       protocol.SessionID `json:"id"`
	Instance protocol.Instance  `json:"instance"`
	Spec     json.RawMessage    `json:"spec"` // a savedSpec
	PTY      pty.State          `json:"pty"`
	State    protocol.State     `json:"state"`
	LastIO   time.Time          `json:"last_io"`

	Attached   uint64              `json:"attached,omitempty"` // attachments so far
	SizePolicy protocol.SizePolicy `json:"size_policy"`
	Decider    string              `json:"decider,omitempty"`
	Lost       []savedViewer       `json:"lost,omitempty"` // and those that are attached: they come again
	Appearance protocol.Appearance `json:"appearance"`
	Focus      byte                `json:"focus,omitempty"`
	FocusAsked uint64              `json:"focus_asked,omitempty"`
	Turns      []savedTurn         `json:"turns"`
	Held       []byte              `json:"held,omitempty"`
	HeldAlone  []byte              `json:"held_alone,omitempty"`
	Line       int                 `json:"line,omitempty"`
	Title      string              `json:"title,omitempty"` // until the screen knows
	Cwd        string              `json:"cwd,omitempty"`
	Degraded   bool                `json:"degraded,omitempty"`
	GivenUpBy  string              `json:"given_up_by,omitempty"` // the program that degraded it
	Cage       string              `json:"cage,omitempty"`        // its directory; absent of a session without one

	Command   *protocol.CommandInfo `json:"command,omitempty"`
	PromptAt  uint64                `json:"prompt_at,omitempty"` // of the last prompt in Command
	Cleared   uint64                `json:"cleared,omitempty"`   // Session.cleared
	Heard     *uint64               `json:"heard,omitempty"`     // what was printed up to here is in Command and Away; absent of a version that did not listen
	Busy      bool                  `json:"busy,omitempty"`      // it has printed, and output_idle was not told
	Away      *savedAway            `json:"away,omitempty"`
	ViewerEnv []string              `json:"viewer_env,omitempty"`

	Seen     postmortem.Seen      `json:"seen"`
	Signaler *savedSignal         `json:"signal,omitempty"` // the last signal that was asked for
	Ending   *savedEnding         `json:"ending,omitempty"`
	Exit     *protocol.ExitRecord `json:"exit,omitempty"`
}

// savedSpec is how a session was asked for.
type savedSpec struct {
	protocol.SpawnSpec
	Scrollback int       `json:"scrollback"` // lines, as it was decided
	Token      string    `json:"token,omitempty"`
	Account    string    `json:"account,omitempty"`
	EarlyMS    int64     `json:"early_ms,omitempty"`
	Created    time.Time `json:"created"`
}

type savedViewer struct {
	Writer string        `json:"writer"`
	Number uint64        `json:"number"`
	Window protocol.Size `json:"window"`
	Since  time.Time     `json:"since,omitzero"`
	Typed  bool          `json:"typed,omitempty"` // it could
}

// savedAway is an away, or was: who was attached then counts as lost.
type savedAway struct {
	Open bool     `json:"open,omitempty"`
	Lost bool     `json:"lost,omitempty"`
	Late bool     `json:"late,omitempty"`
	Now  *absence `json:"now,omitempty"`
	Last *absence `json:"last,omitempty"`
}

type savedTurn struct {
	From   uint64 `json:"from"`
	Writer string `json:"writer"`
}

type savedSignal struct {
	Asker protocol.Asker `json:"asker"`
	Name  string         `json:"name"`
}

// savedEnding is an end that was asked for and is not over.
type savedEnding struct {
	Asker    protocol.Asker  `json:"asker"`
	Reason   protocol.Reason `json:"reason"`
	TimedOut bool            `json:"timed_out,omitempty"`
	Soft     int             `json:"soft"`
	GraceMS  int64           `json:"grace_ms"`
	Hard     bool            `json:"hard,omitempty"`
	All      bool            `json:"all,omitempty"` // of the cage
	Over     bool            `json:"over,omitempty"`
	Left     []int           `json:"survivors,omitempty"`
}

func (v *saved) validate() error {
	if v.Version < savedVersionMin || v.Version > savedVersion {
		return fmt.Errorf("state version %d, this program knows %d to %d", v.Version, savedVersionMin, savedVersion)
	}
	if err := v.ID.Validate(); err != nil {
		return err
	}
	if v.Instance == "" || len(v.Turns) == 0 || (v.State == protocol.StateExited) != (v.Exit != nil) {
		return fmt.Errorf("the state of session %s is not whole", v.ID)
	}
	return nil
}

// note says that something of saved has changed.
func (s *Session) note() { s.changed, s.unpublished = true, true }

// settle writes down what has changed, before anybody is told that it has, and publishes it.
func (s *Session) settle() {
	s.write()
	s.publish()
}

func (s *Session) write() {
	if !s.changed {
		return
	}
	s.changed = false
	if err := s.writeState(); err != nil {
		s.log.Error().Err(err).Msg("state not written: it would be lost with this process")
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

func (s *Session) save() *saved {
	v := &saved{
		Version: savedVersion, ID: s.id, Instance: s.instance, Spec: s.savedSpec, PTY: s.ptyState(), State: s.state, LastIO: s.lastIO.get(),
		Attached: s.attached, SizePolicy: s.sizing.policy, Decider: s.sizing.decider, Appearance: s.appearance,
		Focus: s.focus.told, FocusAsked: s.focus.asked, Turns: s.answers.saved(), Held: s.held, HeldAlone: s.heldAlone, Line: s.input.line.n,
		Degraded: s.degraded, GivenUpBy: s.givenUpBy, Cage: s.cage.Dir(), Exit: s.exit, Seen: s.seen,
		Command: s.commands.info, PromptAt: s.commands.promptAt, Heard: &s.commands.heard, Cleared: s.cleared, Busy: s.quiet.busy, Away: s.away.saved(), ViewerEnv: s.viewerEnv,
	}
	if sig := s.orders.signalled.Load(); sig != nil {
		v.Signaler = &savedSignal{sig.asker, sig.name}
	}
	v.Title, v.Cwd = s.titles()
	for a := range s.attachments {
		if !a.shadow {
			v.Lost = append(v.Lost, savedViewer{a.spec.Writer, a.number, a.countedWindow(), a.since, a.mayType()})
		}
	}
	for writer, l := range s.sizing.lost {
		v.Lost = append(v.Lost, savedViewer{writer, l.number, l.window, l.since, l.typed})
	}
	slices.SortFunc(v.Lost, func(a, b savedViewer) int { return int(a.Number) - int(b.Number) })
	if e := s.orders.ending.Load(); e != nil {
		v.Ending = &savedEnding{
			Asker: e.asker, Reason: e.reason, TimedOut: e.timedOut, Soft: int(e.soft), GraceMS: e.grace.Milliseconds(),
			Hard: e.hard, Over: e.over, Left: e.survivors, All: e.all,
		}
	}
	return v
}

// newSavedSpec is made once, and when labels change: an environment may be long.
func (s *Session) newSavedSpec() error {
	spec := savedSpec{SpawnSpec: s.spec, Scrollback: s.spec.ScrollbackLines, Token: s.token, Account: s.account, EarlyMS: s.early.Milliseconds(), Created: s.created}
	spec.Labels = s.Labels()
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	s.savedSpec = data
	return nil
}

// take makes the session what was saved of it.
func (s *Session) take(v *saved) error {
	var spec savedSpec
	if err := json.Unmarshal(v.Spec, &spec); err != nil {
		return fmt.Errorf("session %s: %w", v.ID, err)
	}
	s.id, s.instance, s.savedSpec = v.ID, v.Instance, v.Spec
	s.spec, s.token, s.account, s.created = spec.SpawnSpec, spec.Token, spec.Account, spec.Created
	s.early = time.Duration(spec.EarlyMS) * time.Millisecond
	s.spec.ScrollbackLines, s.spec.Labels = min(max(spec.Scrollback, 0), protocol.MaxScrollback), nil
	s.labels.Store(&spec.Labels)
	s.storeLimits(s.spec.Limits)
	s.begun = time.Now()
	s.state, s.exit = v.State, v.Exit
	s.lastIO.set(v.LastIO)
	s.orders.sealed = s.exit != nil
	if s.state != protocol.StateExited { // loop sees for itself whether it drains
		s.state = protocol.StateRunning
	}
	s.attached, s.appearance, s.cleared = v.Attached, v.Appearance, v.Cleared
	s.focus = focus{told: v.Focus, asked: v.FocusAsked}
	s.held, s.heldAlone, s.input.line.n, s.degraded = v.Held, v.HeldAlone, v.Line, v.Degraded
	s.givenUpBy = v.GivenUpBy
	s.title, s.cwd = v.Title, v.Cwd
	s.commands.info, s.viewerEnv, s.quiet.busy = v.Command, v.ViewerEnv, v.Busy
	s.commands.heard, s.commands.promptAt = nothingHeard, v.PromptAt
	if v.Heard != nil {
		s.commands.heard = *v.Heard
	}
	s.away.restore(v.Away)
	s.sizing.policy, s.sizing.decider = v.SizePolicy, v.Decider
	if s.exit == nil {
		s.sizing.restore(v.Lost)
	}
	for _, t := range v.Turns {
		s.answers.turns = append(s.answers.turns, turn{t.From, t.Writer})
	}
	s.seen = v.Seen
	if sig := v.Signaler; sig != nil {
		s.orders.signalled.Store(&signalled{sig.Asker, sig.Name})
	}
	if e := v.Ending; e != nil {
		s.orders.ending.Store(&ending{
			asker: e.Asker, reason: e.Reason, timedOut: e.TimedOut, soft: syscall.Signal(e.Soft), grace: time.Duration(e.GraceMS) * time.Millisecond,
			hard: e.Hard, over: e.Over, survivors: e.Left, all: e.All, adopted: true,
		})
	}
	return nil
}

// restore has those who were attached count as lost: they are on their way.
func (z *sizing) restore(viewers []savedViewer) {
	if len(viewers) == 0 {
		return
	}
	z.lost = make(map[string]lost)
	for _, v := range viewers[:min(len(viewers), maxAttachments)] {
		z.lost[v.Writer] = lost{number: v.Number, window: v.Window, until: time.Now().Add(reconnectTime), since: v.Since, typed: v.Typed}
	}
	z.set(reconnectTime)
}

// nothingHeard is of a state whose writer did not listen: what was printed before
// its end is not heard any more.
const nothingHeard = ^uint64(0)

func (w *away) saved() *savedAway {
	v := &savedAway{Open: w.open, Lost: w.lost, Late: w.late}
	if w.open {
		v.Now = &w.now
	}
	if !w.open || w.lost {
		v.Last = &w.last
	}
	return v
}

// restore is without viewers; adopted sees to that.
func (w *away) restore(v *savedAway) {
	if v == nil { // nobody knows
		w.open = true
		return
	}
	w.open, w.lost, w.late = v.Open, v.Lost, v.Late
	if v.Now != nil {
		w.now = *v.Now
	}
	if v.Last != nil {
		w.last = *v.Last
	}
}

// countedWindow is a's window, zero where it is not to count.
func (a *Attachment) countedWindow() protocol.Size {
	if !a.counts() {
		return protocol.Size{}
	}
	return a.window
}

func (w *answers) saved() []savedTurn {
	w.mu.Lock()
	defer w.mu.Unlock()
	turns := make([]savedTurn, 0, len(w.turns))
	for _, t := range w.turns {
		turns = append(turns, savedTurn{t.from, t.writer})
	}
	return turns
}

// ptyState is what a successor has to know of the terminal; a fake one has none.
func (s *Session) ptyState() pty.State {
	if p, ok := s.pty.(*pty.PTY); ok {
		return p.State()
	}
	return pty.State{PID: s.pty.PID()}
}
