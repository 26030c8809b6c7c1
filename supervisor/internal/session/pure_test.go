package session

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// The steps of an absence, and which absence info reports after each of them.
func TestAwaySteps(t *testing.T) {
	at := time.Unix(100, 0)
	leave := func(offset uint64) func(*away) {
		return func(w *away) {
			if w.viewers--; w.shouldBegin() {
				w.begin(protocol.Left{At: at, Offset: offset, Line: 1}, false)
			}
		}
	}
	come := func(returns bool) func(*away) {
		return func(w *away) {
			if w.came(returns) {
				w.finish(50, at.Add(time.Minute))
			}
		}
	}
	bell := func(w *away) { w.addHeard(screen.Heard{Bells: 1}) }
	giveUp := func(w *away) { w.giveUpLost() }
	for _, tt := range []struct {
		name    string
		steps   []func(*away)
		left    uint64 // offset of left, or 0 for none
		printed uint64
		bells   int
		isBack  bool
	}{
		{"no viewer has come", []func(*away){bell}, 0, 60, 1, false},
		{"a viewer has come", []func(*away){bell, come(false), bell}, 0, 50, 1, true},
		{"one of two leaves", []func(*away){come(false), come(false), leave(40), bell}, 0, 50, 0, true},
		{"the last is lost", []func(*away){bell, come(false), leave(40), bell, bell}, 0, 50, 1, true},
		{"the last has left", []func(*away){come(false), leave(40), giveUp, bell}, 40, 20, 1, false},
		{"the lost viewer returns", []func(*away){bell, come(false), leave(40), bell, bell, come(true)}, 0, 50, 1, true},
		{"another comes instead", []func(*away){come(false), leave(40), bell, bell, come(false)}, 40, 10, 2, true},
		{"the lost viewer returns too late", []func(*away){come(false), leave(40), giveUp, bell, come(true)}, 40, 10, 1, true},
	} {
		w := away{Open: true}
		for _, step := range tt.steps {
			step(&w)
		}
		got := w.info(60)
		left := uint64(0)
		if got.Left != nil {
			left = got.Left.Offset
		}
		if left != tt.left || got.Printed != tt.printed || got.Bells != tt.bells || got.BackAt.IsZero() == tt.isBack {
			t.Errorf("%s: left at %d, printed %d, %d bells, back at %v; want %d, %d, %d, %v", tt.name, left, got.Printed, got.Bells, got.BackAt, tt.left, tt.printed, tt.bells, tt.isBack)
		}
	}
}

// The line at which the last writer left is set once, if it was missing.
func TestAwayLeftLine(t *testing.T) {
	w := away{}
	w.begin(protocol.Left{Offset: 7}, true)
	if !w.setLeftLine(func() uint64 { return 3 }) || w.Now.Left.Line != 3 || w.Now.Left.Offset != 7 {
		t.Errorf("got %+v", w.Now.Left)
	}
	if w.setLeftLine(func() uint64 { t.Error("asked again"); return 4 }) || w.Now.Left.Line != 3 {
		t.Errorf("got %+v", w.Now.Left)
	}
}

// Shell marks make events, repeated marks make none, and a flood of events is held back.
func TestCommandMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c commands
		defer c.stop()
		prompt, start, end := screen.Mark{Kind: screen.MarkPrompt, At: 5}, screen.Mark{Kind: screen.MarkStarted, Line: "make"}, screen.Mark{Kind: screen.MarkEnded, Code: 2}
		for _, tt := range []struct {
			mark screen.Mark
			want protocol.EventKind
		}{
			{end, ""}, {prompt, ""}, {prompt, ""}, {start, protocol.EventCommandStarted}, {start, ""},
			{end, protocol.EventCommandFinished}, {end, ""},
		} {
			events, _ := c.apply(screen.Heard{Marks: []screen.Mark{tt.mark}}, time.Unix(1, 0))
			if got := len(events) > 0; got != (tt.want != "") || got && events[0].kind != tt.want {
				t.Errorf("mark %v: %+v, want %q", tt.mark.Kind, events, tt.want)
			}
		}
		if got := c.current(); got.Count != 1 || got.Line != "make" || got.ExitCode == nil || *got.ExitCode != 2 || c.hasPrompt(0) {
			t.Errorf("got %+v", got)
		}
		c.apply(screen.Heard{Marks: []screen.Mark{prompt}, Ended: 10}, time.Unix(1, 0))
		if c.Command.Count != 11 || !c.hasPrompt(5) || c.hasPrompt(6) {
			t.Errorf("got %+v at %d", c.Command, c.PromptAt)
		}
		many := make([]commandEvent, commandBurst+1)
		for i := range many {
			many[i].kind = protocol.EventCommandFinished
		}
		if got := len(c.admit(many)); got != commandBurst {
			t.Errorf("%d events at once, want %d", got, commandBurst)
		}
		if <-c.c; c.takeUnpublished() != protocol.EventCommandFinished || c.takeUnpublished() != "" {
			t.Error("the last event is not published later, once")
		}
	})
}

// The program receives a focus report if the focus has changed, or if the program has asked again.
func TestFocusReports(t *testing.T) {
	var f focus
	for _, tt := range []struct {
		requests uint64
		have     bool
		want     string
	}{{1, false, "\x1b[O"}, {1, false, ""}, {1, true, "\x1b[I"}, {1, true, ""}, {2, true, "\x1b[I"}, {2, false, "\x1b[O"}} {
		f.noteRequests(tt.requests)
		got := f.report(tt.have)
		if string(got) != tt.want {
			t.Errorf("requested %d times, focus %v: %q, want %q", tt.requests, tt.have, got, tt.want)
		}
		if got != nil {
			f.Sent = got[2]
		}
	}
}

// Silence counts from the last output, and output_idle is due once.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q quiet
		defer q.stop()
		if !q.printed() || q.printed() {
			t.Error("only the first output changes Busy")
		}
		if <-q.c; q.isOver(outputIdle-time.Millisecond) || !q.Busy {
			t.Error("over too early")
		}
		if <-q.c; !q.isOver(outputIdle) || q.Busy || q.c != nil {
			t.Error("not over in time")
		}
	})
}

// At each offset one writer responds.
func TestResponders(t *testing.T) {
	var w responders
	w.setFrom(0, unclaimed)
	for _, tt := range []struct {
		from    uint64
		writer  string
		changed bool
	}{{10, "a", true}, {20, "a", false}, {20, "b", true}, {20, "c", true}, {20, "a", true}, {30, "", true}} {
		if got := w.setFrom(tt.from, tt.writer); got != tt.changed {
			t.Errorf("%q from %d: changed %v", tt.writer, tt.from, got)
		}
	}
	w.claim("first")
	w.claim("second")
	for offset, want := range map[uint64]string{0: "first", 9: "first", 10: "a", 29: "a", 30: "", 99: ""} {
		if got, known := w.at(offset); got != want || !known {
			t.Errorf("at %d: %q, %v, want %q", offset, got, known, want)
		}
	}
	for _, tt := range []struct {
		from, to uint64
		writer   string
		want     bool
	}{{0, 10, "first", true}, {0, 11, "first", false}, {10, 30, "a", true}, {9, 30, "a", false}, {30, 50, "", true}} {
		if got := w.respondsToAll(tt.from, tt.to, tt.writer); got != tt.want {
			t.Errorf("%q from %d to %d: %v", tt.writer, tt.from, tt.to, got)
		}
	}
	for _, tt := range []struct { // a viewer has received the output up to 50
		shownTo, from uint64
		writer        string
		hasLeft       bool
	}{{40, 50, "a", false}, {45, 50, "b", true}, {60, 60, "", true}} {
		w.handOver(tt.shownTo, tt.writer, tt.hasLeft)
		if before, _ := w.at(tt.from - 1); before == tt.writer || w.before(tt.from+1).Writer != tt.writer || w.end(tt.from-1) != tt.from {
			t.Errorf("%q responds from %d on: %v", tt.writer, tt.from, w.turns)
		}
	}
	for i := range uint64(2 * maxResponderTurns) {
		w.setFrom(100+i, []string{"a", "b"}[i%2])
	}
	if _, known := w.at(50); known || len(w.saved()) != maxResponderTurns {
		t.Errorf("%d turns are remembered", len(w.saved()))
	}
}

// A writer has answered the queries that it has received, and no others.
func TestAnsweredTurns(t *testing.T) {
	w := responders{seenTo: 35}
	w.setFrom(0, "a")
	w.setFrom(20, "b")
	w.setFrom(30, "a")
	for _, tt := range []struct {
		writer            string
		shownTo, received uint64
		changed           bool
		answeredTo        uint64
	}{
		{"a", 15, 15, false, 0},
		{"a", 5, 10, true, 10},
		{"a", 5, 10, false, 10},
		{"a", 5, 32, true, 32},
		{"a", 5, math.MaxUint64, true, 35}, // as much as any viewer has received
		{"c", 5, 35, false, 0},
		{"b", 5, 50, true, 30},
	} {
		if got := w.noteAnswered(tt.writer, tt.shownTo, tt.received); got != tt.changed || w.answeredTo(tt.writer) != tt.answeredTo {
			t.Errorf("%+v: changed %v, answered to %d: %v", tt, got, w.answeredTo(tt.writer), w.turns)
		}
	}
	want := []responderTurn{{0, "a", true}, {20, "b", true}, {30, "a", true}, {35, "a", false}}
	if !slices.Equal(w.saved(), want) {
		t.Errorf("the turns are %v, want %v", w.turns, want)
	}
	if w.setFrom(40, "a"); !slices.Equal(w.saved(), want) {
		t.Errorf("the turns are %v after the same responder was chosen, want %v", w.turns, want)
	}
	if w.setFrom(35, "a"); !slices.Equal(w.saved(), want) {
		t.Errorf("the turns are %v after the same responder was chosen at once, want %v", w.turns, want)
	}
}

// The silence of a session begins with its last output, or with a mark that was taken later.
func TestSilence(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	a := activity{}
	a.last.set(at(10))
	a.resume()
	for _, tt := range []struct {
		name         string
		printed, now int64
		since        *mark
		want         time.Duration
	}{
		{"since an adoption", 0, 15, nil, 5 * time.Second},
		{"since output", 20, 25, nil, 5 * time.Second},
		{"since an older mark", 20, 25, &mark{at: at(19)}, 5 * time.Second},
		{"since a later mark", 20, 25, &mark{at: at(22)}, 3 * time.Second},
		{"since a mark of the future", 20, 25, &mark{at: at(26)}, 5 * time.Second},
		{"after the clock was set back", 20, 15, nil, 0},
	} {
		if tt.printed > 0 {
			a.lastOutput = at(tt.printed)
		}
		if got := a.silentFor(at(tt.now), tt.since); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A session has a bounded number of awaiters, and each is notified once until it looks.
func TestAwaiters(t *testing.T) {
	var all awaiters
	all.notify() // without awaiters notify does nothing
	first := &awaiter{changed: make(chan struct{}, 1)}
	for i := range maxAwaits + 1 {
		w := first
		if i > 0 {
			w = &awaiter{changed: make(chan struct{}, 1)}
		}
		if err := all.add(w, "s"); (err != nil) != (i == maxAwaits) {
			t.Fatalf("number %d: %v", i+1, err)
		}
	}
	all.notify()
	all.notify()
	<-first.changed
	select {
	case <-first.changed:
		t.Error("notified twice")
	default:
	}
	all.remove(first)
	if all.notify(); len(first.changed) != 0 || len(all) != maxAwaits-1 {
		t.Errorf("an awaiter was notified after its removal, %d are left", len(all))
	}
}

// Replies wait for a viewer until claimTime is over or they are too many. Then the session sends all
// of them, or those that the viewer cannot give.
func TestAnswering(t *testing.T) {
	const all, own = "all", "own"
	for _, tt := range []struct {
		name    string
		writer  string // the responder
		age     time.Duration
		before  int // bytes that wait already
		send    string
		claimed bool
		waits   bool
	}{
		{"the session", "", 0, 0, all, false, false},
		{"a viewer", "w", 0, 0, own, false, false},
		{"no responder yet", unclaimed, 0, 0, "", false, true},
		{"no responder in time", unclaimed, claimTime, 0, all, true, false},
		{"too many replies", unclaimed, 0, maxReplies, all, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := answering{startedAt: time.Now(), held: &heldReplies{HeldReplies: make([]byte, tt.before)}}
			w.setFrom(0, tt.writer)
			time.Sleep(tt.age)
			send, claimed := w.admit(tt.writer, []byte(all), []byte(own))
			if got := string(send[min(tt.before, len(send)):]); got != tt.send || claimed != tt.claimed || (w.due != nil) != tt.waits {
				t.Errorf("%s: sends %q, claimed %v, waits %v", tt.name, got, claimed, w.due != nil)
			}
			if writer, _ := w.at(1); claimed && (writer != "" || len(w.held.HeldReplies) > 0) {
				t.Errorf("%s: %q answers", tt.name, writer)
			}
		})
	}
	for writer, want := range map[string]string{"": all, "w": own} {
		w := answering{held: &heldReplies{HeldReplies: []byte(all), HeldOwnReplies: []byte(own)}}
		w.setFrom(0, unclaimed)
		if got := string(w.claim(writer)); got != want || w.current() != writer || len(w.claim(writer)) > 0 {
			t.Errorf("claimed by %q: sends %q, want %q", writer, got, want)
		}
	}
}

// A request for an end begins it once. It ends a session for being idle only if the session is idle,
// and the remainder of a session whose child has ended only once.
func TestDecideEnd(t *testing.T) {
	idle := End{Idle: time.Minute}
	for _, tt := range []struct {
		name     string
		ending   *ending // that was requested before
		isSealed bool
		end      End
		use      inUse
		want     endStep
		code     protocol.Code
	}{
		{"the first", nil, false, End{}, inUse{}, endBegins, ""},
		{"the second", &ending{}, false, End{}, inUse{}, endNothing, ""},
		{"of the cage as well", &ending{}, false, End{All: true}, inUse{}, endCage, ""},
		{"of the cage again", &ending{all: true}, false, End{All: true}, inUse{}, endNothing, ""},
		{"too late", nil, true, End{}, inUse{hasEnded: true}, endNothing, ""},
		{"of an idle session", nil, false, idle, inUse{unusedFor: time.Minute}, endBegins, ""},
		{"of a session in use", nil, false, idle, inUse{unusedFor: time.Minute - 1}, endNothing, protocol.CodeSessionRunning},
		{"of a session that prints", nil, false, idle, inUse{unusedFor: time.Hour, hasOutput: true}, endNothing, protocol.CodeSessionRunning},
		{"of a frozen session for being idle", nil, false, idle, inUse{unusedFor: time.Hour, isFrozen: true}, endNothing, protocol.CodeSessionRunning},
		{"of a frozen session", nil, false, End{}, inUse{isFrozen: true}, endBegins, ""},
		{"of the remainder", nil, false, End{}, inUse{hasEnded: true}, endRemainder, ""},
	} {
		o := orders{isSealed: tt.isSealed}
		o.ending.Store(tt.ending)
		got, err := o.decide(tt.end, "s", tt.use)
		if got != tt.want || (err != nil) != (tt.code != "") || err != nil && protocol.CodeOf(err) != tt.code {
			t.Errorf("%s: step %d, %v; want %d and %q", tt.name, got, err, tt.want, tt.code)
		}
		if again, _ := o.decide(tt.end, "s", tt.use); tt.want == endRemainder && again != endNothing {
			t.Errorf("%s: step %d again", tt.name, again)
		}
	}
}
