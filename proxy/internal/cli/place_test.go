package cli

import (
	"testing"

	"holdfast/protocol/gate"
)

func TestLeastLoaded(t *testing.T) {
	red := map[string]string{"team": "red", "disk": "fast"}
	for _, tt := range []struct {
		name   string
		hosts  []gate.HostInfo
		wanted map[string]string
		want   []string // any of these
	}{
		{"no hosts", nil, nil, []string{""}},
		{"a host that cannot be reached", []gate.HostInfo{{Name: "a"}}, nil, []string{""}},
		{"fewer sessions", []gate.HostInfo{{Name: "a", IsReachable: true, Running: 3, CPUs: 4}, {Name: "b", IsReachable: true, Running: 2, CPUs: 4}}, nil, []string{"b"}},
		{"more sessions, but more processors", []gate.HostInfo{{Name: "a", IsReachable: true, Running: 3, CPUs: 8}, {Name: "b", IsReachable: true, Running: 2, CPUs: 4}}, nil, []string{"a"}},
		{"unknown processors", []gate.HostInfo{{Name: "a", IsReachable: true, Running: 1}, {Name: "b", IsReachable: true, Running: 1, CPUs: 2}}, nil, []string{"b"}},
		{"exited sessions", []gate.HostInfo{{Name: "a", IsReachable: true, Sessions: 9, CPUs: 1}, {Name: "b", IsReachable: true, Sessions: 1, Running: 1, CPUs: 1}}, nil, []string{"a"}},
		{"equal hosts", []gate.HostInfo{{Name: "a", IsReachable: true, Running: 2, CPUs: 2}, {Name: "b", IsReachable: true, Running: 4, CPUs: 4}}, nil, []string{"a", "b"}},
		{"a label", []gate.HostInfo{{Name: "a", IsReachable: true}, {Name: "b", IsReachable: true, Running: 9, Labels: red}}, map[string]string{"team": "red"}, []string{"b"}},
		{"all labels", []gate.HostInfo{{Name: "b", IsReachable: true, Labels: red}}, map[string]string{"team": "red", "disk": "slow"}, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			left := map[string]bool{}
			for _, name := range tt.want {
				left[name] = true
			}
			for range 200 { // with equal hosts, each is chosen sooner or later
				got := leastLoaded(tt.hosts, tt.wanted)
				isWanted := false
				for _, name := range tt.want {
					isWanted = isWanted || got == name
				}
				if !isWanted {
					t.Fatalf("got %q, want one of %q", got, tt.want)
				}
				delete(left, got)
			}
			if len(left) > 0 {
				t.Errorf("never chosen: %v", left)
			}
		})
	}
}
