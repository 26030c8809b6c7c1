package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/link"
	"holdfast/shared/testkit"
)

// echo answers Info with a session of the same id, and Forget with an error.
func echo(st *Stream, request protocol.Message) {
	defer st.Close()
	switch m := request.(type) {
	case *link.Info:
		_ = st.Send(link.Session{Session: protocol.SessionInfo{ID: m.SessionID}})
	case *link.Forget:
		_ = st.Fail(&protocol.Error{Code: protocol.CodeSessionExited, Message: "over", Exit: &protocol.ExitRecord{ExitCode: 7}})
	}
}

func TestCall(t *testing.T) {
	testkit.CheckLeaks(t)
	proxy, supervisor := linked(t)
	answer(t, supervisor, echo)
	var wg sync.WaitGroup
	for i := range 50 {
		id := protocol.SessionID(fmt.Sprint("s", i))
		wg.Go(func() {
			reply, err := proxy.Call(testkit.Soon(t), link.Info{SessionID: id})
			if s, ok := reply.(*link.Session); err != nil || !ok || s.Session.ID != id {
				t.Errorf("%s: %+v, %v", id, reply, err)
			}
		})
	}
	wg.Wait()

	_, err := proxy.Call(testkit.Soon(t), link.Forget{SessionID: "s"})
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != protocol.CodeSessionExited || e.Exit == nil || e.Exit.ExitCode != 7 {
		t.Errorf("the error reply is %v", err)
	}
	if n := proxy.mux.NumStreams(); n > 1 { // the other side of the last stream may still be closing
		testkit.Eventually(t, patience, func() bool { return proxy.mux.NumStreams() <= 1 }, "streams are closed")
	}
}

// If a call is cancelled, it must return, its stream must end on the other side, and the link must stay
// usable.
func TestCancelledCall(t *testing.T) {
	testkit.CheckLeaks(t)
	proxy, supervisor := linked(t)
	asked, ended := make(chan struct{}), make(chan error, 1)
	answer(t, supervisor, func(st *Stream, request protocol.Message) {
		if _, ok := request.(*link.Wait); !ok {
			echo(st, request)
			return
		}
		go func() {
			close(asked)
			_, err := st.Next()
			ended <- err
			st.Abort()
		}()
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { _, err := proxy.Call(ctx, link.Wait{SessionID: "s"}); done <- err }()
	testkit.Within(t, patience, "the request has arrived", asked)
	cancel()
	if err := testkit.Within(t, patience, "Call returns", done); !errors.Is(err, context.Canceled) {
		t.Errorf("Call: %v", err)
	}
	if err := testkit.Within(t, patience, "the stream ends", ended); !errors.Is(err, io.EOF) {
		t.Errorf("the other side: %v", err)
	}
	if _, err := proxy.Call(ctx, link.Info{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Call with a cancelled context: %v", err)
	}
	if _, err := proxy.Call(testkit.Soon(t), link.Info{SessionID: "s"}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// If Open has returned before ctx is done, the stream must stay open.
func TestOpenOutlivesContext(t *testing.T) {
	testkit.CheckLeaks(t)
	proxy, supervisor := linked(t)
	goOn := make(chan struct{})
	answer(t, supervisor, func(st *Stream, _ protocol.Message) {
		_ = st.Send(link.Subscribed{Seq: 1})
		<-goOn
		_ = st.Send(link.Event{Seq: 2})
		st.Close()
	})
	ctx, cancel := context.WithCancel(context.Background())
	st, first, err := proxy.Open(ctx, link.Events{})
	if err != nil || first.MessageType() != "subscribed" {
		t.Fatalf("%v, %v", first, err)
	}
	cancel()
	close(goOn)
	if m, ok := receiveMessage(t, st).(*link.Event); !ok || m.Seq != 2 {
		t.Errorf("received %+v, want event 2", m)
	}
	st.Close()
}

// Abort must end reads and writes in progress, on both sides.
func TestAbort(t *testing.T) {
	testkit.CheckLeaks(t)
	proxy, supervisor := linked(t)
	other := make(chan *Stream, 1)
	answer(t, supervisor, func(st *Stream, _ protocol.Message) {
		_ = st.Send(link.OK{})
		other <- st
	})
	st, _, err := proxy.Open(testkit.Soon(t), link.Status{})
	testkit.Must(t, err)
	peer := <-other
	reading, writing := make(chan error, 1), make(chan error, 1)
	go func() { _, err := st.Next(); reading <- err }()
	go func() {
		var err error
		for err == nil { // the peer does not read, so the window becomes full
			err = st.SendRaw(frame.AppendData(nil, frame.Input, 1, 0, make([]byte, frame.MaxData)))
		}
		writing <- err
	}()
	st.Abort()
	st.Abort()
	if err := testkit.Within(t, patience, "the reader returns", reading); err == nil {
		t.Error("Next succeeded after Abort")
	}
	testkit.Within(t, patience, "the writer returns", writing)
	for {
		_, err := peer.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the other side: %v", err)
			}
			break
		}
	}
	peer.Abort()
}

// The end of a link must end all its calls and streams, on both sides.
func TestEnd(t *testing.T) {
	for _, name := range []string{"proxy", "supervisor"} {
		t.Run("of the "+name, func(t *testing.T) {
			testkit.CheckLeaks(t)
			proxy, supervisor := linked(t)
			asked := make(chan struct{})
			answer(t, supervisor, func(*Stream, protocol.Message) { close(asked) })
			done := make(chan error, 1)
			go func() { _, err := proxy.Call(testkit.Soon(t), link.Wait{}); done <- err }()
			<-asked
			if name == "proxy" {
				proxy.Close()
			} else {
				supervisor.Close()
			}
			if err := testkit.Within(t, patience, "Call returns", done); err == nil || protocol.CodeOf(err) != protocol.CodeInternal {
				t.Errorf("Call: %v, want an error of the connection", err)
			}
			testkit.Within(t, patience, "the proxy's end is done", proxy.Done())
			testkit.Within(t, patience, "the supervisor's end is done", supervisor.Done())
			if _, err := proxy.Call(testkit.Soon(t), link.Wait{}); err == nil {
				t.Error("Call succeeded on a closed link")
			}
			if err := errors.Join(proxy.Close(), supervisor.Close()); err != nil {
				t.Errorf("second Close: %v", err)
			}
		})
	}
}

// Receive must skip unknown kinds of frames. For an unknown or invalid message it must return an error,
// without ending the stream.
func TestReceive(t *testing.T) {
	testkit.CheckLeaks(t)
	proxy, supervisor := linked(t)
	answer(t, supervisor, func(st *Stream, _ protocol.Message) {
		for _, raw := range [][]byte{
			frame.Append(nil, 77, []byte("?")), frame.AppendData(nil, frame.Output, 1, 2, []byte("x")), control(`{"type":"ok","new":1}`),
			control(`{"type":"teleport"}`), control("{"), control(`{"type":"ok"}`),
		} {
			_ = st.SendRaw(raw)
		}
		st.Close()
	})
	st, m, err := proxy.Open(testkit.Soon(t), link.Status{})
	if err != nil || m.MessageType() != "ok" {
		t.Fatalf("%v, %v", m, err)
	}
	defer st.Close()
	_, err = st.Receive()
	wantCode(t, "an unknown message", err, protocol.CodeUnsupported)
	_, err = st.Receive()
	wantCode(t, "half a message", err, protocol.CodeBadFrame)
	if m := receiveMessage(t, st); m.MessageType() != "ok" {
		t.Errorf("received %v, want ok", m)
	}
	if _, err := st.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v, want EOF", err)
	}
}

// A message that does not fit into a frame must be refused by the sender, and the link must stay usable.
func TestSendLimit(t *testing.T) {
	testkit.CheckLeaks(t)
	proxy, supervisor := linked(t)
	answer(t, supervisor, func(st *Stream, request protocol.Message) {
		m := request.(*link.Info)
		defer st.Close()
		if err := st.Send(link.ScreenContent{ScreenContent: protocol.ScreenContent{Lines: []string{strings.Repeat("x", frame.Max)}}}); err != nil {
			_ = st.Fail(err)
			return
		}
		echo(st, m)
	})
	_, err := proxy.Call(testkit.Soon(t), link.Info{SessionID: "s"})
	wantCode(t, "a reply that is too large", err, protocol.CodeFrameTooLarge)
	_, err = proxy.Call(testkit.Soon(t), link.Write{Data: make([]byte, frame.Max)})
	wantCode(t, "a request that is too large", err, protocol.CodeFrameTooLarge)
	_, err = proxy.Call(testkit.Soon(t), link.Info{SessionID: "s"})
	wantCode(t, "the next call", err, protocol.CodeFrameTooLarge)
}

// A stream that is not read must not delay other streams.
func TestSlowStream(t *testing.T) {
	testkit.CheckLeaks(t)
	proxy, supervisor := linked(t)
	flooding := make(chan struct{})
	answer(t, supervisor, func(st *Stream, request protocol.Message) {
		if _, ok := request.(*link.Attach); !ok {
			echo(st, request)
			return
		}
		_ = st.Send(link.Attached{})
		go func() {
			close(flooding)
			for st.SendRaw(frame.AppendData(nil, frame.Output, 1, 0, make([]byte, frame.MaxData))) == nil {
			}
			st.Abort()
		}()
	})
	st, _, err := proxy.Open(testkit.Soon(t), link.Attach{})
	testkit.Must(t, err)
	<-flooding
	for range 100 {
		if _, err := proxy.Call(testkit.Soon(t), link.Info{SessionID: "s"}); err != nil {
			t.Fatal(err)
		}
	}
	st.Abort()
}

// recorder records the writes that it receives.
type recorder struct {
	net.Conn
	got   bytes.Buffer
	calls int
	short bool // each write writes one byte less
}

func (r *recorder) Write(p []byte) (int, error) {
	r.calls++
	if r.short {
		p = p[:len(p)-1]
	}
	return r.got.Write(p)
}

// coalescer must write the same bytes that it receives.
func TestCoalescer(t *testing.T) {
	header := func(kind byte, n byte) []byte { return []byte{0, kind, 0, 0, 0, 0, 0, 1, 0, 0, 0, n} }
	writes := [][]byte{
		header(1, 9),                                        // a window update, which no data follows
		header(0, 0),                                        // empty data
		header(0, 12), []byte("twelve bytes"), header(0, 1), // data that resembles a header with a length
		[]byte("x"), header(2, 1), header(3, 0),
	}
	r := &recorder{}
	c := &coalescer{Conn: r}
	var want []byte
	for _, p := range writes {
		want = append(want, p...)
		if n, err := c.Write(p); n != len(p) || err != nil {
			t.Errorf("%q: %d, %v", p, n, err)
		}
	}
	if !bytes.Equal(r.got.Bytes(), want) {
		t.Errorf("got %x\nwant %x", r.got.Bytes(), want)
	}

	c = &coalescer{Conn: &recorder{short: true}}
	_, _ = c.Write(header(0, 3))
	if n, err := c.Write([]byte("abc")); err == nil || n >= 3 {
		t.Errorf("a short write: %d, %v", n, err)
	}
}

// Header and data of a frame must be written with one system call on a real socket.
func TestCoalescedOnce(t *testing.T) {
	a, b := pair(t)
	c := &coalescer{Conn: a}
	head := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4}
	_, _ = c.Write(head)
	_ = b.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := b.Read(make([]byte, 64)); err == nil {
		t.Errorf("%d bytes of the header were sent before the data", n)
	}
	_, _ = c.Write([]byte("data"))
	_ = b.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, 64)
	n, err := b.Read(got)
	if err != nil || !reflect.DeepEqual(got[:n], append(head, "data"...)) {
		t.Errorf("%q, %v", got[:n], err)
	}
}

// What a peer has sent on streams that were aborted takes no memory, also while another stream of the link waits for the
// peer to close it, and after the end of the link.
func TestAbortFrees(t *testing.T) {
	proxy, supervisor := linked(t)
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	aborted := make(chan struct{})
	answer(t, supervisor, func(st *Stream, m protocol.Message) {
		if _, ok := m.(*link.Status); ok { // the proxy does not close this one
			_ = st.Send(link.OK{})
			_ = st.Close()
			return
		}
		_ = st.Send(link.OK{})
		_, _ = st.Next()
		st.Abort()
		aborted <- struct{}{}
	})
	if _, _, err := proxy.Open(testkit.Soon(t), link.Status{}); err != nil {
		t.Fatal(err)
	}
	const size, streams = 200 << 10, 64
	for range streams {
		st, _, err := proxy.Open(testkit.Soon(t), link.Info{SessionID: "s"})
		if err == nil {
			err = st.SendRaw(frame.AppendData(nil, frame.Input, 1, 0, make([]byte, size)))
		}
		testkit.Must(t, err)
		testkit.Within(t, patience, "the end of the stream", aborted)
	}
	_ = proxy.Close()
	testkit.Within(t, patience, "the end of the link", supervisor.Done())
	if grown := heap() - before; grown > size*streams/2 {
		t.Errorf("%d bytes are kept", grown)
	}
}

// yamux writes a line for each frame of a stream that was given up. These lines must not fill the log.
func TestLogLimit(t *testing.T) {
	var out bytes.Buffer
	w := &logWriter{log: zerolog.New(&out)}
	for range 1000 {
		if _, err := w.Write([]byte("2026/11/28 20:47:22 [WARN] yamux: frame for missing stream: Vsn:0 Type:1 Flags:8 StreamID:3 Length:0\n")); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "\n"); n == 0 || n > 100 {
		t.Errorf("%d lines are in the log", n)
	}
}
