//go:build linux || darwin

package linkserver

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/session"
)

// dear prints without a pause what costs most to show: each column of the largest
// terminal moves, with each seven bytes.
const dear = `exec yes "$(printf "\033['}\033['~\033[ @\033[ A")"`

// Sessions that print what is dear to show keep their own loops busy. Proxies still link,
// list, ask and end sessions at once, and a table still comes to rest.
func TestBusySessions(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	// A quarter of the largest screen, as the race detector makes each cell some ten times as
	// dear and other packages' tests run at the same time.
	busy, rounds, cols, rows := 2, 3, protocol.MaxCols/2, protocol.MaxRows/2
	if os.Getenv("HOLDFAST_LONG") != "" {
		busy, rounds, cols, rows = 8, 100, protocol.MaxCols, protocol.MaxRows
	}
	for i := range busy {
		spec := bash(dear)
		spec.Cols, spec.Rows = cols, rows
		if _, err := r.table.Create(protocol.SessionID(fmt.Sprint("busy", i)), spec, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range r.table.List("") {
		testkit.Eventually(t, patience, func() bool {
			got, err := r.table.Get(s.ID)
			if err != nil {
				t.Fatal(err)
			}
			i, err := got.Info()
			return err == nil && i.OutputOffset > 2<<10
		}, "a session prints")
	}
	for i := range rounds {
		if _, err := r.table.Create(protocol.SessionID(fmt.Sprint("idle", i)), bash(sleeper), ""); err != nil {
			t.Fatal(err)
		}
	}
	c := r.link(t)
	took := make(map[string][]time.Duration)
	timed := func(what string, f func()) {
		begun := time.Now()
		f()
		took[what] = append(took[what], time.Since(begun))
	}
	for i := range rounds {
		timed("hello", func() {
			other, _, sessions, err := link.Dial(r.connect(t), someHello, zerolog.Nop())
			if err != nil || len(sessions) != busy+rounds {
				t.Fatalf("%d sessions, want %d; %v", len(sessions), busy+rounds, err)
			}
			other.Close()
		})
		timed("list", func() { call[*wire.Sessions](t, c, wire.List{}) })
		timed("info", func() { call[*wire.Session](t, c, wire.Info{SessionID: "busy0"}) })
		timed("kill", func() {
			call[*wire.OK](t, c, wire.Terminate{SessionID: protocol.SessionID(fmt.Sprint("idle", i))})
		})
		if i >= 6 {
			continue
		}
		timed("rest", func() {
			frozen, err := r.table.Freeze()
			if err != nil || len(frozen.Records) != busy+rounds {
				t.Fatalf("at rest: %+v, %v", frozen, err)
			}
			frozen.Thaw()
		})
		timed("resize of a busy one", func() {
			call[*wire.OK](t, c, wire.Resize{SessionID: "busy0", Cols: cols, Rows: rows - i%2})
			if got := call[*wire.Session](t, c, wire.Info{SessionID: "busy0"}).Session.Size.Rows; got != rows-i%2 {
				t.Errorf("info after the resize says %d rows, want %d", got, rows-i%2)
			}
		})
	}
	for i := range busy {
		timed("kill of a busy one", func() {
			call[*wire.OK](t, c, wire.Terminate{SessionID: protocol.SessionID(fmt.Sprint("busy", i)), Asker: protocol.Asker{By: "me"}})
		})
	}
	begun := time.Now()
	for i := range busy {
		e := call[*wire.Exited](t, c, wire.Wait{SessionID: protocol.SessionID(fmt.Sprint("busy", i))})
		if e.Exit.EndedBy != "me" || e.Exit.Reason != protocol.ReasonUserRequested || e.Exit.Outcome == protocol.OutcomeNatural {
			t.Errorf("%s: %+v", e.SessionID, e.Exit)
		}
	}
	took["exits of the busy ones"] = []time.Duration{time.Since(begun)}
	for what, all := range took {
		slices.Sort(all)
		worst := all[len(all)-1]
		t.Logf("%-22s p50 %v p99 %v max %v", what, all[len(all)/2], all[len(all)*99/100], worst)
		limit := 2 * time.Second // on a machine that does much else; it was up to 29 s for the first four
		if what == "exits of the busy ones" {
			limit = 20 * time.Second
		}
		if worst > limit {
			t.Errorf("%s took %v, want at most %v", what, worst, limit)
		}
	}
}
