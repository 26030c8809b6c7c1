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

// takeOver takes over from the running proxy, up to the last message. An error means that the old
// proxy continues to serve. done reports that this was a dry run.
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
	switch {
	case err == nil:
		err = s.addState(state)
	case errors.Is(err, handoff.ErrGone):
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
	return false, nil
}

// compare compares the output of sessions that this proxy and the old one see.
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
	return nil
}

// ready reports that this proxy serves: to its log, a service manager, the old proxy and the
// process that started it.
func (s *serving) ready() {
	ls := s.listeners
	if ls.tcp != nil {
		s.log.Info().Stringer("address", ls.tcp.Addr()).Msg("serving the page and WebSockets on TCP; the token is in the state directory")
	}
	s.log.Info().Int(logging.PID, os.Getpid()).Str("version", version.String()).Str(logging.Path, ls.api.Path()).Msg("proxy serves")
	fault("accepting")
	notifyReady(s.log)
	if s.take != nil {
		if err := s.take.Serving(); err != nil {
			s.log.Warn().Err(err).Msg("old proxy not notified that this proxy serves")
		}
		fault("serving")
		s.log.Info().Int("old_pid", s.take.PID).Msg("this proxy took over from the old one")
	}
	s.greet(os.Stdout)
	s.report.say(handoff.Progress{Step: "serving", PID: os.Getpid(), Version: version.String()})
	s.report.end(nil)
}
