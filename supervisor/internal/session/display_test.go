package session

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/slate"
)

// A stage is a display without a session: the test prints into its ring.
type stage struct {
	display
	t       *testing.T
	replies []byte // the replies to queries that the display has sent
	losses  int
}

func newStage(t *testing.T, size protocol.Size) *stage {
	t.Helper()
	g := &stage{t: t}
	cfg := Config{Program: "this"}.withDefaults()
	cfg.suspects.startAt = time.Time{}
	log := zerolog.Nop()
	words, err := slate.New("words")
	testkit.Must(t, err)
	frame, err := slate.New("frame")
	testkit.Must(t, err)
	r, err := ring.New(64<<10, size)
	testkit.Must(t, err)
	t.Cleanup(func() { _, _, _ = words.Close(), frame.Close(), r.Close() })
	g.display = display{
		identity: &identity{id: "s", instance: "i", spec: protocol.SpawnSpec{ScrollbackLines: 100}},
		cfg:      &cfg, log: &log, ring: r, words: words, saved: &displayState{},
		answer: func(sc *screen.Screen) { g.replies = append(g.replies, sc.Replies()...) },
		onLost: func() { g.losses++ }, onRestored: func() {},
		outdated: &outdated{}, appearance: &protocol.Appearance{},
		screen:   screen.New(size, 100),
		keyframe: keyframe{Slate: frame},
	}
	return g
}

// print puts output into the ring, and returns the ring's end.
func (g *stage) print(text string) (end uint64) {
	for len(text) > 0 {
		n := copy(g.ring.Reserve(), text)
		g.ring.Commit(n)
		text = text[n:]
	}
	_, end, _ = g.ring.Bounds()
	return end
}

// successor returns a display that adopts the files of g.
func (g *stage) successor() *stage {
	g.t.Helper()
	next := newStage(g.t, g.terminalSize())
	next.ring, next.words, next.keyframe.Slate, next.screen = g.ring, g.words, g.keyframe.Slate, nil
	*next.saved = *g.saved
	return next
}

// restore restores the screen, as a session does, and returns how many steps that took.
func (g *stage) restore() (steps int) {
	for g.restoring != nil {
		g.restoreStep()
		steps++
	}
	return steps
}

func (g *stage) text() string { return strings.Join(g.screen.Text(100), "|") }

// dearUnit is output that inserts a column, and then prints in a row, the cells of which are moved for that.
const (
	dearUnit = "\x1b['}x\n"
	dearCost = 10_800 // about what it costs on the largest screen
)

// A piece of output is written up to its cost, and the screen has at each offset the size that the
// terminal had.
func TestDisplayWrites(t *testing.T) {
	synctest.Test(t, testDisplayWrites) // where a piece of output takes no time
}

func testDisplayWrites(t *testing.T) {
	small, large := protocol.Size{Cols: 20, Rows: 4}, protocol.Size{Cols: 200, Rows: 50}
	g := newStage(t, small)
	g.print("one\r\n")
	g.ring.MarkSize(large)
	end := g.print("two\x1b[6n")
	if spent, drew := g.write(end, pieceCost); spent <= 0 || !drew || g.screen.Offset() != end || g.shownSize() != large {
		t.Errorf("written at a cost of %d, to %d of %d, at %v", spent, g.screen.Offset(), end, g.shownSize())
	}
	if g.answer(g.screen); string(g.replies) != "\x1b[2;4R" {
		t.Errorf("replied %q", g.replies)
	}
	if spent, drew := g.write(end, pieceCost); spent != 0 || drew {
		t.Errorf("nothing is written at a cost of %d, %v", spent, drew)
	}
	end = g.print(strings.Repeat(dearUnit, 1000))
	if !g.isLastWritten(chunk{end - 1, 1}) {
		t.Error("the chunk after cheap output must wait")
	}
	spent, _ := g.write(end, cheapCost)
	if at := g.screen.Offset(); at == end || spent < cheapCost || spent > 2*cheapCost || !g.isBehind() {
		t.Errorf("written to %d of %d at a cost of %d", at, end, spent)
	}
	if g.isLastWritten(chunk{end - 1, 1}) {
		t.Error("the chunk after costly output must not be written at once")
	}
	g.expectEnd()
	g.lastBudget = 0
	if _, drew := g.write(end, cheapCost); drew || g.screen.Offset() != end {
		t.Error("the last output is written although it costs too much")
	}
}

// isLastWritten reports whether a chunk is written as it comes.
func (g *stage) isLastWritten(c chunk) bool {
	_, now := g.receive(c)
	return now
}

// A panic loses the screen once, keeps the titles, and is reported to the session.
func TestDisplayLost(t *testing.T) {
	g := newStage(t, protocol.Size{Cols: 20, Rows: 4})
	end := g.print("\x1b]2;title\atext")
	g.write(end, pieceCost)
	g.use(func() { panic("a mistake") })
	title, _ := g.titles()
	if g.losses != 1 || !g.saved.Degraded || g.saved.GivenUpBy != "this" || title != "title" || g.text() != "" || g.shownTo() != end {
		t.Errorf("lost %d times, title %q, screen %q to %d; %+v", g.losses, title, g.text(), g.shownTo(), g.saved)
	}
	end = g.print("more")
	if _, drew := g.write(end, pieceCost); drew || g.shownTo() != end || g.isBehind() || g.writeKeyframe(allLines) || g.firstOpenLine() != 0 {
		t.Error("a lost screen is used")
	}
	for _, tt := range []struct {
		program string
		own     bool
		tries   bool // the successor restores the screen
	}{{"this", false, false}, {"this", true, true}, {"another", false, true}} {
		next := g.successor()
		next.cfg.Program = tt.program
		scanned, err := next.openRestore(Heritage{Own: tt.own}, 0)
		if err != nil || (next.restoring != nil) != tt.tries || tt.tries && scanned != end {
			t.Errorf("%+v: restored %v, scanned to %d, %v", tt, next.restoring != nil, scanned, err)
		}
		if next.restore(); tt.tries && (next.saved.Degraded || !strings.Contains(next.text(), "textmore")) {
			t.Errorf("%+v: it shows %q", tt, next.text())
		}
	}
}

// A successor restores the screen from the keyframe and the output since, and answers the queries
// that were not answered before.
func TestDisplayRestores(t *testing.T) {
	for _, tt := range []struct {
		name     string
		keyframe bool
		crashes  uint64 // supervisors that died while they restored the screen
		lost     bool
	}{{"from the keyframe", true, 0, false}, {"from the ring", false, 0, false}, {"once more", true, maxRestoreTries - 1, false}, {"never again", true, maxRestoreTries, true}} {
		g := newStage(t, protocol.Size{Cols: 20, Rows: 4})
		g.write(g.print("one\x1b[6n\r\n"), pieceCost)
		g.answer(g.screen)
		testkit.Must(t, g.words.SetWord(wordAnswered, g.shownTo()))
		if tt.keyframe && !g.writeKeyframe(allLines) {
			t.Fatal("no keyframe")
		}
		g.print("two\x1b[6n")
		g.saveRestoreTries(tt.crashes)
		next := g.successor()
		if _, err := next.openRestore(Heritage{Crashed: true}, 0); err != nil {
			t.Fatal(err)
		}
		if title, _ := next.titles(); title != "" || next.isBehind() || (next.restoring == nil) != tt.lost {
			t.Errorf("%s: restoring %v, %q", tt.name, next.restoring, title)
		}
		next.restore()
		if next.saved.Degraded != tt.lost || next.losses > 0 != tt.lost {
			t.Errorf("%s: lost %v", tt.name, next.saved.Degraded)
		}
		if got := next.text(); !tt.lost && (got != "one|two||" && got != "one|two" || string(next.replies) != "\x1b[2;4R") {
			t.Errorf("%s: it shows %q and replied %q", tt.name, got, next.replies)
		}
		if n, err := next.words.Word(wordRestoreTries); err != nil || !tt.lost && n != 0 {
			t.Errorf("%s: %d tries are counted, %v", tt.name, n, err)
		}
	}
}

// A restoration waits unless the output has a query for the session, or the ring would overtake it.
func TestDisplayRestoreIsUrgent(t *testing.T) {
	for _, tt := range []struct {
		name    string
		output  string
		answers bool
		tries   uint64
		urgent  bool
		must    bool
	}{
		{"text", "text", true, 0, false, false},
		{"an escape sequence", "\x1b[6n", true, 0, true, false},
		{"a query that a viewer answers", "\x1b[6n", false, 0, false, false},
		{"for a suspect screen", "\x1b[6n", true, 1, false, true},
	} {
		g := newStage(t, protocol.Size{Cols: 20, Rows: 4})
		next := g.successor()
		if _, err := next.openRestore(Heritage{}, 0); err != nil {
			t.Fatal(err)
		}
		next.restoreTries = tt.tries
		end := next.print(tt.output)
		if must := next.mustRestore(end, tt.answers); must != tt.must || next.isBehind() != tt.urgent {
			t.Errorf("%s: must %v, urgent %v", tt.name, must, next.isBehind())
		}
		for range 20 {
			end = next.print(strings.Repeat("x", 2<<10))
		}
		if must := next.mustRestore(end, false); must != tt.must && must != (tt.tries > 0) || tt.tries == 0 && !next.isBehind() {
			t.Errorf("%s: the ring overtakes it, must %v, urgent %v", tt.name, must, next.isBehind())
		}
	}
}

// A keyframe is due after half a ring of output, and none is without a vault.
func TestDisplayKeyframe(t *testing.T) {
	g := newStage(t, protocol.Size{Cols: 20, Rows: 4})
	fill := func() {
		for range 20 {
			g.write(g.print(fmt.Sprintf("%s\r\n", bytes.Repeat([]byte("x"), 2<<10))), feedCost)
		}
	}
	fill()
	if _, isDue := g.keyframeDue(); isDue || !g.isSaved() {
		t.Error("due without a vault")
	}
	g.cfg.Vault = struct{ Vault }{} // a display only asks whether there is one
	if lines, isDue := g.keyframeDue(); !isDue || lines != allLines || g.isSaved() || !g.needsSaving() {
		t.Errorf("due %v with %d lines", isDue, lines)
	}
	if !g.writeKeyframe(allLines) || !g.isSaved() || g.needsSaving() || g.sinceKeyframe() != 0 {
		t.Error("not written")
	}
	for range wholeInFlood {
		g.cfg.frames.flood.Allow()
	}
	fill()
	if lines, isDue := g.keyframeDue(); !isDue || lines != noLines {
		t.Errorf("in a flood: due %v with %d lines", isDue, lines)
	}
}
