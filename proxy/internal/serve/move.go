package serve

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
)

const (
	// askTime is how long a handoff waits for HTTP requests that are being read. A request that a
	// session answers may take a moment.
	askTime = 300 * time.Millisecond
	// movedAtOnce is the number of clients in a batch. Measured with 100 connections: with 12 and a
	// pause between batches, the clients stood still for half as long as with 49, and the whole
	// move took hardly longer, because the processor is the bottleneck.
	movedAtOnce = 12
)

// records are the versions of connection records that this build can read. 0.2.0 writes all of them.
var records = protocol.VersionRange{Min: 1, Max: apiserver.RecordVersion}

// alwaysOwned is a closed channel, for connections that already belong to this process alone.
var alwaysOwned = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// offer returns the functions with which this proxy serves its successor.
func (s *serving) offer(build string) *handoff.Offer {
	return &handoff.Offer{
		Files: s.listeners.files, Records: protocol.VersionRange{Min: apiserver.RecordVersion, Max: apiserver.RecordVersion}, Look: s.snapshots, Move: s.move, State: s.server.Tickets, Back: s.accept,
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
		Settings: s.currently, Build: build, Step: fault, Log: s.log,
	}
}

// settings are the settings that a successor cannot know by itself.
type settings struct {
	WebOrigins  []string          `json:"web_origins,omitempty"` // origins of pages that may connect
	Flags       map[string]string `json:"flags,omitempty"`       // settings that were given as flags
	Connections int               `json:"connections,omitempty"` // approximate number of connections that the successor will receive
}

// currently returns the settings of this proxy for its successor.
func (s *serving) currently() json.RawMessage {
	now := s.settings
	now.Connections = s.server.Clients()
	b, _ := json.Marshal(now) // cannot fail for strings and a number
	return b
}

// inheritedOtherwise lists the settings that a successor gets from the listener or from WebOrigins,
// that are saved in a file, or that the successor needs before it connects.
var inheritedOtherwise = []string{"web", "web_origins", "policy", "policy_config", "policy_sha256", "secret_file"}

// spareFiles is the number of files that a successor needs for a batch that is being moved, and for
// new clients.
const spareFiles = 64

// inherit adds the settings of the old proxy. It fails if this process cannot open enough files for
// the connections.
func (s *settings) inherit(t *handoff.Take) error {
	if t == nil {
		return nil
	}
	var before settings
	if err := json.Unmarshal(t.Settings, &before); err != nil {
		return fmt.Errorf("the old proxy's settings: %w", err)
	}
	if left := machine.FilesLeft(); left < before.Connections+spareFiles {
		return &protocol.Error{Code: protocol.CodeLimitExceeded, Message: fmt.Sprintf(
			"%d connections must be taken over, but only %d more files may be opened: raise the limit (ulimit -n)", before.Connections, left)}
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

// snapshots returns this proxy's snapshots of sessions, which the successor compares with its own.
func (s *serving) snapshots(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	var asks []shadow.Ask
	if err := json.Unmarshal(body, &asks); err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "the successor's question cannot be decoded")
	}
	views, err := shadow.Look(ctx, s.links, asks)
	if err != nil {
		return nil, err
	}
	return json.Marshal(views)
}

// move passes the clients' connections to the successor. Connections that the successor does not
// receive continue here. New clients are accepted while most connections are moved. The last
// connections are moved after this proxy has stopped accepting.
func (s *serving) move(pass handoff.Pass) (closed int, err error) {
	begun, moved := time.Now(), 0
	closed, err = s.moveAll(pass, &moved)
	if err == nil {
		s.stopAccepting()
		err = s.moveAskers(pass)
	}
	if err == nil {
		s.server.Shut()
		var more int
		more, err = s.moveAll(pass, &moved)
		closed += more
	}
	s.log.Info().Err(err).Int("connections", moved).Int("closed", closed).Dur("took", time.Since(begun)).Msg("clients moved")
	return closed, err
}

// moveAll moves all connections that have had their hello.
func (s *serving) moveAll(pass handoff.Pass, moved *int) (closed int, err error) {
	return s.server.Freeze(context.Background(), movedAtOnce, func(frozen []*apiserver.Frozen) error {
		all := make([]given, len(frozen))
		for i, f := range frozen {
			all[i] = given{nc: f.Client(), record: &f.Record}
		}
		err := s.pass(all, nil, pass) // this proxy still accepts the tickets, so they are not passed yet
		if err != nil {
			s.takeBack(frozen)
			return err
		}
		*moved += len(frozen)
		return nil
	})
}

// moveAskers moves the connections that have not sent a request yet.
func (s *serving) moveAskers(pass handoff.Pass) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	var all []given
	for _, h := range []*web.Handler{s.local, s.pages} {
		askers, err := h.Freeze(ctx)
		if err != nil {
			s.log.Info().Err(err).Msg("HTTP requests in progress not moved")
		}
		for _, a := range askers {
			all = append(all, given{nc: a.Client, record: &a.Record})
		}
	}
	for len(all) > 0 {
		n := min(len(all), handoff.AtOnce)
		if err := s.pass(all[:n], s.server.Tickets(), pass); err != nil {
			s.reopen()
			for _, g := range all {
				s.continueConn(s.connCtx, g.nc, g.record, func() {}, alwaysOwned)
			}
			return err
		}
		for _, g := range all[:n] {
			_ = g.nc.Close() // this closes only the duplicate of this process
		}
		all = all[n:]
	}
	return nil
}

// given is a connection that is passed to the successor.
type given struct {
	nc     net.Conn
	record *apiserver.Record
}

// pass sends connections and state to the successor. It closes only duplicates.
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
		record, err := protocol.Marshal(g.record) // without escapes for HTML: a handoff carries a limited length
		if err != nil {
			return err
		}
		sc, ok := g.nc.(syscall.Conn)
		if !ok {
			return errors.New("the connection has no descriptor")
		}
		file, err := machine.Duplicate(sc, "client")
		if err != nil {
			return err
		}
		conns[i] = handoff.Conn{Record: record, File: file}
	}
	return pass(conns, state)
}

// takeBack continues connections that the successor did not receive.
func (s *serving) takeBack(frozen []*apiserver.Frozen) {
	s.reopen()
	for _, f := range frozen {
		nc, err := f.TakeBack()
		if err != nil {
			s.log.Warn().Err(err).Msg("client connection not continued after the failed handoff")
			continue
		}
		s.continueConn(s.connCtx, nc, &f.Record, func() {}, alwaysOwned)
	}
}

// adopt receives connections of the old proxy. It returns when all of them have attached at their
// recorded positions. They continue once owned is closed.
func (s *serving) adopt(conns []handoff.Conn, state []byte, owned <-chan struct{}) error {
	if err := s.server.AddTickets(state); err != nil {
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
		s.continueConn(s.connCtx, nc, r, sync.OnceFunc(ready.Done), owned)
	}
	ready.Wait()
	s.stalls.count(begun, owned)
	return nil
}

// closeConns closes the files of connections.
func closeConns(conns []handoff.Conn) (err error) {
	for _, c := range conns {
		err = errors.Join(err, c.File.Close())
	}
	return err
}

// opened converts a received connection into a net.Conn and its record.
func opened(c handoff.Conn) (net.Conn, *apiserver.Record, error) {
	nc, err := net.FileConn(c.File)
	if err = errors.Join(err, c.File.Close()); err != nil {
		return nil, nil, err
	}
	r := &apiserver.Record{}
	if err := json.Unmarshal(c.Record, r); err != nil || r.Version < records.Min || r.Version > records.Max {
		return nil, nil, errors.Join(err, fmt.Errorf("connection record has version %d, which this build cannot read", r.Version), nc.Close())
	}
	if uc, ok := nc.(*net.UnixConn); ok && r.From.Transport != apiserver.TransportUnix {
		nc = peerConn{uc, r.From.PID}
	}
	return nc, r, nil
}

// continueConn continues a connection in the background.
func (s *serving) continueConn(ctx context.Context, nc net.Conn, r *apiserver.Record, ready func(), owned <-chan struct{}) {
	h := s.local
	if _, ok := nc.(*net.TCPConn); ok {
		h = s.pages
	}
	go func() {
		defer ready()
		if r.From.Transport != apiserver.TransportUnix {
			h.Adopt(ctx, nc, r, ready, owned)
			return
		}
		if taken, _ := s.server.Restore(ctx, apiserver.NewStream(nc, r.In), r, ready, owned); !taken {
			_ = nc.Close() // this closes only the duplicate of this process
		}
	}()
}

// stalls collects how long clients were not read during a handoff.
type stalls struct {
	mu  sync.Mutex
	wg  sync.WaitGroup
	all []time.Duration
}

// count adds connections that were last read at the given times, once owned is closed.
func (s *stalls) count(begun []int64, owned <-chan struct{}) {
	s.wg.Go(func() {
		<-owned
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, at := range begun {
			if at > 0 { // 0 if the client has sent nothing
				s.all = append(s.all, now.Sub(time.UnixMicro(at)))
			}
		}
	})
}

// summary returns the number of the stalls, the median and the maximum. All connections must belong
// to this proxy.
func (s *stalls) summary() (n int, median, longest time.Duration) {
	s.wg.Wait()
	slices.Sort(s.all)
	if n = len(s.all); n > 0 {
		median, longest = s.all[n/2], s.all[n-1]
	}
	return n, median, longest
}
