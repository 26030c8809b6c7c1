//go:build linux || darwin

package session

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
)

// A typist is the client's side of the input: it keeps input that was not accepted, and sends it again from the
// offset that an error names.
type typist struct {
	a    *Attachment
	data []byte
	sent uint64
	full int // how often the queue was full
}

// send sends the next piece, and goes back to the offset of the error if it was not accepted.
func (c *typist) send(n int) error {
	end := min(c.sent+uint64(n), uint64(len(c.data)))
	err := c.a.Type(c.sent, c.data[c.sent:end])
	switch {
	case err == nil:
		c.sent = end
	case Incomplete(err):
		e := protocol.AsError(err)
		if e.Code == protocol.CodeInputFull {
			c.full++
		}
		c.sent = *e.Offset
	default:
		return err
	}
	return nil
}

// Five megabytes of input arrive whole and once, although the child reads more slowly than they are sent and the
// queue has room for only a part.
func TestPaste(t *testing.T) {
	tb := newTable(t, Config{RingBytes: 8 << 20, InputBytes: 256 << 10})
	s := create(t, tb, bash("stty raw -echo; echo READY; exec cat"))
	v := look(t, s, fromStart(s))
	v.until(t, "READY\n")
	v.seen = nil
	c := &typist{a: v.a, data: make([]byte, 5<<20)}
	for i := range c.data {
		c.data[i] = byte(i>>8) ^ byte(i)
	}
	const piece = 100_000
	for c.sent < uint64(len(c.data)) {
		full := c.full
		testkit.Must(t, c.send(piece))
		if c.full > full { // an echo shows that the queue has room again
			if _, err := v.next(t); err != nil {
				t.Fatal(err)
			}
		}
	}
	for len(v.seen) < len(c.data) {
		if _, err := v.next(t); err != nil {
			t.Fatalf("%v after %d bytes", err, len(v.seen))
		}
	}
	if !bytes.Equal(v.seen, c.data) || c.full == 0 {
		t.Errorf("got %d bytes, equal %v, of %d; the queue was full %d times", len(v.seen), bytes.Equal(v.seen, c.data), len(c.data), c.full)
	}
	// Acknowledgements are fewer than the pieces of input that the session writes. The last one covers all input.
	for v.accepted < uint64(len(c.data)) {
		if _, err := v.next(t); err != nil {
			t.Fatal(err)
		}
	}
}

// How Type treats offsets. The child does not read. The terminal holds 4096 bytes and the queue 1000. There is no
// pipe, because a pipe would hold more.
func TestType(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before int // bytes accepted before the call
		offset uint64
		n      int
		want   protocol.Code
		after  uint64 // bytes accepted after the call
	}{
		{"first", 0, 0, 10, "", 10},
		{"next", 10, 10, 10, "", 20},
		{"nothing", 10, 10, 0, "", 10},
		{"again", 10, 0, 10, "", 10},
		{"again, a part", 10, 3, 4, "", 10},
		{"bytes that were accepted, and more", 10, 5, 10, "", 15},
		{"gap", 10, 11, 5, protocol.CodeInputGap, 10},
		{"empty input after a gap", 10, 11, 0, protocol.CodeInputGap, 10},
		{"overflow", 10, ^uint64(0), 2, protocol.CodeInvalidArgument, 10},
		{"the terminal is full", 4096, 4096, 1000, "", 5096},
		{"the queue is full", 4096, 4096, 1001, protocol.CodeInputFull, 5096},
		{"the queue was full", 5096, 5096, 1, protocol.CodeInputFull, 5096},
		{"full, and bytes that were accepted", 5096, 5000, 96, "", 5096},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb, by := fakeTable(t, Config{InputBytes: 1000})
				s := create(t, tb, bash(""))
				by(s).plain = true
				v := look(t, s, protocol.AttachSpec{Writer: "w"})
				input := bytes.Repeat([]byte("0123456789abcdef"), 1000)
				testkit.Must(t, v.a.Type(0, input[:tt.before]))
				p := make([]byte, tt.n)
				if tt.offset < uint64(len(input)) {
					copy(p, input[tt.offset:])
				}
				e := wantCode(t, "Type", v.a.Type(tt.offset, p), tt.want)
				if e != nil && e.Offset != nil && (*e.Offset != tt.after || !e.Retryable) {
					t.Errorf("got offset %d, retryable %v; want %d", *e.Offset, e.Retryable, tt.after)
				}
				if got, _, err := s.input.journal.Writer("w"); got != tt.after || err != nil {
					t.Errorf("got %d accepted, %v, want %d", got, err, tt.after)
				}
				var got []byte
				for synctest.Wait(); len(by(s).in) > 0; synctest.Wait() {
					got = append(got, by(s).take(100)...)
				}
				if !bytes.Equal(got, input[:tt.after]) {
					t.Errorf("the child got %d bytes, want the %d accepted", len(got), tt.after)
				}
			})
		})
	}
}

// However much input is sent, at most the limit of the queue waits, and the capacity of a pipe.
func TestInputBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100 << 10
		tb, by := fakeTable(t, Config{InputBytes: limit})
		s := create(t, tb, bash(""))
		var accepted uint64
		for range 10 {
			accepted, _ = s.Type("w", accepted, make([]byte, limit))
			_, _ = s.Type("", 0, make([]byte, limit))
			synctest.Wait()
		}
		_, err := s.Type("", 0, []byte("x"))
		wantCode(t, "input above the limit", err, protocol.CodeInputFull)
		const pipe = 64 << 10 // the default capacity; the journal asks for less
		if j := s.input.journal; j.Queued() > limit || j.Pending() > limit+pipe || j.Room() != 0 {
			t.Errorf("got %d bytes queued of %d that wait, want at most %d", j.Queued(), j.Pending(), limit)
		}
		got := 0
		for synctest.Wait(); len(by(s).in) > 0; synctest.Wait() {
			got += len(by(s).take(1000))
		}
		if got < limit || got > limit+pipe+by(s).room {
			t.Errorf("the child got %d bytes", got)
		}
	})
}

// If two writers send input at the same time, the bytes of each arrive completely and in order.
func TestTwoWriters(t *testing.T) {
	s, v := ready(t, "stty raw -echo; echo READY; exec cat")
	v.until(t, "READY\n")
	v.seen = nil
	const each = 50_000
	errs := make(chan error, 2)
	var typed [2][]byte
	for i := range typed {
		for k := range each {
			typed[i] = append(typed[i], byte(0x40|(k*2+i)&0x1f)) // a control character that does not query a terminal
		}
		c := &typist{a: look(t, s, protocol.AttachSpec{}).a, data: typed[i]}
		go func() {
			for c.sent < uint64(len(c.data)) {
				if err := c.send(7 + i); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for len(v.seen) < 2*each {
		if _, err := v.next(t); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for i, low := range []byte{0, 1} { // the lowest bit tells which writer sent the byte
		var got []byte
		for _, b := range v.seen {
			if b&1 == low {
				got = append(got, b)
			}
		}
		if !bytes.Equal(got, typed[i]) {
			t.Errorf("%d: got %d bytes, want its %d in order", i, len(got), len(typed[i]))
		}
	}
}

// Accepted input is acknowledged after a delay, all at once. A large amount is acknowledged without delay.
func TestAcknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{})
		begun := time.Now()
		for i := range uint64(100) {
			testkit.Must(t, v.a.Type(i, []byte("x")))
		}
		item, err := v.next(t)
		if took := time.Since(begun); err != nil || item.Kind != ItemAccepted || item.Offset != 100 || took != ackDelay {
			t.Errorf("got %+v, %v after %v; want all 100 at once after %v", item, err, took, ackDelay)
		}
		testkit.Must(t, v.a.Type(100, make([]byte, ackBytes)))
		begun = time.Now()
		item, err = v.next(t)
		if took := time.Since(begun); err != nil || item.Offset != 100+ackBytes || took != 0 {
			t.Errorf("got %+v, %v after %v; want %d at once", item, err, took, 100+ackBytes)
		}
		time.Sleep(time.Second)
		if _, err := v.drain(); err != nil { // fails if an offset is acknowledged twice
			t.Error(err)
		}
		if err := v.a.Type(0, []byte("x")); err != nil { // accepted before, so no acknowledgement is due
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if item, err := v.take(ctx); err != context.Canceled {
			t.Errorf("got %+v, %v; want no further item", item, err)
		}
	})
}

// Input that ends the session is acknowledged before the exit, so that its client does not take it for lost.
func TestAcknowledgementBeforeExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{})
		testkit.Must(t, v.a.Type(0, []byte("exit\n")))
		by(s).exit(pty.Status{})
		<-s.exited
		for _, want := range []ItemKind{ItemAccepted, ItemExited} {
			if item, err := v.next(t); err != nil || item.Kind != want || want == ItemAccepted && item.Offset != 5 {
				t.Fatalf("got %+v, %v; want an item of kind %v", item, err, want)
			}
		}
	})
}

// However many writers come and go, the session remembers the attached writer, and those that wrote last.
func TestWritersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		by(s).room = 1 << 20
		v := look(t, s, protocol.AttachSpec{Writer: "attached"})
		testkit.Must(t, v.a.Type(0, []byte("x")))
		const known, others = 1024, 2048
		for i := range others {
			if _, err := s.Type(fmt.Sprint(i), 0, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.input.journal.Known(); n != known+1 {
			t.Errorf("got %d writers, want %d and the attached writer", n, known)
		}
		for i := others - known; i < others; i++ {
			if _, err := s.Type(fmt.Sprint(i), 1, []byte("y")); err != nil {
				t.Errorf("writer %d, one of the last: %v", i, err)
			}
		}
		_, err := s.Type("0", 1, []byte("y"))
		wantCode(t, "one of the first writers", err, protocol.CodeInputGap)
		if err := v.a.Type(1, []byte("y")); err != nil {
			t.Errorf("the attached writer: %v", err)
		}
		v.a.Close()
		again := look(t, s, protocol.AttachSpec{Writer: "attached"})
		if again.info.InputOffset != 2 {
			t.Errorf("got input offset %d, want 2", again.info.InputOffset)
		}
	})
}

// A client that attaches again learns how much of its input was accepted, so that it sends no byte twice and leaves
// none out.
func TestResumeInput(t *testing.T) {
	s, v := ready(t, "stty -echo; echo READY; read x; echo got $x")
	a, info, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: "w"})
	if err != nil || info.InputOffset != 0 || info.Writer != "w" {
		t.Fatalf("got %+v, %v", info, err)
	}
	input := []byte("one two three\n")
	testkit.Must(t, a.Type(0, input[:7]))
	a.Close() // before the client has received an acknowledgement
	again := look(t, s, protocol.AttachSpec{Writer: "w"})
	if again.info.InputOffset != 7 {
		t.Errorf("got input offset %d, want 7", again.info.InputOffset)
	}
	if got := look(t, s, protocol.AttachSpec{}).info; got.Writer == "" || got.Writer == "w" || got.InputOffset != 0 {
		t.Errorf("without a name: got %q at %d, want a new one at 0", got.Writer, got.InputOffset)
	}
	if err := again.a.Type(3, input[3:]); err != nil { // begins with bytes that were accepted before; they are skipped
		t.Fatal(err)
	}
	v.until(t, "got one two three\r\n")
}
