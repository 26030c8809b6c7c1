package front

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"holdfast/shared/termmode"
	"holdfast/shared/testkit"
)

// always is the end of every undo.
const always = "\x1b[0m\x1b(B\x0f\x1b>"

func TestModesUndo(t *testing.T) {
	for _, tt := range []struct {
		name, printed, want string
	}{
		{"colours of text", "\x1b[31mhello", ""},
		{"another character set", "\x0ehello", ""},
		{"vim", "\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h\x1b[?1000h\x1b[?1006h\x1b[>4;2m\x1b[1;24r\x1b[?25l",
			"\x1b[?1000l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b[?1049l\x1b[?25h\x1b7\x1b[r\x1b8\x1b[>4m"},
		{"vim has ended", "\x1b[?1049h\x1b[?1h\x1b[?2004h\x1b[>4;2m\x1b[?25l\x1b[>4;m\x1b[?2004l\x1b[?1l\x1b[?25h\x1b[r\x1b[?1049l", ""},
		{"several at once", "\x1b[?1000;1006;25h", "\x1b[?1000l\x1b[?1006l"},
		{"every mouse", "\x1b[?9h\x1b[?1001h\x1b[?1002h\x1b[?1003h\x1b[?1005h\x1b[?1015h\x1b[?1016h",
			"\x1b[?9l\x1b[?1001l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1015l\x1b[?1016l"},
		{"focus, colour scheme, sizes, win32, synchronised", "\x1b[?1004h\x1b[?2031h\x1b[?2048h\x1b[?9001h\x1b[?2026h",
			"\x1b[?2026l\x1b[?1004l\x1b[?2031l\x1b[?2048l\x1b[?9001l"},
		{"older alternate screens", "\x1b[?47h\x1b[?1047h", "\x1b[?47l\x1b[?1047l"},
		{"an alternate screen of several modes", "\x1b[?1049h\x1b[?1047l\x1b[?1047h", "\x1b[?1047l\x1b[?1049l"},
		{"an alternate screen of several modes, left", "\x1b[?1049h\x1b[?1047l\x1b[?1047h\x1b[?1049l", ""},
		{"no wrap, origin, margins, insert, newline, inverse", "\x1b[?7l\x1b[?6h\x1b[?69h\x1b[4h\x1b[20h\x1b[?5h",
			"\x1b[?5l\x1b[?6l\x1b[?69l\x1b[4l\x1b[20l\x1b[?7h"},
		{"cursor shape", "\x1b[5 q", "\x1b[0 q"},
		{"kitty keys", "\x1b[>1u\x1b[>3u", "\x1b[<2u"},
		{"kitty keys, popped", "\x1b[>1u\x1b[>3u\x1b[<u\x1b[<1u\x1b[<5u", ""},
		{"kitty keys, popped at once", "\x1b[>1u\x1b[>3u\x1b[<2u", ""},
		{"kitty keys, set", "\x1b[=5;1u", "\x1b[=0u"},
		{"kitty keys of each screen", "\x1b[>1u\x1b[?1049h\x1b[>1u\x1b[>1u", "\x1b[<2u\x1b[?1049l\x1b[<1u"},
		{"kitty keys asked for", "\x1b[?u", ""},
		{"other keys disabled", "\x1b[>4;1m\x1b[>4n", ""},
		{"colours", "\x1b]10;#fff\x07\x1b]11;#000\x1b\\\x1b]12;red\x07\x1b]4;1;#123\x07", "\x1b]104\x07\x1b]110\x07\x1b]111\x07\x1b]112\x07"},
		{"colours asked for", "\x1b]11;?\x07\x1b]4;1;?\x1b\\", ""},
		{"colours set back", "\x1b]11;#000\x07\x1b]4;1;#123\x07\x1b]111\x07\x1b]104\x07", ""},
		{"a title is no colour", "\x1b]0;11;x\x07\x1b]2;t\x1b\\", ""},
		{"titles pushed", "\x1b[22;0;0t\x1b[22;2t\x1b[22t\x1b[22;1t\x1b[23;0t", "\x1b[23;0t\x1b[23;0t"},
		{"titles popped", "\x1b[22;0;0t\x1b[23;0;0t\x1b[23;0;0t\x1b[8;24;80t", ""},
		{"progress", "\x1b]9;4;1;50\x07\x1b]9;hello\x07", "\x1b]9;4;0\x07"},
		{"progress, ended", "\x1b]9;4;1;50\x07\x1b]9;4;0\x07", ""},
		{"the pointer", "\x1b]22;text\x1b\\\x1b]22;?__current__\x1b\\", "\x1b]22;\x07"},
		{"the pointer, set back", "\x1b]22;text\x07\x1b]22;\x07\x1b]22;default\x07", ""},
		{"an open link", "\x1b]8;id=1;http://x\x07text", "\x1b]8;;\x07"},
		{"a closed link", "\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", ""},
		{"a reset", "\x1b[?1049h\x1b[?1000h\x1b[>1u\x1bc", ""},
		{"attributes are no modes", "\x1b[1;31m\x1b[?25h\x1b[H\x1b[2J\x1b[c\x1b[6n", ""},
		{"broken off within a sequence", "\x1b[?1000h\x1b[?10", "\x18\x1b[?1000l"},
		{"broken off within a colour", "\x1b]11;#0", "\x18"},
		{"broken off within an image", "\x1bPq#0;2;", "\x18"},
		{"images", "\x1bPq#0;2;\x1b\\\x1b_Gx\x1b\\\x1b[?1000h", "\x1b[?1000l"},
		{"cancelled", "\x1b]11;#0\x18\x1b[?1000\x18h", ""},
		{"a sequence cut by another", "\x1b[?10\x1b[?1000h", "\x1b[?1000l"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole, bytewise := &modes{}, &modes{}
			whole.record([]byte(tt.printed))
			for i := range len(tt.printed) {
				bytewise.record([]byte{tt.printed[i]})
			}
			for how, m := range map[string]*modes{"whole": whole, "byte by byte": bytewise} {
				if got, want := m.undo(), tt.want+always; got != want {
					t.Errorf("%s: undo is %q, want %q", how, got, want)
				}
				if again := m.undo(); again != "" {
					t.Errorf("%s: undo is %q the second time", how, again)
				}
			}
		})
	}
}

// A mode that the terminal had set or reset before is restored, however often it was changed. A mode whose state the
// terminal has not reported stays as it is.
func TestModesInitial(t *testing.T) {
	term := &Terminal{}
	term.initially("?2027", true)
	term.initially("?1007", false)
	term.initially("?12", true)
	term.initially("?45", false)
	for _, tt := range []struct{ printed, want string }{
		{"\x1b[?2027l\x1b[?1007l", "\x1b[?2027h" + always},
		{"\x1b[?2027h\x1b[?1007h", "\x1b[?1007l" + always},
		{"\x1b[?2027l\x1bc\x1b[?2027l\x1b[?1007h", "\x1b[?1007l\x1b[?2027h" + always},
		{"\x1b[?12l\x1b[?45h", "\x1b[?12h\x1b[?45l" + always},
		{"\x1b[?12;45h", "\x1b[?45l" + always},
		{"text\x1b[m", always},
	} {
		term.modes.record([]byte(tt.printed))
		if got := term.modes.undo(); got != tt.want {
			t.Errorf("after %q undo is %q, want %q", tt.printed, got, tt.want)
		}
	}
	other := &modes{}
	other.record([]byte("\x1b[?2027l\x1b[?12;45h"))
	if got := other.undo(); got != always {
		t.Errorf("for a terminal that does not reply undo is %q, want %q", got, always)
	}
}

// TestModesOfTable checks that undo resets each mode as the table demands.
func TestModesOfTable(t *testing.T) {
	for _, mode := range termmode.All {
		for _, on := range []bool{true, false} {
			m := &modes{}
			m.record([]byte(mode.Sequence(on)))
			want := always
			if mode.Undo != termmode.Stays && mode.Undo != termmode.ToInitial && on != mode.Default {
				want = mode.Sequence(mode.Default) + always
			}
			if got := m.undo(); got != want {
				t.Errorf("after %q undo is %q, want %q", mode.Sequence(on), got, want)
			}
			m.initial = map[string]bool{mode.Parameter(): !on}
			m.record([]byte(mode.Sequence(on)))
			if want = mode.Sequence(!on) + always; mode.Undo == termmode.ToInitial && m.undo() != want {
				t.Errorf("after %q undo is not %q", mode.Sequence(on), want)
			}
		}
	}
	m := &modes{}
	for n := range 10_000 {
		m.record(fmt.Appendf(nil, "\x1b[?%dh", n))
	}
	if len(m.on) > len(termmode.All) {
		t.Errorf("%d modes are recorded", len(m.on))
	}
}

func TestModesOfText(t *testing.T) {
	m := &modes{}
	m.record([]byte("hello\a\r\n\tworld\b"))
	if got := m.undo(); got != "" {
		t.Errorf("undo of text is %q", got)
	}
}

// TestModesForgetLongSequences checks that a sequence without an end is not kept.
func TestModesForgetLongSequences(t *testing.T) {
	for _, begin := range []string{"\x1b[", "\x1b]52;c;"} {
		m := &modes{}
		for range 100 {
			m.record([]byte(begin))
			m.record(bytes.Repeat([]byte("0"), 1000))
		}
		if n := len(m.tokens.Body()); n > maxBody {
			t.Errorf("%q: keeps %d bytes", begin, n)
		}
		m.record([]byte("\x1b\\\x1b[?1000h"))
		if !m.is("?1000") {
			t.Errorf("%q: the sequence after it is not recognized", begin)
		}
	}
}

// FuzzModes checks that undo does not depend on how the output is cut, and that no mode is left to undo after undo
// was printed.
func FuzzModes(f *testing.F) {
	f.Add([]byte("\x1b[?1049h\x1b[>1u\x1b]11;#000\x07\x1b[?25l"), uint8(3))
	f.Add([]byte("\x1b[=1u\x1b[=4;2u\x1b[=1;3u"), uint8(2))
	f.Add([]byte("\x1b[?1\x1b[\x1b]8;;x\x1b\\\x1bc"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, piece uint8) {
		whole, pieces := &modes{}, &modes{}
		whole.record(in)
		for p := range slices.Chunk(in, int(piece)+1) {
			pieces.record(p)
		}
		undo := whole.undo()
		if got := pieces.undo(); got != undo {
			t.Fatalf("%q: undo is %q, in pieces %q", in, undo, got)
		}
		after := &modes{}
		after.record(in)
		after.record([]byte(undo))
		if got := after.undo(); got != always && undo != "" || got != "" && undo == "" {
			t.Fatalf("%q: after undo %q there is %q to undo", in, undo, got)
		}
	})
}

// TestTerminalWithoutTerminal checks that only the session's output is written, and none after restore.
func TestTerminalWithoutTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	defer r.Close()
	term := Open(r, w)
	testkit.Must(t, term.Raw())
	term.clear(true)
	if _, err := term.Write([]byte("\x1b[?1049hhello")); err != nil {
		t.Fatal(err)
	}
	term.Restore()
	term.Restore()
	if _, err := term.Write([]byte("late")); err == nil {
		t.Error("output was accepted after restore")
	}
	testkit.Must(t, w.Close())
	var got strings.Builder
	if _, err := r.WriteTo(&got); err != nil {
		t.Fatal(err)
	}
	if got.String() != "\x1b[?1049hhello" {
		t.Errorf("written: %q", got.String())
	}
}
