package credential

import (
	"strings"
	"testing"
	"time"

	"holdfast/protocol/gate"
	"holdfast/shared/testkit"
)

// On a full disk, the removal of a host and a new token of clients fail as a whole, so that they can be repeated when there
// is room.
func TestFullDisk(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	for name, room := range map[string]uint64{"no room": 8, "room for the time of the removal, and not for the key": 40} {
		t.Run(name, func(t *testing.T) { testFullDisk(t, room) })
	}
}

func testFullDisk(t *testing.T, room uint64) {
	s := open(t)
	key, before := newKey(t), s.ClientToken()
	if _, err := s.Join(gate.Join{Secret: token(t, s, time.Minute), Name: "h", Key: key}, now); err != nil {
		t.Fatal(err)
	}
	lift := testkit.LimitFiles(t, room)
	if _, err := s.Remove("h", now); err == nil || !strings.Contains(err.Error(), "the gate may admit host h again") {
		t.Errorf("a host is removed on a full disk: %v", err)
	}
	if changed, err := s.NewClientToken(now); err == nil || changed.Client.Text != "" || !s.IsClient(before) {
		t.Errorf("a token is made on a full disk: %v, %v", changed, err)
	}
	lift()
	if changed, err := s.Remove("h", now); err != nil || !changed.Revoked[key].Equal(now) {
		t.Errorf("the removal, repeated: %v, %v", changed, err)
	}
	if m, err := s.Members(); err != nil || len(m.Hosts) != 0 || len(m.Revoked) != 1 {
		t.Errorf("stored is %+v, %v", m, err)
	}
}
