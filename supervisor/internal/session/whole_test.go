//go:build linux || darwin

package session

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
)

// A paste is accepted whole or not at all. It is framed as the modes of that moment demand, and the writer's offset
// counts the text without the frame.
func TestPasteWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 32 << 10
		tb, by := fakeTable(t, Config{InputBytes: limit})
		s := create(t, tb, bash(""))
		f := by(s)
		paste := func(offset uint64, text string, want protocol.Code, accepted uint64) {
			t.Helper()
			got, err := s.Paste("w", offset, []byte(text))
			wantCode(t, "paste", err, want)
			if got != accepted {
				t.Errorf("accepted %d, want %d", got, accepted)
			}
		}
		paste(0, "a\nb", "", 3)
		paste(0, "a\nb", "", 3) // the same paste again
		show(f, "\x1b[?2004h")
		paste(3, "c\r\n", "", 6)
		paste(5, "xx", protocol.CodeInvalidArgument, 6)
		paste(7, "x", protocol.CodeInputGap, 6)
		if got, want := typedBy(f), "a\rb\x1b[200~c\r\x1b[201~"; got != want {
			t.Errorf("the child received %q, want %q", got, want)
		}
		paste(6, strings.Repeat("x", limit), protocol.CodeLimitExceeded, 6) // too long with its frame
		// A paste that is longer than a pipe holds, and one for which there is no room.
		long := strings.Repeat("long ", 4000)
		paste(6, long, "", 6+20_000)
		at := uint64(6 + 20_000)
		for n := 0; ; n++ {
			_, err := s.Paste("w", at, []byte(long))
			if err == nil {
				at += 20_000
				continue
			}
			e := wantCode(t, "full", err, protocol.CodeInputFull)
			if !e.Retryable || *e.Offset != at || n == 0 {
				t.Errorf("after %d bytes the error is %+v, want %d", n, e, at)
			}
			break
		}
		var all []byte
		for p := typedBy(f); p != ""; p = typedBy(f) {
			all = append(all, p...)
		}
		if want := bytes.Repeat([]byte("\x1b[200~"+long+"\x1b[201~"), int(at)/20_000); !bytes.Equal(all, want) {
			t.Errorf("the child received %d bytes, want %d", len(all), len(want))
		}
		paste(at, long, "", at+20_000)
		if got, err := s.Paste("", 0, []byte("n")); got != 0 && err != nil {
			t.Errorf("without a writer: %d, %v", got, err)
		}
	})
}

// While a writer holds the input, the requests of others are refused, and their attachments are not.
func TestHoldInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		viewer := look(t, s, protocol.AttachSpec{})
		accepted := uint64(0)
		text := func(text string) {
			t.Helper()
			var err error
			if accepted, err = s.Type("w", accepted, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		hold := func() {
			t.Helper()
			if err := s.HoldInput("w", time.Second); err != nil {
				t.Fatal(err)
			}
		}
		others := func(want protocol.Code) {
			t.Helper()
			var errs [4]error
			_, errs[0] = s.Type("", 0, []byte("1"))
			_, errs[1] = s.Type("other", 0, []byte("2"))
			_, errs[2] = s.Paste("pasting", 0, []byte("3"))
			_, errs[3] = s.Press("pressing", 0, []string{"4"})
			for _, err := range errs {
				if e := wantCode(t, "another writer", err, want); e != nil && (!e.Retryable || *e.Offset != 0) {
					t.Errorf("another writer: %+v", e)
				}
			}
		}
		received := func(want string) {
			t.Helper()
			if got := typedBy(by(s)); got != want {
				t.Errorf("the child received %q, want %q", got, want)
			}
		}
		hold()
		text("a")
		others(protocol.CodeInputFull)
		wantCode(t, "another hold", s.HoldInput("other", time.Second), protocol.CodeInputFull)
		if err := viewer.a.Type(0, []byte("v")); err != nil {
			t.Error(err)
		}
		hold() // a piece in the middle, which is repeated
		text("b")
		hold()
		if n, err := s.Type("w", 1, []byte("b")); n != 2 || err != nil {
			t.Errorf("the repeated piece: %d, %v", n, err)
		}
		others(protocol.CodeInputFull)
		text("c")
		received("avbc")
		others("")
		received("1234")

		hold() // nothing follows
		text("d")
		time.Sleep(time.Second)
		if _, err := s.Type("", 0, []byte("e")); err != nil {
			t.Error(err)
		}
		received("de")
	})
}

func TestPress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		show(f, "\x1b[?1h")
		press := func(offset uint64, want protocol.Code, accepted uint64, keys ...string) {
			t.Helper()
			got, err := s.Press("w", offset, keys)
			wantCode(t, strings.Join(keys, " "), err, want)
			if got != accepted {
				t.Errorf("%s: accepted %d, want %d", keys, got, accepted)
			}
		}
		press(0, "", 2, "Up", "C-c")
		press(0, "", 2, "Up", "C-c") // the same keys again
		press(2, protocol.CodeInvalidArgument, 0, "Up", "Nothing")
		press(2, "", 3, "F1")
		if got, want := typedBy(f), "\x1bOA\x03\x1bOP"; got != want {
			t.Errorf("the child received %q, want %q", got, want)
		}
	})
}
