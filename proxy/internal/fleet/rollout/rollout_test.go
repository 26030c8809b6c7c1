package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
)

func TestPlan(t *testing.T) {
	hosts := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprint(i))
		}
		return names
	}
	for _, tt := range []struct {
		sizes string
		hosts int
		want  []int
	}{
		{"1,10%", 0, nil},
		{"1,10%", 1, []int{1}},
		{"1,10%", 2, []int{1, 1}},
		{"1,10%", 20, []int{1, 2, 17}},
		{"1,10%", 1000, []int{1, 100, 899}},
		{"100%", 3, []int{3}},
		{"1,50%,100%", 5, []int{1, 3, 1}},
		{"7, 7", 10, []int{7, 3}},
	} {
		sizes, err := ParseSizes(tt.sizes)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		waves := Plan(hosts(tt.hosts), sizes)
		for _, w := range waves {
			got = append(got, len(w))
		}
		if !slices.Equal(got, tt.want) || !slices.Equal(slices.Concat(waves...), hosts(tt.hosts)) {
			t.Errorf("%s of %d hosts: %v, want %v", tt.sizes, tt.hosts, got, tt.want)
		}
	}
	for _, wrong := range []string{"", "0", "-1", "1,", "x", "101%", "0%", "%"} {
		if sizes, err := ParseSizes(wrong); err == nil {
			t.Errorf("%q is parsed as %v", wrong, sizes)
		}
	}
}

// A fakeHost answers as the agent of a host.
type fakeHost struct {
	state        gate.UpgradeState // the result of an apply
	refuses      error
	refusesApply error // for an apply alone
	sum          string
	applySum     string        // for an apply, if the programs have changed since the check
	cut          error         // the connection of the first apply is cut after a step, and the next one has this error
	lost         int           // so many requests for an apply and a return fail
	takes        time.Duration // until an apply ends
	current      bool
	began        func()    // is called before an apply; it may be nil
	busyUntil    time.Time // another rollout is in work until then
	isForeign    bool      // another rollout upgrades the host after this one
	runs         string
	asked        []gate.UpgradeAction
}

// A fakeFleet is the edge of a rollout.
type fakeFleet struct {
	mu    sync.Mutex
	hosts map[string]*fakeHost
	began func(host string) // is called before an apply
}

func (f *fakeFleet) ask(ctx context.Context, host string, m gate.Upgrade, step func(gate.UpgradeStep)) (gate.Upgraded, error) {
	f.mu.Lock()
	h := f.hosts[host]
	h.asked = append(h.asked, m.Action)
	isLost := false
	if m.Action == gate.UpgradeApply || m.Action == gate.UpgradeReturn {
		if isLost = h.lost > 0; isLost {
			h.lost--
		}
	}
	f.mu.Unlock()
	result := gate.Upgraded{Target: "v2", Sum: h.sum, Supervisor: h.runs, Proxy: h.runs}
	switch {
	case time.Now().Before(h.busyUntil):
		return gate.Upgraded{}, protocol.Errorf(protocol.CodeBusy, "another upgrade of this host is in work")
	case h.refuses != nil:
		return gate.Upgraded{}, h.refuses
	case m.Action == gate.UpgradeApply && h.refusesApply != nil:
		return gate.Upgraded{}, h.refusesApply
	case isLost:
		return gate.Upgraded{}, errors.New("lost")
	case m.Action == gate.UpgradeReturn && (h.isForeign || h.runs == "v1"):
		result.State, result.Error = gate.UpgradeReturned, "this host was not upgraded by this rollout"
	case m.Action == gate.UpgradeReturn:
		h.runs = "v1"
		result.State = gate.UpgradeReturned
	case m.Action != gate.UpgradeApply && h.current:
		result.State = gate.UpgradeCurrent
	case m.Action != gate.UpgradeApply:
		result.State = gate.UpgradeReady
	default:
		if f.began != nil {
			f.began(host)
		}
		if h.began != nil {
			h.began()
		}
		if h.cut != nil && slices.Contains(h.asked[:len(h.asked)-1], gate.UpgradeApply) {
			return gate.Upgraded{}, h.cut
		}
		step(gate.UpgradeStep{Text: "begun"})
		if h.cut != nil {
			return gate.Upgraded{}, errors.New("cut")
		}
		select {
		case <-time.After(h.takes):
		case <-ctx.Done():
			return gate.Upgraded{}, ctx.Err()
		}
		result.Sum = cmp.Or(h.applySum, h.sum)
		if result.State = h.state; h.state == gate.UpgradeDone {
			h.runs = "v2"
			if h.isForeign {
				h.runs = "v3"
			}
		} else {
			result.Error = "broken"
		}
	}
	result.Supervisor, result.Proxy = h.runs, h.runs
	return result, nil
}

// Each case has three hosts, a, b and c, which are upgraded one after the other unless parallel is set.
func TestRun(t *testing.T) {
	refusal := protocol.Errorf(protocol.CodeUnauthorized, "not permitted")
	for _, tt := range []struct {
		name     string
		change   func(map[string]*fakeHost)
		parallel bool
		trial    bool
		stopAt   string // ctx ends when the apply of this host begins
		away     string // the gate does not reach this host
		outcome  Outcome
		states   string
		says     string
	}{
		{name: "all", outcome: Done, states: "a:upgraded:v2 b:upgraded:v2 c:upgraded:v2"},
		{name: "a trial", trial: true, outcome: Possible, states: "a:ready:v1 b:ready:v1 c:ready:v1"},
		{name: "one refuses", change: func(h map[string]*fakeHost) { h["b"].refuses = refusal }, outcome: NotBegun, states: "a:ready:v1 b:refused: c:ready:v1", says: "not permitted"},
		{name: "other programs", change: func(h map[string]*fakeHost) { h["c"].sum = "other" }, outcome: NotBegun, states: "a:ready:v1 b:ready:v1 c:ready:v1", says: "other programs"},
		{name: "other programs since the check", change: func(h map[string]*fakeHost) { h["b"].applySum = "other" }, outcome: Returned, states: "a:returned:v1 b:returned:v1 c:waiting:v1", says: "b: the programs in /new have changed"},
		{name: "one is current", change: func(h map[string]*fakeHost) { h["a"].current = true }, outcome: Done, states: "a:current:v1 b:upgraded:v2 c:upgraded:v2"},
		{name: "one is unreachable", away: "b", outcome: Done, states: "a:upgraded:v2 b:unreachable: c:upgraded:v2"},
		{name: "one ends the work of another rollout first", change: func(h map[string]*fakeHost) { h["b"].busyUntil = time.Now().Add(2 * time.Minute) }, outcome: Done, states: "a:upgraded:v2 b:upgraded:v2 c:upgraded:v2"},
		{name: "one does not end the work of another rollout", change: func(h map[string]*fakeHost) { h["b"].busyUntil = time.Now().Add(time.Hour) }, outcome: Done, states: "a:upgraded:v2 b:unreachable: c:upgraded:v2"},
		{name: "another rollout begins after the check", change: func(h map[string]*fakeHost) {
			h["a"].began = func() { h["b"].busyUntil = time.Now().Add(2 * time.Minute) }
		}, outcome: Done, states: "a:upgraded:v2 b:upgraded:v2 c:upgraded:v2"},
		{name: "the first fails", change: func(h map[string]*fakeHost) { h["a"].state = gate.UpgradeReturned }, outcome: Returned, states: "a:returned:v1 b:waiting:v1 c:waiting:v1", says: "a: broken"},
		{name: "the second fails", change: func(h map[string]*fakeHost) { h["b"].state = gate.UpgradeReturned }, outcome: Returned, states: "a:returned:v1 b:returned:v1 c:waiting:v1", says: "b: broken"},
		{name: "another rollout follows, and the second fails", change: func(h map[string]*fakeHost) { h["a"].isForeign, h["b"].state = true, gate.UpgradeReturned }, outcome: Failed, states: "a:failed:v3 b:returned:v1 c:waiting:v1", says: "b: broken"},
		{name: "one of a wave fails", parallel: true, change: func(h map[string]*fakeHost) { h["b"].state = gate.UpgradeReturned }, outcome: Returned, states: "a:returned:v1 b:returned:v1 c:returned:v1", says: "b: broken"},
		{name: "the agent cannot return, and then can", change: func(h map[string]*fakeHost) { h["b"].state = gate.UpgradeFailed }, outcome: Returned, states: "a:returned:v1 b:returned:v1 c:waiting:v1"},
		{name: "short losses", change: func(h map[string]*fakeHost) { h["a"].lost, h["b"].lost = 30, 3 }, outcome: Done, states: "a:upgraded:v2 b:upgraded:v2 c:upgraded:v2"},
		{name: "lost for longer than the limit", change: func(h map[string]*fakeHost) { h["b"].lost = 70 }, outcome: Returned, states: "a:returned:v1 b:returned:v1 c:waiting:v1", says: "unreachable for 1m0s"},
		{name: "lost for ever", change: func(h map[string]*fakeHost) { h["b"].lost = 1e6 }, outcome: Failed, states: "a:returned:v1 b:failed: c:waiting:v1", says: "unreachable for 1m0s"},
		{name: "one refuses before it begins", change: func(h map[string]*fakeHost) { h["b"].refusesApply = refusal }, outcome: Returned, states: "a:returned:v1 b:refused: c:waiting:v1", says: "b: unauthorized"},
		{name: "one refuses after it has begun", change: func(h map[string]*fakeHost) { h["b"].cut = refusal }, outcome: Returned, states: "a:returned:v1 b:returned:v1 c:waiting:v1", says: "b: unauthorized"},
		{name: "interrupted", stopAt: "a", outcome: Interrupted, states: "a:upgraded:v2 b:waiting:v1 c:waiting:v1"},
		{name: "interrupted, and the host fails", stopAt: "b", change: func(h map[string]*fakeHost) { h["b"].state = gate.UpgradeReturned }, outcome: Returned, states: "a:returned:v1 b:returned:v1 c:waiting:v1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFleet{hosts: map[string]*fakeHost{}}
				var hosts []Host
				for _, name := range []string{"a", "b", "c"} {
					f.hosts[name] = &fakeHost{state: gate.UpgradeDone, sum: "s", takes: 10 * time.Second, runs: "v1"}
					hosts = append(hosts, Host{name, "linux", name != tt.away})
				}
				if tt.change != nil {
					tt.change(f.hosts)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				f.began = func(host string) {
					if host == tt.stopAt {
						cancel()
					}
				}
				o := Options{ID: "r", From: "/new", Waves: []Size{{1, false}, {1, false}}, Parallel: 1, Limit: time.Minute, IsTrial: tt.trial}
				if tt.parallel {
					o.Waves, o.Parallel = nil, 3
				}
				result := Run(ctx, hosts, f.ask, o)
				var states []string
				for _, h := range result.Hosts {
					states = append(states, fmt.Sprintf("%s:%s:%s", h.Host, h.State, h.Proxy))
				}
				if got := strings.Join(states, " "); result.Outcome != tt.outcome || got != tt.states || !strings.Contains(result.Error, tt.says) {
					t.Errorf("got %s with %s and %q\nwant %s with %s and %q", result.Outcome, got, result.Error, tt.outcome, tt.states, tt.says)
				}
			})
		})
	}
}

// The events tell the plan, each wave, each step and each host, and the result at the end.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{hosts: map[string]*fakeHost{"a": {state: gate.UpgradeDone, runs: "v1"}, "b": {state: gate.UpgradeDone, runs: "v1"}}}
		counts := map[string]int{}
		result := Run(t.Context(), []Host{{"a", "", true}, {"b", "", true}}, f.ask, Options{Waves: []Size{{1, false}}, Limit: time.Minute, Tell: func(e Event) { counts[e.Kind]++ }})
		want := map[string]int{"plan": 1, "wave": 2, "step": 2, "host": 4, "end": 1}
		if !maps.Equal(counts, want) || result.Outcome != Done {
			t.Errorf("%v with %+v, want %v", counts, result, want)
		}
		if got := f.hosts["a"].asked; !reflect.DeepEqual(got, []gate.UpgradeAction{gate.UpgradeCheck, gate.UpgradeApply}) {
			t.Errorf("a is asked for %v", got)
		}
	})
}
