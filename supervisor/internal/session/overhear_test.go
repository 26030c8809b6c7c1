//go:build linux || darwin

package session

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func TestAsterisks(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"hunter2\r", "*******\r"},
		{"\x03\x7f\t\x1b", "\x03\x7f\t\x1b"},
		{"päß", "***"},
		{"\xc3", "*"}, {"\xa4", ""}, // a character in two pieces
		{"a\xffb", "***"},
		{"\x1b[A\x1b[1;5D\x1bOB\x1b[3~\x1b[15;2~", "\x1b[A\x1b[1;5D\x1bOB\x1b[3~\x1b[15;2~"},
		{"\x1b[200~pass\x1b[201~", "\x1b[200~****\x1b[201~"},
		{"\x1b[<0;3;4M\x1b[<0;3;4m\x1b[I\x1b[12;40R", "\x1b[<0;3;4M\x1b[<0;3;4m\x1b[I\x1b[12;40R"},
		{"\x1bx", "\x1b*"},
		{"\x1b[97u", "\x1b****"}, {"\x1b[97;5;97u", "\x1b" + strings.Repeat("*", 9)}, {"\x1b[13u\x1b[127;5u", "\x1b[13u\x1b[127;5u"},
		{"\x1b[27;5;97~", "\x1b" + strings.Repeat("*", 9)},
		{"\x1bOp", "\x1b**"}, // a digit of the keypad
		{"\x1b[M !!", "\x1b*****"},
		{"\x1b[", "\x1b*"}, {"\x1b[1;", "\x1b***"}, {"\x1b]11;rgb:0/0/0\a", "\x1b" + strings.Repeat("*", 13) + "\a"},
	} {
		got, changed := asterisks([]byte(tt.in))
		if string(got) != tt.want || changed != (tt.in != tt.want) {
			t.Errorf("%q: %q, changed %v; want %q", tt.in, got, changed, tt.want)
		}
	}
}

// overheardBy returns the next n items of other viewers' input that an attachment receives, with "#" before input
// that was masked.
func overheardBy(t testing.TB, v *viewer, n int) (got []string) {
	t.Helper()
	for len(got) < n {
		item, err := v.next(t)
		if errors.Is(err, io.EOF) {
			t.Fatalf("the attachment ended after %q", got)
		}
		if item.Kind != ItemInput {
			continue
		}
		what := string(item.Data)
		if item.Masked {
			what = "#" + what
		}
		got = append(got, what)
	}
	return got
}

// An attachment that asks to see input receives the input of all other viewers, except passwords.
func TestOverheard(t *testing.T) {
	s, v := ready(t, `echo READY; read -r a; stty -echo; echo HIDDEN; read -r b; stty echo; echo SHOWN; read -r c
		stty -echo; printf '\e]133;A\aPROMPT\e]133;B\a'; read -r d; printf '\e]133;C\aRUNS'; read -r e; read -r f; read -r g`)
	w := look(t, s, protocol.AttachSpec{Typed: true})
	want := func(what ...string) {
		t.Helper()
		if got := overheardBy(t, w, len(what)); !slices.Equal(got, what) {
			t.Errorf("received %q, want %q", got, what)
		}
	}
	offset := uint64(0)
	by := func(what string) {
		t.Helper()
		testkit.Must(t, v.a.Type(offset, []byte(what)))
		offset += uint64(len(what))
	}
	by("one\n")
	v.until(t, "HIDDEN")
	if _, err := s.Type("", 0, []byte("secret\n")); err != nil {
		t.Fatal(err)
	}
	want("one\n", "#******\n")
	v.until(t, "SHOWN")
	testkit.Must(t, w.a.Type(0, []byte("own\n")))
	want("own\n")
	v.until(t, "PROMPT")
	by("su")
	by("do\npass\n")
	want("su", "do\n", "#****\n")
	v.until(t, "RUNS")
	by("x\x1b[A\n")
	want("#*\x1b[A\n")
	w.a.Close()
	w = look(t, s, protocol.AttachSpec{Writer: w.a.Writer(), Typed: true})
	by("y")
	want("#", "#*") // the attachment was lost meanwhile, and may have missed input
	w.a.Detach()
	s.do(func() {
		if s.viewers.echoCount != 0 {
			t.Errorf("%d attachments are counted after the last has detached", s.viewers.echoCount)
		}
	})
}

// A command that the shell has started may ask for a password, which is masked even if it arrives before the screen has
// seen the start of the command.
func TestOverheardAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Writer: "w", Typed: true})
		show(by(s), promptMark)
		s.do(func() { // loop writes nothing to the screen meanwhile
			show(by(s), startMark+"Password: ")
			if _, err := s.acceptInput(v.a, "w", 0, []byte("secret\n")); err != nil {
				t.Error(err)
			}
		})
		if got := overheardBy(t, v, 1); got[0] != "#******\n" {
			t.Errorf("received %q", got)
		}
	})
}

// The input that waits for a viewer that does not read is bounded. The viewer learns that some was left out, and the
// next attachment of the same client receives the remainder.
func TestOverheardBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		f.room = 64 << 20
		f.echoes.Store(true)
		a, _, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: "w", Typed: true})
		testkit.Must(t, err)
		piece := strings.Repeat("x", 1000)
		const n = 1000
		for i := range n {
			if _, err := s.Type("", 0, fmt.Appendf(nil, "%06d%s\n", i, piece)); err != nil {
				t.Fatal(err)
			}
		}
		if a.echo.size > maxEchoHeld {
			t.Errorf("%d bytes wait for the viewer", a.echo.size)
		}
		w := look(t, s, protocol.AttachSpec{Writer: "w", Typed: true})
		if got := overheardBy(t, w, 1); got[0] != "#" {
			t.Errorf("the first item is %.20q", got[0])
		}
		held := len(w.a.echo.items)
		for i, got := range overheardBy(t, w, held) {
			if want := fmt.Sprintf("%06d", n-held+i); !strings.HasPrefix(got, want) {
				t.Fatalf("%d: %.20q, want %s", i, got, want)
			}
		}
		a.Close()
		if len(w.a.echo.items) > 0 || w.a.echo.cut != nil {
			t.Error("the new attachment received more than the remainder of its predecessor")
		}
		if _, err := s.Type("", 0, []byte(strings.Repeat("y", 2*maxEchoHeld))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if len(w.a.echo.items) > maxEchoHeld/echoPiece || w.a.echo.size > maxEchoHeld {
			t.Errorf("%d pieces, %d bytes", len(w.a.echo.items), w.a.echo.size)
		}
	})
}

// A viewer that a proxy has paused and that resumes by another attachment receives all input once.
func TestOverheardHandoff(t *testing.T) {
	s, _ := ready(t, `echo READY; cat >/dev/null`)
	v := look(t, s, protocol.AttachSpec{Writer: "w", Typed: true})
	types := func(what string) {
		t.Helper()
		if _, err := s.Type("", 0, []byte(what)); err != nil {
			t.Fatal(err)
		}
	}
	types("one\n")
	v.a.Pause()
	var got []string
	for paused := false; !paused; {
		item, err := v.next(t)
		testkit.Must(t, err)
		if item.Kind == ItemInput {
			got = append(got, string(item.Data))
		}
		paused = item.Kind == ItemPaused
	}
	types("two\n")
	w := look(t, s, protocol.AttachSpec{Writer: "w", Typed: true})
	types("three\n")
	if got = append(got, overheardBy(t, w, 2)...); !slices.Equal(got, []string{"one\n", "two\n", "three\n"}) {
		t.Errorf("received %q", got)
	}
}
