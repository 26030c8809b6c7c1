package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/shared/config"
)

// A SpawnRequest describes the session to start. If Rows and Cols are 0, the size is 24 rows and
// 80 columns.
type SpawnRequest struct {
	ID protocol.SessionID // "" lets the client choose an id
	protocol.SpawnSpec
	EarlyExit *time.Duration // how long to watch the child for an early exit; nil means the proxy's 200 ms, 0 does not watch
	// ShellIntegration makes bash, zsh and fish report their prompts and commands by OSC 133. It
	// has no effect on other programs.
	ShellIntegration bool
	// Token and ID together let other clients repeat the request, too. If a session was made with
	// the same token, it is the answer, even if the other fields differ or the session has ended.
	// "" lets the client choose a token.
	Token string
}

// Spawned describes a new session.
type Spawned struct {
	SessionID protocol.SessionID
	PID       int
	CreatedAt time.Time
	Session   protocol.SessionInfo
}

// Spawn starts a session and checks that its program does not exit at once. If Argv is nil, the
// program is the user's login shell; an empty Argv is an error. After a lost connection the
// client repeats the request without starting a second session.
//
// Its errors are exited_early, whose Exit holds the exit record (errors.As to *protocol.Error),
// spawn_failed with its cause, session_exists, limit_exceeded, closed and invalid_argument. The
// last one is also the error if an argument, the directory or a variable is not UTF-8.
func (c *Client) Spawn(ctx context.Context, r SpawnRequest) (*Spawned, error) {
	if r.Argv != nil && len(r.Argv) == 0 {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "argv is empty; nil starts the login shell")
	}
	if r.Argv == nil && c.o.SSH == nil && c.o.Gate == nil { // the proxy would take the shell of its own environment
		r.Argv = []string{config.LoginShell(), "-l"}
	}
	if err := r.ValidateText(); err != nil {
		return nil, err
	}
	if r.ID == "" {
		r.ID = protocol.SessionID(protocol.NewToken(6))
	}
	return c.spawned(ctx, &api.Spawn{
		SessionID: r.ID, SpawnSpec: r.SpawnSpec, EarlyExitMS: millis(r.EarlyExit), Token: cmp.Or(r.Token, protocol.NewToken(16)),
		ShellIntegration: r.ShellIntegration,
	})
}

// Reopen starts an exited session again under its id, as a new instance. A field that change does
// not set keeps its earlier value. The errors are those of Spawn, session_not_found and
// session_running. If a secret in the command of a lost session was masked, change must name the command;
// otherwise the error is invalid_argument.
func (c *Client) Reopen(ctx context.Context, id protocol.SessionID, change protocol.RespawnSpec, earlyExit *time.Duration) (*Spawned, error) {
	if err := change.Validate(); err != nil {
		return nil, err
	}
	return c.spawned(ctx, &api.Reopen{
		SessionID: id, RespawnSpec: change, EarlyExitMS: millis(earlyExit), Token: protocol.NewToken(16),
	})
}

func (c *Client) spawned(ctx context.Context, m request) (*Spawned, error) {
	return askFor(ctx, c, m, func(s *api.Spawned) *Spawned {
		return &Spawned{SessionID: s.SessionID, PID: s.PID, CreatedAt: s.CreatedAt, Session: s.Session}
	})
}

func millis(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// List returns the state of every session or, if originator is not empty, of the sessions of that
// originator.
func (c *Client) List(ctx context.Context, originator string) ([]protocol.SessionInfo, error) {
	return c.ListBy(ctx, ListFilter{Originator: originator})
}

// A ListFilter selects sessions. Its zero value selects all.
type ListFilter struct {
	Originator string            // if it is not empty, sessions of this originator
	Labels     map[string]string // sessions that have all of these labels with these values
}

// ListBy returns the state of the sessions that f selects.
func (c *Client) ListBy(ctx context.Context, f ListFilter) ([]protocol.SessionInfo, error) {
	var all []protocol.SessionInfo
	var id string
	var wrong error
	err := c.call(ctx, &api.List{Originator: f.Originator, Labels: f.Labels}, func(m protocol.Message) bool {
		part, err := answerTo[*api.Sessions]("list", m)
		if err != nil {
			wrong = err
			return false
		}
		if part.ID() != id { // the request was repeated, so the list begins anew
			all, id = nil, part.ID()
		}
		all = append(all, part.Sessions...)
		return part.More
	})
	if err = cmp.Or(err, wrong); err != nil {
		return nil, err
	}
	return all, nil
}

// SessionInfo returns the state of one session. ExitCode is nil until the session has exited.
func (c *Client) SessionInfo(ctx context.Context, id protocol.SessionID) (*protocol.SessionInfo, error) {
	return askFor(ctx, c, &api.Info{SessionID: id}, func(s *api.Session) *protocol.SessionInfo { return &s.Session })
}

// Output returns the bytes of a session's output that its ring still holds, and the offset of the
// first one. They end where the output ended when Output was called, or shortly after, so that
// Output returns also while the session prints without a pause.
func (c *Client) Output(ctx context.Context, id protocol.SessionID) (data []byte, offset uint64, err error) {
	life, end := protocol.Instance(""), uint64(0)
	for next := uint64(0); ; {
		part, err := ask[*api.ScrollbackData](ctx, c, &api.Scrollback{SessionID: id, Offset: next})
		if err != nil {
			return nil, 0, err
		}
		if life != "" && part.Instance != life { // the session was reopened between two parts: begin anew
			life, next, data = "", 0, nil
			continue
		}
		if life == "" {
			life, end = part.Instance, part.End
		}
		if data == nil || part.Offset != next { // the ring has overwritten the next part: begin anew at the oldest byte
			data, offset = nil, part.Offset
		}
		data = append(data, part.Data...)
		next = part.Offset + uint64(len(part.Data))
		if len(part.Data) == 0 || next >= end {
			return data, offset, nil
		}
	}
}

// ScreenOptions select parts of a screen. The zero value selects the screen's content as text.
type ScreenOptions struct {
	Format     protocol.ScreenFormat // "" means text
	Lines      int                   // only the last Lines lines; without Scrollback also from above the screen
	Scrollback int                   // number of lines above the screen to add; protocol.AllScrollback means all
	Skip       int                   // number of lines to leave out at the end of these
	NonEmpty   bool                  // only lines that are not blank
	Cols, Rows int                   // size of the terminal on which the lines are laid out; 0 means the session's size
	At         *protocol.Moment      // an earlier moment; nil means the present one
	Pictures   bool                  // with the format cells: the pictures, too
}

// Screen returns the content of a session's screen, or its last lines, at the present or at an
// earlier moment. It also works after the session's end. If the content does not fit into one
// answer, its beginning is left out, and Truncated is true. If the moment is not kept, the error
// is not_stored.
func (c *Client) Screen(ctx context.Context, id protocol.SessionID, o ScreenOptions) (*protocol.ScreenContent, error) {
	return askFor(ctx, c, &api.Screen{ScreenSpec: protocol.ScreenSpec{
		SessionID: id, Format: o.Format, Lines: o.Lines, Scrollback: o.Scrollback, Skip: o.Skip, NonEmpty: o.NonEmpty,
		Cols: o.Cols, Rows: o.Rows, At: o.At, Pictures: o.Pictures,
	}}, func(s *api.ScreenContent) *protocol.ScreenContent { return &s.ScreenContent })
}

// Scrollback returns the lines of text above a session's screen and on it that the session still
// holds.
func (c *Client) Scrollback(ctx context.Context, id protocol.SessionID) ([]string, error) {
	var all []string // newest part first
	for {
		part, err := c.Screen(ctx, id, ScreenOptions{Scrollback: protocol.AllScrollback, Skip: len(all)})
		if err != nil {
			return nil, err
		}
		all = append(part.Lines, all...)
		if !part.Truncated || len(part.Lines) == 0 {
			return all, nil
		}
	}
}

// Resize changes a session's size once, independent of its size policy. If cols is 0, it is 80;
// if rows is 0, it is 24.
func (c *Client) Resize(ctx context.Context, id protocol.SessionID, cols, rows int) error {
	return c.ok(ctx, &api.Resize{SessionID: id, Cols: cols, Rows: rows})
}

// SetSizePolicy changes the policy that determines a session's size. With the policy fixed, cols
// and rows set the size; 0 leaves a dimension unchanged.
func (c *Client) SetSizePolicy(ctx context.Context, id protocol.SessionID, policy protocol.SizePolicy, cols, rows int) error {
	return c.ok(ctx, &api.SizePolicy{SessionID: id, Policy: policy, Cols: cols, Rows: rows})
}

// Clear deletes the lines above a session's screen, for all viewers. If screen is true, it also
// deletes the lines on the screen except the row with the cursor, which moves to the top.
func (c *Client) Clear(ctx context.Context, id protocol.SessionID, screen bool) error {
	return c.ok(ctx, &api.Clear{SessionID: id, Screen: screen})
}

// Rename sets the title of a session for all viewers; "" removes the title. It returns the
// changed session.
func (c *Client) Rename(ctx context.Context, id protocol.SessionID, title string) (*protocol.SessionInfo, error) {
	return askFor(ctx, c, &api.Rename{SessionID: id, Title: title}, func(s *api.Session) *protocol.SessionInfo { return &s.Session })
}

// Interrupt sends SIGINT to a session's foreground process group.
func (c *Client) Interrupt(ctx context.Context, id protocol.SessionID) error {
	return c.ok(ctx, &api.Interrupt{SessionID: id})
}

// Signal sends a signal ("SIGUSR1", "USR1" or a number) to a session's process groups.
func (c *Client) Signal(ctx context.Context, id protocol.SessionID, signal string) error {
	return c.ok(ctx, &api.Signal{SessionID: id, Signal: signal})
}

// An End describes how to end a session. The zero value sends SIGHUP, waits 250 ms, sends
// SIGKILL, and gives the reason that the user asked for it.
type End struct {
	Instance   protocol.Instance // if set, the session must have this instance; otherwise the error is instance_mismatch
	Grace      *time.Duration
	SoftSignal string
	Reason     protocol.Reason
	All        bool // also end processes of the session's cage that have left its terminal
}

// Terminate begins the end of a session and returns when the end is scheduled; Wait returns how
// the session ended. If the session has ended already, the error is session_exited. If All is set
// and the session has no cage, the error is unsupported. If the connection breaks before the answer,
// the error matches ErrIO; Terminate is not repeated, because the session may have been reopened
// meanwhile.
func (c *Client) Terminate(ctx context.Context, id protocol.SessionID, e End) error {
	return c.ok(ctx, &api.Terminate{SessionID: id, Instance: e.Instance, GraceMS: millis(e.Grace), SoftSignal: e.SoftSignal, Reason: e.Reason, All: e.All})
}

// Limit changes the limits of a running session, and returns the changed session. The error is
// unsupported if the session has no cage, or if the system cannot set these limits.
func (c *Client) Limit(ctx context.Context, id protocol.SessionID, l protocol.Limits) (*protocol.SessionInfo, error) {
	return askFor(ctx, c, &api.Limit{SessionID: id, Limits: l}, func(s *api.Session) *protocol.SessionInfo { return &s.Session })
}

// Freeze stops all processes of a session. The error is unsupported if the session has no cage.
func (c *Client) Freeze(ctx context.Context, id protocol.SessionID) error {
	return c.ok(ctx, &api.Freeze{SessionID: id, Frozen: true})
}

// Thaw lets all processes of a frozen session continue.
func (c *Client) Thaw(ctx context.Context, id protocol.SessionID) error {
	return c.ok(ctx, &api.Freeze{SessionID: id})
}

// ForgetFailed removes an instance of a session that failed right after a Reopen. The instance
// before it is restored with its exit record, if that record still exists.
func (c *Client) ForgetFailed(ctx context.Context, id protocol.SessionID, instance protocol.Instance) error {
	return c.ok(ctx, &api.Forget{SessionID: id, Instance: instance, Restore: true})
}

// Forget removes an exited session.
func (c *Client) Forget(ctx context.Context, id protocol.SessionID) error {
	return c.ok(ctx, &api.Forget{SessionID: id})
}

func (c *Client) ok(ctx context.Context, m request) error {
	_, err := ask[*api.OK](ctx, c, m)
	return err
}

// Wait returns a session's exit record when the session has exited, or the error timeout. If
// timeout is negative, Wait waits until ctx is done.
func (c *Client) Wait(ctx context.Context, id protocol.SessionID, timeout time.Duration) (*protocol.ExitRecord, error) {
	return waitFor(ctx, c, timeout, func(ctx context.Context, ms *int64) (*protocol.ExitRecord, error) {
		return askFor(ctx, c, &api.Wait{SessionID: id, TimeoutMS: ms}, func(w *api.Waited) *protocol.ExitRecord { return &w.Exit })
	})
}

// typePart sends input, and returns the offset up to which it was accepted, also with the error line_too_long. The error is
// ErrDecode if the proxy has accepted none of the input, because Type would not end, or more than that.
func (c *Client) typePart(ctx context.Context, m *api.Input) (uint64, error) {
	end := m.Offset + uint64(len(m.Data))
	a, err := ask[*api.Accepted](ctx, c, m)
	to := end
	switch e := protocol.AsError(err); {
	case err == nil:
		to = a.Offset
	case e.Code != protocol.CodeLineTooLong:
		return 0, err
	case e.Offset != nil:
		to = *e.Offset
	}
	if to <= m.Offset || to > end {
		return 0, failed(ErrDecode, fmt.Errorf("input from %d to %d answered by accepted %d", m.Offset, end, to))
	}
	return to, err
}

// awaitRoom waits before input is sent again that failed with why: the child reads more slowly than the input comes, or the
// connection was lost. since is when the session accepted input last.
func (c *Client) awaitRoom(ctx context.Context, id protocol.SessionID, why error, since time.Time) error {
	if c.o.InputFull != nil && protocol.CodeOf(why) == protocol.CodeInputFull {
		c.o.InputFull(id, time.Since(since))
	}
	return pause(ctx, backoffMax/10)
}

// acceptedBy returns the offset of the input that was accepted, if err allows the input to
// continue, or returns err.
func acceptedBy(err error, offset uint64) (uint64, error) {
	if e := protocol.AsError(err); e.Code == protocol.CodeInputFull && e.Offset != nil {
		return *e.Offset, nil
	}
	if lost(err) {
		return offset, nil
	}
	return offset, err
}

// lost reports whether err means that the answer is unknown and may come after a repetition.
func lost(err error) bool {
	e := protocol.AsError(err)
	return e.Code == protocol.CodeSupervisorUnreachable && e.Retryable || errors.Is(err, ErrIO)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Status is the state of the proxy and of its supervisor. Supervisor is nil if the proxy cannot
// reach the supervisor.
type Status struct {
	Proxy      protocol.ProcessStatus  `json:"proxy"`
	Supervisor *protocol.ProcessStatus `json:"supervisor"`
	Web        string                  `json:"web,omitempty"` // address of the WebSockets on TCP; empty if there are none
}

// Status returns the state of the proxy and of its supervisor.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return askFor(ctx, c, &api.Status{}, func(s *api.StatusReport) *Status {
		return &Status{Proxy: s.Proxy, Supervisor: s.Supervisor, Web: s.Web}
	})
}

// Ticket returns a ticket for one WebSocket: for the raw bytes of the session id, or for the api
// if id is "".
func (c *Client) Ticket(ctx context.Context, id protocol.SessionID) (string, error) {
	return askFor(ctx, c, &api.Ticket{SessionID: id}, func(t *api.TicketIssued) string { return t.Ticket })
}

// Away returns what has happened in a session since its last viewer that could type has detached,
// or since the session's start if it had none. While such a viewer is attached, Away describes
// the absence before it.
//
// Its error is session_not_found.
func (c *Client) Away(ctx context.Context, id protocol.SessionID) (*protocol.AwayInfo, error) {
	return askFor(ctx, c, &api.Away{SessionID: id}, func(a *api.AwayContent) *protocol.AwayInfo { return &a.AwayInfo })
}

// Environment returns the environment that the last viewer of a session has sent
// (AttachOptions.Env), as K=V. It is empty if no viewer has sent one. The errors are those of
// Away.
func (c *Client) Environment(ctx context.Context, id protocol.SessionID) ([]string, error) {
	return askFor(ctx, c, &api.Environment{SessionID: id}, func(e *api.EnvironmentContent) []string { return e.Env })
}

// Share returns a link with which a browser can view a session read-only, and the time when the
// link expires. If ttl is 0, the link is valid for an hour; ttl may be at most 30 days. The error
// is unsupported if the proxy does not serve the web page, or if the client has entered the host through a gate: the
// link would lead to an address that only the host itself reaches.
func (c *Client) Share(ctx context.Context, id protocol.SessionID, ttl time.Duration) (url string, expires time.Time, err error) {
	if c.o.Gate != nil {
		return "", time.Time{}, protocol.Errorf(protocol.CodeUnsupported, "a gate serves no share links: make the link on the host itself, or let the viewer attach with --read-only through the gate")
	}
	m, err := ask[*api.Shared](ctx, c, &api.Share{SessionID: id, TTLMS: ttl.Milliseconds()})
	if err != nil {
		return "", time.Time{}, err
	}
	return m.URL, m.ExpiresAt, nil
}
