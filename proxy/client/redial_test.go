package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// unreachable is the error of a proxy that has lost its supervisor: the request may be repeated. A request of which
// the supervisor may have died is not retryable.
var unreachable = protocol.Error{Code: protocol.CodeSupervisorUnreachable, Message: "the supervisor cannot be reached", Retryable: true}

// A goaway that comes as the first message of a connection is no failure: the client connects to the next proxy.
func TestGoawayAtTheBeginning(t *testing.T) {
	testkit.CheckLeaks(t)
	var greeted atomic.Int64
	f := newFake(t, func(h *api.Hello) protocol.Message {
		if greeted.Add(1)%2 == 1 {
			return api.Goaway{Reason: "handoff"}
		}
		return welcome(h)
	})
	dial := start(t, func() (*Client, error) { return Dial(t.Context(), f.options()) })
	f.accept().Close() // the connection that received goaway
	f.accept()
	c, err := dial()
	testkit.Must(t, err)
	defer c.Close()

	attach := start(t, func() (*Attachment, error) { return c.Attach(t.Context(), "s", AttachOptions{}) })
	f.accept().Close()
	p := f.accept()
	want[*api.Attach](p)
	p.send(api.Goaway{Reason: "handoff"})
	f.accept().Close()
	p = f.accept()
	p.answer(want[*api.Attach](p), &api.Attached{Attachment: number, AttachInfo: exact(0)})
	a, err := attach()
	testkit.Must(t, err)
	p.Close() // the attachment resumes
	f.accept().Close()
	resumed := f.accept()
	resumed.answer(want[*api.Attach](resumed), &api.Attached{Attachment: number, AttachInfo: exact(0)})
	resumed.output(frame.Output, 0, "x")
	receive(t, a)

	events := start(t, func() (*Events, error) { return c.Events(t.Context()) })
	for range 2 {
		f.accept().Close()
		p = f.accept()
		want[*api.Events](p)
		p.send(api.Goaway{Reason: "handoff"})
	}
	f.accept().Close()
	p = f.accept()
	p.answer(want[*api.Events](p), &api.Subscribed{})
	e, err := events()
	testkit.Must(t, err)
	e.Close()
	detach := startErr(t, a.Detach)
	want[*api.Detach](resumed)
	_ = resumed.write(resumed.control(api.Detached{Attachment: number}))
	if err := detach(); err != nil {
		t.Error(err)
	}
}

// An attachment that was stolen while its connection was lost does not steal back when it resumes.
// demand: R5
func TestResumeDoesNotSteal(t *testing.T) {
	f, c, _ := dialed(t)
	a, p, m := attached(t, f, c, AttachOptions{Mode: protocol.ModeExclusive, Steal: true}, exact(0))
	if !m.Steal {
		t.Error("the first attach does not steal")
	}
	p.Close()
	p = f.accept()
	m = want[*api.Attach](p)
	if m.Steal || m.Mode != protocol.ModeExclusive || m.Writer != a.Writer() {
		t.Errorf("the resume is %+v", m.AttachSpec)
	}
	p.answer(m, &api.Error{Error: *protocol.ErrAlreadyAttached})
	last := receive(t, a)
	if last.Kind != Failed || !errors.Is(last.Err, protocol.ErrAlreadyAttached) {
		t.Errorf("got %+v", last)
	}
}

// A host of a gate whose proxy accepts connections and does not answer is told after a while, although a lost connection is
// tried again for longer.
func TestHostDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Gate: &GateOptions{Host: "build-host"}, Redial: time.Hour, Dial: func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, there) }() // it reads the hello
			return here, nil
		}}
		began := time.Now()
		_, err := Dial(t.Context(), o)
		if took := time.Since(began); took > time.Minute || !errors.Is(err, ErrIO) || !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "build-host") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// If the last attempt to connect is ended by the time, the error is the answer to the attempt before.
func TestAnswerBeforeSilence(t *testing.T) {
	testkit.CheckLeaks(t)
	var greeted atomic.Int64
	ended := make(chan struct{})
	f := newFake(t, func(*api.Hello) protocol.Message {
		if greeted.Add(1) > 1 {
			<-ended
		}
		return api.Error{Error: protocol.Error{Code: protocol.CodePolicyUnavailable, Message: "the policy fails", Retryable: true, RetryAfterMS: 1}}
	})
	o := f.options()
	o.Redial = 200 * time.Millisecond
	_, err := Dial(t.Context(), o)
	close(ended)
	if protocol.CodeOf(err) != protocol.CodePolicyUnavailable || greeted.Load() < 2 {
		t.Errorf("after %d attempts: %v", greeted.Load(), err)
	}
}

// If no proxy runs, the client starts one, if its options have a command for that.
func TestStart(t *testing.T) {
	testkit.CheckLeaks(t)
	f := newFake(t, welcome)
	o := f.options()
	var up atomic.Bool
	var starts atomic.Int64
	connect := o.Dial
	o.Dial = func(ctx context.Context) (net.Conn, error) {
		if !up.Load() {
			return nil, errors.New("no proxy runs")
		}
		return connect(ctx)
	}
	o.Start = func(context.Context) error {
		starts.Add(1)
		time.AfterFunc(20*time.Millisecond, func() { up.Store(true) }) // the proxy needs some time to start
		return nil
	}
	c, err := start(t, func() (*Client, error) { return Dial(t.Context(), o) })()
	testkit.Must(t, err)
	defer c.Close()
	f.accept()
	equal(t, "starts", starts.Load(), int64(1))

	o.Start = func(context.Context) error { return errors.New("no such program") }
	up.Store(false)
	_, err = Dial(t.Context(), o)
	wantErr(t, "it cannot be started", err, ErrConnect)
	if err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("the error does not have the reason: %v", err)
	}
}

// Input that is written without a connection waits for one. A Detach does not wait.
// demand: R2
func TestDetachWhileAway(t *testing.T) {
	testkit.CheckLeaks(t)
	f, a, p := view(t)
	p.Close()
	p = f.accept() // connected, but not attached yet
	if n, err := a.Write([]byte("abc")); n != 3 || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
	testkit.Must(t, a.Resize(90, 30))
	p.answer(want[*api.Attach](p), &api.Attached{Attachment: number, AttachInfo: exact(0)})
	if m := want[*api.Resize](p); m.Cols != 90 || m.Rows != 30 {
		t.Errorf("got %+v", m)
	}
	p.wantInput(0, "abc")

	p.Close()
	p = f.accept()
	want[*api.Attach](p) // the attach is never answered
	wrote := start(t, func() (int, error) { return a.Write(make([]byte, 2*inputWindow)) })
	flushed := startErr(t, func() error { return a.Flush(t.Context()) })
	begun := time.Now()
	if err := startErr(t, a.Close)(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("the Detach took %v", took)
	}
	_, err := wrote()
	wantErr(t, "write", err, io.ErrClosedPipe)
	wantErr(t, "flush", flushed(), io.ErrClosedPipe)
	if _, err := a.Receive(-1); !errors.Is(err, io.EOF) {
		t.Errorf("receive: %v", err)
	}
}

// A Detach whose connection is lost before the answer sends the input again and detaches over the next connection.
// demand: R2
func TestDetachOverNextConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan string, 16)
		var connections atomic.Int64
		o := attachable(t, func(p *peer) {
			isFirst := connections.Add(1) == 1
			for {
				kind, payload, err := p.r.Next()
				if err != nil {
					return
				}
				if kind == frame.Input {
					_, at, data, err := frame.ParseData(payload)
					got <- fmt.Sprintf("input %q at %d, %v", data, at, err)
					continue
				}
				m, _, err := api.Messages.Decode(payload)
				got <- fmt.Sprintf("%T, %v", m, err)
				if isFirst {
					return
				}
				_ = p.write(p.control(api.Detached{Attachment: number}))
			}
		})
		a := attachedBy(t, o)
		if _, err := a.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := a.Detach(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took >= detachTimeout {
			t.Errorf("the Detach took %v", took)
		}
		synctest.Wait()
		close(got)
		var all []string
		for m := range got {
			all = append(all, m)
		}
		input, detach := `input "abc" at 0, <nil>`, "*api.Detach, <nil>"
		equal(t, "the proxies received", all, []string{input, detach, input, detach})
	})
}

// The client waits for an unreachable supervisor, as for a lost connection.
// demand: S8
func TestSupervisorAway(t *testing.T) {
	testkit.CheckLeaks(t)
	f, a, p := view(t)
	p.output(frame.Output, 0, "abc")
	n := uint32(number)
	p.send(api.Error{Attachment: &n, Error: unreachable})
	p = f.accept()
	m := want[*api.Attach](p)
	equal(t, "resume", *m.Resume, protocol.Resume{Instance: "i", Offset: 3})
	p.answer(m, &api.Error{Error: unreachable})
	p = f.accept()
	p.answer(want[*api.Attach](p), &api.Attached{Attachment: number, AttachInfo: exact(3)})
	p.output(frame.Output, 3, "def")
	equal(t, "read", readFull(t, a, 6), "abcdef")
}

// piped returns options for a proxy at the other end of net.Pipe, for tests with a fake clock.
func piped(serve func(nc net.Conn)) Options {
	return Options{Name: "tester", Dial: func(context.Context) (net.Conn, error) {
		a, b := net.Pipe()
		go serve(b)
		return a, nil
	}}
}

// attachable returns options for a piped proxy that answers the attach of each connection, calls then, and closes the connection.
func attachable(t *testing.T, then func(p *peer)) Options {
	return piped(func(nc net.Conn) {
		p := &peer{Conn: nc, t: t, r: frame.NewReader(nc, frame.Max)}
		if _, ok := p.next().(*api.Hello); !ok || p.write(p.control(welcome(nil))) != nil {
			return
		}
		if _, ok := p.next().(*api.Attach); !ok || p.write(p.control(api.Attached{Attachment: number, AttachInfo: exact(0)})) != nil {
			return // the connection for requests, or a client that has closed
		}
		then(p)
		_ = p.Close()
	})
}

// attachedBy returns an attachment of a new client with these options, which ends with the test.
func attachedBy(t *testing.T, o Options) *Attachment {
	t.Helper()
	c, err := Dial(t.Context(), o)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	a, err := c.Attach(t.Context(), "s", AttachOptions{})
	testkit.Must(t, err)
	return a
}

// A proxy that does not answer the hello is given up after helloTimeout, and a connection that cannot be restored
// after Redial.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := piped(func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) })
		silent.Redial = 12 * time.Second
		begun := time.Now()
		_, err := Dial(t.Context(), silent)
		wantErr(t, "a silent proxy", err, ErrIO)
		if took := time.Since(begun); took < 2*helloTimeout || took > silent.Redial {
			t.Errorf("the dial failed after %v", took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		_, err = Dial(ctx, silent)
		if took := time.Since(begun); err == nil || took != time.Second {
			t.Errorf("canceled by its caller: %v after %v", err, took)
		}

		garbage := piped(func(nc net.Conn) {
			_, _ = frame.NewReader(nc, frame.Max).NextRaw()
			_, _ = nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			nc.Close()
		})
		begun = time.Now()
		_, err = Dial(t.Context(), garbage)
		wantErr(t, "no proxy at all", err, ErrDecode)
		if took := time.Since(begun); took > helloTimeout {
			t.Errorf("the attachment failed after %v", took)
		}
	})
}

// Receive returns exactly at its deadline.
// demand: R9
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := make(chan []byte)
		o := attachable(t, func(p *peer) {
			go func() { _, _ = io.Copy(io.Discard, p) }()
			for raw := range say {
				_ = p.write(raw)
			}
		})
		o.Redial = time.Millisecond
		a := attachedBy(t, o)
		for _, timeout := range []time.Duration{0, time.Nanosecond, time.Second, 26 * time.Hour} {
			begun := time.Now()
			_, err := a.Receive(timeout)
			wantErr(t, "no message", err, ErrTimeout)
			if took := time.Since(begun); took != timeout {
				t.Errorf("Receive took %v, want %v", took, timeout)
			}
		}
		raw := frame.AppendData(nil, frame.Output, number, 0, []byte("hi"))
		go func() { time.Sleep(time.Minute); say <- raw }()
		begun := time.Now()
		m, err := a.Receive(time.Hour)
		if err != nil || string(m.Data) != "hi" || time.Since(begun) != time.Minute {
			t.Errorf("got %+v, %v after %v", m, err, time.Since(begun))
		}
		close(say)
		if err := a.Detach(); err != nil {
			t.Error(err)
		}
	})
}

// By default a client uses the proxy of its user, and has a name.
func TestDefaults(t *testing.T) {
	dir := testkit.Dir(t)
	_, err := Dial(t.Context(), Options{Dir: dir})
	wantErr(t, "no proxy there", err, ErrConnect)
	o, err := Options{Dir: dir}.withDefaults()
	if err != nil || o.Redial != defaultRedial || o.Name == "" || o.Dial == nil {
		t.Errorf("got %+v, %v", o, err)
	}
	t.Setenv("HOLDFAST_DIR", "")
	t.Setenv("HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("XDG_CONFIG_HOME", "")
	if _, err := Dial(t.Context(), Options{}); err == nil {
		t.Error("dialed without a directory")
	}
}
