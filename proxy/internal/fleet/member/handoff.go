package member

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/goaway"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// The names of the files that an agent offers.
const (
	filesCommands = "commands"
	filesHandoff  = "handoff"
)

// connectLimit is how long a successor may take to connect with a gate, after the old agent has let it. The old agent waits
// twice as long before it serves again, so that both never serve. No client waits meanwhile.
const connectLimit = 5 * time.Second

// records is the version of the states of connections. An agent passes on none.
var records = protocol.VersionRange{Min: 1, Max: 1}

// Sockets are the listening sockets of an agent.
type Sockets struct {
	Commands *socket.Listener // for the commands of this host; its lock makes the agent the only one
	Handoff  *socket.Listener // for a successor
}

// release closes the descriptors of this process. The successor has its own.
func (s *Sockets) release() error { return errors.Join(s.Commands.Release(), s.Handoff.Release()) }

// files returns duplicates of the sockets, which the caller must close.
func (s *Sockets) files() ([]handoff.Group, []*os.File, error) {
	commands, err := s.Commands.Files()
	if err != nil {
		return nil, nil, err
	}
	offers, err := s.Handoff.Files()
	if err != nil {
		for _, f := range commands {
			_ = f.Close() // err is returned
		}
		return nil, nil, err
	}
	return []handoff.Group{{Name: filesCommands, Files: len(commands)}, {Name: filesHandoff, Files: len(offers)}}, append(commands, offers...), nil
}

// A Successor is an agent that takes over.
type Successor struct {
	Program string `json:"program"` // its absolute path
	// IsService tells that a service manager runs the successor. If one runs the old agent instead, the old one
	// must execute Program, because the service manager takes the end of its process for the end of the service.
	IsService bool `json:"service"`
}

// A standing tells which peers an agent reaches. Its successor must reach them, too.
type standing struct {
	IsConnected bool `json:"connected"` // with a gate
	IsServing   bool `json:"serving"`   // the local proxy can be reached
}

// serveHandoffs offers this agent to successors until ctx is done or one of them has taken over. It begins when
// this agent has the sockets for itself.
func (a *agent) serveHandoffs(ctx context.Context, stop func()) {
	s := a.o.Sockets
	select {
	case <-a.committed:
	case <-ctx.Done():
		return
	}
	offer := &handoff.Offer{
		Files:   s.files,
		Records: records,
		Look: func(_ context.Context, body json.RawMessage) (json.RawMessage, error) {
			return a.describe(body)
		},
		Move:  func(handoff.Pass) (int, error) { return 0, a.move() },
		Wait:  2 * connectLimit,
		State: func() []byte { return nil },
		Back:  a.comeBack,
		Leave: func(isHanded bool) {
			if !isHanded {
				stop()
				return
			}
			if err := s.release(); err != nil {
				a.o.Log.Warn().Err(err).Msg("sockets not released; they end with this process")
			}
			close(a.handed)
		},
		SignOut:  func() error { return errors.New("an agent has no browsers") },
		Settings: func() json.RawMessage { return nil },
		Build:    version.String(),
		Log:      a.o.Log,
	}
	end := context.AfterFunc(ctx, func() {
		offer.Finish() // a successor may have the sockets already
		_ = s.Handoff.Close()
	})
	defer end()
	if err := offer.Serve(ctx, s.Handoff); err != nil {
		a.o.Log.Error().Err(err).Msg("this agent cannot be handed over any more")
	}
}

// watchSocket lets a socket be bound again if its file was removed, until ctx is done or the socket is closed. It begins
// when this agent has the sockets for itself.
func (a *agent) watchSocket(ctx context.Context, l *socket.Listener) {
	a.wg.Go(func() {
		select {
		case <-a.committed:
		case <-ctx.Done():
			return
		}
		l.Watch(ctx, func(rebound bool, err error) {
			a.o.Log.Warn().Err(err).Bool("rebound", rebound).Str(logging.Path, l.Path()).Msg("path of the socket was removed")
		})
	})
}

// describe notes the successor that body describes, and returns the standing of this agent.
func (a *agent) describe(body json.RawMessage) (json.RawMessage, error) {
	var next Successor
	if err := json.Unmarshal(body, &next); err != nil {
		return nil, fmt.Errorf("the description of the successor: %w", err)
	}
	isConnected, _ := a.o.Link.Status()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.successor = next
	return json.Marshal(standing{IsConnected: isConnected, IsServing: a.isServing})
}

// move lets a successor connect with the gate in the place of this agent. Until comeBack or the end of the handoff,
// this agent does not connect again. It still serves its clients. If the host leaves, move returns an error.
func (a *agent) move() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isOver {
		return errors.New("the host leaves its gate")
	}
	a.moving = make(chan struct{})
	return nil
}

// comeBack lets this agent continue, because the successor has failed.
func (a *agent) comeBack() {
	a.mu.Lock()
	if a.moving == nil { // move has returned an error
		a.mu.Unlock()
		return
	}
	close(a.moving)
	a.moving = nil
	a.mu.Unlock()
	if _, err := a.o.Sockets.Commands.Check(); err != nil { // it writes the pid of this process into the lock again
		a.o.Log.Warn().Err(err).Msg("socket of the agent not checked")
	}
	a.signal(a.back)
}

// awaitDecision returns when no successor is about to take over.
func (a *agent) awaitDecision(ctx context.Context) error {
	a.mu.Lock()
	moving := a.moving
	a.mu.Unlock()
	if moving == nil {
		return nil
	}
	select {
	case <-moving:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginLeave notes that the host leaves, so that no successor takes over. If one is about to take over, beginLeave waits for
// the decision. It returns false if the successor has taken over, and must be asked to leave.
func (a *agent) beginLeave(ctx context.Context) bool {
	for {
		a.mu.Lock()
		moving := a.moving
		if moving == nil {
			a.isOver = true
			a.mu.Unlock()
			return true
		}
		a.mu.Unlock()
		select {
		case <-moving:
		case <-a.handed:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// refuseLeaves closes the channel of each leave until ctx is done, because the successor must be asked.
func (a *agent) refuseLeaves(ctx context.Context) {
	for {
		select {
		case result := <-a.o.Leave:
			close(result)
		case <-ctx.Done():
			return
		}
	}
}

// nextEpoch begins another epoch after that of a successor that has failed, and returns it. The gates ignore the
// records of an older epoch, and the successor may have published some.
func (a *agent) nextEpoch() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beginEpoch(a.state.Epoch + 1) // that of the successor, which the file does not have if the disk is full
	return a.state.Epoch
}

// drain asks the clients of the local proxy to connect again, through the successor, and calls endVisits when they have
// left, or after a time-out. It returns when the requests to this agent have ended, too: they belong to an upgrade of
// this host or to a command, whose results must arrive.
func (a *agent) drain(ctx context.Context, endVisits func()) {
	limited, cancel := context.WithTimeout(ctx, goaway.DrainLimit)
	defer cancel()
	begin := time.Now()
	asked := a.leaving.Drain(limited, a.wg.Go, func() int { return int(a.visits.Load()) })
	closed := a.visits.Load()
	endVisits()
	a.wg.Wait()
	a.o.Log.Info().Int(logging.Count, asked).Int64("closed", closed).Dur(logging.Took, time.Since(begin)).Msg("clients have left for the successor")
}

// A Takeover tells where a new agent finds the agent that runs.
type Takeover struct {
	CommandPath, HandoffPath string        // of the sockets
	Successor                              // this process
	Timeout                  time.Duration // for the steps before this agent connects with the gate
	// Serving is called when this agent has taken over from the agent with a pid. It owns the sockets from then on.
	Serving func(s *Sockets, pid int)
}

// Run takes over from the agent that runs, and is then like the function Run. If it returns an error before Serving was
// called, the old agent continues.
//
// The new agent shows first that it reaches a gate and the local proxy, if the old one does. Then the old one lets it
// connect with the bus of a gate, which closes the connection of the old one. Only after that the old agent ends, so that
// a program that the gates do not accept cannot take over.
func (t Takeover) Run(ctx context.Context, o Options) (next *Successor, err error) {
	take, err := handoff.Begin(ctx, t.HandoffPath, handoff.Hello{Build: version.String(), Records: records, Timeout: t.Timeout})
	if err != nil {
		return nil, err
	}
	s, old, err := t.prepare(ctx, take, o)
	if err != nil {
		take.GiveUp(err)
		return nil, fmt.Errorf("the old agent continues: %w", err)
	}
	o.Sockets = s
	_, _, err = take.Prepared(func([]handoff.Conn, []byte, <-chan struct{}) error {
		return errors.New("an agent passes on no connections")
	})
	if err != nil && !errors.Is(err, handoff.ErrGone) {
		return nil, fmt.Errorf("the old agent continues: %w", errors.Join(err, s.release()))
	}
	mustConnect := err == nil && old.IsConnected // otherwise the old agent has died, or has no connection either
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, newErr := newAgent(o)
	if newErr != nil {
		take.GiveUp(newErr)
		return nil, fmt.Errorf("the old agent continues: %w", errors.Join(newErr, s.release()))
	}
	type result struct {
		next *Successor
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		next, err := a.serve(ctx)
		ended <- result{next, err}
	}()
	limit := min(cmp.Or(t.Timeout, connectLimit), connectLimit)
	if mustConnect {
		select {
		case <-a.arrived:
		case <-time.After(limit):
			_, reason := a.o.Link.Status()
			err := fmt.Errorf("the new agent was not connected with a gate within %v: %s", limit, reason)
			take.GiveUp(err)
			cancel()
			<-ended
			return nil, fmt.Errorf("the old agent continues: %w", errors.Join(err, s.release()))
		}
	}
	if err == nil {
		err = take.Serving()
	}
	if err != nil && !errors.Is(err, handoff.ErrGone) { // the old agent has given up before
		cancel()
		<-ended
		return nil, fmt.Errorf("the old agent continues: %w", errors.Join(err, s.release()))
	}
	if err != nil {
		o.Log.Warn().Err(err).Msg("old agent has died during the handoff; this agent serves")
	}
	close(a.committed)
	o.Log.Info().Int("old_pid", take.PID).Str("old_version", take.Version).Msg("this agent took over from the old one")
	t.Serving(s, take.PID)
	r := <-ended
	return r.next, r.err
}

// prepare shows that this process reaches the gate and the proxy as the old agent does, and adopts the sockets.
func (t Takeover) prepare(ctx context.Context, take *handoff.Take, o Options) (s *Sockets, old standing, err error) {
	body, err := json.Marshal(t.Successor)
	if err == nil {
		body, err = take.Look(body)
	}
	if err == nil {
		err = json.Unmarshal(body, &old)
	}
	if err != nil {
		return nil, old, err
	}
	state, err := Load(o.Path)
	if err != nil {
		return nil, old, err
	}
	if old.IsConnected {
		dialing, cancel := context.WithTimeout(ctx, dialLimit)
		defer cancel()
		conn, _, err := gate.Dial(dialing, state.Gates, state.Fingerprint)
		if err != nil {
			return nil, old, err
		}
		_ = conn.Close() // it was only tried
	}
	if old.IsServing {
		c, err := o.Connect(ctx)
		if err != nil {
			return nil, old, fmt.Errorf("the local proxy is not reached: %w", err)
		}
		_ = c.Close() // it was only tried
	}
	commands, err := socket.Adopt(t.CommandPath, take.Files(filesCommands), socket.Options{})
	if err != nil {
		return nil, old, err
	}
	offers, err := socket.Adopt(t.HandoffPath, take.Files(filesHandoff), socket.Options{})
	if err != nil {
		return nil, old, errors.Join(err, commands.Release())
	}
	return &Sockets{Commands: commands, Handoff: offers}, old, nil
}
