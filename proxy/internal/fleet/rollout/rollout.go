// Package rollout upgrades many hosts of a gate, in waves.
//
// Run first asks all hosts whether the upgrade is possible. If a host refuses it, nothing is changed. Then
// it upgrades one wave after the other. If a host fails, no further host begins, the hosts that have begun end
// their work, and all hosts that Run has upgraded return to the programs from before. If ctx is done,
// no further host begins, and those that have begun end their work and stay as they are. Run for the same
// hosts again continues, because hosts that run the wanted programs are left out.
//
// The agent of a host decides whether the host is healthy, and returns by itself if it is not (package
// hostupgrade). Run loses nothing if a connection to an agent is cut: it asks again, and the agent does the same
// request once.
//
// Invariant: no host begins after another host of the same Run has failed. All hosts of a system receive the programs that
// were checked; a host that has received others has failed. Every host that has begun is in the
// Result, with the versions that run there as far as they are known.
//
// Not here: the connection to the hosts (the Asker), and the upgrade of one host.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/client"
)

const (
	askPause   = time.Second      // before a host is asked again
	checkLimit = 30 * time.Second // for a host that does not answer a check
	// extra is the time that an agent may need besides the limit of the programs: to look at the host, and to
	// return.
	extra = 5 * time.Minute
)

// An Asker asks the agent of a host, and returns its result. It calls step for each step. It may be called for
// several hosts at a time. Its errors are those of client.UpgradeHost.
type Asker func(ctx context.Context, host string, m gate.Upgrade, step func(gate.UpgradeStep)) (gate.Upgraded, error)

// Options are the choices of a caller.
type Options struct {
	ID       string // of this rollout; the same for all its hosts
	From     string // directory of the programs, on every host, or the URL of a release archive
	SHA256   string // of the archive, or ""
	Waves    []Size
	Parallel int           // hosts at a time
	Limit    time.Duration // how long the programs of a host may take until they serve, and how long a host may be unreachable meanwhile
	MaxStall time.Duration // longest pause of a client; 0 means any
	IsTrial  bool          // try the programs on all hosts, and change nothing
	Tell     func(Event)   // is called for each Event, by one goroutine at a time
}

// A Host is a host to upgrade.
type Host struct {
	Name        string
	System      string
	IsReachable bool
}

// A State is the state of a host in a rollout.
type State string

// The states. Those of gate.UpgradeState also occur.
const (
	Waiting     State = "waiting"     // the host has not begun
	Unreachable State = "unreachable" // the host was not reached before the first wave, and was left out
	Refused     State = "refused"     // the host refuses the upgrade, and has changed nothing
)

// A HostResult is the state of one host.
type HostResult struct {
	Host       string  `json:"host"`
	State      State   `json:"state"`
	Supervisor string  `json:"supervisor,omitempty"` // release that runs, if it is known
	Proxy      string  `json:"proxy,omitempty"`      // release that runs, if it is known
	Target     string  `json:"target,omitempty"`     // release of the programs in the directory
	Sessions   int     `json:"sessions,omitempty"`   // sessions that are the same as before
	Clients    int     `json:"clients,omitempty"`    // connections that the new proxy has taken over
	Closed     int     `json:"closed,omitempty"`     // connections that were asked to reconnect
	StallMS    float64 `json:"stall_ms,omitempty"`   // longest pause of a client
	Error      string  `json:"error,omitempty"`

	system, sum string
}

// An Outcome is the result of a rollout.
type Outcome string

// The outcomes.
const (
	Done        Outcome = "upgraded"    // all hosts run the programs, except those that are idle or were unreachable
	Possible    Outcome = "possible"    // of a trial
	NotBegun    Outcome = "not_begun"   // nothing has changed
	Returned    Outcome = "returned"    // a host has failed, and all hosts that have begun run the programs from before
	Failed      Outcome = "failed"      // a host has failed, and at least one host could not return
	Interrupted Outcome = "interrupted" // some hosts have not begun
)

// A Result is the result of Run.
type Result struct {
	Outcome Outcome      `json:"outcome"`
	Error   string       `json:"error,omitempty"`
	Hosts   []HostResult `json:"hosts"` // all hosts, sorted by name
}

// An Event tells the progress of a rollout. Of Waves, Wave, Host and Result, those of its kind are set.
type Event struct {
	Kind   string      `json:"event"`            // plan, wave, step, host, return, end
	Waves  [][]string  `json:"waves,omitempty"`  // plan: the hosts of each wave
	Wave   int         `json:"wave,omitempty"`   // wave: its number, from 1
	Host   string      `json:"host,omitempty"`   // step
	Text   string      `json:"text,omitempty"`   // step
	State  *HostResult `json:"state,omitempty"`  // host: its new state
	Result *Result     `json:"result,omitempty"` // end
}

// A rollout is a Run in work.
type rollout struct {
	o   Options
	ask Asker

	telling sync.Mutex

	mu        sync.Mutex
	hosts     map[string]*HostResult
	hasFailed bool
}

// Run upgrades the hosts.
func Run(ctx context.Context, hosts []Host, ask Asker, o Options) Result {
	r := &rollout{o: o, ask: ask, hosts: map[string]*HostResult{}}
	for _, h := range hosts {
		state := Waiting
		if !h.IsReachable {
			state = Unreachable
		}
		r.hosts[h.Name] = &HostResult{Host: h.Name, State: state, system: h.System}
	}
	outcome, err := r.run(ctx)
	result := Result{Outcome: outcome}
	if err != nil {
		result.Error = err.Error()
	}
	for _, name := range r.names(func(*HostResult) bool { return true }) {
		result.Hosts = append(result.Hosts, *r.hosts[name])
	}
	r.tell(Event{Kind: "end", Result: &result})
	return result
}

func (r *rollout) run(ctx context.Context) (Outcome, error) {
	if err := r.check(ctx); err != nil {
		return NotBegun, err
	}
	waves := Plan(r.inState(State(gate.UpgradeReady)), r.o.Waves)
	r.tell(Event{Kind: "plan", Waves: waves})
	if r.o.IsTrial {
		return Possible, nil
	}
	for _, wave := range waves {
		for _, name := range wave {
			r.hosts[name].State = Waiting
		}
	}
	for i, wave := range waves {
		if ctx.Err() != nil {
			break
		}
		r.tell(Event{Kind: "wave", Wave: i + 1, Waves: waves[i : i+1]})
		r.each(wave, func(name string) {
			if ctx.Err() == nil && !r.isStopped() {
				r.upgrade(context.WithoutCancel(ctx), name) // a host that has begun ends its work
			}
		})
		if r.isStopped() {
			return r.comeBack(context.WithoutCancel(ctx))
		}
	}
	if len(r.inState(Waiting)) > 0 {
		return Interrupted, nil
	}
	return Done, nil
}

func (r *rollout) isStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasFailed
}

// names returns the names of the selected hosts, sorted.
func (r *rollout) names(isSelected func(*HostResult) bool) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.hosts)) {
		if isSelected(r.hosts[name]) {
			names = append(names, name)
		}
	}
	return names
}

func (r *rollout) result(name string) HostResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.hosts[name]
}

func (r *rollout) inState(states ...State) []string {
	return r.names(func(h *HostResult) bool { return slices.Contains(states, h.State) })
}

// each calls f for each name, for at most Parallel names at a time.
func (r *rollout) each(names []string, f func(name string)) {
	var wg sync.WaitGroup
	free := make(chan struct{}, max(r.o.Parallel, 1))
	for _, name := range names {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			f(name)
		})
	}
	wg.Wait()
}

func (r *rollout) tell(e Event) {
	r.telling.Lock()
	defer r.telling.Unlock()
	if r.o.Tell != nil {
		r.o.Tell(e)
	}
}

// set notes the result of a host, and tells it.
func (r *rollout) set(name string, state State, m gate.Upgraded, err error) {
	r.mu.Lock()
	before := r.hosts[name]
	h := &HostResult{
		Host: name, State: state, Supervisor: m.Supervisor, Proxy: m.Proxy, Target: before.Target, Sessions: m.Sessions, Clients: m.Clients, Closed: m.Closed,
		StallMS: m.StallMS, Error: m.Error, system: before.system, sum: before.sum,
	}
	if m.Target != "" {
		h.Target, h.sum = m.Target, m.Sum
	}
	if err != nil {
		h.Error = err.Error()
	}
	r.hosts[name] = h
	result := *h
	r.mu.Unlock()
	r.tell(Event{Kind: "host", State: &result})
}

// check asks all hosts whether the upgrade is possible.
func (r *rollout) check(ctx context.Context) error {
	action := gate.UpgradeCheck
	if r.o.IsTrial {
		action = gate.UpgradeTry
	}
	r.each(r.inState(Waiting), func(name string) {
		m, _, err := r.askUntil(ctx, name, action, checkLimit)
		switch {
		case err == nil:
			r.set(name, State(m.State), m, nil)
		case isFinal(err):
			r.set(name, Refused, m, err)
		default:
			r.set(name, Unreachable, m, err)
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if bad := r.inState(Refused, State(gate.UpgradeFailed)); len(bad) > 0 {
		return fmt.Errorf("nothing has changed, because %s cannot be upgraded: %s", bad[0], r.hosts[bad[0]].Error)
	}
	bySystem := map[string]*HostResult{}
	for _, name := range r.names(func(h *HostResult) bool { return h.sum != "" }) {
		h := r.hosts[name]
		if other := bySystem[h.system]; other != nil && other.sum != h.sum {
			return fmt.Errorf("nothing has changed, because %s has other programs in %s (%s) than %s (%s)", h.Host, r.o.From, h.Target, other.Host, other.Target)
		}
		bySystem[h.system] = h
	}
	return nil
}

// isFinal reports whether a further try would meet the same error.
func isFinal(err error) bool {
	code := protocol.CodeOf(err)
	return errors.Is(err, client.ErrUnknownHost) || code == protocol.CodeUnauthorized || code == protocol.CodeInvalidArgument
}

// askUntil asks a host until it has ended the work, refuses it, or was unreachable for limit. A host that ends the work of
// another rollout first, for example of one that was killed, is not unreachable. hasBegun tells that the host
// has sent a step, so it has begun the work even if it refuses a later question.
func (r *rollout) askUntil(ctx context.Context, name string, action gate.UpgradeAction, limit time.Duration) (result gate.Upgraded, hasBegun bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.o.Limit+limit+extra)
	defer cancel()
	m := gate.Upgrade{ID: r.o.ID, Action: action, From: r.o.From, SHA256: r.o.SHA256, LimitMS: r.o.Limit.Milliseconds(), MaxStallMS: float64(r.o.MaxStall.Microseconds()) / 1000}
	seenAt, reported, wasBusy := time.Now(), 0, false
	for {
		steps := 0
		result, err := r.ask(ctx, name, m, func(s gate.UpgradeStep) {
			seenAt = time.Now()
			if steps++; steps > reported { // an agent that is asked again sends all steps again
				reported = steps
				r.tell(Event{Kind: "step", Host: name, Text: s.Text})
			}
		})
		if err == nil || isFinal(err) {
			return result, reported > 0, err
		}
		isBusy := protocol.CodeOf(err) == protocol.CodeBusy
		if isBusy || steps > 0 { // it was connected until now
			seenAt = time.Now()
		}
		if isBusy && !wasBusy {
			wasBusy = true
			r.tell(Event{Kind: "step", Host: name, Text: "waiting: " + err.Error()})
		}
		if time.Since(seenAt) >= limit {
			return gate.Upgraded{}, reported > 0, fmt.Errorf("unreachable for %v: %w", limit, err)
		}
		select {
		case <-time.After(askPause):
		case <-ctx.Done():
			return gate.Upgraded{}, reported > 0, err
		}
	}
}

// upgrade upgrades a host.
func (r *rollout) upgrade(ctx context.Context, name string) {
	m, hasBegun, err := r.askUntil(ctx, name, gate.UpgradeApply, r.o.Limit)
	state := State(m.State)
	switch {
	case err != nil && isFinal(err) && !hasBegun:
		state = Refused
	case err != nil:
		state = State(gate.UpgradeFailed)
	}
	if state == State(gate.UpgradeCurrent) { // the agent was started again during the work
		state = State(gate.UpgradeDone)
	}
	if state == State(gate.UpgradeDone) && m.Sum != r.result(name).sum {
		state, err = State(gate.UpgradeFailed), fmt.Errorf("the programs in %s have changed since they were checked", r.o.From)
	}
	if state != State(gate.UpgradeDone) && state != State(gate.UpgradeIdle) {
		r.mu.Lock()
		r.hasFailed = true
		r.mu.Unlock()
	}
	r.set(name, state, m, err)
}

// comeBack returns all hosts that have begun to the programs from before.
func (r *rollout) comeBack(ctx context.Context) (Outcome, error) {
	var cause error
	for _, name := range r.inState(State(gate.UpgradeReturned), State(gate.UpgradeFailed), Refused) {
		cause = errors.Join(cause, fmt.Errorf("%s: %s", name, r.hosts[name].Error))
	}
	changed := r.inState(State(gate.UpgradeDone), State(gate.UpgradeFailed))
	if len(changed) > 0 {
		r.tell(Event{Kind: "return", Waves: [][]string{changed}})
	}
	r.each(changed, func(name string) {
		was := r.result(name)
		m, _, err := r.askUntil(ctx, name, gate.UpgradeReturn, r.o.Limit)
		state := State(m.State)
		switch isReturned := state == State(gate.UpgradeReturned); {
		case err != nil:
			state, err = State(gate.UpgradeFailed), fmt.Errorf("not returned: %w", err)
		case isReturned && m.Error != "" && was.State == State(gate.UpgradeDone): // the host does not have the programs from before this rollout any more
			state, err = State(gate.UpgradeFailed), errors.New("not returned, because another rollout has upgraded it since")
		case isReturned || m.Error == "":
			m.Error = was.Error
		}
		r.set(name, state, m, err)
	})
	if len(r.inState(State(gate.UpgradeFailed))) > 0 {
		return Failed, cause
	}
	return Returned, cause
}
