//go:build linux || darwin

package session

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
)

// newInput returns an input to a fake terminal, without a session.
func newInput(t *testing.T) (*input, *fakePTY) {
	t.Helper()
	f := newFake(pty.Spec{})
	log := zerolog.Nop()
	in := &input{identity: &identity{id: "s"}, log: &log, terminal: f, line: new(pendingLine), max: 64}
	in.makeChannels(new(sync.WaitGroup))
	var err error
	if in.journal, err = journal.New(make([]byte, journal.RoomBytes), journal.Config{Max: in.max, Made: func(journal.Files) {}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.journal.Close() })
	return in, f
}

// Input is accepted by the writer's offset, waits for the terminal, and is written once.
func TestInputWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, f := newInput(t)
		f.room, f.plain = 4, true
		for _, tt := range []struct {
			name     string
			offset   uint64
			n        int
			accepted uint64
			had      bool
			code     protocol.Code
		}{{"the first", 0, 3, 0, false, ""}, {"a gap", 1, 3, 0, false, protocol.CodeInputGap}, {"too far", ^uint64(0), 3, 0, false, protocol.CodeInvalidArgument}} {
			accepted, had, err := in.checkOffset("w", tt.offset, tt.n)
			if accepted != tt.accepted || had != tt.had || protocol.CodeOf(err) != tt.code {
				t.Errorf("%s: %d, %v, %v", tt.name, accepted, had, err)
			}
		}
		if n, err := in.queue("w", 0, []byte("abcdef")); n != 6 || err != nil || !in.waiting {
			t.Fatalf("%d accepted, %v, waiting %v", n, err, in.waiting)
		}
		if accepted, had, err := in.checkOffset("w", 2, 4); accepted != 6 || !had || err != nil {
			t.Errorf("sent again: %d, %v, %v", accepted, had, err)
		}
		in.stop()
		if got := string(f.take(100)); got != "abcd" || in.waiting {
			t.Errorf("the terminal has %q, waiting %v", got, in.waiting)
		}
		in.restart()
		synctest.Wait()
		if got := string(f.take(100)); got != "ef" {
			t.Errorf("then the terminal has %q", got)
		}
		if done, err := in.queueWhole("w", 6, 2, make([]byte, 1000)); done || err != nil {
			t.Errorf("more than there is room for: %v, %v", done, err)
		}
		in.reply(make([]byte, maxReplies+1))
		if got := f.take(100); len(got) != 0 {
			t.Errorf("after a refused paste the terminal has %q", got)
		}
	})
}

// If the terminal fails, input ends with an error, and the journal keeps no bytes for it.
func TestInputGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, f := newInput(t)
		f.room, f.plain = 4, true
		if _, err := in.queue("w", 0, []byte("abcdef")); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		in.resume(<-in.writable)
		if in.journal.Pending() != 0 {
			t.Errorf("the journal keeps %d bytes", in.journal.Pending())
		}
		n, err := in.queue("w", 6, []byte("x"))
		wantCode(t, "input after the end", err, protocol.CodeSessionNotFound)
		if n != 0 {
			t.Errorf("%d bytes are accepted", n)
		}
		if err := in.close(); err != nil || !in.isOver {
			t.Error(err)
		}
		in.restart()
	})
}
