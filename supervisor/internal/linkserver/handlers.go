package linkserver

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/session"
)

// maxReadBytes bounds the data of one reply to Read, so that its base64 fits into a frame.
const maxReadBytes = 512 << 10

// answer handles one request. Its error is sent to the peer.
func (s *Server) answer(ctx context.Context, st *link.Stream, reads *turns, request protocol.Message) error {
	done, err := s.turn(ctx, reads, request)
	if err != nil {
		return err
	}
	defer done()
	leave, err := s.quiet.enter()
	if err != nil {
		return err
	}
	if kind, _ := wire.Messages.Request(request.MessageType()); kind.IsLong || isReplay(request) {
		leave() // a long request ends with the link, so an upgrade must not wait for it
	} else {
		defer leave()
	}
	answer, ok := handlers[request.MessageType()]
	if !ok {
		return protocol.Errorf(protocol.CodeUnsupported, "message %s is not a request that this supervisor knows", request.MessageType())
	}
	return answer(ctx, s, st, request)
}

// A handler answers the requests of one type. Its error is sent to the peer.
type handler func(ctx context.Context, s *Server, st *link.Stream, request protocol.Message) error

// handlers contains the handler of each request of the link, by type.
var handlers = make(handlerTable).
	add(stream((*Server).attach)).
	add(stream((*Server).events)).
	add(stream((*Server).list)).
	add(stream((*Server).shutdown)).
	add(stream((*Server).upgrade)).
	add(single((*Server).create)).
	add(single((*Server).reopen)).
	add(single((*Server).info)).
	add(single((*Server).signal)).
	add(single((*Server).terminate)).
	add(single((*Server).forget)).
	add(single((*Server).write)).
	add(single(func(s *Server, _ *wire.Status) (protocol.Message, error) {
		return wire.StatusReport{Supervisor: s.status()}, nil
	})).
	add(single(func(s *Server, _ *wire.Stats) (protocol.Message, error) { return s.stats(), nil })).
	add(about(func(ss *session.Session, m *wire.History) (protocol.Message, error) {
		content, err := ss.History(m.HistorySpec)
		return wire.HistoryContent{HistoryContent: content}, err
	})).
	add(about(func(ss *session.Session, m *wire.Changes) (protocol.Message, error) {
		content, err := ss.Changes(m.ChangesSpec)
		return wire.ChangesContent{ChangesContent: content}, err
	})).
	add(about(func(ss *session.Session, _ *wire.Commands) (protocol.Message, error) {
		content, err := ss.Commands()
		return wire.CommandsContent{CommandsContent: content}, err
	})).
	add(about(func(ss *session.Session, _ *wire.Environment) (protocol.Message, error) {
		env, err := ss.Environment()
		return wire.EnvironmentContent{Env: env}, err
	})).
	add(about(func(ss *session.Session, _ *wire.Away) (protocol.Message, error) {
		info, err := ss.Away()
		return wire.AwayContent{AwayInfo: info}, err
	})).
	add(about(func(ss *session.Session, _ *wire.Mark) (protocol.Message, error) {
		mark, err := ss.Mark()
		return wire.Marked{MarkInfo: mark}, err
	})).
	add(about(func(ss *session.Session, m *wire.SizePolicy) (protocol.Message, error) {
		return wire.OK{}, ss.SetSizePolicy(m.Policy, m.Cols, m.Rows)
	})).
	add(about(func(ss *session.Session, m *wire.Clear) (protocol.Message, error) {
		return wire.OK{}, ss.Clear(m.Screen)
	})).
	add(about(func(ss *session.Session, m *wire.Relabel) (protocol.Message, error) {
		return sessionReply(ss, ss.Relabel(m.Labels))
	})).
	add(about(func(ss *session.Session, m *wire.Limit) (protocol.Message, error) {
		return sessionReply(ss, ss.Limit(m.Limits))
	})).
	add(about(func(ss *session.Session, m *wire.Freeze) (protocol.Message, error) {
		return wire.OK{}, ss.SetFrozen(m.Frozen)
	})).
	add(about(func(ss *session.Session, m *wire.Resize) (protocol.Message, error) {
		return wire.OK{}, ss.Resize(protocol.Size{Cols: m.Cols, Rows: m.Rows})
	})).
	add(about(func(ss *session.Session, _ *wire.Interrupt) (protocol.Message, error) {
		return wire.OK{}, ss.Interrupt()
	})).
	add(long(func(m *wire.Wait) *int64 { return m.TimeoutMS }, wait)).
	add(long(func(m *wire.Await) *int64 { return m.TimeoutMS }, await)).
	add(long(untimed[wire.Screen], screen)).
	add(long(untimed[wire.Past], past)).
	add(long(untimed[wire.Read], read)).
	add(long(untimed[wire.SearchPast], searchPast)).
	add(long(untimed[wire.Search], search))

type handlerTable map[string]handler

func (t handlerTable) add(typ string, h handler) handlerTable {
	t[typ] = h
	return t
}

// typeOf returns the type of message M.
func typeOf[M protocol.Message]() string {
	var m M
	return m.MessageType()
}

// stream returns the handler of a request that f answers on the stream itself.
func stream[M protocol.Message](f func(*Server, context.Context, *link.Stream, *M) error) (string, handler) {
	return typeOf[M](), func(ctx context.Context, s *Server, st *link.Stream, request protocol.Message) error {
		return f(s, ctx, st, any(request).(*M))
	}
}

// single returns the handler of a request that has one reply.
func single[M protocol.Message](f func(*Server, *M) (protocol.Message, error)) (string, handler) {
	return stream(func(s *Server, _ context.Context, st *link.Stream, m *M) error {
		reply, err := f(s, m)
		if err != nil {
			return err
		}
		return st.Send(reply)
	})
}

// about returns the handler of a request about the session that it names.
func about[M protocol.Message](f func(*session.Session, *M) (protocol.Message, error)) (string, handler) {
	return single(func(s *Server, m *M) (protocol.Message, error) {
		ss, err := s.find(any(m).(protocol.Message))
		if err != nil {
			return nil, err
		}
		return f(ss, m)
	})
}

// long returns the handler of a request about a session that continues until f returns, the peer
// closes the stream, or the request's timeout in milliseconds is over. If it is nil, there is none.
func long[M protocol.Message](timeout func(*M) *int64, f func(context.Context, *session.Session, *M) (protocol.Message, error)) (string, handler) {
	return stream(func(s *Server, ctx context.Context, st *link.Stream, m *M) error {
		ss, err := s.find(any(m).(protocol.Message))
		if err != nil {
			return err
		}
		ctx, cancel := untilPeerCloses(ctx, st)
		defer cancel()
		ctx, stop := within(ctx, timeout(m))
		defer stop()
		reply, err := f(ctx, ss, m)
		if err != nil {
			return err
		}
		return st.Send(reply)
	})
}

// untimed returns nil: a request of type M has no timeout.
func untimed[M protocol.Message](*M) *int64 { return nil }

// find validates a request about a session, and returns the session.
func (s *Server) find(m protocol.Message) (*session.Session, error) {
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	return s.cfg.Sessions.GetInstance(protocol.SessionOf(m), protocol.InstanceOf(m))
}

func (s *Server) list(_ context.Context, st *link.Stream, m *wire.List) error {
	return st.SendSessions(s.cfg.Sessions.WithUse(s.cfg.Sessions.List(m.Originator)))
}

func (s *Server) create(m *wire.Create) (protocol.Message, error) {
	return sessionReply(s.cfg.Sessions.Create(cmp.Or(m.Account, m.Originator), m.SessionID, m.SpawnSpec, m.DefaultLimits, m.Token))
}

func (s *Server) reopen(m *wire.Reopen) (protocol.Message, error) {
	early := time.Duration(min(max(0, m.EarlyExitMS), time.Minute.Milliseconds())) * time.Millisecond
	return sessionReply(s.cfg.Sessions.Reopen(m.SessionID, m.Instance, m.RespawnSpec, m.Token, early))
}

func (s *Server) info(m *wire.Info) (protocol.Message, error) {
	return sessionReply(s.cfg.Sessions.Get(m.SessionID))
}

func (s *Server) forget(m *wire.Forget) (protocol.Message, error) {
	if m.Restore {
		return wire.OK{}, s.cfg.Sessions.ForgetFailed(m.SessionID, m.Instance)
	}
	return wire.OK{}, s.cfg.Sessions.Forget(m.SessionID, m.Instance)
}

func sessionReply(ss *session.Session, err error) (protocol.Message, error) {
	if err != nil {
		return nil, err
	}
	info, err := ss.Info()
	info.Cage = ss.Use()
	return wire.Session{Session: info}, err
}

func read(ctx context.Context, ss *session.Session, m *wire.Read) (protocol.Message, error) {
	n := m.MaxBytes
	if n <= 0 || n > maxReadBytes {
		n = maxReadBytes
	}
	if m.Past {
		o, err := ss.ReadPast(ctx, m.Offset, n)
		return wire.Data{Instance: ss.Instance(), Offset: o.Offset, End: o.End, Data: o.Data, Times: o.Times, Sizes: o.Sizes}, err
	}
	data, from, end, err := ss.Read(m.Offset, n)
	return wire.Data{Instance: ss.Instance(), Offset: from, End: end, Data: data}, err
}

// write sends input to a session: keys, or bytes, which may be a paste.
func (s *Server) write(m *wire.Write) (protocol.Message, error) {
	if m.Writer != "" {
		if err := protocol.ValidateWriter(m.Writer); err != nil {
			return nil, err
		}
	}
	ss, err := s.find(m)
	if err != nil {
		return nil, err
	}
	if m.HoldMS > 0 && m.Writer != "" {
		if err := ss.HoldInput(m.Writer, time.Duration(min(m.HoldMS, protocol.MaxHoldMS))*time.Millisecond); err != nil {
			return nil, err
		}
	}
	var accepted uint64
	switch {
	case len(m.Keys) > protocol.MaxKeys:
		err = protocol.TooLarge("a request has at most %d keys", protocol.MaxKeys)
	case len(m.Keys) > 0 && (m.Paste || len(m.Data) > 0):
		err = protocol.Errorf(protocol.CodeInvalidArgument, "keys exclude data and paste; send one of them")
	case len(m.Keys) > 0:
		accepted, err = ss.Press(m.Writer, m.Offset, m.Keys)
	case m.Paste:
		accepted, err = ss.Paste(m.Writer, m.Offset, m.Data)
	default:
		accepted, err = ss.Type(m.Writer, m.Offset, m.Data)
	}
	return wire.Accepted{Offset: accepted}, err
}

func (s *Server) signal(m *wire.Signal) (protocol.Message, error) {
	sig, err := parseSignal(m.Signal)
	if err != nil {
		return nil, err
	}
	ss, err := s.find(m)
	if err != nil {
		return nil, err
	}
	return wire.OK{}, ss.SignalFor(m.Asker, sig)
}

func parseSignal(name string) (syscall.Signal, error) {
	sig, err := pty.ParseSignal(name)
	if err != nil {
		return 0, protocol.Errorf(protocol.CodeInvalidArgument, "%v", err)
	}
	return sig, nil
}

// maxGrace bounds the time between the soft signal and SIGKILL.
const maxGrace = time.Hour

func (s *Server) terminate(m *wire.Terminate) (protocol.Message, error) {
	end := session.End{Asker: m.Asker, Reason: m.Reason, TimedOut: m.TimedOut, All: m.All, Idle: time.Duration(m.IdleMS) * time.Millisecond}
	if len(m.Reason) > protocol.MaxReasonLen {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "reason is longer than %d bytes", protocol.MaxReasonLen)
	}
	if m.SoftSignal != "" {
		var err error
		if end.Soft, err = parseSignal(m.SoftSignal); err != nil {
			return nil, err
		}
	}
	if m.GraceMS != nil {
		if *m.GraceMS < 0 || *m.GraceMS > maxGrace.Milliseconds() {
			return nil, protocol.Errorf(protocol.CodeInvalidArgument, "the grace time must be between 0 and %v", maxGrace)
		}
		grace := time.Duration(*m.GraceMS) * time.Millisecond
		end.Grace = &grace
	}
	ss, err := s.find(m)
	if err != nil {
		return nil, err
	}
	return wire.OK{}, ss.Terminate(end)
}

// screen handles a request for the present screen, or for that at an earlier moment.
func screen(ctx context.Context, ss *session.Session, m *wire.Screen) (reply protocol.Message, err error) {
	var content protocol.ScreenContent
	if m.At == nil {
		content, err = ss.Show(m.ScreenSpec)
	} else {
		content, err = ss.ShowAt(ctx, m.ScreenSpec)
	}
	return wire.ScreenContent{ScreenContent: content}, err
}

func past(ctx context.Context, ss *session.Session, m *wire.Past) (protocol.Message, error) {
	content, err := ss.Past(ctx, m.PastSpec)
	return wire.PastContent{PastContent: content}, err
}

func searchPast(ctx context.Context, ss *session.Session, m *wire.SearchPast) (protocol.Message, error) {
	content, err := ss.SearchPast(ctx, m.PastSearchSpec)
	return wire.SearchPastContent{PastSearchContent: content}, err
}

func search(ctx context.Context, ss *session.Session, m *wire.Search) (protocol.Message, error) {
	content, err := ss.Search(ctx, m.SearchSpec)
	return wire.SearchContent{SearchContent: content}, err
}

// maxWait replaces "without a limit", because a time.Duration cannot hold more than some
// centuries.
const maxWait = 365 * 24 * time.Hour

func wait(ctx context.Context, ss *session.Session, _ *wire.Wait) (protocol.Message, error) {
	select {
	case <-ss.Exited():
		return exited(ss), nil
	case <-ctx.Done():
		select {
		case <-ss.Exited(): // both have happened: the timeout was zero or barely sufficient
			return exited(ss), nil
		default:
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, protocol.Errorf(protocol.CodeTimeout, "session %s was still running at the end of the timeout", ss.ID())
		}
		return nil, ctx.Err()
	}
}

// within returns a context with a timeout of ms milliseconds, or ctx itself if ms is nil.
func within(ctx context.Context, ms *int64) (context.Context, context.CancelFunc) {
	if ms == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(min(max(0, *ms), maxWait.Milliseconds()))*time.Millisecond)
}

// await handles an await request. The condition is checked at least once, however short the
// timeout is.
func await(ctx context.Context, ss *session.Session, m *wire.Await) (protocol.Message, error) {
	info, err := ss.Await(ctx, m.AwaitSpec)
	if errors.Is(err, context.DeadlineExceeded) {
		err = protocol.Errorf(protocol.CodeTimeout, "session %s did not reach the awaited condition before the timeout", ss.ID())
	}
	return wire.Awaited{AwaitedInfo: info}, err
}

func exited(ss *session.Session) wire.Exited {
	return wire.Exited{SessionID: ss.ID(), Instance: ss.Instance(), Labels: ss.ShownLabels(), Exit: *ss.Exit()}
}

// untilPeerCloses returns a context that ends when the peer closes the stream. Messages of the
// peer are dropped, because none is expected. The goroutine ends at the latest when the stream
// is aborted.
func untilPeerCloses(ctx context.Context, st *link.Stream) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for {
			if _, err := st.Next(); err != nil {
				return
			}
		}
	}()
	return ctx, cancel
}

func (s *Server) upgrade(ctx context.Context, st *link.Stream, m *wire.Upgrade) error {
	if s.cfg.Upgrader == nil {
		return protocol.Errorf(protocol.CodeUnsupported, "this supervisor cannot be upgraded in place; stop it and start the new one")
	}
	if !filepath.IsAbs(m.Program) {
		return protocol.Errorf(protocol.CodeInvalidArgument, "path of the new program must be absolute")
	}
	version, sessions, err := s.cfg.Upgrader.Upgrade(ctx, m)
	if err != nil {
		return err
	}
	return st.Send(wire.Upgraded{Version: version, Sessions: sessions})
}

func (s *Server) shutdown(ctx context.Context, st *link.Stream, m *wire.Shutdown) error {
	if !m.EndSessions && !s.cfg.Sessions.CloseIfIdle(false) {
		return protocol.Errorf(protocol.CodeSessionRunning, "sessions that run: %d; end them first, or stop the supervisor together with them", s.cfg.Sessions.Live())
	}
	if err := s.cfg.Sessions.Shutdown(ctx, protocol.Asker{By: session.StopRequest}); err != nil {
		return err
	}
	err := st.Send(wire.OK{})
	_ = st.Close()
	for err == nil { // continue until the peer has read the reply and closed
		_, err = st.Next()
	}
	s.stopping.Do(s.cfg.Stop)
	return nil
}
