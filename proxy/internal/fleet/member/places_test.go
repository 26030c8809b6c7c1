package member

import (
	"strings"
	"testing"

	"holdfast/protocol"
)

// One user of a policy leaves places to the others. Without a policy, all places are those of one user.
func TestPlaces(t *testing.T) {
	var p places
	ann, bob := &protocol.Principal{User: "ann", Workspace: "a"}, &protocol.Principal{User: "bob", Workspace: "b"}
	var leaves []func()
	fill := func(of *protocol.Principal, want int, says string) {
		t.Helper()
		n := 0
		for {
			leave, why := p.enter(of)
			if why != "" {
				if n != want || !strings.Contains(why, says) {
					t.Errorf("%d clients of %v have entered, want %d, and the next one is told %q", n, of, want, why)
				}
				return
			}
			n++
			leaves = append(leaves, leave)
		}
	}
	fill(ann, maxOfUser, "this user has 512 clients")
	fill(bob, maxOfUser, "it has 1024 clients")
	for _, leave := range leaves {
		leave()
	}
	if len(p.byUser) != 0 || p.all != 0 {
		t.Errorf("after the end of all clients, %d are counted, and users %v", p.all, p.byUser)
	}
	leaves = nil
	fill(nil, maxClients, "it has 1024 clients")
}
