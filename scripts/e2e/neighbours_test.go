package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// flooding prints as fast as it can until a line is typed, and then prints a mark.
var flooding = shell(`stty -echo -opost; echo ready; yes & read x; kill $!; wait; echo MARK; exec cat`)

// prompt limits the time of an echo beside a flood on a busy machine. If a session delays its neighbours,
// their echoes take longer than any limit.
const prompt = 5 * time.Second

// A steadyEcho is a session that echoes all the time, and measures each echo.
type steadyEcho struct {
	stopped atomic.Bool
	done    chan struct{}
	took    []time.Duration
	err     error
}

func (w *world) steadyEcho(c *client.Client, id string) *steadyEcho {
	w.T.Helper()
	v := w.echo(c, id)
	s := &steadyEcho{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		// The pace is limited, so that this session is not a flood itself.
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for i := 0; !s.stopped.Load() && s.err == nil; i++ {
			<-pace.C
			begun := time.Now()
			s.err = echoOnce(v.Attachment, fmt.Sprintf("echo %d\n", i))
			s.took = append(s.took, time.Since(begun))
		}
	}()
	w.T.Cleanup(func() { s.stopped.Store(true); <-s.done })
	return s
}

func echoOnce(a *client.Attachment, text string) error {
	if _, err := io.WriteString(a, text); err != nil {
		return err
	}
	for got := ""; got != text; {
		m, err := a.Receive(prompt)
		if err != nil {
			return fmt.Errorf("waiting for the echo of %q: got %q: %w", text, got, err)
		}
		if got += string(m.Data); !strings.HasPrefix(text, got) {
			return fmt.Errorf("the echo of %q is %q", text, got)
		}
	}
	return nil
}

// check fails the test if an echo failed or came too late.
func (s *steadyEcho) check(t testing.TB) {
	t.Helper()
	s.stopped.Store(true)
	<-s.done
	if s.err != nil {
		t.Error(s.err)
	}
	slices.Sort(s.took)
	t.Logf("%d echoes, p50 %v, p99 %v, max %v", len(s.took), s.took[len(s.took)/2], s.took[len(s.took)*99/100], s.took[len(s.took)-1])
}

// A viewer that does not read must delay no other session, must not make the programs grow, and must be told
// exactly how many bytes it has missed.
// demand: R6, R10
func TestSlowReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	beside := w.steadyEcho(c, "beside")
	w.spawn(c, "flood", flooding)
	slow, err := c.Attach(w.ctx(), "flood", client.AttachOptions{})
	testkit.Must(t, err)
	before := w.usages()
	most := map[string]int{}
	const flood = 24 << 20 // many times the ring, and more than all buffers
	testkit.Eventually(t, 2*limit, func() bool {
		for name := range before {
			most[name] = max(most[name], usageOf(w.Only(name).PID).RSS)
		}
		info, err := c.SessionInfo(t.Context(), "flood")
		return err == nil && info.OutputOffset > flood
	}, "24 MiB are printed")
	for name, was := range before {
		t.Logf("the %s had %d KiB, and at most %d", name, was.RSS, most[name])
		if most[name] > was.RSS+moreRSS() {
			t.Errorf("the %s grew from %d to %d KiB", name, was.RSS, most[name])
		}
	}
	beside.check(t)

	testkit.Must(t, c.Type(w.ctx(), "flood", []byte("\n")))
	count(t, c, slow)
	if err := slow.Detach(); err != nil {
		t.Error(err)
	}
}

// count reads a flooded attachment up to the mark. It compares the bytes received and the bytes reported as
// missed with the bytes printed.
func count(t *testing.T, c *client.Client, a *client.Attachment) {
	t.Helper()
	var missed, received uint64
	info := a.Info()
	pos := info.Offset // the snapshot represents all output before it
	stoodFor := pos
	if info.BytesMissed != 0 {
		t.Errorf("the attach reports %d missed bytes, want 0", info.BytesMissed)
	}
	var tail []byte
	for !bytes.Contains(tail, []byte("MARK")) {
		m, err := a.Receive(limit)
		if err != nil {
			t.Fatalf("at offset %d, after %q: %v", pos, last(string(tail), 100), err)
		}
		switch m.Kind {
		case client.Snapshot, client.Output:
			if m.Kind == client.Output && m.Offset != pos {
				t.Fatalf("output at offset %d, want offset %d", m.Offset, pos)
			}
			if m.Kind == client.Output {
				pos += uint64(len(m.Data))
				received += uint64(len(m.Data))
			}
			tail = append(tail, m.Data...)
			tail = tail[max(0, len(tail)-4096):]
		case client.Missed:
			missed += m.Missed
			stoodFor += m.Offset - pos
			if m.Offset < pos+m.Missed || m.Missed == 0 {
				t.Errorf("a snapshot replaces the output from offset %d to %d, but %d bytes are reported as missed", pos, m.Offset, m.Missed)
			}
			pos, tail = m.Offset, nil
		case client.Resized:
		default:
			t.Fatalf("unexpected message at offset %d: %+v", pos, m)
		}
	}
	after, err := c.SessionInfo(t.Context(), "flood")
	testkit.Must(t, err)
	printed := after.OutputOffset
	t.Logf("%d printed, %d missed, %d received, snapshots represent %d", printed, missed, received, stoodFor)
	if received+stoodFor != printed || missed != a.Missed() || missed == 0 || pos != printed {
		t.Errorf("%d bytes were printed; %d reported as missed (Missed returns %d), %d received, up to offset %d", printed, missed, a.Missed(), received, pos)
	}
}

// Sessions that flood and have viewers that read must not delay other sessions.
func TestFlood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	beside := w.steadyEcho(c, "beside")
	ctx := t.Context()
	for i := range 3 {
		id := protocol.SessionID(fmt.Sprint("flood", i))
		w.spawn(c, string(id), flooding)
		v := w.attach(c, string(id), client.AttachOptions{})
		go func() { _, _ = io.Copy(io.Discard, v.Attachment) }()
	}
	testkit.Eventually(t, 2*limit, func() bool {
		list, err := c.List(ctx, "")
		return err == nil && !slices.ContainsFunc(list, func(i protocol.SessionInfo) bool {
			return i.ID != "beside" && i.OutputOffset < 8<<20
		})
	}, "each flooding session has printed 8 MiB")
	beside.check(t)
}

// If a client dies in the middle of an attach, it must leave no resource behind, and the next client must
// miss no output.
// demand: R6
func TestDeadClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.spawn(c, "s", shell("stty raw -echo; seq 1 2000; echo ready; exec cat"))
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready\n")
	hello := encode(api.Hello{Protocol: protocol.Supported(), Client: "dying"})
	attach := encode(&api.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "s", Mode: protocol.ModeShared}})
	input := frame.AppendData(nil, frame.Input, 1, 0, []byte("half"))
	deaths := [][]byte{
		slices.Concat(hello, attach),
		slices.Concat(hello, attach[:len(attach)-3]),
		slices.Concat(hello, attach, input[:len(input)-2]),
		slices.Concat(hello, attach, attach),
		hello[:7],
	}
	die := func(n int) {
		for i := range n {
			p, err := w.peer("proxy.sock")
			testkit.Must(t, err)
			if _, err := p.Write(deaths[i%len(deaths)]); err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 && i%len(deaths) != 4 { // now and then the client receives the answer
				if _, err := p.receive(); err != nil {
					t.Fatal(err)
				}
			}
			_ = p.Close()
		}
		alone := func() bool {
			info, err := c.SessionInfo(t.Context(), "s")
			return err == nil && info.Attachments == 1
		}
		testkit.Eventually(t, limit, alone, "the connections of the dead clients are detached")
	}
	die(50)
	before := w.usages()
	die(200)
	w.settled(before)
	v.ask("still here")
	next := w.attach(c, "s", client.AttachOptions{})
	if all := next.until("ready\n"); strings.Count(all, "\n") != 2000 || next.Missed() != 0 {
		t.Errorf("the next client received %d lines, and missed %d bytes", strings.Count(all, "\n"), next.Missed())
	}
}

// nonsense returns invalid requests for a socket. The server may answer with an error; then it must close the
// connection.
func nonsense(rnd *rand.Rand) map[string][]byte {
	noise := make([]byte, 256<<10)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	big := frame.AppendHeader(nil, frame.Control, frame.MaxHello+1)
	mux := func(kind byte, flags uint16, stream, length uint32, body ...byte) []byte {
		h := []byte{0, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(h[2:], flags)
		binary.BigEndian.PutUint32(h[4:], stream)
		binary.BigEndian.PutUint32(h[8:], length)
		return append(h, body...)
	}
	bigMux := make([]byte, 0, 2*frame.MaxHello)
	bigMux = append(bigMux, mux(0, 1, 1, uint32(len(big)+frame.MaxHello+1))...)
	bigMux = append(append(bigMux, big...), noise[:frame.MaxHello+1]...)
	return map[string][]byte{
		"random bytes":               noise,
		"few random bytes":           noise[:37],
		"frame of 4 GiB":             {0xff, 0xff, 0xff, 0xff, 0},
		"frame of nothing":           {0, 0, 0, 0, 0, 0, 0, 0},
		"hello over 64 KiB":          append(big, noise[:frame.MaxHello+1]...),
		"hello that is no JSON":      frame.Append(nil, frame.Control, []byte("{\"type\":\"hello\",")),
		"no hello first":             encode(&api.List{Request: protocol.Request{RequestID: "1"}}),
		"HTTP":                       []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"mux: frame of 4 GiB":        mux(0, 1, 1, 5, 0xff, 0xff, 0xff, 0xff, 0),
		"mux: message of 4 GiB":      mux(0, 1, 1, 0xffffffff, noise[:1000]...),
		"mux: window of 4 GiB":       mux(1, 1, 1, 0xffffffff),
		"mux: hello over 64 KiB":     bigMux,
		"mux: hello that is no JSON": slices.Concat(mux(0, 1, 1, 21), frame.Append(nil, frame.Control, []byte("{\"type\":\"hello\","))),
		"mux: unknown kind":          mux(9, 0, 1, 0),
		"mux: streams before hello":  bytes.Repeat(mux(1, 1, 1, 0), 10_000),
	}
}

// The server must close a connection that sends nonsense, and no other client may be affected.
func TestNonsense(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t)
	c := w.dial(client.Options{})
	beside := w.steadyEcho(c, "beside")
	held, proxy := w.Only("supervisor"), w.Only("proxy")
	round := func(seq uint64, sockets ...string) {
		var wg sync.WaitGroup
		for name, said := range nonsense(rand.New(rand.NewPCG(seed, seq))) {
			for _, socket := range sockets {
				wg.Go(func() {
					if err := w.sendUntilClosed(socket, said); err != nil {
						t.Errorf("%s, %s: %v", socket, name, err)
					}
				})
			}
		}
		wg.Wait()
	}
	round(0, "proxy.sock", "supervisor.sock", "proxy.web.sock")
	before := w.usages()
	var control sync.WaitGroup
	control.Go(func() { round(1, "proxy.control.sock") }) // this socket has a longer time limit
	round(2, "proxy.sock", "supervisor.sock", "proxy.web.sock")
	round(3, "proxy.sock", "supervisor.sock", "proxy.web.sock")
	control.Wait()
	w.settled(before)
	beside.check(t)
	if w.Only("supervisor") != held || w.Only("proxy") != proxy {
		t.Error("a process was replaced")
	}
}

// sendUntilClosed sends bytes, and returns nil when the server has closed the connection.
func (w *world) sendUntilClosed(socket string, said []byte) error {
	nc, err := net.Dial("unix", w.Path(socket))
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(limit))
	_, _ = nc.Write(said)            // the server may close before all bytes were written
	_, err = io.Copy(io.Discard, nc) // the answer
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the server did not close the connection within the limit")
	}
	return nil
}

// The server must close a silent connection after 2 s, not earlier.
func TestSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.echo(w.dial(client.Options{}), "s")
	for _, socket := range []string{"proxy.sock", "supervisor.sock"} {
		for _, said := range [][]byte{nil, {0, 0}} {
			t.Run(fmt.Sprint(socket, len(said)), func(t *testing.T) {
				t.Parallel()
				begun := time.Now()
				if err := w.sendUntilClosed(socket, said); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took < 1900*time.Millisecond || took > limit/2 {
					t.Errorf("the connection was closed after %v, want 2s", took)
				}
			})
		}
	}
	v.ask("still here")
}
