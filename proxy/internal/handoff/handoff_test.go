//go:build unix

package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// patience is the time after which a test fails if an expected event does not come. soonish is below the package's
// time-out, for calls that must not wait for it.
const (
	patience = 30 * time.Second
	soonish  = Timeout / 2
)

// An old proxy serves its control socket and has files to give.
type old struct {
	dir, control string
	offer        *Offer
	ctx          context.Context // of Serve; it may end before the test
	left         chan bool       // receives the argument handed of each call of Leave
	back         chan struct{}   // receives a value for each call of Back
	api          *socket.Listener
}

// newOld starts an old proxy that serves until the test's end. change may be nil, or change the proxy.
func newOld(t *testing.T, change func(*old)) *old {
	t.Helper()
	testkit.CheckLeaks(t)
	dir := testkit.Dir(t)
	o := &old{dir: dir, ctx: context.Background(), control: filepath.Join(dir, "control"), left: make(chan bool, 8), back: make(chan struct{}, 8)}
	var err error
	if o.api, err = socket.Listen(filepath.Join(dir, "api"), socket.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.api.Close() })
	ln, err := socket.Listen(o.control, socket.Options{})
	testkit.Must(t, err)
	o.offer = &Offer{
		Build: "1.0", Files: o.files, Records: hello.Records, Log: zerolog.Nop(),
		Look:  func(_ context.Context, body json.RawMessage) (json.RawMessage, error) { return body, nil },
		Move:  func(Pass) (int, error) { return 0, nil },
		State: func() []byte { return nil },

		Settings: func() json.RawMessage { return nil },
		Back:     func() { o.back <- struct{}{} },
		Leave:    func(handed bool) { o.left <- handed },
	}
	if change != nil {
		change(o)
	}
	done := make(chan error, 1)
	go func() { done <- o.offer.Serve(o.ctx, ln) }()
	t.Cleanup(func() {
		ln.Close()
		if err := testkit.Within(t, patience, "Serve returns", done); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return o
}

// files returns the listener with its lock, and a file with a text.
func (o *old) files() ([]Group, []*os.File, error) {
	files, err := o.api.Files()
	if err != nil {
		return nil, nil, err
	}
	text := filepath.Join(o.dir, "text")
	if err := os.WriteFile(text, []byte("the text"), 0o600); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(text)
	if err != nil {
		return nil, nil, err
	}
	return []Group{{"api", 2}, {"none", 0}, {"text", 1}}, append(files, f), nil
}

// staying fails the test if the old proxy has left.
func (o *old) staying(t *testing.T) {
	t.Helper()
	select {
	case <-o.left:
		t.Error("the old proxy has left")
	default:
	}
}

// begin begins a handoff. If another one is in progress, it waits for its end.
func begin(t *testing.T, o *old) *Take {
	t.Helper()
	var take *Take
	testkit.Eventually(t, patience, func() (ok bool) {
		var err error
		take, err = Begin(testkit.Soon(t), o.control, hello)
		if err != nil && protocol.CodeOf(err) != protocol.CodeLimitExceeded {
			t.Fatal(err)
		}
		return err == nil
	}, "the old proxy accepts a handoff")
	return take
}

// At every moment a process listens. The old proxy leaves after the new one serves, and not before.
// demand: S9
func TestTakeOver(t *testing.T) {
	knock := func(o *old) {
		t.Helper()
		conn, err := net.Dial("unix", o.api.Path())
		if err != nil {
			t.Errorf("no process listens: %v", err)
			return
		}
		conn.Close()
	}
	o := newOld(t, func(o *old) {
		o.offer.Leave = func(handed bool) {
			if err := o.api.Release(); err != nil {
				t.Error(err)
			}
			knock(o)
			o.left <- handed
		}
	})
	take, err := Begin(testkit.Soon(t), o.control, hello)
	testkit.Must(t, err)
	if take.PID != os.Getpid() || take.Version != "1.0" {
		t.Errorf("the handoff is from %d %q", take.PID, take.Version)
	}
	if take.Files("unknown") != nil || len(take.Files("none")) != 0 {
		t.Error("groups without files have files")
	}
	text := take.Files("text")
	if b, err := io.ReadAll(text[0]); err != nil || string(b) != "the text" {
		t.Errorf("read %q, %v", b, err)
	}
	text[0].Close()
	ln, err := socket.Adopt(o.api.Path(), take.Files("api"), socket.Options{})
	testkit.Must(t, err)
	defer ln.Close()
	o.staying(t)
	knock(o)
	if err := finish(take); err != nil {
		t.Error(err)
	}
	if handed := testkit.Within(t, patience, "the old proxy leaves", o.left); !handed {
		t.Error("Leave was called with handed = false")
	}
	knock(o)
	if conn, _, err := ln.Accept(); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
}

// If a successor dies before it serves, at any step, the old proxy continues as if there had been no handoff.
// demand: S9
func TestSuccessorDies(t *testing.T) {
	o := newOld(t, nil)
	for range 3 {
		take := begin(t, o)
		take.Files("text")[0].Close()
		die(take)
	}
	conn := dialControl(t, o) // dies before it has read the offer
	testkit.Must(t, say(conn, message{Do: "take", Versions: supported}, nil))
	conn.Close()
	o.staying(t)
	if c, err := net.Dial("unix", o.api.Path()); err != nil {
		t.Errorf("the old proxy does not listen: %v", err)
	} else {
		c.Close()
	}
	take := begin(t, o)
	o.staying(t)
	if err := finish(take); err != nil {
		t.Error(err)
	}
	if handed := testkit.Within(t, patience, "the old proxy leaves", o.left); !handed {
		t.Error("Leave was called with handed = false")
	}
}

func dialControl(t *testing.T, o *old) *net.UnixConn {
	t.Helper()
	conn, _, err := socket.Dial(testkit.Soon(t), o.control)
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestTwoAtOnce(t *testing.T) {
	o := newOld(t, nil)
	first := begin(t, o)
	_, err := Begin(testkit.Soon(t), o.control, hello)
	if e := protocol.AsError(err); e == nil || e.Code != protocol.CodeLimitExceeded || !e.Retryable || e.RetryAfterMS == 0 {
		t.Errorf("the second successor: %v", err)
	}
	_, err = Stop(testkit.Soon(t), o.control)
	if protocol.CodeOf(err) != protocol.CodeLimitExceeded {
		t.Errorf("stop during the handoff: %v", err)
	}
	die(first)
	third := begin(t, o)
	o.staying(t)
	if err := finish(third); err != nil {
		t.Error(err)
	}
}

// Connections that send half a message take a limited number of descriptors of the old proxy, and a request behind them is served.
func TestHalfMessages(t *testing.T) {
	o := newOld(t, nil)
	var halves []*net.UnixConn
	for range maxConversations + 10 {
		conn := dialControl(t, o)
		testkit.Must(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err := conn.Write([]byte{0})
		testkit.Must(t, err)
		halves = append(halves, conn)
	}
	last := dialControl(t, o)
	testkit.Must(t, say(last, message{Do: "take", Versions: supported, Records: hello.Records}, nil))
	testkit.Must(t, last.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if n, err := last.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("served beyond the limit: %d bytes, %v", n, err)
	}
	for _, conn := range halves {
		conn.Close()
	}
	if _, err := heard(last, "offer"); err != nil {
		t.Error(err)
	}
}

// demand: S13
func TestVersions(t *testing.T) {
	o := newOld(t, nil)
	theirs := protocol.VersionRange{Min: Version + 1, Max: Version + 3}
	conn := dialControl(t, o)
	testkit.Must(t, say(conn, message{Do: "take", Versions: theirs}, nil))
	_, _, err := received(conn, "offer")
	if e := protocol.AsError(err); e.Code != protocol.CodeProtocolMismatch || e.Local == nil || *e.Local != supported || e.Remote == nil || *e.Remote != theirs {
		t.Errorf("a newer successor receives %+v", err)
	}
	o.staying(t)

	// The new proxy returns the error of an old one.
	path := fakeOld(t, func(conn *net.UnixConn) {
		_ = say(conn, message{Do: "error", Error: &protocol.Error{Code: protocol.CodeProtocolMismatch, Local: &theirs, Remote: &supported}}, nil)
	})
	_, err = Begin(testkit.Soon(t), path, hello)
	if e := protocol.AsError(err); e == nil || e.Code != protocol.CodeProtocolMismatch || *e.Local != theirs || *e.Remote != supported {
		t.Errorf("received %v", err)
	}
}

func TestNothingToGive(t *testing.T) {
	o := newOld(t, func(o *old) {
		o.offer.Files = func() ([]Group, []*os.File, error) {
			return nil, nil, protocol.Errorf(protocol.CodeClosed, "on the way out")
		}
	})
	if _, err := Begin(testkit.Soon(t), o.control, hello); protocol.CodeOf(err) != protocol.CodeClosed {
		t.Errorf("received %v", err)
	}
	o.staying(t)
	if _, err := Begin(testkit.Soon(t), filepath.Join(o.dir, "nobody"), hello); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a proxy: %v", err)
	}
}

// Invalid requests end their connection, and the old proxy continues.
func TestBadRequests(t *testing.T) {
	o := newOld(t, nil)
	file, err := os.Open(os.DevNull)
	testkit.Must(t, err)
	defer file.Close()
	for name, does := range map[string]func(*net.UnixConn) error{
		"nothing":      func(*net.UnixConn) error { return nil },
		"a line":       func(c *net.UnixConn) error { _, err := c.Write([]byte("take\n")); return err },
		"4 GiB":        func(c *net.UnixConn) error { _, err := c.Write([]byte{255, 255, 255, 255, 0, 0}); return err },
		"no JSON":      func(c *net.UnixConn) error { return socket.SendFiles(c, []byte("{{{"), nil) },
		"null":         func(c *net.UnixConn) error { return socket.SendFiles(c, []byte("null"), nil) },
		"another word": func(c *net.UnixConn) error { return say(c, message{Do: "serving"}, nil) },
		"an error":     func(c *net.UnixConn) error { return say(c, message{Do: "error", Error: &protocol.Error{}}, nil) },
		"fewer than none": func(c *net.UnixConn) error {
			return say(c, message{Do: "take", Groups: []Group{{"a", -1}, {"b", 1}}}, nil)
		},
		"unnamed files": func(c *net.UnixConn) error { return say(c, message{Do: "take"}, []*os.File{file}) },
		"files, and named": func(c *net.UnixConn) error {
			return say(c, message{Do: "stop!", Groups: []Group{{"a", 1}}}, []*os.File{file})
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialControl(t, o)
			testkit.Must(t, does(conn))
			_ = conn.CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			if b, err := io.ReadAll(conn); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the reply is %q, %v", b, err)
			}
			o.staying(t)
		})
	}
	// The second message may be invalid, too.
	for name, m := range map[string]message{"another word": {Do: "take"}, "fewer than none": {Do: "serving", Groups: []Group{{"a", -1}}}} {
		t.Run("then "+name, func(t *testing.T) {
			take := begin(t, o)
			testkit.Must(t, say(take.peer.conn, m, nil))
			_ = take.peer.conn.SetReadDeadline(time.Now().Add(patience))
			if _, err := heard(take.peer.conn, "go"); protocol.CodeOf(err) != protocol.CodeInternal || errors.Is(err, ErrGone) {
				t.Errorf("received %v", err)
			}
			die(take)
			o.staying(t)
		})
	}
}

// fakeOld listens in the place of an old proxy, and answers one request. It does not listen any more before it answers.
func fakeOld(t *testing.T, answer func(*net.UnixConn)) (path string) {
	t.Helper()
	path = filepath.Join(testkit.Dir(t), "control")
	ln, err := net.Listen("unix", path)
	testkit.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := heard(conn.(*net.UnixConn), "take", "stop", "sign_out"); err != nil {
			t.Errorf("the request is %v", err)
		}
		_ = ln.Close()
		answer(conn.(*net.UnixConn))
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return path
}

// An invalid offer is refused, and none of its descriptors stays open.
func TestBadOffers(t *testing.T) {
	testkit.CheckLeaks(t)
	file, err := os.Open(os.DevNull)
	testkit.Must(t, err)
	defer file.Close()
	const huge = 1 << 62 // the sum of four of them overflows to 0
	for name, answer := range map[string]func(*net.UnixConn){
		"nothing":         func(*net.UnixConn) {},
		"garbage":         func(c *net.UnixConn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n")) },
		"no JSON":         func(c *net.UnixConn) { _ = socket.SendFiles(c, []byte("x"), []*os.File{file}) },
		"another word":    func(c *net.UnixConn) { _ = say(c, message{Do: "done"}, nil) },
		"fewer than none": func(c *net.UnixConn) { _ = say(c, message{Do: "offer", Groups: []Group{{"a", -1}, {"b", 1}}}, nil) },
		"far too many": func(c *net.UnixConn) {
			_ = say(c, message{Do: "offer", Groups: []Group{{"a", huge}, {"b", huge}, {"c", huge}, {"d", huge}}}, nil)
		},
		"one missing":  func(c *net.UnixConn) { _ = say(c, message{Do: "offer", Groups: []Group{{"a", 2}}}, []*os.File{file}) },
		"one too many": func(c *net.UnixConn) { _ = say(c, message{Do: "offer", Groups: []Group{{"a", 0}}}, []*os.File{file}) },
	} {
		t.Run(name, func(t *testing.T) {
			take, err := Begin(testkit.Soon(t), fakeOld(t, answer), hello)
			if err == nil {
				t.Errorf("taken: %+v", take.groups)
				die(take)
			}
		})
	}
}

// The old proxy may die after its offer. The new one serves anyway, and Serving returns that the old one has not
// confirmed.
func TestOldVanishes(t *testing.T) {
	testkit.CheckLeaks(t)
	for name, then := range map[string]func(*net.UnixConn){
		"at once":         func(*net.UnixConn) {},
		"with a bad word": func(c *net.UnixConn) { _, _ = heard(c, "prepared"); _ = say(c, message{Do: "offer"}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			path := fakeOld(t, func(c *net.UnixConn) {
				_ = say(c, message{Do: "offer", Versions: supported}, nil)
				then(c)
			})
			take, err := Begin(testkit.Soon(t), path, hello)
			testkit.Must(t, err)
			if err := finish(take); err == nil {
				t.Error("Serving succeeded although the old proxy has died")
			}
		})
	}
}

// SignOut asks a proxy to sign out all browsers, and returns its error.
func TestSignOut(t *testing.T) {
	var n atomic.Int32
	o := newOld(t, func(o *old) {
		o.offer.SignOut = func() error {
			if n.Add(1) > 1 {
				return protocol.Errorf(protocol.CodeInternal, "disk full")
			}
			return nil
		}
	})
	if err := SignOut(testkit.Soon(t), o.control); err != nil || n.Load() != 1 {
		t.Errorf("%v, executed %d times", err, n.Load())
	}
	testkit.Eventually(t, patience, func() bool {
		err := SignOut(testkit.Soon(t), o.control)
		return protocol.CodeOf(err) == protocol.CodeInternal
	}, "SignOut returns the failure")
	if err := SignOut(testkit.Soon(t), fakeOld(t, func(*net.UnixConn) {})); !errors.Is(err, ErrGone) {
		t.Errorf("a proxy that is too old: %v", err)
	}
	o.staying(t)
}

// Stop returns after the proxy has left.
func TestStop(t *testing.T) {
	leave := make(chan struct{})
	o := newOld(t, func(o *old) { o.offer.Leave = func(handed bool) { <-leave; o.left <- handed } })
	type stopped struct {
		pid int
		err error
	}
	done := make(chan stopped, 1)
	go func() { pid, err := Stop(testkit.Soon(t), o.control); done <- stopped{pid, err} }()
	close(leave)
	if s := testkit.Within(t, patience, "Stop returns", done); s.err != nil || s.pid != os.Getpid() {
		t.Errorf("%+v", s)
	}
	select {
	case handed := <-o.left:
		if handed {
			t.Error("Leave was called with handed = true")
		}
	default:
		t.Error("Stop has returned before the proxy had left")
	}
	for name, answer := range map[string]func(*net.UnixConn){
		"nothing":  func(*net.UnixConn) {},
		"a no":     func(c *net.UnixConn) { _ = say(c, message{Do: "error", Error: &protocol.Error{Code: "x"}}, nil) },
		"an offer": func(c *net.UnixConn) { _ = say(c, message{Do: "offer"}, nil) },
	} {
		if _, err := Stop(testkit.Soon(t), fakeOld(t, answer)); err == nil {
			t.Errorf("Stop succeeded with the reply %s", name)
		} else if name == "nothing" && !socket.IsAbsent(err) {
			t.Errorf("of a proxy that was ending already: %v, want that none runs", err)
		}
	}
	if _, err := Stop(testkit.Soon(t), filepath.Join(o.dir, "nobody")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a proxy: %v", err)
	}
}

// However many processes request a stop or a handoff, the proxy leaves once.
func TestLeaveOnce(t *testing.T) {
	o := newOld(t, nil)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if i%2 == 0 {
				_, _ = Stop(testkit.Soon(t), o.control)
				return
			}
			if take, err := Begin(testkit.Soon(t), o.control, hello); err == nil {
				_ = finish(take)
			}
		})
	}
	wg.Wait()
	testkit.Within(t, patience, "the old proxy leaves", o.left) // the requester may have its answer before Leave is called
	if n := len(o.left); n != 0 {
		t.Errorf("Leave was called %d times more", n)
	}
}

// A peer that has closed its connection delays no other one.
func TestNoWaiting(t *testing.T) {
	o := newOld(t, nil)
	begun := time.Now()
	for range 10 {
		conn := dialControl(t, o)
		_ = say(conn, message{Do: "take", Versions: supported}, nil)
		conn.Close()
	}
	die(begin(t, o))
	if took := time.Since(begun); took > soonish {
		t.Errorf("the handoffs took %v", took)
	}
}

// hello is the hello of a successor.
var hello = Hello{Build: "2.0", Records: protocol.VersionRange{Min: 1, Max: 1}}

// finish completes a handoff without connections.
func finish(take *Take) error {
	var files []*os.File
	defer func() { _ = closeAll(files) }()
	_, _, err := take.Prepared(func(conns []Conn, _ []byte, _ <-chan struct{}) error {
		for _, c := range conns {
			files = append(files, c.File)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return take.Serving()
}

// die closes the files of a successor, as the end of its process does.
func die(take *Take) { _ = errors.Join(closeAll(take.files), take.peer.conn.Close()) }

// say sends one message as the other end of a connection.
func say(c *net.UnixConn, m message, files []*os.File) error {
	return (&peer{conn: c}).send(m, files)
}

func heard(c *net.UnixConn, do ...string) (message, error) {
	return (&peer{conn: c}).receivePlain(do...)
}

func received(c *net.UnixConn, do ...string) (message, []*os.File, error) {
	return (&peer{conn: c}).receive(do...)
}
