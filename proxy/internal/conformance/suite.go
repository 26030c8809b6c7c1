// Package conformance tests clients of Holdfast, in any language: it plays a proxy that does the worst that real
// proxies do, and judges the frames that the client sends, and the data that an application receives from the client. A harness, a
// program around the client, connects the two; README.md describes how.
//
// Invariant: a scenario fails only for behaviour that protocol/SPEC.md forbids, or that loses, repeats or
// misplaces a byte.
//
// Not here: tests with real proxies (scripts/e2e).
package conformance

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options select the scenarios and the transports.
type Options struct {
	Start      Start
	Only       *regexp.Regexp // names of the scenarios to run; nil means all
	Transports []string       // Unix, WebSocket; nil means both
	Jobs       int            // harnesses that run at the same time; 0 means 8
	Patience   time.Duration  // how long to wait for the client in each step; 0 means 10 s

	listen func(transport, dir string) (net.Listener, Command, error) // the function listen, except in tests
}

// A Result is the result of one scenario over one transport.
type Result struct {
	Scenario  string
	Transport string
	Lacks     string   // the feature that the client lacks, so that the scenario was not run; or ""
	Faults    []string // the mistakes of the client; none if it has passed
	Stderr    string   // the last lines of the harness, if it was ended because of a mistake
	Took      time.Duration
}

// String returns one line for a scenario, and one for each mistake.
func (r Result) String() string {
	name := fmt.Sprintf("%-22s %-9s", r.Scenario, r.Transport)
	switch {
	case r.Lacks != "":
		return fmt.Sprintf("skip  %s  lacks %s", name, r.Lacks)
	case len(r.Faults) == 0:
		return fmt.Sprintf("ok    %s  %d ms", name, r.Took.Milliseconds())
	}
	text := fmt.Sprintf("FAIL  %s  %d ms\n      %s", name, r.Took.Milliseconds(), strings.Join(r.Faults, "\n      "))
	if r.Stderr != "" {
		text += "\n      the harness printed: " + strings.ReplaceAll(strings.TrimSpace(r.Stderr), "\n", "\n      | ")
	}
	return text
}

// A Description is the name of a scenario, and the events in it.
type Description struct{ Name, About string }

// Scenarios describes all scenarios.
func Scenarios() (all []Description) {
	for _, s := range scenarios {
		all = append(all, Description{s.name, s.about})
	}
	return all
}

// A task is one scenario over one transport.
type task struct {
	scenario
	transport string
}

// Run runs the scenarios, and calls report for each result, in the order in which they end. The error is that of a
// harness that cannot be started, or that of ctx.
func Run(ctx context.Context, o Options, report func(Result)) error {
	if o.Jobs == 0 {
		o.Jobs = 8
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
	if o.listen == nil {
		o.listen = listen
	}
	if o.Transports == nil {
		o.Transports = []string{Unix, WebSocket}
	}
	tasks := o.tasks()
	next := make(chan task, len(tasks))
	for _, t := range tasks {
		next <- t
	}
	close(next)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range min(o.Jobs, len(tasks)) {
		workers.Go(func() {
			err := work(ctx, &o, next, func(r Result) {
				mu.Lock()
				defer mu.Unlock()
				report(r)
			})
			if err != nil {
				cancel(err)
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// tasks returns the scenarios to run; those that wait longest come first.
func (o *Options) tasks() (all []task) {
	for _, s := range scenarios {
		if o.Only != nil && !o.Only.MatchString(s.name) {
			continue
		}
		for _, transport := range o.Transports {
			if slices.Contains(s.needs, WebSocket) && transport != WebSocket {
				continue
			}
			all = append(all, task{s, transport})
		}
	}
	slices.SortStableFunc(all, func(a, b task) int { return isSlow(b) - isSlow(a) })
	return all
}

// isSlow returns 1 for a scenario that waits to see how often a client tries.
func isSlow(t task) int {
	if strings.HasPrefix(t.name, "refused-") || t.name == "cut-attachments" {
		return 1
	}
	return 0
}

// work runs tasks with one harness. A harness that has failed in a scenario is replaced by another one.
func work(ctx context.Context, o *Options, next <-chan task, report func(Result)) error {
	var h *harness
	defer func() {
		if h != nil {
			h.end()
		}
	}()
	for t := range next {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if h == nil {
			var err error
			if h, err = startHarness(ctx, o.Start, o.Patience); err != nil {
				return err
			}
		}
		r := runScenario(ctx, h, t, o)
		if len(r.Faults) > 0 {
			r.Stderr = h.end()
			h = nil
		}
		report(r)
	}
	return nil
}

// runScenario runs one scenario.
func runScenario(ctx context.Context, h *harness, t task, o *Options) (r Result) {
	r = Result{Scenario: t.name, Transport: t.transport}
	for _, feature := range append(slices.Clone(t.needs), t.transport) {
		if h.lacks[feature] {
			r.Lacks = feature
			return r
		}
	}
	began := time.Now()
	w, end, err := newWorld(ctx, h, t.transport, o)
	if err != nil {
		r.Faults = []string{err.Error()}
		return r
	}
	defer func() {
		end()
		r.Faults, r.Took = w.faults, time.Since(began)
	}()
	defer func() {
		if stopped := recover(); stopped != nil {
			if _, ok := stopped.(stop); !ok {
				panic(stopped)
			}
		}
	}()
	t.run(w)
	w.closes()
	return r
}
