package member

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
)

// The agent keeps the addresses that gates tell it, in the order of its file, and connects for clients to
// these alone.
func TestGates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "join.json")
	state, err := NewState(gate.Entry{Addresses: []string{"alias:1", "b:1"}, Fingerprint: "f"}, "h", nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{o: Options{Path: path, Log: zerolog.Nop()}, state: state, gates: state.Gates}
	if got := a.order(); !slices.Equal(got, state.Gates) {
		t.Errorf("the first order is %v", got)
	}
	a.current = "alias:1" // the gate calls itself a:1
	for _, tt := range []struct {
		name string
		told []string
		want string
	}{
		{"two gates", []string{"a:1", "b:1"}, "alias:1 b:1 a:1"},
		{"no gate", nil, "alias:1 b:1 a:1"},
		{"an address that is not valid", []string{"c:1", "d"}, "alias:1 b:1 a:1"},
		{"too many gates", slices.Repeat([]string{"c:1"}, gate.MaxGates+1), "alias:1 b:1 a:1"},
		{"a gate was removed, another one added", []string{"a:1", "c:1"}, "alias:1 a:1 c:1"},
	} {
		a.learn(tt.told)
		loaded, err := Load(path)
		if got := strings.Join(a.gates, " "); got != tt.want || err != nil || strings.Join(loaded.Gates, " ") != tt.want {
			t.Errorf("%s: the gates are %s, stored %v, %v", tt.name, got, loaded.Gates, err)
		}
	}
	for told, want := range map[string]bool{"": true, "a:1": true, "c:1": true, "b:1": false, "d:1": false} {
		address, isKnown := a.addressOf(record.Dial{Gate: told})
		if isKnown != want || told == "" && address != "alias:1" || told != "" && address != told {
			t.Errorf("a client at %q is reached at %q, %v", told, address, isKnown)
		}
	}
	a.isOver = true
	if a.learn([]string{"e:1"}); slices.Contains(a.gates, "e:1") {
		t.Error("an agent that has left writes its file again")
	}
}
