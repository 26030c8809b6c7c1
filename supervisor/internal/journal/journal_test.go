//go:build unix

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// How Accept treats offsets. The terminal accepts nothing, so that bytes wait for which the pipe has no room.
func TestAccept(t *testing.T) {
	const full = 1000
	for _, tt := range []struct {
		name     string
		before   int // bytes accepted before the call
		offset   uint64
		n        int
		accepted uint64
		err      error
	}{
		{"first", 0, 0, 10, 10, nil},
		{"next", 10, 10, 10, 20, nil},
		{"nothing", 10, 10, 0, 10, nil},
		{"again", 10, 0, 10, 10, nil},
		{"again, a part", 10, 3, 4, 10, nil},
		{"again and more", 10, 5, 10, 15, nil},
		{"gap", 10, 11, 5, 10, ErrGap},
		{"empty input after a gap", 10, 11, 0, 10, ErrGap},
		{"overflow", 10, ^uint64(0), 2, 10, ErrOverflow},
		{"over the pipe's end", 0, 0, pipeBytes + 10, pipeBytes + 10, nil},
		{"to the queue's end", 0, 0, pipeBytes + full, pipeBytes + full, nil},
		{"over the queue's end", 0, 0, pipeBytes + full + 1, pipeBytes + full, nil},
		{"the queue is full", pipeBytes + full, pipeBytes + full, 1, pipeBytes + full, nil},
		{"full, and bytes that were accepted", pipeBytes + full, pipeBytes, full, pipeBytes + full, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(t, full)
			if !l.j.Exact() {
				t.Skip("the room differs without a pipe")
			}
			input := bytes.Repeat([]byte("0123456789abcdef"), pipeBytes/8)
			if accepted, n, err := l.j.Accept("w", 0, input[:tt.before]); n != tt.before || int(accepted) != n || err != nil {
				t.Fatalf("before: %d, %d, %v", accepted, n, err)
			}
			p := make([]byte, tt.n)
			if tt.offset < uint64(len(input)) {
				copy(p, input[tt.offset:])
			}
			accepted, n, err := l.j.Accept("w", tt.offset, p)
			if accepted != tt.accepted || n != int(tt.accepted)-tt.before || !errors.Is(err, tt.err) {
				t.Errorf("got %d, %d, %v; want %d, %v", accepted, n, err, tt.accepted, tt.err)
			}
			m := &terminal{room: 1 << 20}
			if done, err := l.j.Flush(m); !done || err != nil || !bytes.Equal(m.delivered, input[:tt.accepted]) {
				t.Errorf("Flush = %v, %v, %d bytes; want %d", done, err, len(m.delivered), tt.accepted)
			}
		})
	}
}

// A queue is made only if input must wait, and returns its memory afterwards.
func TestQueueIsLate(t *testing.T) {
	l := newLife(t, 8<<20)
	if !l.j.Exact() {
		t.Skip("without a pipe all input waits")
	}
	m := &terminal{room: 1 << 30}
	for range 10 {
		if _, err := l.j.Append(make([]byte, pipeBytes)); err != nil {
			t.Fatal(err)
		}
		if done, err := l.j.Flush(m); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	if l.made != 0 {
		t.Fatalf("a queue was made %d times", l.made)
	}
	for range 3 {
		if n, err := l.j.Append(make([]byte, 5<<20)); n != 5<<20 || err != nil {
			t.Fatal(n, err)
		}
		for l.j.Pending() > 0 {
			before := len(m.delivered)
			if _, err := l.j.Flush(m); err != nil || len(m.delivered)-before > maxFlush+pipeBytes {
				t.Fatalf("%v, %d bytes in one call", err, len(m.delivered)-before)
			}
		}
		var st unix.Stat_t
		if err := unix.Fstat(l.files.Queue, &st); err != nil || st.Blocks != 0 || l.j.scratch != nil {
			t.Errorf("%v, %d blocks in use", err, st.Blocks)
		}
	}
	if l.made != 1 {
		t.Errorf("a queue was made %d times", l.made)
	}
}

// However many writers come and go, the journal remembers attached writers and those that wrote last, also for the
// next process.
func TestWritersAreForgotten(t *testing.T) {
	l := newLife(t, 0)
	m := &terminal{room: 1 << 30}
	write := func(name string, offset uint64) error {
		_, n, err := l.j.Accept(name, offset, []byte("x"))
		if _, err := l.j.Flush(m); err != nil {
			t.Fatal(err)
		}
		if err == nil && n != 1 {
			t.Fatalf("%s: %d bytes accepted", name, n)
		}
		return err
	}
	testkit.Must(t, errors.Join(l.j.Attach("attached"), write("attached", 0), l.j.SetAttempt("attached", 7, 0)))
	const others = 2 * maxIdle
	for i := range others {
		testkit.Must(t, write(fmt.Sprint(i), 0))
	}
	for _, who := range []string{"this process", "the next"} {
		if n := l.j.Known(); n != maxIdle+1 {
			t.Errorf("%s: got %d writers, want %d and the attached one", who, n, maxIdle)
		}
		for i := range others {
			if known := l.j.writers.byName[fmt.Sprint(i)] != nil; known != (i >= others-maxIdle) {
				t.Errorf("%s: writer %d is known: %v", who, i, known)
			}
		}
		if accepted, attempt, err := l.j.Writer("attached"); accepted != 1 || attempt != 7 || err != nil {
			t.Errorf("%s: the attached writer: %d, %d, %v", who, accepted, attempt, err)
		}
		testkit.Must(t, l.adopt())
	}
}

// Attached writers are never forgotten to make room. If they fill the table, the next writer gets an error.
func TestTableIsFull(t *testing.T) {
	l := newLife(t, 0)
	name := func(i int) string { return fmt.Sprintf("%064d", i) }
	for i := range slots {
		if err := l.j.Attach(name(i)); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if _, _, err := l.j.Writer("more"); !errors.Is(err, ErrWriters) {
		t.Errorf("got %v, want ErrWriters", err)
	}
	l.j.Detach(name(5))
	if _, _, err := l.j.Writer("more"); err != nil || l.j.writers.byName[name(5)] != nil {
		t.Errorf("got %v, want room in the place of the writer that was detached", err)
	}
	for _, bad := range []string{"", "a b", "ä", "a\x00", name(0) + "x"} {
		if _, _, err := l.j.Writer(bad); !errors.Is(err, ErrName) {
			t.Errorf("%q: got %v, want ErrName", bad, err)
		}
	}
}

// If the terminal fails, Flush returns the error and has written nothing. After Drop the journal can be used again.
func TestDrop(t *testing.T) {
	l := newLife(t, 0)
	if n, err := l.j.Append(make([]byte, 100_000)); n != 100_000 || err != nil {
		t.Fatal(n, err)
	}
	m := &terminal{room: 1 << 20, err: unix.EIO}
	if done, err := l.j.Flush(m); done || !errors.Is(err, unix.EIO) {
		t.Errorf("Flush = %v, %v; want EIO", done, err)
	}
	if err := l.j.Drop(); err != nil || l.j.Pending() != 0 {
		t.Errorf("Drop = %v, %d bytes left", err, l.j.Pending())
	}
	m.err = nil
	if _, _, err := l.j.Accept("w", 0, []byte("abcde")); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, errors.Join(l.j.Drop(), l.j.Refuse("w", 5)))
	if err := l.j.Refuse("w", 1); !errors.Is(err, ErrOverflow) {
		t.Errorf("refused more than was accepted: %v", err)
	}
	if _, _, err := l.j.Accept("w", 0, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if done, err := l.j.Flush(m); !done || err != nil || string(m.delivered) != "abc" {
		t.Errorf("got %v, %v, %q; want the input after the drop", done, err, m.delivered)
	}
}

// A terminal that cannot be spliced to receives the same bytes in the same order.
func TestPlain(t *testing.T) {
	l := newLife(t, 100_000)
	m := &terminal{plain: true}
	input := make([]byte, 300_000)
	for i := range input {
		input[i] = byte(i>>8) ^ byte(i)
	}
	for sent, turn := 0, 0; sent < len(input) || l.j.Pending() > 0; turn++ {
		_, n, err := l.j.Accept("w", uint64(sent), input[sent:min(len(input), sent+1+turn*997)])
		if sent += n; err != nil {
			t.Fatal(err)
		}
		m.read(turn * 100)
		if _, err := l.j.Flush(m); err != nil {
			t.Fatal(err)
		}
		if turn%3 == 2 { // as in an upgrade
			l.files = l.j.Files()
			testkit.Must(t, l.adopt())
		}
	}
	if !bytes.Equal(m.delivered, input) || l.j.Exact() {
		t.Errorf("got %d bytes, want %d; exact %v", len(m.delivered), len(input), l.j.Exact())
	}
}
