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

// SpawnRequest says what to start and how. Rows and Cols of 0 are 24 and 80.
type SpawnRequest struct {
	ID protocol.SessionID // "" makes one
	protocol.SpawnSpec
	EarlyExit *time.Duration // how long to watch the child; nil is the proxy's 200 ms, 0 does not
	// ShellIntegration has a shell (bash, zsh, fish) tell of its prompts and commands, by
	// OSC 133. Other programs are started as they are.
	ShellIntegration bool
	// Token, with an ID, makes the request repeatable by other clients, too: a session
	// that was made with it is the answer, whatever else is asked for, and also when it
	// has ended. "" makes one.
	Token string
}

// Spawned is a new session.
type Spawned struct {
	SessionID protocol.SessionID
	PID       int
	CreatedAt time.Time
	Session   protocol.SessionInfo
}

// Spawn starts a session and checks that it lives. No Argv is the user's login shell, and
// an empty one is refused. It may be repeated by the
// client itself after a lost connection without a second session.
//
// Errors: exited_early, whose Exit says how (errors.As to *protocol.Error),
// spawn_failed with its cause, session_exists, limit_exceeded, closed,
// invalid_argument.
func (c *Client) Spawn(ctx context.Context, r SpawnRequest) (*Spawned, error) {
	if r.Argv != nil && len(r.Argv) == 0 {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "argv is empty; nil starts the login shell")
	}
	if r.Argv == nil { // on the wire nil and empty are alike
		r.Argv = []string{config.LoginShell(), "-l"}
	}
	if !r.Limits.IsZero() {
		if err := c.knowsCages(ctx); err != nil {
			return nil, err
		}
	}
	if r.ID == "" {
		r.ID = protocol.SessionID(protocol.NewToken(6))
	}
	return c.spawned(ctx, &api.Spawn{
		SessionID: r.ID, SpawnSpec: r.SpawnSpec, EarlyExitMS: millis(r.EarlyExit), Token: cmp.Or(r.Token, protocol.NewToken(16)),
		ShellIntegration: r.ShellIntegration,
	})
}

// Reopen starts an exited session again under its id, as a new instance; what
// change does not give is as it was. Errors are those of Spawn,
// session_not_found and session_running.
func (c *Client) Reopen(ctx context.Context, id protocol.SessionID, change protocol.RespawnSpec, earlyExit *time.Duration) (*Spawned, error) {
	return c.spawned(ctx, &api.Reopen{
		SessionID: id, RespawnSpec: change, EarlyExitMS: millis(earlyExit), Token: protocol.NewToken(16),
	})
}

func (c *Client) spawned(ctx context.Context, m request) (*Spawned, error) {
	s, err := ask[*api.Spawned](ctx, c, m, true)
	if err != nil {
		return nil, err
	}
	return &Spawned{SessionID: s.SessionID, PID: s.PID, CreatedAt: s.CreatedAt, Session: s.Session}, nil
}

func millis(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// List returns what is known of every session, or of those of one originator.
func (c *Client) List(ctx context.Context, originator string) ([]protocol.SessionInfo, error) {
	var all []protocol.SessionInfo
	var id string
	var wrong error
	err := c.call(ctx, &api.List{Originator: originator}, true, func(m protocol.Message) bool {
		part, ok := m.(*api.Sessions)
		if !ok {
			wrong = failed(ErrDecode, fmt.Errorf("list answered by %s", m.MessageType()))
			return false
		}
		if part.ID() != id { // asked again: begin anew
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

// SessionInfo returns what is known of one session. Its ExitCode is nil until
// the session has exited.
func (c *Client) SessionInfo(ctx context.Context, id protocol.SessionID) (*protocol.SessionInfo, error) {
	s, err := ask[*api.Session](ctx, c, &api.Info{SessionID: id}, true)
	if err != nil {
		return nil, err
	}
	return &s.Session, nil
}

// Output returns the bytes a session printed, as far as they are kept, and the
// offset of the first.
func (c *Client) Output(ctx context.Context, id protocol.SessionID) (data []byte, offset uint64, err error) {
	first, life := true, protocol.Instance("")
	for next := uint64(0); ; {
		part, err := ask[*api.ScrollbackData](ctx, c, &api.Scrollback{SessionID: id, Offset: next}, true)
		if err != nil {
			return nil, 0, err
		}
		if !first && part.Instance != life { // reopened between two parts: begin anew
			first, next = true, 0
			continue
		}
		if first || part.Offset != next { // overtaken between two parts: begin anew there
			data, offset, first, life = nil, part.Offset, false, part.Instance
		}
		data = append(data, part.Data...)
		next = part.Offset + uint64(len(part.Data))
		if len(part.Data) == 0 || next >= part.End {
			return data, offset, nil
		}
	}
}

// ScreenOptions say what of a screen to return. The zero value is what it
// shows, as text.
type ScreenOptions struct {
	Format     protocol.ScreenFormat // "" is text
	Lines      int                   // only the last so many; without Scrollback also from above the screen
	Scrollback int                   // so many lines above the screen, too; protocol.AllScrollback is all
	Skip       int                   // of these, without the last so many
	NonEmpty   bool                  // only lines that are not blank
	Cols, Rows int                   // as on a terminal of that size; 0 is the session's
}

// Screen returns what a session's screen shows, or its last lines, also after
// the session's end. What does not fit into one answer is left out at the
// beginning; then it is Truncated.
func (c *Client) Screen(ctx context.Context, id protocol.SessionID, o ScreenOptions) (*protocol.ScreenContent, error) {
	s, err := ask[*api.ScreenContent](ctx, c, &api.Screen{ScreenSpec: protocol.ScreenSpec{
		SessionID: id, Format: o.Format, Lines: o.Lines, Scrollback: o.Scrollback, Skip: o.Skip, NonEmpty: o.NonEmpty,
		Cols: o.Cols, Rows: o.Rows,
	}}, true)
	if err != nil {
		return nil, err
	}
	return &s.ScreenContent, nil
}

// Scrollback returns the lines of text above a session's screen and on it, as
// far as they are kept.
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

// Resize changes a session's size once, whatever its policy; zeroes mean 80 and
// 24, each on its own.
func (c *Client) Resize(ctx context.Context, id protocol.SessionID, cols, rows int) error {
	return c.ok(ctx, &api.Resize{SessionID: id, Cols: cols, Rows: rows}, true)
}

// SetSizePolicy changes whose size a session has. A fixed one may be given
// columns and rows; 0 leaves them as they are.
func (c *Client) SetSizePolicy(ctx context.Context, id protocol.SessionID, policy protocol.SizePolicy, cols, rows int) error {
	return c.ok(ctx, &api.SizePolicy{SessionID: id, Policy: policy, Cols: cols, Rows: rows}, true)
}

// Clear forgets the lines above a session's screen, for all viewers. With screen it also
// forgets those on it, but the row with the cursor, which moves to the top. Errors:
// unsupported if the proxy or the supervisor is older.
func (c *Client) Clear(ctx context.Context, id protocol.SessionID, screen bool) error {
	return c.ok(ctx, &api.Clear{SessionID: id, Screen: screen}, true)
}

// Rename says what a session is called from now on, for all who see it; "" takes that
// away. It returns the session as it is then.
func (c *Client) Rename(ctx context.Context, id protocol.SessionID, title string) (*protocol.SessionInfo, error) {
	s, err := ask[*api.Session](ctx, c, &api.Rename{SessionID: id, Title: title}, true)
	if err != nil {
		return nil, err
	}
	return &s.Session, nil
}

// Interrupt sends SIGINT to a session's foreground process group.
func (c *Client) Interrupt(ctx context.Context, id protocol.SessionID) error {
	return c.ok(ctx, &api.Interrupt{SessionID: id}, false)
}

// Signal sends a signal ("SIGUSR1", "USR1" or a number) to a session's process
// groups and nothing else.
func (c *Client) Signal(ctx context.Context, id protocol.SessionID, signal string) error {
	return c.ok(ctx, &api.Signal{SessionID: id, Signal: signal}, false)
}

// End says how to end a session. The zero value: SIGHUP, 250 ms, SIGKILL,
// because the user asked for it.
type End struct {
	Grace      *time.Duration
	SoftSignal string
	Reason     protocol.Reason
	All        bool // everything in the session's cage, also what has left its terminal
}

// Terminate begins a session's end and returns when that is scheduled; Wait
// tells how it came. A session that has ended is session_exited. With All, one without
// a cage is unsupported.
func (c *Client) Terminate(ctx context.Context, id protocol.SessionID, e End) error {
	if e.All {
		if err := c.knowsCages(ctx); err != nil {
			return err
		}
	}
	return c.ok(ctx, &api.Terminate{SessionID: id, GraceMS: millis(e.Grace), SoftSignal: e.SoftSignal, Reason: e.Reason, All: e.All}, true)
}

// Limit changes limits of a session that runs, and returns the session as it is then.
// Errors: unsupported if it has no cage, or the system cannot set them.
func (c *Client) Limit(ctx context.Context, id protocol.SessionID, l protocol.Limits) (*protocol.SessionInfo, error) {
	s, err := ask[*api.Session](ctx, c, &api.Limit{SessionID: id, Limits: l}, true)
	if err != nil {
		return nil, err
	}
	return &s.Session, nil
}

// Freeze stops all processes of a session. Errors: unsupported if it has no cage.
func (c *Client) Freeze(ctx context.Context, id protocol.SessionID) error {
	return c.ok(ctx, &api.Freeze{SessionID: id, Frozen: true}, true)
}

// Thaw has all processes of a frozen session run on.
func (c *Client) Thaw(ctx context.Context, id protocol.SessionID) error {
	return c.ok(ctx, &api.Freeze{SessionID: id}, true)
}

// knowsCages returns unsupported of a proxy that would skip what is said of cages.
func (c *Client) knowsCages(ctx context.Context) error {
	conn, err := c.connection(ctx)
	if err != nil || conn.welcome.Capabilities.Has(protocol.CapCage) {
		return err
	}
	return protocol.Errorf(protocol.CodeUnsupported, "this proxy knows no limits and no cages; replace it (proxy --handoff)")
}

// ForgetFailed removes a life of a session that failed right after a Reopen: the life in
// whose place it came is there again, with its exit record, if that is kept still. An older
// proxy or supervisor removes the session.
func (c *Client) ForgetFailed(ctx context.Context, id protocol.SessionID, instance protocol.Instance) error {
	return c.ok(ctx, &api.Forget{SessionID: id, Instance: instance, Restore: true}, false)
}

// Forget removes an exited session.
func (c *Client) Forget(ctx context.Context, id protocol.SessionID) error {
	return c.ok(ctx, &api.Forget{SessionID: id}, false)
}

func (c *Client) ok(ctx context.Context, m request, again bool) error {
	_, err := ask[*api.OK](ctx, c, m, again)
	return err
}

// Wait returns a session's exit record once it has exited, or timeout; a
// negative timeout waits until ctx is done.
func (c *Client) Wait(ctx context.Context, id protocol.SessionID, timeout time.Duration) (*protocol.ExitRecord, error) {
	w, err := waitFor(ctx, c, timeout, func(ms *int64) (*api.Waited, error) {
		return ask[*api.Waited](ctx, c, &api.Wait{SessionID: id, TimeoutMS: ms}, false)
	})
	if err != nil {
		return nil, err
	}
	return &w.Exit, nil
}

// Type types into a session without an attachment, exactly once, and returns
// when all of it was accepted. Where the terminal will cut a line of it the error
// is line_too_long: all of it was accepted then, too.
func (c *Client) Type(ctx context.Context, id protocol.SessionID, data []byte) error {
	const atOnce = 256 << 10
	writer := protocol.NewToken(8)
	var warned error
	for offset := 0; offset < len(data); {
		part := data[offset:min(len(data), offset+atOnce)]
		a, err := ask[*api.Accepted](ctx, c, &api.Input{SessionID: id, Data: part, Writer: writer, Offset: uint64(offset)}, true)
		if err == nil {
			offset = int(a.Offset)
			continue
		}
		if e := protocol.AsError(err); e.Code == protocol.CodeLineTooLong {
			warned = cmp.Or(warned, err)
			if offset += len(part); e.Offset != nil {
				offset = int(*e.Offset)
			}
			continue
		}
		if c.isClosed() {
			return err
		}
		if offset, err = acceptedBy(err, offset); err != nil {
			return err
		}
		if err := pause(ctx, backoffMax/10); err != nil { // the child does not read as fast as we type
			return err
		}
	}
	return warned
}

// acceptedBy returns the offset from an error that says how far input was
// taken, or the error.
func acceptedBy(err error, offset int) (int, error) {
	if e := protocol.AsError(err); e.Code == protocol.CodeInputFull && e.Offset != nil {
		return int(*e.Offset), nil
	}
	if lost(err) {
		return offset, nil
	}
	return offset, err
}

// lost reports whether err says that the answer is unknown, and may be had
// later.
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

// Status is the state of both processes; Supervisor is nil where the proxy
// cannot reach it.
type Status struct {
	Proxy      protocol.ProcessStatus  `json:"proxy"`
	Supervisor *protocol.ProcessStatus `json:"supervisor"`
	Web        string                  `json:"web,omitempty"` // where WebSockets are served over TCP, if they are
}

// Status returns the state of both processes.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	s, err := ask[*api.StatusReport](ctx, c, &api.Status{}, true)
	if err != nil {
		return nil, err
	}
	return &Status{Proxy: s.Proxy, Supervisor: s.Supervisor, Web: s.Web}, nil
}

// Ticket returns a ticket for one WebSocket connection: to one session's raw
// bytes, or for "" to the api.
func (c *Client) Ticket(ctx context.Context, id protocol.SessionID) (string, error) {
	t, err := ask[*api.TicketIssued](ctx, c, &api.Ticket{SessionID: id}, true)
	if err != nil {
		return "", err
	}
	return t.Ticket, nil
}
