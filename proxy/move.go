package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/shadow"
	"holdfast/proxy/internal/web"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
)

const (
	// askTime is how long a request that is being read may hold up a handoff: one
	// that is answered by a session may take a moment.
	askTime = 300 * time.Millisecond
	// movedAtOnce is how many clients wait at the same time. With 12, and a breath
	// between, 100 connections saw half the stall that they saw with 49, and all
	// are moved hardly later: it is the machine that they wait for.
	movedAtOnce = 12
)

// records are the versions of connections' records that this build can read.
var records = protocol.VersionRange{Min: 1, Max: apiserver.RecordVersion}

// alreadyOurs is of connections that are nobody else's.
var alreadyOurs = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// offer is what this proxy answers to its successor.
func (s *serving) offer(build string) *handoff.Offer {
	written := records
	if s.policy != nil {
		written.Min = 2 // with principals
	}
	return &handoff.Offer{
		Files: s.listeners.files, Records: written, Look: s.look, Move: s.move, State: s.state, Back: s.accept,
		Leave: func(handed bool) {
			defer s.stop()
			reason := "stopping"
			if handed {
				reason = "handoff"
				s.listeners.release()
			}
			s.stopAccepting()
			s.server.Forget()
			s.goaway(reason)
		},
		SignOut:  s.signOut,
		Settings: s.currently, Guarded: s.policy != nil, Build: build, Step: fault, Log: s.log,
	}
}

// settings are what a successor cannot know by itself.
type settings struct {
	WebOrigins  []string          `json:"web_origins,omitempty"` // pages that may connect
	Flags       map[string]string `json:"flags,omitempty"`       // settings that were given as flags
	Connections int               `json:"connections,omitempty"` // that it will be given, about
}

// currently are the settings of this proxy for its successor.
func (s *serving) currently() json.RawMessage {
	now := s.settings
	now.Connections = s.server.Clients()
	b, _ := json.Marshal(now) // of strings and a number
	return b
}

// inheritedOtherwise are settings that a successor gets by the listener, by
// WebOrigins, or remembers; or that it has had to know before.
var inheritedOtherwise = []string{"web", "web_origins", "policy", "policy_config", "policy_sha256", "secret_file"}

// spareFiles are what a batch that is being moved needs, and clients that come.
const spareFiles = 64

// inherit adds what the proxy before went by, if there is room for its clients.
func (s *settings) inherit(t *handoff.Take) error {
	if t == nil || len(t.Settings) == 0 {
		return nil
	}
	var before settings
	if err := json.Unmarshal(t.Settings, &before); err != nil {
		return fmt.Errorf("the old proxy's settings: %w", err)
	}
	if left := machine.FilesLeft(); left < before.Connections+spareFiles {
		return &protocol.Error{Code: protocol.CodeLimitExceeded, Message: fmt.Sprintf(
			"%d connections are to be taken over, and only %d more files may be opened: raise the limit (ulimit -n)", before.Connections, left)}
	}
	for name, value := range before.Flags {
		if _, ok := s.Flags[name]; !ok && !slices.Contains(inheritedOtherwise, name) {
			s.Flags[name] = value
		}
	}
	for _, o := range before.WebOrigins {
		if !slices.Contains(s.WebOrigins, o) {
			s.WebOrigins = append(s.WebOrigins, o)
		}
	}
	return nil
}

// look looks at what a successor looks at.
func (s *serving) look(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	var asks []shadow.Ask
	if err := json.Unmarshal(body, &asks); err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "a question that cannot be read")
	}
	views, err := shadow.Look(ctx, s.links, asks)
	if err != nil {
		return nil, err
	}
	return json.Marshal(views)
}

// move gives the clients' connections to the successor. Those that it does not
// get are gone on with here, unless they are in doubt. While most are moved others
// may come; nobody does while those are.
func (s *serving) move(pass handoff.Pass, only string, records int) (closed int, err error) {
	begun, moved := time.Now(), 0
	if only == "" { // else the successor accepts already
		closed, err = s.moveAll(pass, only, records, &moved)
	}
	if err == nil {
		s.stopAccepting()
		if only == "" {
			err = s.moveAskers(pass)
		}
	}
	if err == nil {
		s.server.Shut()
		var more int
		more, err = s.moveAll(pass, only, records, &moved)
		closed += more
	}
	s.log.Info().Err(err).Int("connections", moved).Int("closed", closed).Dur("took", time.Since(begun)).Msg("clients moved")
	return closed, err
}

// moveAll moves the connections that are there.
func (s *serving) moveAll(pass handoff.Pass, only string, records int, moved *int) (closed int, err error) {
	return s.server.Freeze(context.Background(), movedAtOnce, only, records, func(frozen []*apiserver.Frozen) error {
		all := make([]given, len(frozen))
		for i, f := range frozen {
			all[i] = given{nc: f.Client(), record: &f.Record}
		}
		err := s.pass(all, nil, pass) // tickets are still good here
		switch {
		case err == nil:
			*moved += len(frozen)
		case errors.Is(err, handoff.ErrInDoubt):
			for _, f := range frozen {
				f.Abandon()
			}
		default:
			s.takeBack(frozen)
		}
		return err
	})
}

// moveAskers moves the connections that have not asked for anything yet.
func (s *serving) moveAskers(pass handoff.Pass) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	var all []given
	for _, h := range []*web.Handler{s.local, s.pages} {
		askers, err := h.Freeze(ctx)
		if err != nil {
			s.log.Info().Err(err).Msg("requests under way are not moved")
		}
		for _, a := range askers {
			all = append(all, given{nc: a.Client, record: &a.Record})
		}
	}
	for len(all) > 0 {
		n := min(len(all), handoff.AtOnce)
		if err := s.pass(all[:n], s.state(), pass); err != nil {
			s.reopen()
			for _, g := range all {
				s.goOn(s.connCtx, g.nc, g.record, func() {}, alreadyOurs)
			}
			return err
		}
		for _, g := range all[:n] {
			_ = g.nc.Close() // our descriptor of it
		}
		all = all[n:]
	}
	return nil
}

// given is a connection that is given to the successor.
type given struct {
	nc     net.Conn
	record *apiserver.Record
}

func (s *serving) pass(all []given, state []byte, pass handoff.Pass) error {
	conns := make([]handoff.Conn, len(all))
	defer func() {
		for _, c := range conns {
			if c.File != nil {
				_ = c.File.Close() // a duplicate
			}
		}
	}()
	for i, g := range all {
		record, err := json.Marshal(g.record)
		if err != nil {
			return err
		}
		sc, ok := g.nc.(syscall.Conn)
		if !ok {
			return errors.New("a connection without a descriptor")
		}
		file, err := socket.Dup(sc, "client")
		if err != nil {
			return err
		}
		conns[i] = handoff.Conn{Record: record, File: file}
	}
	return pass(conns, state)
}

// takeBack goes on with connections that the successor did not take.
func (s *serving) takeBack(frozen []*apiserver.Frozen) {
	s.reopen()
	for _, f := range frozen {
		nc, err := f.TakeBack()
		if err != nil {
			s.log.Warn().Err(err).Msg("client not taken back")
			continue
		}
		s.goOn(s.connCtx, nc, &f.Record, func() {}, alreadyOurs)
	}
}

// state is what a successor needs besides connections: the tickets that are out.
func (s *serving) state() []byte {
	tickets := s.server.Tickets()
	if len(tickets) == 0 {
		return nil
	}
	b, _ := json.Marshal(tickets) // of strings and times
	return b
}

func (s *serving) addState(state []byte) error {
	if len(state) == 0 {
		return nil
	}
	var tickets []apiserver.TicketRecord
	if err := json.Unmarshal(state, &tickets); err != nil {
		return fmt.Errorf("the old proxy's tickets: %w", err)
	}
	s.server.AddTickets(tickets)
	return nil
}

// adopt takes connections of the proxy before. It returns when all of them are
// attached where they were; they are gone on with once ours is closed.
func (s *serving) adopt(conns []handoff.Conn, state []byte, ours <-chan struct{}) error {
	if err := s.addState(state); err != nil {
		return errors.Join(err, closeConns(conns))
	}
	fault("received")
	var ready sync.WaitGroup
	begun := make([]int64, 0, len(conns))
	for i, c := range conns {
		nc, r, err := opened(c)
		if err != nil {
			return errors.Join(err, closeConns(conns[i+1:]))
		}
		begun = append(begun, r.At)
		ready.Add(1)
		s.goOn(s.connCtx, nc, r, sync.OnceFunc(ready.Done), ours)
	}
	ready.Wait()
	s.stalls.count(begun, ours)
	return nil
}

func closeConns(conns []handoff.Conn) (err error) {
	for _, c := range conns {
		err = errors.Join(err, c.File.Close())
	}
	return err
}

// opened makes a connection of what has come.
func opened(c handoff.Conn) (net.Conn, *apiserver.Record, error) {
	nc, err := net.FileConn(c.File)
	if err = errors.Join(err, c.File.Close()); err != nil {
		return nil, nil, err
	}
	r := &apiserver.Record{}
	if err := json.Unmarshal(c.Record, r); err != nil || r.Version < records.Min || r.Version > records.Max {
		return nil, nil, errors.Join(err, fmt.Errorf("a record of version %d", r.Version), nc.Close())
	}
	if uc, ok := nc.(*net.UnixConn); ok && r.From.Transport != apiserver.TransportUnix {
		nc = peerConn{uc, r.From.PID}
	}
	return nc, r, nil
}

// goOn goes on with a connection, in the background.
func (s *serving) goOn(ctx context.Context, nc net.Conn, r *apiserver.Record, ready func(), ours <-chan struct{}) {
	h := s.local
	if _, ok := nc.(*net.TCPConn); ok {
		h = s.pages
	}
	go func() {
		defer ready()
		if r.From.Transport != apiserver.TransportUnix {
			h.Adopt(ctx, nc, r, ready, ours)
			return
		}
		if taken, _ := s.server.Restore(ctx, apiserver.NewStream(nc, r.In), r, ready, ours); !taken {
			_ = nc.Close() // our descriptor of it, and nothing else
		}
	}()
}

// stalls are how long clients were not read.
type stalls struct {
	mu  sync.Mutex
	wg  sync.WaitGroup
	all []time.Duration
}

// count counts connections that were read last at the given times, once they are
// ours.
func (s *stalls) count(begun []int64, ours <-chan struct{}) {
	s.wg.Go(func() {
		<-ours
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, at := range begun {
			if at > 0 { // else it had said nothing yet, or comes from an older proxy
				s.all = append(s.all, now.Sub(time.UnixMicro(at)))
			}
		}
	})
}

// summary is called when all connections are ours.
func (s *stalls) summary() (n int, median, longest time.Duration) {
	s.wg.Wait()
	slices.Sort(s.all)
	if n = len(s.all); n > 0 {
		median, longest = s.all[n/2], s.all[n-1]
	}
	return n, median, longest
}
