package member

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/internal/fleet/directory"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/testkit"
)

// What a roster publishes makes a directory equal to the host, by changes alone and by all pieces.
func TestRosterAndDirectory(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	r, byChanges, byPieces := newRoster(3), directory.New("gate:1"), directory.New("gate:1")
	for _, d := range []*directory.Directory{byChanges, byPieces} {
		d.Join("K", "h")
	}
	for range 6 {
		var list []protocol.SessionInfo
		for i := range 100 {
			if random.IntN(3) > 0 {
				list = append(list, protocol.SessionInfo{
					ID: protocol.SessionID(fmt.Sprint(i)), State: []protocol.State{protocol.StateRunning, protocol.StateExited}[random.IntN(2)],
					Labels: map[string]string{"large": strings.Repeat("x", 15<<10)},
				})
			}
		}
		for _, m := range r.update(list) {
			byChanges.Change("K", m)
		}
		pieces := r.pieces()
		for _, m := range pieces {
			if b := record.Encode(m); len(b) > record.MaxMessage {
				t.Fatalf("a piece has %d bytes", len(b))
			}
			byPieces.Piece("K", m)
			byChanges.Piece("K", m)
		}
		about := record.Host{Stamp: r.next(), IsServing: true, Count: len(r.sessions), Sum: r.sum.String()}
		if about.Count != len(list) || len(pieces) < 2 {
			t.Fatalf("%d sessions in %d pieces, want %d sessions", about.Count, len(pieces), len(list))
		}
		if byChanges.Host("K", "gate:1", about, now) || byPieces.Host("K", "gate:1", about, now) {
			t.Fatal("a directory that has received everything is stale")
		}
		if len(r.update(list)) != 0 {
			t.Fatal("a list without changes causes some")
		}
	}
}

// An agent sends its roster only after it has listed the sessions of the local proxy.
func TestRosterBeforeList(t *testing.T) {
	type message struct {
		kind string
		data []byte
	}
	said := make(chan message, 64)
	a := &agent{wake: make(chan struct{}, 1), rosters: make(chan struct{}, 1), lists: make(chan list), say: func(kind string, data []byte) error {
		said <- message{kind, data}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { a.publish(ctx) })
	defer wg.Wait()
	defer cancel()
	about := func() record.Host {
		t.Helper()
		m := testkit.Within(t, limit, "a record comes", said)
		host, err := record.Decode[record.Host](m.data)
		if m.kind != record.KindHost || err != nil {
			t.Fatalf("a message of the kind %s comes, %v", m.kind, err)
		}
		return host
	}
	a.signal(a.rosters)
	for range 20 { // the agent chooses one of the waiting questions and lists at random
		a.lists <- list{}
	}
	a.signal(a.wake)
	if !about().IsUnlisted {
		t.Error("the first record tells of a list")
	}
	a.lists <- list{true, []protocol.SessionInfo{{ID: "a", State: protocol.StateRunning}}}
	if m := testkit.Within(t, limit, "a change comes", said); m.kind != record.KindChange {
		t.Errorf("a %s comes first", m.kind)
	}
	if host := about(); host.IsUnlisted || host.Count != 1 {
		t.Errorf("after the list the record is %+v", host)
	}
	m := testkit.Within(t, limit, "the roster comes", said)
	if piece, err := record.Decode[record.Piece](m.data); m.kind != record.KindPiece || err != nil || len(piece.Sessions) != 1 {
		t.Errorf("the roster is %s, %v", m.data, err)
	}
	a.lists <- list{}
	if host := about(); host.IsUnlisted || host.IsServing {
		t.Errorf("after the loss of the proxy the record is %+v", host)
	}
}
