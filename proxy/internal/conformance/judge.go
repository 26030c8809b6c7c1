package conformance

import (
	"bytes"
	"fmt"
	"time"
)

// An application is the state of the application, by the reports of the harness.
type application struct {
	terminal   []byte // written to its terminal since that was emptied
	hasOffset  bool   // next is known
	next       uint64 // offset of the next byte of output
	missed     uint64
	resets     int
	screenOnly bool // of the last reset
	views      []byte
	sizes      []int // the length of terminal at each resized
	exitCode   *int
	ended      string // the event that ended the attachment, or ""
	answers    []*Event
}

// seen adds an event to the application.
func (w *world) seen(e *Event) {
	a := &w.app
	switch e.Event {
	case "output", "reset", "snapshot", "view", "resized", "exit", "stolen":
		if a.ended != "" {
			w.faultf("the application receives %s after the end of its attachment, which was %s", describe(e), a.ended)
			return
		}
	}
	switch e.Event {
	case "output":
		w.seenOutput(e)
	case "reset":
		a.terminal, a.hasOffset = nil, false
		a.missed += e.Missed
		a.resets++
		a.screenOnly = e.ScreenOnly
	case "snapshot":
		a.terminal = append(a.terminal, e.Data...)
	case "view":
		a.views = append(a.views, e.Data...)
	case "resized":
		a.sizes = append(a.sizes, len(a.terminal))
	case "exit":
		a.exitCode, a.ended = &e.ExitCode, "exit"
	case "stolen":
		a.ended = "stolen"
	case "failed":
		if e.Of == "attachment" {
			a.ended = "failed with " + e.Code
		}
		a.answers = append(a.answers, e)
	case "detached":
		a.ended = "detach"
		a.answers = append(a.answers, e)
	default:
		a.answers = append(a.answers, e)
	}
}

func (w *world) seenOutput(e *Event) {
	a := &w.app
	a.terminal = append(a.terminal, e.Data...)
	if e.Offset == nil {
		return
	}
	end := *e.Offset + uint64(len(e.Data))
	if want := text(*e.Offset, end); !bytes.Equal(e.Data, want) {
		w.faultf("the application receives %q as the output at offset %d, which is %q", cut(e.Data), *e.Offset, cut(want))
	}
	if a.hasOffset && *e.Offset != a.next {
		w.faultf("the application receives output at offset %d after the output before %d", *e.Offset, a.next)
	}
	a.next, a.hasOffset = end, true
}

// pump reads one event of the harness, for at most so long.
func (w *world) pump(atMost time.Duration) {
	t := time.NewTimer(atMost)
	defer t.Stop()
	select {
	case e, ok := <-w.h.events:
		if !ok {
			w.fatalf("%v", w.h.failure())
		}
		w.seen(e)
	case <-t.C:
	case <-w.ctx.Done():
		w.fatalf("%v", w.ctx.Err())
	}
}

// until reads events until a condition holds.
func (w *world) until(holds func() bool, problem func() string) {
	deadline := time.Now().Add(w.patience)
	for !holds() {
		if left := time.Until(deadline); left <= 0 {
			w.fatalf("%s (after %v)", problem(), w.patience)
		} else {
			w.pump(min(left, beat))
		}
	}
}

// untilLocked is until for a condition that is checked while mu is held.
func (w *world) untilLocked(holds func() bool, problem func() string) {
	w.until(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return holds()
	}, problem)
}

// beat is how often a condition is checked that no event tells, such as one about the client's frames.
const beat = 2 * time.Millisecond

// quiet reads events for a time in which nothing must happen that the caller checks afterwards.
func (w *world) quiet(d time.Duration) {
	for deadline := time.Now().Add(d); time.Now().Before(deadline); {
		w.pump(time.Until(deadline))
	}
}

// executed waits until the application has executed all commands. The answer to one more command shows that, because it executes
// them in their order. An application without that command gets some time.
func (w *world) executed() {
	if w.h.lacks["position"] {
		w.quiet(quietTime / 3)
		return
	}
	w.do(Command{Do: "position"})
	w.succeeds("position", "position")
}

// do sends a command to the harness.
func (w *world) do(c Command) {
	if err := w.h.send(c); err != nil {
		w.fatalf("%v", w.h.failure())
	}
}

// answer waits for the answer to a command: an event of this name, or failed.
func (w *world) answer(event, command string) (got *Event) {
	w.until(func() bool {
		for i, e := range w.app.answers {
			if e.Event == event || e.Event == "failed" && e.Of == command {
				got = e
				w.app.answers = append(w.app.answers[:i:i], w.app.answers[i+1:]...)
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprintf("the harness does not answer %s", command) })
	return got
}

// succeeds waits for the answer to a command, which must not have failed.
func (w *world) succeeds(event, command string) *Event {
	e := w.answer(event, command)
	if e.Event == "failed" {
		w.fatalf("%s failed with %s", command, e.Code)
	}
	return e
}

// connects connects the client.
func (w *world) connects() {
	w.do(w.address)
	w.succeeds("connected", "connect")
}

// viewer waits for the next attach of the client.
func (w *world) viewer() (v *viewer) {
	w.until(func() bool {
		select {
		case v = <-w.viewers:
			return true
		default:
			return false
		}
	}, func() string { return "the client does not attach" })
	return v
}

// resumes makes the client connect and attach at an offset that it has stored. The scenario answers the attach.
func (w *world) resumes(offset uint64) *viewer {
	w.prints(offset)
	w.connects()
	w.app.next, w.app.hasOffset = offset, true
	w.do(Command{Do: "attach", SessionID: sessionID, Instance: instance, Offset: &offset})
	return w.viewer()
}

// begins makes the client connect and attach without a position. The scenario answers the attach.
func (w *world) begins() *viewer {
	w.connects()
	w.do(Command{Do: "attach", SessionID: sessionID})
	return w.viewer()
}

// live connects the client, and attaches it at offset 0, which is answered.
func (w *world) live() *viewer {
	v := w.resumes(0)
	v.exact()
	w.attached()
	return v
}

// liveTo100 is like live, and then sends 100 bytes of output, which the application must show.
func (w *world) liveTo100() *viewer {
	v := w.live()
	v.output(0, 100, 100)
	w.shows(nil, 0, 100)
	return v
}

// attached waits until the client has reported that it is attached.
func (w *world) attached() { w.succeeds("attached", "attach") }

// again waits until the client attaches again, at an offset, and without a snapshot. The scenario answers the attach.
func (w *world) again(offset uint64) *viewer {
	v := w.viewerAt(offset)
	if v.attach.Snapshot {
		w.fatalf("the client requests a snapshot, and its position is exact")
	}
	return v
}

// againForSnapshot is like again for a client that must request a snapshot.
func (w *world) againForSnapshot(offset uint64) *viewer {
	v := w.viewerAt(offset)
	if !v.attach.Snapshot {
		w.fatalf("the client resumes without snapshot, and it has received the last one in part")
	}
	return v
}

// viewerAt waits until the client attaches again, at an offset.
func (w *world) viewerAt(offset uint64) *viewer {
	v := w.viewer()
	if got := v.attach.Resume.Offset; got != offset {
		w.fatalf("the client resumes at offset %d, and its position is %d", got, offset)
	}
	return v
}

// resumed waits until the client attaches again, at an offset, and resumes it exactly.
func (w *world) resumed(offset uint64) *viewer {
	v := w.again(offset)
	v.exact()
	return v
}

// againTo200 waits until the client attaches again after liveTo100, resumes it exactly, and sends the next 100 bytes of
// output, which the application must show.
func (w *world) againTo200() {
	v := w.resumed(100)
	v.output(100, 200, 100)
	w.shows(nil, 0, 200)
}

// shows waits until the terminal of the application has received a snapshot, and then the output between two offsets.
func (w *world) shows(snapshot []byte, from, to uint64) {
	want := append(bytes.Clone(snapshot), text(from, to)...)
	w.until(func() bool { return bytes.Equal(w.app.terminal, want) }, func() string {
		return "the terminal of the application does not show what it should: " + difference(w.app.terminal, want)
	})
}

// difference describes the first difference of two contents of a terminal.
func difference(got, want []byte) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	return fmt.Sprintf("it has %d bytes, not %d; from byte %d on it has %q, not %q", len(got), len(want), n, cut(got[n:]), cut(want[n:]))
}

// types makes the application type n more bytes.
func (w *world) types(n int) {
	w.mu.Lock()
	from := uint64(len(w.typed))
	data := keys(from, from+uint64(n))
	w.typed = append(w.typed, data...)
	w.mu.Unlock()
	w.do(Command{Do: "type", Data: data})
}

// arrives waits until all input was accepted, each byte once.
func (w *world) arrives() {
	var have, want int
	w.untilLocked(func() bool {
		have, want = len(w.input), len(w.typed)
		return have >= want
	}, func() string { return fmt.Sprintf("%d of %d bytes of input have arrived", have, want) })
	w.checkInput()
}

func (w *world) checkInput() {
	w.mu.Lock()
	got, want := w.input, w.typed
	w.mu.Unlock()
	if len(got) > len(want) || !bytes.Equal(got, want[:len(got)]) {
		w.fatalf("the input that has arrived is not the typed one: %s", difference(got, want))
	}
}

// hasFrames waits until the client has sent so many frames of input.
func (w *world) hasFrames(n int) {
	var got int
	w.untilLocked(func() bool {
		got = w.frames
		return got >= n
	}, func() string { return fmt.Sprintf("%d frames of input have arrived, not %d", got, n) })
}

// resets waits until the application has emptied its terminal n times, and has missed so many bytes.
func (w *world) resets(n int, missed uint64) {
	w.until(func() bool { return w.app.resets >= n }, func() string {
		return fmt.Sprintf("the application emptied its terminal %d times, not %d times", w.app.resets, n)
	})
	if w.app.missed != missed {
		w.fatalf("the client reported %d missed bytes to the application, and it has missed %d", w.app.missed, missed)
	}
}

// exits waits until the application learns of the exit.
func (w *world) exits(code int) {
	w.until(func() bool { return w.app.ended != "" }, func() string { return "the application does not learn that the session has ended" })
	if w.app.exitCode == nil {
		w.fatalf("the attachment %s, and the session has ended", w.app.ended)
	}
	if *w.app.exitCode != code {
		w.fatalf("the application learns the exit code %d, not %d", *w.app.exitCode, code)
	}
}

// fails waits until the attachment ends with an error.
func (w *world) fails(code string) {
	w.until(func() bool { return w.app.ended != "" }, func() string { return "the application does not learn that its attachment has failed with " + code })
	if want := "failed with " + code; w.app.ended != want {
		w.fatalf("the attachment has ended with %s, not %s", w.app.ended, code)
	}
}

// lives checks that the attachment of the application has not ended.
func (w *world) lives() {
	if w.app.ended != "" {
		w.fatalf("the attachment of the application has ended: %s", w.app.ended)
	}
}

// leavesAlone checks that the client does not connect or attach any more. Attaches that no scenario has received
// count as well.
func (w *world) leavesAlone() {
	attaches, conns := w.attachCount(), w.connCount()
	w.quiet(quietTime)
	if n := w.attachCount() - attaches; n > 0 || len(w.viewers) > 0 {
		w.fatalf("the client attaches again, %d times", max(n, len(w.viewers)))
	}
	if n := w.connCount() - conns; n > 0 {
		w.fatalf("the client connects again, %d times", n)
	}
}

// quietTime is how long nothing must happen where the absence of an action is the result.
const quietTime = 150 * time.Millisecond

const (
	// stormTime is how long a proxy refuses a client to see how often it tries.
	stormTime = 800 * time.Millisecond
	// stormMax is the largest number of attempts in that time. A client that begins with 2 ms and doubles each
	// wait up to 200 ms makes 10.
	stormMax = 16
	// stormGap is how far apart the last of so many attempts must be.
	stormGap   = 60 * time.Millisecond
	stormLater = 9
)

// backsOff checks that the client makes few attempts while it is refused. attempts returns the times of all attempts.
func (w *world) backsOff(attempts func() []time.Time) {
	before := len(attempts())
	w.quiet(stormTime)
	if n := len(attempts()) - before; n > stormMax {
		w.fatalf("the client makes %d attempts in %v, and at most %d are reasonable: it must wait longer before each one", n, stormTime, stormMax)
	}
	// A machine with much to do makes each attempt slow, and early waits may be short. So later ones are judged, if
	// there are any soon.
	for deadline := time.Now().Add(2 * stormTime); len(attempts())-before < stormLater && time.Now().Before(deadline); {
		w.quiet(stormGap)
	}
	const last = 3
	times := attempts()[before:]
	if n := len(times); n >= stormLater {
		if gap := times[n-1].Sub(times[n-1-last]) / last; gap < stormGap {
			w.fatalf("after %d failures the client still tries every %v: it must wait longer before each attempt", n, gap.Round(time.Millisecond))
		}
	}
}

// position checks the position that the application can store.
func (w *world) position(offset uint64) {
	if w.h.lacks["position"] {
		return
	}
	w.do(Command{Do: "position"})
	e := w.succeeds("position", "position")
	switch {
	case e.Instance != instance:
		w.fatalf("the position has the instance %q, not %q", e.Instance, instance)
	case e.Offset == nil || *e.Offset != offset:
		got := "no offset"
		if e.Offset != nil {
			got = fmt.Sprintf("the offset %d", *e.Offset)
		}
		w.fatalf("the position has %s, not %d", got, offset)
	}
	w.mu.Lock()
	writer := w.writer
	w.mu.Unlock()
	if e.Writer != "" && e.Writer != writer {
		w.fatalf("the position has the writer %q, not %q", e.Writer, writer)
	}
}
