package conformance

import (
	"bytes"
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

// A scenario is a course of events of a proxy.
type scenario struct {
	name  string
	about string // the events, and after a semicolon the duty of the client
	needs []string
	run   func(w *world)
}

// scenarioLimit is how long a scenario takes at most, besides the patience of its steps.
const scenarioLimit = 5 * time.Second

var scenarios = slices.Concat(outputScenarios, cutScenarios, snapshotScenarios, retryScenarios, endScenarios, inputScenarios, strangeScenarios, requestScenarios)

// someSnapshot is a snapshot that is no output.
var someSnapshot = []byte("\x1b[1;1Hthe screen, as it was\r\n$ ")

var outputScenarios = []scenario{
	{name: "exact", about: "output follows exactly; each byte arrives once, and the position is the end of the output", run: func(w *world) {
		v := w.live()
		v.output(0, 3000, 700)
		w.shows(nil, 0, 3000)
		w.position(3000)
		v.exit(0)
		w.exits(0)
	}},
	{name: "resume-stored", about: "the application resumes at a position that it has stored; the client attaches there", needs: []string{"position"}, run: func(w *world) {
		v := w.resumes(1234)
		if at := v.attach.Resume; at == nil || at.Offset != 1234 {
			w.fatalf("the client does not resume at the offset 1234")
		}
		v.exact()
		w.attached()
		v.output(1234, 2000, 100)
		w.shows(nil, 1234, 2000)
		w.position(2000)
	}},
	{name: "large-offsets", about: "offsets exceed 32 bits, and then 52 bits; positions stay exact", needs: []string{"position"}, run: func(w *world) {
		for i, at := range []uint64{1<<32 - 50, 1<<53 - 200} {
			if i > 0 {
				w.closes()
				w.hook(func() { w.printed, w.writer, w.attempt = 0, "", 0 })
				w.app = application{}
			}
			v := w.resumes(at)
			v.exact()
			w.attached()
			v.output(at, at+100, 30)
			w.shows(nil, at, at+100)
			v.cut()
			v = w.resumed(at + 100)
			v.output(at+100, at+150, 30)
			w.shows(nil, at, at+150)
			w.position(at + 150)
		}
	}},
	{name: "tiny-frames", about: "each frame has one byte, so characters are split, and some frames have none; the bytes stay as they are", run: func(w *world) {
		v := w.live()
		var all [][]byte
		for at := range uint64(200) {
			all = append(all, v.outputFrame(at, at+1))
			if at%50 == 0 {
				all = append(all, v.outputFrame(at+1, at+1))
			}
		}
		v.send(all...)
		w.shows(nil, 0, 200)
		w.position(200)
	}},
	{name: "largest-frames", about: "frames have the largest size that a receiver must accept; the client accepts them", run: func(w *world) {
		const most = frame.Max - 1 - frame.DataHeadLen
		v := w.live()
		v.send(v.outputFrame(0, 70_000))
		w.shows(nil, 0, 70_000)
		v.send(v.outputFrame(70_000, 70_000+most))
		w.shows(nil, 0, 70_000+most)
	}},
	{name: "slow-proxy", about: "the proxy takes its time for each answer, and stops within a frame; the client waits", run: func(w *world) {
		const pause = 60 * time.Millisecond
		w.hook(func() { w.onHello = func(*conn) bool { time.Sleep(pause); return true } })
		v := w.resumes(0)
		w.quiet(pause)
		answer := v.attachedMessage(protocol.ReplayExact, 0, 0, 0)
		v.send(answer[:9])
		w.quiet(pause)
		v.send(answer[9:])
		w.attached()
		raw := v.outputFrame(0, 100)
		for _, n := range []int{2, 4, 13, 60} {
			v.send(raw[:n])
			raw = raw[n:]
			w.quiet(pause / 3)
		}
		v.send(raw)
		w.shows(nil, 0, 100)
		if n := w.attachCount(); n != 1 {
			w.fatalf("the client has attached %d times, and its connection was only slow", n)
		}
	}},
	{name: "one-write", about: "the answer to attach, a snapshot, output and the exit arrive at once, and the connection ends; nothing of it is lost", run: func(w *world) {
		v := w.begins()
		v.w.prints(300)
		v.send(
			v.attachedMessage(protocol.ReplaySnapshot, 200, 0, len(someSnapshot)), v.data(frame.Snapshot, 200, someSnapshot[:7]),
			v.data(frame.Snapshot, 200, someSnapshot[7:]), v.outputFrame(200, 300), v.exitMessage(3),
		)
		v.cut()
		w.attached()
		w.exits(3)
		w.shows(someSnapshot, 200, 300)
	}},
	{name: "resized", about: "the session changes its size between two bytes of output; the application learns it at that place", run: func(w *world) {
		v := w.live()
		v.send(v.outputFrame(0, 50), v.message(api.Resized{Attachment: v.number, Cols: 100, Rows: 30}), v.outputFrame(50, 90))
		w.shows(nil, 0, 90)
		if !slices.Equal(w.app.sizes, []int{50}) {
			w.fatalf("the application learns of the new size after %v bytes of output, not after 50", w.app.sizes)
		}
	}},
}

var cutScenarios = []scenario{
	{name: "cut-between-frames", about: "the connection is cut between two frames, three times; the client resumes at its offset", run: func(w *world) {
		v := w.live()
		for at := uint64(0); at < 300; at += 100 {
			v.output(at, at+100, 40)
			w.shows(nil, 0, at+100)
			v.cut()
			v = w.resumed(at + 100)
		}
		v.output(300, 350, 50)
		w.shows(nil, 0, 350)
		w.position(350)
	}},
	{name: "cut-in-frame", about: "the connection is cut within a frame of output; the bytes of an incomplete frame do not count", run: func(w *world) {
		v := w.live()
		at := uint64(0)
		size := len(v.outputFrame(0, 100))
		for _, n := range []int{1, 2, 4, 6, 16, 18, 60, size - 1} {
			v.output(at, at+20, 20)
			raw := v.outputFrame(at+20, at+120)
			v.send(raw[:n])
			w.shows(nil, 0, at+20)
			v.cut()
			at += 20
			v = w.resumed(at)
		}
		v.output(at, at+100, 100)
		w.shows(nil, 0, at+100)
	}},
	{name: "half-closed", about: "the proxy ends only its own direction; the client treats the connection as lost", run: func(w *world) {
		v := w.liveTo100()
		v.endWriting()
		w.againTo200()
	}},
	{name: "cut-at-hello", about: "a lost connection is replaced, and the next one is cut after the hello, twice; the client tries again", run: func(w *world) {
		v := w.liveTo100()
		cuts := 2
		w.hook(func() {
			w.onHello = func(c *conn) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				if cuts--; cuts >= 0 {
					c.cut()
				}
				return cuts < 0
			}
		})
		v.cut()
		w.againTo200()
	}},
	{name: "cut-at-attach", about: "the connection is cut instead of the answer to attach; the client attaches again, at the same offset", run: func(w *world) {
		v := w.liveTo100()
		v.cut()
		w.again(100).cut()
		v = w.again(100)
		v.send(v.attachedMessage(protocol.ReplayExact, 100, 0, 0)[:30])
		v.cut()
		w.againTo200()
	}},
	{name: "goaway", about: "the proxy sends goaway with a time; the client connects again, and not before", run: func(w *world) {
		const after = 400 * time.Millisecond
		v := w.liveTo100()
		told := time.Now()
		v.goaway(after)
		v2 := w.again(100)
		w.notBefore(v2, told, after)
		v2.exact()
		v2.output(100, 200, 100)
		w.shows(nil, 0, 200)
	}},
	{name: "goaway-at-attach", about: "goaway is the answer to hello, and then to attach; the client tries again", run: func(w *world) {
		v := w.liveTo100()
		first := true
		w.hook(func() {
			w.onHello = func(c *conn) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				if !first {
					return true
				}
				first = false
				_ = c.write(c.message(api.Goaway{RetryAfterMS: 1, Reason: "a handoff"}))
				c.cut()
				return false
			}
		})
		v.cut()
		v = w.again(100)
		v.goaway(time.Millisecond)
		v.cut()
		w.againTo200()
	}},
	{name: "close-1012", about: "the proxy closes the WebSocket with 1012; the client connects again", needs: []string{WebSocket}, run: func(w *world) {
		v := w.liveTo100()
		v.closeWith(serviceRestart)
		w.againTo200()
	}},
}

var snapshotScenarios = []scenario{
	{name: "snapshot", about: "the attachment begins with a snapshot in pieces; the position is the snapshot's offset", run: func(w *world) {
		v := w.begins()
		v.snapshot(5000, 0, someSnapshot[:1], someSnapshot[1:9], someSnapshot[9:])
		w.attached()
		w.shows(someSnapshot, 0, 0)
		w.position(5000)
		v.output(5000, 5100, 30)
		w.shows(someSnapshot, 5000, 5100)
		w.position(5100)
	}},
	{name: "cut-after-snapshot", about: "the connection is cut between a snapshot and the output; the client resumes exactly", run: func(w *world) {
		v := w.begins()
		v.snapshot(5000, 0, someSnapshot)
		w.attached()
		w.shows(someSnapshot, 0, 0)
		v.cut()
		v = w.resumed(5000)
		v.output(5000, 5100, 30)
		w.shows(someSnapshot, 5000, 5100)
	}},
	{name: "empty-snapshot", about: "a snapshot has no bytes, so no frame follows; it is complete", run: func(w *world) {
		v := w.begins()
		v.snapshot(5000, 0)
		w.attached()
		w.position(5000)
		v.cut()
		v = w.resumed(5000)
		v.output(5000, 5100, 30)
		w.shows(nil, 5000, 5100)
	}},
	{name: "cut-in-snapshot", about: "the connection is cut within the first snapshot; the client requests a new one", run: func(w *world) {
		v := w.begins()
		v.send(v.attachedMessage(protocol.ReplaySnapshot, 5000, 0, len(someSnapshot)))
		v.pieces(5000, someSnapshot[:7])
		w.attached()
		w.shows(someSnapshot[:7], 0, 0)
		v.cut()
		v = w.viewer()
		if !v.attach.Snapshot {
			w.fatalf("the client resumes without snapshot, and it has received the last one in part")
		}
		v.snapshot(6000, 0, someSnapshot[:20], someSnapshot[20:])
		v.output(6000, 6100, 30)
		w.shows(someSnapshot, 6000, 6100)
		w.position(6100)
	}},
	{name: "gap", about: "the ring has lost output while the client was away; the application learns how much, and empties its terminal", run: func(w *world) {
		v := w.liveTo100()
		v.cut()
		w.prints(9000)
		v = w.again(100)
		v.snapshot(9000, 700, someSnapshot)
		w.shows(someSnapshot, 0, 0)
		w.resets(1, 700)
		v.output(9000, 9100, 100)
		w.shows(someSnapshot, 9000, 9100)
		w.position(9100)
	}},
	{name: "cuts-in-snapshots", about: "snapshots after a gap are cut, again and again; each gap counts once, and the position that the application can store stays before the snapshots", run: func(w *world) {
		v := w.live()
		v.output(0, 50, 50)
		w.shows(nil, 0, 50)
		v.cut()
		at, missed := uint64(50), uint64(0)
		for i, lost := range []uint64{100, 0, 30} {
			w.prints(900)
			v = w.viewer()
			if got := v.attach.Resume.Offset; got != at {
				w.fatalf("the client resumes at offset %d, and its position is %d: the offset before the incomplete snapshot, plus what was missed since", got, at)
			}
			if isPart := i > 0; isPart != v.attach.Snapshot {
				w.fatalf("the client resumes with snapshot %v, and it has received the last snapshot in part: %v", v.attach.Snapshot, isPart)
			}
			v.send(v.attachedMessage(protocol.ReplaySnapshot, 900, lost, len(someSnapshot)))
			v.pieces(900, someSnapshot[:5])
			at, missed = at+lost, missed+lost
			w.resets(i+1, missed)
			w.shows(someSnapshot[:5], 0, 0)
			w.position(50) // another process that resumes there receives a whole snapshot
			v.cut()
		}
		v = w.againForSnapshot(at)
		v.snapshot(950, 0, someSnapshot)
		v.output(950, 1000, 50)
		w.shows(someSnapshot, 950, 1000)
		w.position(1000)
	}},
	{name: "resync", about: "the ring has overtaken the viewer; the application learns it, and continues after the snapshot", run: func(w *world) {
		v := w.live()
		v.output(0, 100, 100)
		v.resync(8000, 600, false, someSnapshot[:10], someSnapshot[10:])
		w.shows(someSnapshot, 0, 0)
		w.resets(1, 600)
		w.position(8000)
		v.output(8000, 8100, 50)
		w.shows(someSnapshot, 8000, 8100)
		v.cut()
		v = w.resumed(8100)
		v.resync(8100, 0, false)
		w.resets(2, 600)
		v.output(8100, 8200, 50)
		w.shows(nil, 8100, 8200)
	}},
	{name: "resync-in-snapshot", about: "the ring overtakes a viewer that still receives a snapshot, and then the connection is cut; an incomplete snapshot does not count", run: func(w *world) {
		v := w.live()
		v.output(0, 100, 100)
		v.send(v.message(api.Resync{Attachment: v.number, Offset: 500, BytesMissed: 50, SnapshotBytes: len(someSnapshot)}))
		v.pieces(500, someSnapshot[:4])
		v.send(v.message(api.Resync{Attachment: v.number, Offset: 900, BytesMissed: 60, SnapshotBytes: len(someSnapshot)}))
		v.pieces(900, someSnapshot[:8])
		w.prints(900)
		w.resets(2, 110)
		w.shows(someSnapshot[:8], 0, 0)
		v.cut()
		v = w.againForSnapshot(210)
		v.snapshot(900, 0, someSnapshot)
		v.output(900, 950, 50)
		w.shows(someSnapshot, 900, 950)
	}},
	{name: "screen-only", about: "resync has screen_only; the application learns that it must keep the lines above the screen", run: func(w *world) {
		v := w.live()
		v.output(0, 100, 100)
		v.resync(100, 0, true, someSnapshot)
		w.shows(someSnapshot, 0, 0)
		w.resets(1, 0)
		if !w.app.screenOnly {
			w.fatalf("the client empties the whole terminal, and resync has screen_only")
		}
		v.resync(100, 0, false, someSnapshot)
		w.resets(2, 0)
		if w.app.screenOnly {
			w.fatalf("the client keeps the lines above the screen, and resync has no screen_only")
		}
	}},
	{name: "own-view", about: "the viewer has a view of its own; after a cut the client requests a snapshot", needs: []string{"own_view"}, run: func(w *world) {
		w.connects()
		w.do(Command{Do: "attach", SessionID: sessionID, View: "own", Cols: 60, Rows: 20})
		v := w.viewer()
		if v.attach.View != protocol.ViewOwn || v.attach.Cols != 60 || v.attach.Rows != 20 {
			w.fatalf("attach has the view %q and %d by %d cells, not own and 60 by 20", v.attach.View, v.attach.Cols, v.attach.Rows)
		}
		info := v.attachedInfo(protocol.ReplaySnapshot, 5000, 0, len(someSnapshot))
		info.View = true
		v.send(v.message(info))
		v.pieces(5000, someSnapshot)
		w.attached()
		w.shows(someSnapshot, 0, 0)
		v.send(v.data(frame.View, 5500, []byte("\x1b[Hnew")), v.data(frame.View, 5500, []byte("er")))
		w.prints(5500)
		w.until(func() bool { return bytes.Equal(w.app.views, []byte("\x1b[Hnewer")) }, func() string { return "the application does not receive the view" })
		v.cut()
		v = w.viewer()
		if got := v.attach.Resume.Offset; got != 5500 || !v.attach.Snapshot {
			w.fatalf("the client resumes at %d with snapshot %v, and output cannot continue its view of offset 5500", got, v.attach.Snapshot)
		}
	}},
}

var retryScenarios = []scenario{
	{name: "refused-hello", about: "each connection is cut after the hello for a while; the client waits longer before each attempt", run: func(w *world) {
		v := w.liveTo100()
		w.hook(func() { w.onHello = func(c *conn) bool { c.cut(); return false } })
		v.cut()
		w.backsOff(w.connTimes)
		w.lives()
		w.hook(func() { w.onHello = nil })
		w.servesAgain()
	}},
	{name: "refused-at-first", about: "the first connections are cut after the hello for a while; the client fails, or waits longer before each attempt", run: func(w *world) {
		w.hook(func() { w.onHello = func(c *conn) bool { c.cut(); return false } })
		w.do(w.address)
		w.backsOff(w.connTimes)
		w.hook(func() { w.onHello = nil })
		w.answer("connected", "connect")
	}},
	{name: "refused-attach", about: "each attach is answered by supervisor_unreachable for a while; the client waits longer before each attempt, and the session has not ended", run: func(w *world) {
		w.refusesAttach(func(v *viewer) { v.refuse(retryable(protocol.CodeSupervisorUnreachable, 0)) })
	}},
	{name: "cut-attachments", about: "each attachment is cut before its first byte for a while; the client waits longer before each attempt", run: func(w *world) {
		w.refusesAttach(func(v *viewer) { v.exact(); v.cut() })
	}},
	{name: "retryable-attach", about: "attach is answered by several retryable errors; the client attaches again after each", run: func(w *world) {
		v := w.liveTo100()
		v.cut()
		for _, code := range []protocol.Code{protocol.CodeBusy, protocol.CodeUpgrading, protocol.CodePolicyUnavailable, protocol.CodeLimitExceeded, "newer_code"} {
			v = w.again(100)
			v.refuse(retryable(code, 1))
		}
		w.servesAgain()
	}},
	{name: "retry-after", about: "attach, and then hello, is answered by a retryable error with a time; the client does not try before", run: func(w *world) {
		const after = 400 * time.Millisecond
		v := w.liveTo100()
		v.cut()
		v = w.again(100)
		told := time.Now()
		v.refuse(retryable(protocol.CodeSupervisorUnreachable, after))
		v = w.again(100)
		w.notBefore(v, told, after)
		first := true
		w.hook(func() {
			w.onHello = func(c *conn) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				if !first {
					return true
				}
				first, told = false, time.Now()
				_ = c.write(c.message(api.Error{Error: *retryable(protocol.CodeLimitExceeded, after)}))
				c.cut()
				return false
			}
		})
		v.cut()
		v = w.again(100)
		w.mu.Lock()
		since := told
		w.mu.Unlock()
		w.notBefore(v, since, after)
		v.exact() // a client that awaits the answer to its attach answers close only afterwards
		v.output(100, 200, 100)
		w.shows(nil, 0, 200)
	}},
	{name: "first-attach-refused", about: "the first attach is answered by a retryable error; the client tries again, or tells the application the code", run: func(w *world) {
		w.connects()
		w.do(Command{Do: "attach", SessionID: sessionID, Instance: instance, Offset: new(uint64)})
		w.viewer().refuse(retryable(protocol.CodeSupervisorUnreachable, 1))
		w.until(func() bool { return len(w.viewers) > 0 || len(w.app.answers) > 0 }, func() string { return "the client neither attaches again nor reports a failure" })
		if len(w.app.answers) > 0 {
			if e := w.answer("attached", "attach"); e.Code != string(protocol.CodeSupervisorUnreachable) {
				w.fatalf("the harness answers attach by %s, and the error is supervisor_unreachable", describe(e))
			}
			return
		}
		v := w.viewer()
		v.exact()
		w.attached()
		v.output(0, 10, 10)
		w.shows(nil, 0, 10)
	}},
	{name: "attachment-fails", about: "a retryable error ends the attachment, on a connection that continues; the client attaches again, and the session has not ended", run: func(w *world) {
		v := w.liveTo100()
		v.fail(retryable(protocol.CodeSupervisorUnreachable, 1))
		w.servesAgain()
	}},
	{name: "wrong-version", about: "hello is answered by protocol_mismatch; the client reports it, and does not try again", run: func(w *world) {
		w.refusesFirst(protocol.Errorf(protocol.CodeProtocolMismatch, "this proxy speaks versions 2 to 3"))
	}},
	{name: "unauthorized", about: "the proxy refuses the client when it connects again; the client reports it, and does not try again", run: func(w *world) {
		v := w.liveTo100()
		w.refusesHello(protocol.Errorf(protocol.CodeUnauthorized, "the token is wrong"))
		v.cut()
		w.fails(string(protocol.CodeUnauthorized))
		w.leavesAlone()
	}},
}

// refusesHello answers each further hello with an error.
func (w *world) refusesHello(e *protocol.Error) {
	w.hook(func() {
		w.onHello = func(c *conn) bool {
			_ = c.write(c.message(api.Error{Error: *e}))
			c.cut()
			return false
		}
	})
}

// refusesFirst refuses the first hello of a client.
func (w *world) refusesFirst(e *protocol.Error) {
	w.refusesHello(e)
	w.do(w.address)
	got := w.answer("connected", "connect")
	if got.Event == "connected" { // a client that connects when it attaches
		w.do(Command{Do: "attach", SessionID: sessionID})
		got = w.answer("attached", "attach")
	}
	if got.Event != "failed" || got.Code != string(e.Code) {
		w.fatalf("the application learns %s, and the proxy refuses the client with %s", describe(got), e.Code)
	}
	w.leavesAlone()
}

// refusesAttach ends a live attachment, refuses each further attach for a while, and then serves again.
func (w *world) refusesAttach(refuse func(*viewer)) {
	v := w.liveTo100()
	w.hook(func() {
		w.onAttach = func(v *viewer) bool { refuse(v); return false }
	})
	v.cut()
	w.backsOff(w.attachedAt)
	w.lives()
	w.hook(func() { w.onAttach = nil })
	w.servesAgain()
}

// servesAgain is againTo200, after which the attachment must not have ended.
func (w *world) servesAgain() {
	w.againTo200()
	w.lives()
}

// notBefore checks that the client has attached no earlier than the proxy has asked it to, and that it has connected no earlier.
func (w *world) notBefore(v *viewer, told time.Time, after time.Duration) {
	w.mu.Lock()
	at := w.attachTimes[len(w.attachTimes)-1]
	w.mu.Unlock()
	if v.began.After(told) {
		at = v.began
	}
	if waited := at.Sub(told); waited < after*9/10 {
		w.fatalf("the client tries again after %v, and the proxy asked it to wait for %v", waited.Round(time.Millisecond), after)
	}
}

// closes ends the client.
func (w *world) closes() {
	w.do(Command{Do: "close"})
	w.succeeds("closed", "close")
}

var endScenarios = []scenario{
	{name: "exit-after-output", about: "the last output comes right before the exit; the application receives both, in this order", run: func(w *world) {
		v := w.live()
		v.send(v.outputFrame(0, 500), v.exitMessage(7))
		w.exits(7)
		w.shows(nil, 0, 500)
		w.leavesAlone()
	}},
	{name: "exit-without-output", about: "the session ends without output, and the connection with it; the client does not connect again", run: func(w *world) {
		v := w.live()
		v.exit(0)
		v.cut()
		w.exits(0)
		w.leavesAlone()
	}},
	{name: "cut-before-exit", about: "the connection is cut after the last output and before the exit; the client resumes and learns the exit", run: func(w *world) {
		v := w.liveTo100()
		v.cut()
		v = w.again(100)
		w.lives()
		v.exact()
		v.exit(9)
		w.exits(9)
		w.leavesAlone()
	}},
	{name: "exited-meanwhile", about: "the session has ended while the client was away, and its output is gone; session_exited tells the exit", run: func(w *world) {
		v := w.liveTo100()
		v.cut()
		v = w.again(100)
		e := protocol.Errorf(protocol.CodeSessionExited, "the session has ended")
		at := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
		e.Exit = &protocol.ExitRecord{ExitCode: 4, Reason: protocol.ReasonExited, Outcome: protocol.OutcomeNatural, ExitedAt: at}
		v.refuse(e)
		w.exits(4)
		w.leavesAlone()
	}},
	{name: "lost-is-no-exit", about: "the connection is cut while the session runs; the application does not learn of an exit", run: func(w *world) {
		v := w.liveTo100()
		w.hook(func() { w.onHello = func(c *conn) bool { c.cut(); return false } })
		v.cut()
		w.quiet(quietTime)
		w.lives()
	}},
	{name: "unknown-session", about: "session_not_found answers the client that resumes; it is an error and no exit, and the client does not try again", run: func(w *world) {
		w.resumeFails(protocol.CodeSessionNotFound)
	}},
	{name: "other-instance", about: "another session has the id; the client reports instance_mismatch, and does not attach to it", run: func(w *world) {
		w.resumeFails(protocol.CodeInstanceMismatch)
	}},
	{name: "stolen", about: "another client takes the place; the client reports it, and does not take the place back", run: func(w *world) {
		v := w.live()
		v.output(0, 100, 100)
		v.send(v.message(api.Stolen{Attachment: v.number, StolenBy: "another"}))
		w.until(func() bool { return w.app.ended == "stolen" }, func() string { return "the application does not learn that another client has taken its place" })
		v.cut()
		w.leavesAlone()
		w.shows(nil, 0, 100)
	}},
	{name: "detach", about: "the application types and detaches; the input arrives, no output follows, and the client does not attach again", needs: []string{"detach"}, run: func(w *world) {
		v := w.liveTo100()
		w.types(5000)
		w.do(Command{Do: "detach"})
		w.until(func() bool {
			select {
			case <-v.detached:
				return true
			case <-v.ended:
				return true
			default:
				return false
			}
		}, func() string { return "the client sends no detach" })
		w.arrives()
		v.output(100, 200, 50)
		v.send(v.message(api.Detached{Attachment: v.number}))
		w.succeeds("detached", "detach")
		w.leavesAlone()
	}},
}

// resumeFails ends a live attachment, and refuses the client that resumes for good.
func (w *world) resumeFails(code protocol.Code) {
	v := w.liveTo100()
	v.cut()
	v = w.again(100)
	v.refuse(protocol.Errorf(code, "refused by the suite"))
	w.fails(string(code))
	w.leavesAlone()
}
