package conformance

import (
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

var inputScenarios = []scenario{
	{name: "input", about: "the application types much; frames are of a size that a sender may use, and each byte arrives once", run: func(w *world) {
		w.live()
		w.types(10)
		w.types(100_000)
		w.types(1)
		w.arrives()
		if w.gaps > 0 {
			w.fatalf("the client left out input %d times", w.gaps)
		}
	}},
	{name: "input-cut", about: "the connection is cut after input was accepted, and before the client learns it; the client continues at input_offset", run: func(w *world) {
		v := w.live()
		w.hook(func() { w.onInput = func(v *viewer, offset uint64, data []byte) { w.take(v, offset, data, 30) } })
		w.types(100)
		w.hasFrames(1)
		w.typesWhileAway(v, 50)
		v = w.again(0)
		w.hook(func() { w.onInput = nil })
		v.exact()
		w.arrives()
		w.types(20)
		w.arrives()
	}},
	{name: "input-while-away", about: "the application types while there is no connection; the input arrives after the client has resumed", run: func(w *world) {
		v := w.live()
		w.types(40)
		w.arrives()
		w.typesWhileAway(v, 70_000)
		w.resumed(0)
		w.arrives()
	}},
	{name: "input-goaway", about: "goaway arrives while input is not accepted; the client sends it again", run: func(w *world) {
		v := w.live()
		w.hook(func() { w.onInput = func(*viewer, uint64, []byte) {} })
		w.types(100)
		w.hasFrames(1)
		v.goaway(time.Millisecond)
		v = w.again(0)
		w.hook(func() { w.onInput = nil })
		v.exact()
		w.arrives()
	}},
	{name: "accepted-late", about: "accepted covers several writes, repeats an offset, and is older than the last one; nothing is lost or sent twice", run: func(w *world) {
		v := w.live()
		w.hook(func() { w.onInput = func(v *viewer, offset uint64, data []byte) { w.take(v, offset, data, len(data)) } })
		for range 3 {
			w.types(10)
		}
		w.untilAccepted(30)
		v.send(v.message(api.Accepted{Attachment: &v.number, Offset: 5}), v.message(api.Accepted{Attachment: &v.number, Offset: 20}))
		v.accepted(20)
		v.accepted(5)
		w.types(10)
		w.untilAccepted(40)
		v.accepted(30)
		v.output(0, 10, 10)
		w.shows(nil, 0, 10)
		// An offset that comes twice must not stand for input that was not accepted.
		var refused atomic.Int64
		w.hook(func() {
			w.onInput = func(v *viewer, offset uint64, data []byte) {
				w.take(v, offset, data, 0)
				refused.Add(int64(len(data)))
			}
		})
		w.types(10)
		w.until(func() bool { return refused.Load() >= 10 }, func() string { return "input is missing" })
		v.accepted(40)
		v.accepted(40)
		v.output(10, 20, 10)
		w.shows(nil, 0, 20)
		v.cut()
		v = w.again(20)
		w.hook(func() { w.onInput = nil })
		v.exact()
		w.types(10)
		w.arrives()
		if w.gaps > 0 {
			w.fatalf("the client left out input %d times", w.gaps)
		}
	}},
	{name: "input-gap", about: "the proxy asks for input again that it has lost; the client sends it from that offset", run: func(w *world) {
		v := w.live()
		w.hook(func() { w.onInput = func(v *viewer, offset uint64, data []byte) { w.take(v, offset, data, 30) } })
		w.types(100)
		w.untilAccepted(30)
		w.hook(func() { w.onInput = nil })
		v.inputError(protocol.CodeInputGap, 30)
		w.arrives()
		w.types(10)
		w.arrives()
	}},
	{name: "input-full", about: "the session does not read; the client sends the input again, after a while each time", run: func(w *world) {
		w.live()
		var mu sync.Mutex
		full := true
		w.hook(func() {
			w.onInput = func(v *viewer, offset uint64, data []byte) {
				mu.Lock()
				defer mu.Unlock()
				if !full {
					w.takeInput(v, offset, data, len(data))
					return
				}
				have, _ := w.take(v, offset, data, 0)
				v.inputError(protocol.CodeInputFull, have)
			}
		})
		for range 10 { // an answer to each part must not lead to a retry of its own
			w.types(10)
		}
		w.hasFrames(1)
		w.mu.Lock()
		before := w.frames
		w.mu.Unlock()
		w.quiet(2 * quietTime)
		w.mu.Lock()
		n := w.frames - before
		w.mu.Unlock()
		if n > 40 {
			w.fatalf("the client sends the input %d times in %v, and the session does not read", n, 2*quietTime)
		}
		// a busy machine may need longer than that
		w.untilLocked(func() bool { return w.frames > before }, func() string { return "the client does not send the input again, and the proxy does not ask for it" })
		mu.Lock()
		full = false
		mu.Unlock()
		w.arrives()
	}},
	{name: "line-too-long", about: "the terminal cuts a line; it is a warning: the attachment continues, and the input is not sent again", run: func(w *world) {
		v := w.live()
		w.types(100)
		w.arrives()
		e := protocol.Errorf(protocol.CodeLineTooLong, "the terminal cuts a line")
		offset := uint64(100)
		e.Offset = &offset
		v.fail(e)
		v.output(0, 100, 100)
		w.shows(nil, 0, 100)
		w.types(10)
		w.arrives()
		w.lives()
	}},
	{name: "writer-forgotten", about: "the session has forgotten the writer, so input_offset is smaller than what was accepted; the remaining input continues there", run: func(w *world) {
		v := w.live()
		w.types(100)
		w.arrives()
		v.output(0, 10, 10)
		w.shows(nil, 0, 10)
		w.typesWhileAway(v, 50)
		v = w.again(10)
		w.hook(func() { w.input, w.typed = nil, w.typed[100:] })
		v.exact()
		w.arrives()
	}},
	{name: "resize-while-away", about: "the application changes its size while there is no connection; the client sends resize after it has resumed, because the resumed attachment does not", needs: []string{"resize"}, run: func(w *world) {
		v := w.liveTo100()
		w.do(Command{Do: "resize", Cols: 90, Rows: 30})
		w.resized(protocol.Size{Cols: 90, Rows: 30})
		w.away(v)
		w.do(Command{Do: "resize", Cols: 70, Rows: 20})
		w.executed()
		w.hook(func() { w.onHello = nil })
		w.viewer().exact()
		w.resized(protocol.Size{Cols: 70, Rows: 20})
	}},
}

// typesWhileAway cuts the connection, and makes the application type before the client can connect again.
func (w *world) typesWhileAway(v *viewer, n int) {
	w.away(v)
	w.types(n)
	w.executed()
	w.hook(func() { w.onHello = nil })
}

// away cuts the connection, and every further one after its hello, and waits until the client knows that it has none.
func (w *world) away(v *viewer) {
	w.hook(func() { w.onHello = func(c *conn) bool { c.cut(); return false } })
	before := w.connCount()
	v.cut()
	w.until(func() bool { return w.connCount() > before }, func() string { return "the client does not connect again" })
}

// untilAccepted waits until so much input was accepted.
func (w *world) untilAccepted(n int) {
	w.untilLocked(func() bool { return len(w.input) >= n }, func() string { return "input is missing" })
	w.checkInput()
}

// resized waits until the client has sent a size.
func (w *world) resized(size protocol.Size) {
	w.untilLocked(func() bool { return len(w.resizes) > 0 && w.resizes[len(w.resizes)-1] == size }, func() string { return "the client does not send the size" })
}

// strangeScenarios are messages of newer proxies, and of other attachments.
var strangeScenarios = []scenario{
	{name: "unknown-kinds", about: "frames of unknown kinds arrive, also empty and large ones; the client skips them", run: func(w *world) {
		v := w.live()
		v.send(v.encode(9, []byte("news")), v.outputFrame(0, 50), v.encode(200, nil), v.encode(5, make([]byte, frame.Max-1)), v.outputFrame(50, 100))
		w.shows(nil, 0, 100)
		w.position(100)
	}},
	{name: "unknown-messages", about: "messages of unknown types arrive; the client skips them", run: func(w *world) {
		v := w.resumes(0)
		v.send(v.fields(map[string]any{"type": "news", "before": "attached"}))
		v.exact()
		w.attached()
		v.send(
			v.fields(map[string]any{"type": "news", "attachment": v.number, "list": []any{1, nil, "x"}}), v.outputFrame(0, 50),
			v.fields(map[string]any{"type": "viewers.changed", "viewers": map[string]any{"deep": []any{[]any{}}}}), v.outputFrame(50, 100),
		)
		w.shows(nil, 0, 100)
	}},
	{name: "unknown-fields", about: "messages have unknown fields, capabilities and words, and null for absent ones; the client ignores them", run: func(w *world) {
		w.hook(func() {
			w.welcome = func(c *conn) []byte {
				return c.with(welcome(), map[string]any{
					"protocol": map[string]any{"min": 1, "max": 9, "preferred": 9}, "capabilities": []any{"time.travel"}, "news": map[string]any{"a": 1},
				})
			}
		})
		v := w.resumes(0)
		v.send(v.with(v.attachedInfo(protocol.ReplayExact, 0, 0, 0), map[string]any{"news": []any{1}, "view": nil, "replay": "exact"}))
		w.attached()
		v.send(v.outputFrame(0, 50))
		v.send(v.with(api.Accepted{Attachment: &v.number}, map[string]any{"news": "x"}))
		v.send(v.with(api.Resync{Attachment: v.number, Offset: 50, SnapshotBytes: len(someSnapshot)}, map[string]any{"news": 1, "view": nil}))
		v.pieces(50, someSnapshot)
		v.output(50, 100, 50)
		w.shows(someSnapshot, 50, 100)
		v.send(v.with(api.PTYExited{SessionID: sessionID, PaneID: sessionID, ExitCode: 5, LastLines: []string{}, Attachment: &v.number}, map[string]any{
			"reason": "evaporated", "outcome": "unheard_of", "parent_agent": nil, "news": map[string]any{},
		}))
		w.exits(5)
	}},
	{name: "other-attachments", about: "output, an error and an exit have the number of another attachment; the client ignores them", run: func(w *world) {
		v := w.live()
		other := v.number + 76
		v.send(v.outputFrame(0, 50))
		v.send(v.encode(frame.Output, dataPayload(other, 50, []byte("of another attachment"))))
		v.send(v.encode(frame.Snapshot, dataPayload(other, 70, []byte("of another attachment"))))
		v.send(v.message(api.Accepted{Attachment: &other, Offset: 1000}))
		v.send(v.message(api.Resync{Attachment: other, Offset: 700, BytesMissed: 650, SnapshotBytes: 5}))
		v.send(v.message(api.Stolen{Attachment: other}))
		v.send(v.message(api.Error{Attachment: &other, Error: *protocol.Errorf(protocol.CodeInternal, "of another attachment")}))
		v.send(v.message(api.PTYExited{SessionID: "another", PaneID: "another", ExitCode: 9, LastLines: []string{}, Attachment: &other}))
		w.types(10)
		w.arrives()
		v.output(50, 100, 50)
		w.shows(nil, 0, 100)
		w.lives()
		v.exit(3)
		w.exits(3)
	}},
	{name: "unasked-views", about: "views arrive that the client did not request; they do not count as output", run: func(w *world) {
		v := w.live()
		v.output(0, 100, 100)
		v.send(v.data(frame.View, 100, []byte("a view that was not requested")))
		v.output(100, 150, 50)
		w.shows(nil, 0, 150)
		w.position(150)
		v.cut()
		v = w.viewer()
		if v.attach.Snapshot {
			v.snapshot(150, 0, someSnapshot)
			v.output(150, 200, 50)
			w.shows(someSnapshot, 150, 200)
			return
		}
		v.exact()
		v.output(150, 200, 50)
		w.shows(nil, 0, 200)
	}},
	{name: "absent-fields", about: "errors lack the fields that need not be there; absent retryable is false", run: func(w *world) {
		v := w.liveTo100()
		v.cut()
		v = w.again(100)
		v.send(v.fields(map[string]any{"request_id": v.attach.RequestID, "attachment": v.number, "message": "no field besides these", "code": "session_not_found", "type": "error"}))
		w.fails("session_not_found")
		w.leavesAlone()
	}},
	{name: "fragments", about: "a WebSocket message is split into fragments with a ping between them; the client joins them", needs: []string{WebSocket}, run: func(w *world) {
		v := w.live()
		v.w.prints(100)
		message := append([]byte{byte(frame.Output)}, dataPayload(v.number, 0, text(0, 100))...)
		v.send(fragments(message)...)
		w.shows(nil, 0, 100)
		w.position(100)
	}},
}

// with returns the bytes of a message with further fields.
func (c *conn) with(m protocol.Message, more map[string]any) []byte {
	b, err := protocol.Encode(m)
	if err != nil {
		panic(err) // a mistake of a scenario
	}
	fields := make(map[string]any)
	if err := json.Unmarshal(b, &fields); err != nil {
		panic(err)
	}
	maps.Copy(fields, more)
	return c.fields(fields)
}

var requestScenarios = []scenario{
	{name: "spawn", about: "the application starts a session and attaches to it", needs: []string{"spawn"}, run: func(w *world) {
		w.connects()
		w.do(Command{Do: "spawn", SessionID: sessionID, Argv: []string{"cat"}})
		if e := w.succeeds("spawned", "spawn"); e.SessionID != sessionID || e.Instance != instance {
			w.fatalf("spawned has the session %q of the instance %q, not %q of %q", e.SessionID, e.Instance, sessionID, instance)
		}
		w.do(Command{Do: "attach", SessionID: sessionID, Instance: instance, Offset: new(uint64)})
		v := w.viewer()
		v.exact()
		w.attached()
		v.output(0, 100, 100)
		w.shows(nil, 0, 100)
	}},
	{name: "spawn-repeated", about: "the connection is cut instead of the answer to spawn; a client that repeats the request uses the same token", needs: []string{"spawn"}, run: func(w *world) {
		var mu sync.Mutex
		first := true
		w.hook(func() {
			w.onSpawn = func(c *conn, m *api.Spawn) {
				mu.Lock()
				isFirst := first
				first = false
				mu.Unlock()
				if isFirst {
					c.cut()
					return
				}
				w.answerSpawn(c, m)
			}
		})
		w.connects()
		w.do(Command{Do: "spawn", SessionID: sessionID, Argv: []string{"cat"}})
		e := w.answer("spawned", "spawn")
		w.mu.Lock()
		n, without := len(w.tokens), w.tokens[""]
		w.mu.Unlock()
		if n > 1 {
			w.fatalf("the client repeats spawn with another token, so a second session would be started")
		}
		if e.Event == "spawned" && without {
			w.fatalf("the client repeats spawn without a token, so a second session would be started")
		}
	}},
	{name: "spawn-retryable", about: "spawn is answered by a retryable error with a time; the client tells the application, or tries again after that time", needs: []string{"spawn"}, run: func(w *world) {
		const after = 400 * time.Millisecond
		var mu sync.Mutex
		var told time.Time
		tooEarly := false
		w.hook(func() {
			w.onSpawn = func(c *conn, m *api.Spawn) {
				mu.Lock()
				defer mu.Unlock()
				if told.IsZero() {
					told = time.Now()
					_ = c.write(c.message(api.Error{Request: m.Request, Error: *retryable(protocol.CodeLimitExceeded, after)}))
					return
				}
				tooEarly = tooEarly || time.Since(told) < after*9/10
				w.answerSpawn(c, m)
			}
		})
		w.connects()
		w.do(Command{Do: "spawn", SessionID: sessionID, Argv: []string{"cat"}})
		e := w.answer("spawned", "spawn")
		mu.Lock()
		defer mu.Unlock()
		if tooEarly {
			w.fatalf("the client repeats spawn before the time that the error names")
		}
		if e.Event == "failed" && e.Code != string(protocol.CodeLimitExceeded) {
			w.fatalf("spawn failed with %s, and the error is limit_exceeded", e.Code)
		}
	}},
	{name: "spawn-refused", about: "spawn is answered by an error; the application learns the code", needs: []string{"spawn"}, run: func(w *world) {
		w.hook(func() {
			w.onSpawn = func(c *conn, m *api.Spawn) {
				_ = c.write(c.message(api.Error{Request: m.Request, Error: *protocol.Errorf(protocol.CodeSessionExists, "the id is in use")}))
			}
		})
		w.connects()
		w.do(Command{Do: "spawn", SessionID: sessionID, Argv: []string{"cat"}})
		if e := w.answer("spawned", "spawn"); e.Code != string(protocol.CodeSessionExists) {
			w.fatalf("the application learns %s, and the error is session_exists", describe(e))
		}
	}},
	{name: "answers-out-of-order", about: "two requests are answered in the other order, with the answer to a third one between; each gets its own answer", needs: []string{"info"}, run: func(w *world) {
		var mu sync.Mutex
		var held []*api.Info
		w.hook(func() {
			w.onInfo = func(c *conn, m *api.Info) {
				mu.Lock()
				defer mu.Unlock()
				if held = append(held, m); len(held) < 2 {
					return
				}
				answer := func(m *api.Info, pid int) []byte {
					s := sessionInfo(string(m.SessionID), 0)
					s.PID = pid
					return c.message(api.Session{Request: m.Request, Session: s})
				}
				stray := &api.Info{Request: protocol.Request{RequestID: "of-no-request"}, SessionID: "z"}
				pids := map[protocol.SessionID]int{"a": 11, "b": 22}
				_ = c.write(answer(held[1], pids[held[1].SessionID]))
				_ = c.write(answer(stray, 33))
				_ = c.write(answer(held[0], pids[held[0].SessionID]))
			}
		})
		w.connects()
		w.do(Command{Do: "info", SessionID: "a"})
		w.do(Command{Do: "info", SessionID: "b"})
		for range 2 {
			e := w.succeeds("info", "info")
			if want := map[string]int{"a": 11, "b": 22}[e.SessionID]; e.PID != want {
				w.fatalf("the application learns that session %q has the process %d, and it has %d", e.SessionID, e.PID, want)
			}
		}
	}},
}
