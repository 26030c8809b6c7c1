package member

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/internal/fleet/directory"
	"holdfast/proxy/internal/fleet/record"
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
