package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/metrics"
	"holdfast/proxy/internal/shadow"
	"holdfast/shared/logging"
	"holdfast/shared/version"
)

// takeOver takes over from the running proxy. An error means that the old proxy continues to serve.
// done reports that this was a dry run.
func (s *serving) takeOver(ctx context.Context) (done bool, err error) {
	t := s.take
	s.report.say(handoff.Progress{Step: "offered", PID: t.PID, Version: t.Version})
	fault("taken")
	t.Step = fault
	if err := s.compare(ctx); err != nil && !errors.Is(err, handoff.ErrGone) {
		t.GiveUp(err)
		return false, err
	}
	fault("compared")
	if s.dryRun {
		s.report.say(handoff.Progress{Step: "looked"})
		return true, t.Leave()
	}
	s.server.HoldTickets()
	defer s.server.IssueTickets()
	closed, state, err := t.Prepared(s.adopt)
	isGone := errors.Is(err, handoff.ErrGone)
	switch {
	case err == nil:
		if err = s.server.AddTickets(state); err != nil {
			t.GiveUp(err)
		}
	case isGone:
		s.log.Warn().Err(err).Int("old_pid", t.PID).Msg("old proxy ended without its last message; this proxy serves nevertheless")
		err = nil
	}
	if err != nil {
		return false, fmt.Errorf("rolled back, the old proxy continues to serve: %w", err)
	}
	n, median, longest := s.stalls.summary()
	s.took.Store(&metrics.Takeover{Connections: n, Median: median, Worst: longest})
	s.report.say(handoff.Progress{Step: "moved", Connections: n, Closed: closed, StallMedianMS: ms(median), StallMaxMS: ms(longest)})
	s.log.Info().Int("connections", n).Int("closed", closed).Dur("stall_median", median).Dur("stall_max", longest).Msg("clients taken over")
	if err := s.commit(isGone); err != nil {
		return false, fmt.Errorf("rolled back, the old proxy continues to serve: %w", err)
	}
	if err := s.listeners.check(s.log); err != nil {
		return false, fmt.Errorf("the old proxy has ended, and another one serves already: %w", err)
	}
	return false, nil
}

// commit reports to the old proxy that this one serves, unless the old one is gone. If it returns an
// error, the old proxy has given up and serves again, so this one must end and leave all sockets and
// locks to it.
//
// A service manager must learn of its new main process before the old one ends, and that is before
// this proxy knows whether it serves. If it does not, commit names the old process again.
func (s *serving) commit(isGone bool) error {
	t := s.take
	if !isGone {
		if err := t.CheckTime(); err != nil {
			t.GiveUp(err)
			return err
		}
	}
	fault("accepting")
	notifyReady(os.Getpid(), s.log)
	if isGone {
		return nil
	}
	err := t.Serving()
	if err != nil && !errors.Is(err, handoff.ErrGone) {
		notifyReady(t.PID, s.log)
		return err
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("old proxy not notified that this proxy serves")
	}
	fault("serving")
	return nil
}

// compare compares the output of sessions that this proxy and the old one see. Then it sets s.observed.
func (s *serving) compare(ctx context.Context) error {
	extent := shadow.Sample
	if s.verifyAll {
		extent = shadow.Extent{}
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.timeout, handoff.Timeout))
	defer cancel()
	r, err := shadow.Compare(ctx, s.links, func(_ context.Context, asks []shadow.Ask) ([]shadow.View, error) {
		body, err := json.Marshal(asks)
		if err != nil {
			return nil, err
		}
		if body, err = s.take.Look(body); err != nil {
			return nil, err
		}
		var views []shadow.View
		if err := json.Unmarshal(body, &views); err != nil {
			return nil, fmt.Errorf("the old proxy's answer: %w", err)
		}
		for i := range views {
			views[i].Sum = altered("snapshot", views[i].Sum)
		}
		return views, nil
	}, extent)
	if err != nil {
		return err
	}
	s.report.say(handoff.Progress{Step: "compared", Sessions: r.Sessions + r.ByOutput, ByOutput: r.ByOutput, Unseen: r.Unseen, Skipped: r.Skipped})
	s.log.Info().Int("sessions", r.Sessions).Int("by_output", r.ByOutput).Int("unseen", r.Unseen).Int("skipped", r.Skipped).Msg("sessions compared")
	if s.policy != nil {
		s.observed, err = s.links.Position(ctx)
	}
	return err
}

// ready reports that this proxy serves: to its log, a service manager and the process that started it.
// After a handoff, commit has notified the service manager.
func (s *serving) ready() {
	ls := s.listeners
	if ls.tcp != nil {
		s.log.Info().Stringer("address", ls.tcp.Addr()).Msg("serving the page and WebSockets on TCP; the token is in the state directory")
	}
	s.log.Info().Int(logging.PID, os.Getpid()).Str(logging.Version, version.String()).Str(logging.Path, ls.api.Path()).Msg("proxy serves")
	if s.take == nil {
		notifyReady(os.Getpid(), s.log)
	} else {
		s.log.Info().Int("old_pid", s.take.PID).Msg("this proxy took over from the old one")
	}
	s.greet(os.Stdout)
	s.report.say(handoff.Progress{Step: "serving", PID: os.Getpid(), Version: version.String()})
	s.report.end(nil)
}
