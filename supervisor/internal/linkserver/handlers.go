package linkserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/session"
)

// maxReadBytes bounds one answer to Read: base64 of it fits into a frame.
const maxReadBytes = 512 << 10

// answer answers one request. What it returns as an error is told to the peer.
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
	switch request.(type) {
	case *wire.Attach, *wire.Events, *wire.Wait, *wire.Await, *wire.Search, *wire.Shutdown, *wire.Upgrade:
		leave() // what goes on for long ends with the link
	default:
		defer leave()
	}
	switch m := request.(type) {
	case *wire.Upgrade:
		return s.upgrade(ctx, st, m)
	case *wire.Attach:
		return s.attach(ctx, st, m)
	case *wire.Events:
		return s.events(ctx, st, m)
	case *wire.List:
		return st.SendSessions(s.cfg.Sessions.WithUse(s.cfg.Sessions.List(m.Originator)))
	case *wire.Wait:
		return s.wait(ctx, st, m)
	case *wire.Await:
		return s.await(ctx, st, m)
	case *wire.Search:
		return s.search(ctx, st, m)
	case *wire.Shutdown:
		return s.shutdown(ctx, st, m)
	}
	reply, err := s.simple(request)
	if err != nil {
		return err
	}
	return st.Send(reply)
}

// simple answers the requests that have one reply and do not wait.
func (s *Server) simple(request protocol.Message) (protocol.Message, error) {
	t := s.cfg.Sessions
	switch m := request.(type) {
	case *wire.Create:
		return sessionReply(t.CreateFor(cmp.Or(m.Account, m.Originator), m.SessionID, m.SpawnSpec, m.DefaultLimits, m.Token))
	case *wire.Reopen:
		return sessionReply(t.ReopenFor(m.SessionID, m.Instance, m.RespawnSpec, m.Token, time.Duration(min(max(0, m.EarlyExitMS), time.Minute.Milliseconds()))*time.Millisecond))
	case *wire.Info:
		return sessionReply(t.Get(m.SessionID))
	case *wire.Read:
		return s.read(m)
	case *wire.Screen:
		if err := m.Validate(); err != nil {
			return nil, err
		}
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			content, err := ss.Show(m.ScreenSpec)
			return wire.ScreenContent{ScreenContent: content}, err
		})
	case *wire.History:
		if err := m.Validate(); err != nil {
			return nil, err
		}
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			content, err := ss.History(m.HistorySpec)
			return wire.HistoryContent{HistoryContent: content}, err
		})
	case *wire.Environment:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			env, err := ss.Environment()
			return wire.EnvironmentContent{Env: env}, err
		})
	case *wire.Away:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			info, err := ss.Away()
			return wire.AwayContent{AwayInfo: info}, err
		})
	case *wire.Mark:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			mark, err := ss.Mark()
			return wire.Marked{MarkInfo: mark}, err
		})
	case *wire.SizePolicy:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			return wire.OK{}, ss.SetSizePolicy(m.Policy, m.Cols, m.Rows)
		})
	case *wire.Clear:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			return wire.OK{}, ss.Clear(m.Screen)
		})
	case *wire.Relabel:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			return sessionReply(ss, ss.Relabel(m.Labels))
		})
	case *wire.Limit:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			return sessionReply(ss, ss.Limit(m.Limits))
		})
	case *wire.Freeze:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			return wire.OK{}, ss.SetFrozen(m.Frozen)
		})
	case *wire.Resize:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			return wire.OK{}, ss.Resize(protocol.Size{Cols: m.Cols, Rows: m.Rows})
		})
	case *wire.Interrupt:
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
			return wire.OK{}, ss.Interrupt()
		})
	case *wire.Signal:
		return s.signal(m)
	case *wire.Terminate:
		return s.terminate(m)
	case *wire.Forget:
		if m.Restore {
			return wire.OK{}, t.ForgetFailed(m.SessionID, m.Instance)
		}
		return wire.OK{}, t.Forget(m.SessionID, m.Instance)
	case *wire.Write:
		if m.Writer != "" {
			if err := protocol.ValidateWriter(m.Writer); err != nil {
				return nil, err
			}
		}
		return with(t, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) { return write(ss, m) })
	case *wire.Status:
		return wire.StatusReport{Supervisor: s.status()}, nil
	case *wire.Stats:
		return s.stats(), nil
	}
	return nil, protocol.Errorf(protocol.CodeUnsupported, request.MessageType()+" is not a request")
}

func with(t *session.Table, id protocol.SessionID, instance protocol.Instance, f func(*session.Session) (protocol.Message, error)) (protocol.Message, error) {
	ss, err := t.GetInstance(id, instance)
	if err != nil {
		return nil, err
	}
	return f(ss)
}

func sessionReply(ss *session.Session, err error) (protocol.Message, error) {
	if err != nil {
		return nil, err
	}
	info, err := ss.Info()
	info.Cage = ss.Use()
	return wire.Session{Session: info}, err
}

func (s *Server) read(m *wire.Read) (protocol.Message, error) {
	ss, err := s.cfg.Sessions.GetInstance(m.SessionID, m.Instance)
	if err != nil {
		return nil, err
	}
	n := m.MaxBytes
	if n <= 0 || n > maxReadBytes {
		n = maxReadBytes
	}
	data, from, end, err := ss.Read(m.Offset, n)
	return wire.Data{Instance: ss.Instance(), Offset: from, End: end, Data: data}, err
}

// write types what there is: keys, or bytes, which may be a paste.
func write(ss *session.Session, m *wire.Write) (protocol.Message, error) {
	var accepted uint64
	var err error
	switch {
	case len(m.Keys) > protocol.MaxKeys:
		err = protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("more than %d keys", protocol.MaxKeys))
	case len(m.Keys) > 0 && (m.Paste || len(m.Data) > 0):
		err = protocol.Errorf(protocol.CodeInvalidArgument, "keys come in place of data")
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
	return with(s.cfg.Sessions, m.SessionID, m.Instance, func(ss *session.Session) (protocol.Message, error) {
		return wire.OK{}, ss.SignalFor(m.Asker, sig)
	})
}

func parseSignal(name string) (syscall.Signal, error) {
	sig, err := pty.ParseSignal(name)
	if err != nil {
		return 0, protocol.Errorf(protocol.CodeInvalidArgument, err.Error())
	}
	return sig, nil
}

// maxGrace bounds how long the end of a session may be put off.
const maxGrace = time.Hour

func (s *Server) terminate(m *wire.Terminate) (protocol.Message, error) {
	end := session.End{Asker: m.Asker, Reason: m.Reason, TimedOut: m.TimedOut, All: m.All, Idle: time.Duration(m.IdleMS) * time.Millisecond}
	if len(m.Reason) > protocol.MaxReasonLen {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("reason is over %d bytes", protocol.MaxReasonLen))
	}
	if m.SoftSignal != "" {
		var err error
		if end.Soft, err = parseSignal(m.SoftSignal); err != nil {
			return nil, err
		}
	}
	if m.GraceMS != nil {
		if *m.GraceMS < 0 || *m.GraceMS > maxGrace.Milliseconds() {
			return nil, protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("grace must be 0 to %v", maxGrace))
		}
		grace := time.Duration(*m.GraceMS) * time.Millisecond
		end.Grace = &grace
	}
	ss, err := s.cfg.Sessions.GetInstance(m.SessionID, m.Instance)
	if err != nil {
		return nil, err
	}
	return wire.OK{}, ss.Terminate(end)
}

func (s *Server) search(ctx context.Context, st *link.Stream, m *wire.Search) error {
	if err := m.Validate(); err != nil {
		return err
	}
	return s.long(ctx, st, m.SessionID, m.Instance, nil, func(ctx context.Context, ss *session.Session) (protocol.Message, error) {
		content, err := ss.Search(ctx, m.SearchSpec)
		return wire.SearchContent{SearchContent: content}, err
	})
}

// maxWait is for ever, within what a time.Duration can hold.
const maxWait = 365 * 24 * time.Hour

func (s *Server) wait(ctx context.Context, st *link.Stream, m *wire.Wait) error {
	return s.long(ctx, st, m.SessionID, m.Instance, m.TimeoutMS, func(ctx context.Context, ss *session.Session) (protocol.Message, error) {
		select {
		case <-ss.Exited():
			return exited(ss), nil
		case <-ctx.Done():
			select {
			case <-ss.Exited(): // both: no time was given, or just enough
				return exited(ss), nil
			default:
			}
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, protocol.Errorf(protocol.CodeTimeout, fmt.Sprintf("session %s is still running", ss.ID()))
			}
			return nil, ctx.Err()
		}
	})
}

// long answers a request that goes on until the peer closes the stream, and for no
// longer than ms: nil is for ever.
func (s *Server) long(ctx context.Context, st *link.Stream, id protocol.SessionID, instance protocol.Instance, ms *int64, f func(context.Context, *session.Session) (protocol.Message, error)) error {
	ss, err := s.cfg.Sessions.GetInstance(id, instance)
	if err != nil {
		return err
	}
	ctx, cancel := untilPeerCloses(ctx, st)
	defer cancel()
	ctx, stop := within(ctx, ms)
	defer stop()
	reply, err := f(ctx, ss)
	if err != nil {
		return err
	}
	return st.Send(reply)
}

// within bounds how long is waited, nil for ever.
func within(ctx context.Context, ms *int64) (context.Context, context.CancelFunc) {
	if ms == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(min(max(0, *ms), maxWait.Milliseconds()))*time.Millisecond)
}

// await looks once however short the time.
func (s *Server) await(ctx context.Context, st *link.Stream, m *wire.Await) error {
	if err := m.Validate(); err != nil {
		return err
	}
	return s.long(ctx, st, m.SessionID, m.Instance, m.TimeoutMS, func(ctx context.Context, ss *session.Session) (protocol.Message, error) {
		info, err := ss.Await(ctx, m.AwaitSpec)
		if errors.Is(err, context.DeadlineExceeded) {
			err = protocol.Errorf(protocol.CodeTimeout, fmt.Sprintf("session %s does not come to what is awaited", ss.ID()))
		}
		return wire.Awaited{AwaitedInfo: info}, err
	})
}

func exited(ss *session.Session) wire.Exited {
	return wire.Exited{SessionID: ss.ID(), Instance: ss.Instance(), Labels: ss.Labels(), Exit: *ss.Exit()}
}

// untilPeerCloses returns a context that ends when the peer closes the stream.
// Nothing more is expected from the peer; what comes is dropped. The goroutine
// ends when the stream is aborted, at the latest.
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
		return protocol.Errorf(protocol.CodeUnsupported, "this supervisor cannot become another program")
	}
	if !filepath.IsAbs(m.Program) {
		return protocol.Errorf(protocol.CodeInvalidArgument, "the program's path must be absolute")
	}
	version, sessions, err := s.cfg.Upgrader.Upgrade(ctx, m)
	if err != nil {
		return err
	}
	return st.Send(wire.Upgraded{Version: version, Sessions: sessions})
}

func (s *Server) shutdown(ctx context.Context, st *link.Stream, m *wire.Shutdown) error {
	if !m.EndSessions && !s.cfg.Sessions.CloseIfIdle(false) {
		return protocol.Errorf(protocol.CodeSessionRunning, fmt.Sprintf("sessions that run: %d; end them first, or ask for it", s.cfg.Sessions.Live()))
	}
	if err := s.cfg.Sessions.ShutdownFor(ctx, protocol.Asker{By: "supervisor stop"}); err != nil {
		return err
	}
	err := st.Send(wire.OK{})
	_ = st.Close()
	for err == nil { // stay until the peer has read the answer
		_, err = st.Next()
	}
	s.stopping.Do(s.cfg.Stop)
	return nil
}
