package main

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

// takeOver takes over from the running proxy, up to the last word. An error means
// that the old one serves on; done, that this was only tried.
func (s *serving) takeOver(ctx context.Context) (done bool, err error) {
	t := s.take
	s.report.say(progress{Step: "offered", PID: t.PID, Version: t.Version})
	fault("taken")
	t.Step = fault
	if t.LooksFirst() {
		if err := s.compare(ctx); err != nil && !errors.Is(err, handoff.ErrGone) {
			t.GiveUp(err)
			return false, err
		}
		fault("compared")
	} else if !s.dryRun {
		s.accept()
	}
	if s.dryRun {
		s.report.say(progress{Step: "looked"})
		return true, t.Leave()
	}
	s.server.HoldTickets()
	defer s.server.IssueTickets()
	closed, state, err := t.Prepared(s.adopt)
	switch {
	case err == nil:
		err = s.addState(state)
	case errors.Is(err, handoff.ErrGone) || !t.LooksFirst():
		s.log.Warn().Err(err).Int("old_pid", t.PID).Msg("the old proxy did not say good-bye; serving all the same")
		err = nil
	}
	if err != nil {
		return false, fmt.Errorf("rolled back, the old proxy serves on: %w", err)
	}
	n, median, longest := s.stalls.summary()
	s.took.Store(&metrics.Takeover{Connections: n, Median: median, Worst: longest})
	s.report.say(progress{Step: "moved", Connections: n, Closed: closed, StallMedianMS: ms(median), StallMaxMS: ms(longest)})
	s.log.Info().Int("connections", n).Int("closed", closed).Dur("stall_median", median).Dur("stall_max", longest).Msg("clients taken over")
	return false, nil
}

// compare holds what this proxy sees of each session against what the old one
// sees.
func (s *serving) compare(ctx context.Context) error {
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
	})
	if err != nil {
		return err
	}
	s.report.say(progress{Step: "compared", Sessions: r.Sessions + r.ByOutput, ByOutput: r.ByOutput, Unseen: r.Unseen})
	s.log.Info().Int("sessions", r.Sessions).Int("by_output", r.ByOutput).Int("unseen", r.Unseen).Msg("sessions compared")
	return nil
}

// ready says that this proxy serves: to its log, to a service manager, to the
// proxy before, and to who started it.
func (s *serving) ready() {
	ls := s.listeners
	if ls.tcp != nil {
		s.log.Info().Stringer("address", ls.tcp.Addr()).Msg("serving the page and WebSockets on TCP; the token lies in the state directory")
	}
	s.log.Info().Int(logging.PID, os.Getpid()).Str("version", version.String()).Str(logging.Path, ls.api.Path()).Msg("proxy serves")
	fault("accepting")
	notifyReady(s.log)
	if s.take != nil {
		if err := s.take.Serving(); err != nil {
			s.log.Warn().Err(err).Msg("the old proxy has not heard that this one serves")
		}
		fault("serving")
		s.log.Info().Int("old_pid", s.take.PID).Msg("took over")
	}
	s.greet(os.Stdout)
	s.report.say(progress{Step: "serving", PID: os.Getpid(), Version: version.String()})
	s.report.end(nil)
}
