//go:build unix

package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/machine"
	"holdfast/shared/testkit"
)

// conns returns n connections with their far ends.
func conns(t *testing.T, n int) (near []Conn, far []*net.UnixConn) {
	t.Helper()
	for i := range n {
		a, b, err := socketPair(t)
		testkit.Must(t, err)
		f, err := machine.Duplicate(a, "client")
		testkit.Must(t, err)
		t.Cleanup(func() { f.Close() })
		near, far = append(near, Conn{Record: fmt.Appendf(nil, "record %d", i), File: f}), append(far, b)
	}
	return near, far
}

func socketPair(t *testing.T) (a, b *net.UnixConn, err error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: testkit.Dir(t) + "/pair", Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if a, err = net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr)); err != nil {
		return nil, nil, err
	}
	b, err = ln.AcceptUnix()
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b, err
}

// greet writes a word to each connection and closes it.
func greet(t *testing.T, conns []Conn) {
	t.Helper()
	for i, c := range conns {
		if want := fmt.Sprint("record ", i); string(c.Record) != want {
			t.Errorf("record %q, want %q", c.Record, want)
		}
		if _, err := c.File.WriteString("hello"); err != nil {
			t.Error(err)
		}
		c.File.Close()
	}
}

func greeted(t *testing.T, far []*net.UnixConn) {
	t.Helper()
	for _, c := range far {
		buf := make([]byte, 10)
		testkit.Must(t, c.SetReadDeadline(time.Now().Add(patience)))
		if n, err := c.Read(buf); string(buf[:n]) != "hello" {
			t.Errorf("read %q, %v", buf[:n], err)
		}
	}
}

// moving returns an old proxy that moves connections, and the results of the moves.
func moving(t *testing.T, given []Conn, state string) (o *old, result chan error) {
	result = make(chan error, 8)
	return newOld(t, func(o *old) {
		o.offer.Records.Max++ // an old proxy may know a later version of records than its successor
		o.offer.Move = func(pass Pass) (int, error) {
			err := pass(given, []byte(state))
			result <- err
			return 3, err
		}
		o.offer.State = func() []byte { return []byte(state) }
	}), result
}

// demand: S9
func TestConnectionsAreGiven(t *testing.T) {
	given, far := conns(t, AtOnce)
	o, moved := moving(t, given, "state")
	take := begin(t, o)
	if body, err := take.Look(json.RawMessage(`["a"]`)); err != nil || string(body) != `["a"]` {
		t.Errorf("the look returned %s, %v", body, err)
	}
	var theirs atomic.Bool // the connections must not be used before the old proxy has released them
	closed, state, err := take.Prepared(func(conns []Conn, state []byte, ours <-chan struct{}) error {
		if string(state) != "state" || len(conns) != AtOnce {
			t.Errorf("%d connections with %q", len(conns), state)
		}
		select {
		case <-ours:
			t.Error("the connections were released too early")
		default:
		}
		go func() { <-ours; theirs.Store(true); greet(t, conns) }()
		return nil
	})
	if err != nil || closed != 3 || string(state) != "state" {
		t.Fatalf("closed %d, state %q, %v", closed, state, err)
	}
	if err := testkit.Within(t, patience, "all are given", moved); err != nil {
		t.Error(err)
	}
	o.staying(t) // the last message was not sent yet
	greeted(t, far)
	if err := take.Serving(); err != nil {
		t.Error(err)
	}
	if !testkit.Within(t, patience, "the old proxy leaves", o.left) {
		t.Error("Leave was called with handed = false")
	}
}

// If a successor fails after it has received connections, the old proxy continues to serve them, and the successor
// receives an error.
// demand: S9
func TestTakenBack(t *testing.T) {
	bad := errors.New("cannot read that")
	for name, does := range map[string]func(*testing.T, *Take){
		"refuses": func(t *testing.T, take *Take) {
			files := take.files
			_, _, err := take.Prepared(func(conns []Conn, _ []byte, ours <-chan struct{}) error {
				t.Cleanup(func() { isNotOurs(t, ours) })
				for _, c := range conns {
					c.File.Close()
				}
				return bad
			})
			if !errors.Is(err, bad) || errors.Is(err, ErrGone) {
				t.Errorf("Prepared returned %v", err)
			}
			for _, f := range files {
				if err := f.Close(); !errors.Is(err, os.ErrClosed) {
					t.Errorf("after Prepared has failed, the file %s of the old proxy is still open: %v", f.Name(), err)
				}
			}
		},
		"dies": func(t *testing.T, take *Take) {
			_ = say(take.peer.conn, message{Do: "prepared"}, nil)
			_, files, _ := received(take.peer.conn, "conns")
			_ = closeAll(files)
			die(take)
		},
		"dies before": func(t *testing.T, take *Take) {
			_ = say(take.peer.conn, message{Do: "prepared"}, nil)
			die(take)
		},
		"says something else": func(t *testing.T, take *Take) {
			_ = say(take.peer.conn, message{Do: "prepared"}, nil)
			_, files, _ := received(take.peer.conn, "conns")
			_ = closeAll(files)
			_ = say(take.peer.conn, message{Do: "serving"}, nil)
			if _, err := heard(take.peer.conn, "go"); err == nil || errors.Is(err, ErrGone) {
				t.Errorf("the successor received %v", err)
			}
			die(take)
		},
		"is slow": func(t *testing.T, take *Take) {
			var begun time.Time
			_, _, err := take.Prepared(func(conns []Conn, _ []byte, ours <-chan struct{}) error {
				t.Cleanup(func() { isNotOurs(t, ours) })
				for _, c := range conns {
					c.File.Close()
				}
				time.Sleep(batchTime + batchTime/2) // the successor is slow
				begun = time.Now()
				return nil
			})
			if err == nil || errors.Is(err, ErrGone) || time.Since(begun) > soonish {
				t.Errorf("Prepared returned %v after %v", err, time.Since(begun))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			given, far := conns(t, 2)
			o, moved := moving(t, given, "")
			does(t, begin(t, o))
			if err := testkit.Within(t, patience, "the move ends", moved); err == nil {
				t.Errorf("the move ended with %v", err)
			}
			testkit.Within(t, patience, "the old proxy serves on", o.back)
			greet(t, given)
			greeted(t, far)
			o.staying(t)
			if take := begin(t, o); take != nil { // another handoff may begin
				die(take)
			}
		})
	}
}

func isNotOurs(t *testing.T, ours <-chan struct{}) {
	t.Helper()
	select {
	case <-ours:
		t.Error("the connections were released to the successor, too")
	default:
	}
}

// A successor that has received everything and dies before it sends serving has not taken over.
func TestNoLastWord(t *testing.T) {
	o, _ := moving(t, nil, "")
	take := begin(t, o)
	if _, _, err := take.Prepared(func([]Conn, []byte, <-chan struct{}) error { return nil }); err != nil {
		t.Fatal(err)
	}
	die(take)
	testkit.Within(t, patience, "the old proxy serves on", o.back)
	o.staying(t)
}

// If the old proxy dies after it has sent its connections, the successor has them, whether or not the old one has
// confirmed.
// demand: S9
func TestOldDiesWhileItGives(t *testing.T) {
	for name, says := range map[string]string{"before it lets go": "", "after it has": "go"} {
		t.Run(name, func(t *testing.T) {
			given, far := conns(t, 2)
			path := fakeOld(t, func(c *net.UnixConn) {
				_ = say(c, message{Do: "offer", Versions: supported}, nil)
				_, _ = heard(c, "prepared")
				_ = parcel{conns: given}.send(&peer{conn: c}, message{Do: "conns"})
				_, _ = heard(c, "attached")
				if says != "" {
					_ = say(c, message{Do: says}, nil)
				}
			})
			take, err := Begin(testkit.Soon(t), path, hello)
			testkit.Must(t, err)
			_, _, err = take.Prepared(func(conns []Conn, _ []byte, ours <-chan struct{}) error {
				go func() { <-ours; greet(t, conns) }()
				return nil
			})
			if !errors.Is(err, ErrGone) {
				t.Errorf("Prepared returned %v", err)
			}
			greeted(t, far)
		})
	}
}

// If the last message of a successor comes after the old proxy has given up, only the old proxy serves.
// demand: S9
func TestServingTooLate(t *testing.T) {
	o := newOld(t, func(o *old) { o.offer.Wait = 50 * time.Millisecond })
	take := begin(t, o)
	if _, _, err := take.Prepared(func([]Conn, []byte, <-chan struct{}) error { return nil }); err != nil {
		t.Fatal(err)
	}
	testkit.Within(t, patience, "the old proxy serves on", o.back)
	if err := take.Serving(); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("Serving returned %v, but the old proxy serves", err)
	}
	o.staying(t)
}

// A successor that has taken too long for its last steps must know that.
func TestCheckTime(t *testing.T) {
	take := &Take{prepared: time.Now()}
	if err := take.CheckTime(); err != nil {
		t.Error(err)
	}
	take.prepared = take.prepared.Add(-lastTime - time.Second)
	if err := take.CheckTime(); err == nil {
		t.Error("a successor may serve although the old proxy may serve again")
	}
}

// An old proxy of a release that does not confirm the last message leaves nevertheless.
func TestUnconfirmed(t *testing.T) {
	served := make(chan struct{})
	path := fakeOld(t, func(c *net.UnixConn) {
		_ = say(c, message{Do: "offer", Versions: supported}, nil)
		_, _ = heard(c, "prepared")
		_ = say(c, message{Do: "done"}, nil)
		_, _ = heard(c, "serving")
		<-served // its clients leave
	})
	t.Cleanup(func() { close(served) })
	take, err := Begin(testkit.Soon(t), path, hello)
	testkit.Must(t, err)
	if err := finish(take); err != nil {
		t.Error(err)
	}
}

// A refused successor that reports too late that it serves, and does not read that it is refused, is killed. One that
// has read it ends by itself. One that has connections, and closes the conversation without a word, may live, and is killed.
func TestDismiss(t *testing.T) {
	for name, tt := range map[string]struct {
		says     []message
		hasGiven bool
		isKilled bool
	}{
		"serves":                     {[]message{{Do: "serving"}}, false, true},
		"serves, and ends":           {[]message{{Do: "serving"}, {Do: "error", Error: &protocol.Error{Code: "x"}}}, false, false},
		"ends":                       {nil, false, false},
		"says nonsense":              {[]message{{Do: "nonsense"}}, false, false},
		"closes with connections":    {nil, true, true},
		"gives up with connections":  {[]message{{Do: "error", Error: &protocol.Error{Code: "x"}}}, true, false},
		"nonsense, with connections": {[]message{{Do: "nonsense"}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			successor := exec.Command("sleep", "60")
			testkit.Must(t, successor.Start())
			ended := make(chan error, 1)
			go func() { ended <- successor.Wait() }()
			near, far, err := socketPair(t)
			testkit.Must(t, err)
			for _, m := range tt.says {
				testkit.Must(t, say(far, m, nil))
			}
			far.Close()
			dismiss(&peer{conn: near}, processOf(successor.Process.Pid), tt.hasGiven)
			near.Close()
			want := syscall.SIGKILL
			if !tt.isKilled { // if it was killed before, this signal does not end it
				want = syscall.SIGTERM
				_ = successor.Process.Signal(want)
			}
			var exit *exec.ExitError
			if err := testkit.Within(t, patience, "the successor ends", ended); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != want {
				t.Errorf("the successor ended by %v, want %v", err, want)
			}
		})
	}
}

// A successor that cannot read the old proxy's records is refused before any connection is frozen.
// demand: S13
func TestUnknownRecords(t *testing.T) {
	o := newOld(t, func(o *old) { o.offer.Records = protocol.VersionRange{Min: 1, Max: 1} })
	later := Hello{Build: "9.0", Records: protocol.VersionRange{Min: 2, Max: 4}}
	_, err := Begin(testkit.Soon(t), o.control, later)
	if protocol.CodeOf(err) != protocol.CodeProtocolMismatch || !strings.Contains(err.Error(), "1-1") {
		t.Errorf("received %v", err)
	}
	o.staying(t)
}

// A handoff that the successor leaves changes nothing in the old proxy.
func TestLeave(t *testing.T) {
	o := newOld(t, nil)
	for range 3 {
		if err := begin(t, o).Leave(); err != nil {
			t.Error(err)
		}
	}
	o.staying(t)
	if len(o.back) > 0 {
		t.Error("the old proxy has stopped to serve in between")
	}
}

// A successor that does not continue within the time that it has requested is given up.
func TestPreparingTakesTooLong(t *testing.T) {
	o := newOld(t, nil)
	conn := dialControl(t, o)
	begun := time.Now()
	err := say(conn, message{Do: "take", Versions: supported, Records: hello.Records, TimeoutMS: 50}, nil)
	for err == nil { // on a busy machine, the time may have passed before the offer
		var files []*os.File
		_, files, err = received(conn, "offer")
		_ = closeAll(files)
	}
	if errors.Is(err, ErrGone) {
		t.Errorf("received %v", err)
	}
	if took := time.Since(begun); took > soonish {
		t.Errorf("after %v", took)
	}
	_ = conn.Close()
	o.staying(t)
}

// A proxy that is ended while its successor prepares ends the handoff with an error, before it closes its listeners.
// demand: S9
func TestEndWhilePreparing(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	o := newOld(t, func(o *old) { o.ctx = ctx })
	take := begin(t, o)
	defer die(take)
	end()
	finished := make(chan struct{}, 1)
	go func() { o.offer.Finish(); finished <- struct{}{} }()
	if _, err := take.Look(json.RawMessage(`[]`)); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("the successor received %v", err)
	}
	if len(finished) > 0 {
		t.Error("Finish has returned before the handoff has ended")
	}
	take.GiveUp(errEnding)
	testkit.Within(t, patience, "Finish returns", finished)
	if _, err := Begin(testkit.Soon(t), o.control, hello); protocol.CodeOf(err) != protocol.CodeLimitExceeded {
		t.Errorf("another handoff: %v", err)
	}
	o.staying(t)
}

// A proxy that is ended while it moves its connections completes the handoff.
// demand: S9
func TestEndWhileMoving(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	o := newOld(t, func(o *old) { o.ctx = ctx })
	take := begin(t, o)
	if _, _, err := take.Prepared(func([]Conn, []byte, <-chan struct{}) error { return nil }); err != nil {
		t.Fatal(err)
	}
	end()
	finished := make(chan struct{}, 1)
	go func() { o.offer.Finish(); finished <- struct{}{} }()
	if err := take.Serving(); err != nil {
		t.Error(err)
	}
	testkit.Within(t, patience, "Finish returns", finished)
	if handed := testkit.Within(t, patience, "the old proxy leaves", o.left); !handed {
		t.Error("Leave was called with handed = false")
	}
}

// The time for preparing does not limit how long the old proxy may take for a batch, because the clients of earlier
// batches would lose their connections.
// demand: S9
func TestSlowBatch(t *testing.T) {
	given, _ := conns(t, 2)
	short := hello
	short.Timeout = 2 * time.Second // 0.2 s were too short for the preparation on a busy machine
	o := newOld(t, func(o *old) {
		o.offer.Move = func(pass Pass) (int, error) {
			if err := pass(given[:1], nil); err != nil {
				return 0, err
			}
			time.Sleep(short.Timeout + short.Timeout/10) // a test of a time limit has to wait for it
			return 0, pass(given[1:], nil)
		}
	})
	take, err := Begin(testkit.Soon(t), o.control, short)
	testkit.Must(t, err)
	if err := finish(take); err != nil {
		t.Errorf("a slow batch has ended the handoff: %v", err)
	}
}

// A failed look ends the handoff, and its error reaches the successor.
func TestLookFails(t *testing.T) {
	o := newOld(t, func(o *old) {
		o.offer.Look = func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, "no link")
		}
	})
	take := begin(t, o)
	if _, err := take.Look(json.RawMessage(`[]`)); protocol.CodeOf(err) != protocol.CodeSupervisorUnreachable {
		t.Errorf("received %v", err)
	}
	die(take)
	o.staying(t)
}

// An invalid parcel is refused, and all of its files are closed.
func TestBadParcels(t *testing.T) {
	for name, groups := range map[string][]Group{
		"unknown":        {{"what", 1}},
		"one file":       {{groupConn, 1}},
		"three":          {{groupConn, 3}},
		"two of a state": {{groupState, 2}},
		"one, then bad":  {{groupConn, 2}, {groupConn, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var files []*os.File
			for range total(groups) {
				f, err := machine.MemoryFileWith("record", []byte("{}"))
				testkit.Must(t, err)
				files = append(files, f)
			}
			if _, err := unpack(groups, files); err == nil {
				t.Error("taken")
			}
			for i, f := range files {
				if err := f.Close(); !errors.Is(err, os.ErrClosed) {
					t.Errorf("file %d was open", i)
				}
			}
		})
	}
}

// The state of a connection may be as long as its client can make it, and a longer one is named.
func TestLargestRecord(t *testing.T) {
	unpacked := func(size int64) (parcel, error) {
		t.Helper()
		record, err := machine.MemoryFileWith("record", nil)
		testkit.Must(t, err)
		testkit.Must(t, record.Truncate(size))
		conn, err := os.Open(os.DevNull)
		testkit.Must(t, err)
		return unpack([]Group{{Name: groupConn, Files: filesOfConn}}, []*os.File{conn, record})
	}
	const large = 320 << 20
	p, err := unpacked(large)
	if err != nil || len(p.conns) != 1 || len(p.conns[0].Record) != large {
		t.Fatalf("a state of %d bytes: %d connections, %v", large, len(p.conns), err)
	}
	if err := p.conns[0].File.Close(); err != nil {
		t.Error(err)
	}
	if _, err := unpacked(maxRecord + 1); err == nil || !strings.Contains(err.Error(), "536870913 bytes") {
		t.Errorf("a state that is too long: %v", err)
	}
}
