//go:build linux || darwin

package session

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
)

// Megabytes of input arrive once and in order at a child that reads slowly, so that the queue fills, and then fast,
// so that it becomes empty. Halts in between make no difference.
func TestTypedOnce(t *testing.T) {
	testkit.CheckLeaks(t)
	const slowly, rounds, fast = 100 * 500, 4, 1_000_000
	tb := newTable(t, Config{RingBytes: 8 << 20, InputBytes: 128 << 10})
	file := filepath.Join(t.TempDir(), "typed")
	s := create(t, tb, bash(fmt.Sprintf(`stty raw -echo; echo READY; for i in {1..%d}; do
		for k in {1..100}; do head -c 500 >>%[2]s; printf .; done; head -c %[3]d | tee -a %[2]s; done; echo END`, rounds, file, fast)))
	v := look(t, s, fromStart(s))
	v.until(t, "READY\n")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := &typist{a: v.a, data: make([]byte, rounds*(slowly+fast))}
	for i := range c.data {
		c.data[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[(i^i>>7^i>>14)%36]
	}
	full, most := 0, 0 // how often the queue was full, and the most bytes in it
	for c.sent < uint64(len(c.data)) {
		before := c.full
		testkit.Must(t, c.send(1+rnd.IntN(60_000)))
		pending := 0
		look := func() {
			j := s.input.journal
			pending, most = j.Pending(), max(most, j.Queued())
			if c.sent < uint64(len(c.data)) && j.Exact() != (runtime.GOOS == "linux") { // after the last byte the child may have ended
				t.Errorf("at %d exact is %v", c.sent, j.Exact())
			}
		}
		if rnd.IntN(20) == 0 {
			thaw, err := s.halt(patience, look)
			if err != nil {
				t.Fatal("the session's loop has ended")
			}
			thaw()
		}
		s.do(look)
		if c.full > before {
			if _, err := v.next(t); err != nil { // the child prints, because its input is longer than the buffer of head
				t.Fatal(err)
			}
		}
		if rnd.IntN(20) == 0 {
			testkit.Eventually(t, patience, func() bool { s.do(look); return pending == 0 }, "the queue is empty")
		}
		full += c.full - before
	}
	v.until(t, "END")
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, c.data) {
		t.Errorf("%d of %d bytes arrived; they differ at %d, %v", len(got), len(c.data), differ(got, c.data), err)
	}
	if full == 0 || most == 0 {
		t.Errorf("the queue was full %d times, with %d bytes", full, most)
	}
}

// busy counts the waits for a terminal and the writes to it.
type busy struct {
	PTY
	n atomic.Int64
}

func (b *busy) AwaitWritable() error {
	b.n.Add(1)
	return b.PTY.AwaitWritable()
}

func (b *busy) SpliceFrom(pipe uintptr, n int) (int, error) {
	b.n.Add(1)
	return b.PTY.SpliceFrom(pipe, n)
}

// A child that has closed its terminal costs no processor time while it is closed. If it opens the terminal again, it
// receives the input that waits.
func TestClosedTerminal(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before int // bytes of input before the terminal is closed
	}{
		{"little, which fits into the terminal", 10},
		{"some waits", 60_000},
		{"much waits", 3_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if runtime.GOOS != "linux" {
				t.Skip("other systems treat a terminal that no process has open differently")
			}
			testkit.CheckLeaks(t)
			var p *busy
			eof := make(chan struct{}, 1)
			tb := newTable(t, Config{RingBytes: 8 << 20, Start: func(spec pty.Spec) (PTY, error) {
				inner, err := pty.Start(spec)
				p = &busy{PTY: &eofTold{inner, eof}}
				return p, err
			}})
			dir := t.TempDir()
			shut, reopen, typed := dir+"/shut", dir+"/reopen", dir+"/typed"
			testkit.Must(t, errors.Join(unix.Mkfifo(shut, 0o600), unix.Mkfifo(reopen, 0o600)))
			s := create(t, tb, bash(fmt.Sprintf(`stty raw -echo; t=$(tty); echo READY; read -r <%s
				exec <&- >&- 2>&-; read -r <%s; exec <$t >$t; echo AGAIN; exec tee %s $t >/dev/null`, shut, reopen, typed)))
			v := look(t, s, fromStart(s))
			v.until(t, "READY\n")
			var want []byte
			for len(want) < tt.before {
				want = fmt.Appendf(want, "%d ", len(want))
			}
			testkit.Must(t, v.a.Type(0, want))
			release(t, shut)
			testkit.Within(t, patience, "the child has closed its terminal", eof)
			before, used := p.n.Load(), processTime(t)
			const window = 300 * time.Millisecond
			time.Sleep(window) // a busy loop would show in this time
			if n := p.n.Load() - before; n > 10 {
				t.Errorf("the terminal was tried %d times", n)
			}
			if used = processTime(t) - used; used > window/3 {
				t.Errorf("%v of processor time were used in %v", used, window)
			}
			release(t, reopen)
			v.until(t, "AGAIN\n")
			testkit.Must(t, v.a.Type(uint64(len(want)), []byte("more.")))
			want = append(want, "more."...)
			v.until(t, "more.")
			got, err := os.ReadFile(typed)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d of %d bytes arrived; they differ at %d, %v", len(got), len(want), differ(got, want), err)
			}
		})
	}
}

func processTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	testkit.Must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// deafPTY refuses input at times. Linux has no such terminal while it is open.
type deafPTY struct {
	*fakePTY
	deaf atomic.Bool
}

func (d *deafPTY) SpliceFrom(pipe uintptr, n int) (int, error) {
	if d.deaf.Load() {
		return 0, unix.EIO
	}
	return d.fakePTY.SpliceFrom(pipe, n)
}

func (d *deafPTY) TryWrite(p []byte) (int, error) {
	if d.deaf.Load() {
		return 0, unix.EIO
	}
	return d.fakePTY.TryWrite(p)
}

// Input that the terminal refuses is not accepted, so the client sends it again. Input that waited was accepted, and
// is lost.
func TestInputNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *deafPTY
		tb := NewTable(Config{Start: func(spec pty.Spec) (PTY, error) {
			p = &deafPTY{fakePTY: newFake(spec)}
			return p, nil
		}})
		defer shutdown(t, tb)
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{})
		testkit.Must(t, v.a.Type(0, []byte("abc")))
		p.deaf.Store(true)
		wantCode(t, "Type", v.a.Type(3, []byte("def")), protocol.CodeSessionNotFound)
		n, err := s.Type("", 0, []byte("no writer"))
		if wantCode(t, "Type without a writer", err, protocol.CodeSessionNotFound); n != 0 {
			t.Errorf("%d bytes without a writer were accepted", n)
		}
		p.deaf.Store(false)
		if err := v.a.Type(3, []byte("def")); err != nil {
			t.Error(err)
		}
		if got := p.take(100); string(got) != "abcdef" {
			t.Errorf("the terminal received %q", got)
		}
		testkit.Must(t, v.a.Type(6, make([]byte, 100_000)))
		p.deaf.Store(true)
		p.take(p.room)
		synctest.Wait()
		p.deaf.Store(false)
		if err := v.a.Type(100_006, []byte("ghi")); err != nil {
			t.Error(err)
		}
		if got := p.take(1 << 20); string(got) != "ghi" {
			t.Errorf("then the terminal received %.20q", got)
		}
	})
}

// With any number of free descriptors a session is created, or an error tells why not and no part of it remains.
// Input that cannot wait is not accepted.
func TestFewDescriptors(t *testing.T) {
	shutdown(t, newTable(t, Config{})) // makes the objects that a process makes once
	testkit.CheckLeaks(t)
	tb := newTable(t, Config{})
	gate := t.TempDir() + "/gate"
	testkit.Must(t, unix.Mkfifo(gate, 0o600))
	var was unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	allow := func(n uint64) {
		t.Helper()
		testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: was.Max}))
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }()
	var s *Session
	for n := uint64(3); s == nil; n++ {
		allow(n)
		got, err := tb.create("", bash("stty raw -echo; echo READY; read -r <"+gate+"; exec cat"), "")
		switch {
		case err == nil:
			s = got
		case protocol.CodeOf(err) != protocol.CodeSpawnFailed || !protocol.AsError(err).Retryable || n > was.Cur:
			t.Fatalf("with %d descriptors: %v", n, err)
		}
	}
	v := look(t, s, fromStart(s))
	v.until(t, "READY\n")
	allow(3)
	want := bytes.Repeat([]byte("0123456789\n"), 10_000)
	e := wantCode(t, "Type", v.a.Type(0, want), protocol.CodeInputFull)
	if e == nil || e.Offset == nil || !e.Retryable || *e.Offset >= uint64(len(want)) {
		t.Fatalf("got %+v", e)
	}
	allow(was.Cur)
	testkit.Must(t, v.a.Type(*e.Offset, want[*e.Offset:]))
	v.seen = nil
	release(t, gate)
	for len(v.seen) < len(want) {
		if _, err := v.next(t); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(v.seen, want) {
		t.Errorf("input and output differ at %d of %d", differ(v.seen, want), len(want))
	}
}
