package vt

import (
	"bytes"
	"strings"
	"testing"
)

func TestReplies(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"nothing asked", "hello\x1b[31m", ""},
		{"device attributes", "\x1b[c\x1b[0c\x1bZ", "\x1b[?1;2c\x1b[?1;2c\x1b[?1;2c"},
		{"an answer is no question", "\x1b[?1;2c\x1b[3c", ""},
		{"secondary and tertiary", "\x1b[>c\x1b[=c", "\x1b[>0;276;0c\x1bP!|00000000\x1b\\"},
		{"status and place", "ab\x1b[5n\x1b[6n\x1b[?6n", "\x1b[0n\x1b[1;3R\x1b[?1;3R"},
		{"version", "\x1b[>q\x1b[>0q", "\x1bP>|holdfast(1.2)\x1b\\\x1bP>|holdfast(1.2)\x1b\\"},
		{"modes", "\x1b[?2004h\x1b[?2004$p\x1b[?25$p\x1b[4$p\x1b[?31337$p", "\x1b[?2004;1$y\x1b[?25;1$y\x1b[4;2$y\x1b[?31337;0$y"},
		{"grapheme clusters", "\x1b[?2027$p\x1b[?2027h\x1b[?2027$p", "\x1b[?2027;2$y\x1b[?2027;1$y"},
		{"the size, reported", "\x1b[?2048$p\x1b[?2048h\x1b[?2048$p\x1b[?2048l", "\x1b[?2048;2$y\x1b[48;24;80;0;0t\x1b[?2048;1$y"},
		{"the wheel on the alternate screen", "\x1b[?1007$p\x1b[?1007h\x1b[?1007$p", "\x1b[?1007;2$y\x1b[?1007;1$y"},
		{"margins", "\x1b[?69h\x1b[?69$p", "\x1b[?69;0$y"},
		{"the mode of the keys", "\x1b[?4m\x1b[>4;2m\x1b[?4m\x1b[?1m", "\x1b[>4;0m\x1b[>4;2m"},
		{"keyboard", "\x1b[?u\x1b[>5u\x1b[?u\x1b[=2;2u\x1b[?u\x1b[<u\x1b[?u", "\x1b[?0u\x1b[?5u\x1b[?7u\x1b[?0u"},
		{"keyboard of each screen", "\x1b[=1u\x1b[?1049h\x1b[?u\x1b[=3u\x1b[?1049l\x1b[?u", "\x1b[?0u\x1b[?1u"},
		{"size", "\x1b[18t", "\x1b[8;24;80t"},
		{"settings", "\x1b[2;5r\x1b[1;38;5;9m\x1b[4 q\x1bP$qr\x1b\\\x1bP$qm\x1b\\\x1bP$q q\x1b\\\x1bP$qx\x1b\\",
			"\x1bP1$r2;5r\x1b\\\x1bP1$r0;1;38:5:9m\x1b\\\x1bP1$r4 q\x1b\\\x1bP0$r\x1b\\"},
		{"true colours, as Neovim and Helix ask for them", "\x1b[48;2;1;2;3m\x1b[58:2::4:5:6m\x1bP$qm\x1b\\", "\x1bP1$r0;48:2::1:2:3;58:2::4:5:6m\x1b\\"},
		{"capabilities", "\x1bP+q544e;436f;5858\x1b\\", "\x1bP1+r544e=787465726d2d323536636f6c6f72\x1b\\\x1bP1+r436f=323536\x1b\\\x1bP0+r\x1b\\"},
		{"the clipboard's capability", "\x1bP+q4d73\x1b\\", "\x1bP1+r4d73=1b5d35323b25703125733b257032257307\x1b\\"},
		{"colours", "\x1b]4;1;?\x07\x1b]4;20;#102030\x07\x1b]4;20;?\x07\x1b]11;rgb:ff/00/80\x07\x1b]11;?\x1b\\\x1b]111\x07\x1b]11;?\x07",
			"\x1b]4;1;rgb:cccc/0000/0000\x1b\\\x1b]4;20;rgb:1010/2020/3030\x1b\\\x1b]11;rgb:ffff/0000/8080\x1b\\\x1b]11;rgb:0000/0000/0000\x1b\\"},
		{"colours one after the other", "\x1b]10;?;?\x07", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\\x1b]11;rgb:0000/0000/0000\x1b\\"},
		{"cut, and then whole", "\x1b[6\x18n\x1b[6n", "\x1b[1;2R"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			term := New(Config{Version: "1.2"})
			term.Write([]byte(tt.in))
			if got := string(term.Replies()); got != tt.want {
				t.Errorf("%q has the reply %q, want %q", tt.in, got, tt.want)
			}
			if again := term.Replies(); len(again) > 0 {
				t.Errorf("the query was answered twice: %q", again)
			}
		})
	}
}

// If a program queries on and on and no replies are fetched, the first replies are kept, each of them whole. Queries
// after the replies were fetched are answered again.
func TestRepliesAreBounded(t *testing.T) {
	term := New(Config{})
	term.Write([]byte(strings.Repeat("\x1b[6n", 100_000)))
	got := string(term.Replies())
	if len(got) > maxReply || strings.TrimSuffix(got, "\x1b[1;1R") == got {
		t.Errorf("%d bytes that end with %q, want at most %d and a whole answer", len(got), got[max(0, len(got)-8):], maxReply)
	}
	term.Write([]byte("\x1b[5n"))
	if got := string(term.Replies()); got != "\x1b[0n" {
		t.Errorf("the next query has the reply %q", got)
	}
}

// If the terminal of a viewer does not support grapheme clusters, the reply says the same, unless the program has set
// the mode.
func TestGraphemesNotKnown(t *testing.T) {
	term := New(Config{})
	term.SetAppearance(Appearance{NoGraphemes: true})
	term.Write([]byte("\x1b[?2027$p\x1b[?2027h\x1b[?2027$p"))
	if got, want := string(term.Replies()), "\x1b[?2027;0$y\x1b[?2027;1$y"; got != want {
		t.Errorf("the replies are %q, want %q", got, want)
	}
}

// Queries about colours and sizes are answered with the appearance of the viewer, if there is one. Colours that the
// program has set come first.
func TestAppearance(t *testing.T) {
	color := func(rgb uint32) *uint32 { return &rgb }
	light := Appearance{
		Foreground: color(0x102030), Background: color(0xfdf6e3), Cursor: color(0xff0000),
		CellWidth: 9, CellHeight: 18, Version: "term\x1b\\ 1.2\u009c" + strings.Repeat("é", 100),
	}
	const colors, sizes = "\x1b]10;?\x07\x1b]11;?\x07\x1b]12;?\x07", "\x1b[14t\x1b[14;2t\x1b[16t\x1b[18t"
	for _, tt := range []struct {
		name     string
		a        Appearance
		in, want string
	}{
		{"no appearance", Appearance{}, colors + sizes + "\x1b[?996n", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\\x1b]11;rgb:0000/0000/0000\x1b\\\x1b]12;rgb:ffff/ffff/ffff\x1b\\\x1b[8;24;80t\x1b[?997;1n"},
		{"colours", light, colors + "\x1b[?996n", "\x1b]10;rgb:1010/2020/3030\x1b\\\x1b]11;rgb:fdfd/f6f6/e3e3\x1b\\\x1b]12;rgb:ffff/0000/0000\x1b\\\x1b[?997;2n"},
		{"colours set", light, "\x1b]11;#000000\x07\x1b]11;?\x07\x1b]111\x07\x1b]11;?\x07", "\x1b]11;rgb:0000/0000/0000\x1b\\\x1b]11;rgb:fdfd/f6f6/e3e3\x1b\\"},
		{"a cursor like the text", Appearance{Foreground: color(0x010203)}, "\x1b]12;?\x07", "\x1b]12;rgb:0101/0202/0303\x1b\\"},
		{"sizes", light, sizes, "\x1b[4;432;720t\x1b[6;18;9t\x1b[8;24;80t"},
		{"half a size", Appearance{CellWidth: 9}, sizes, "\x1b[8;24;80t"},
		{"version", light, "\x1b[>q", "\x1bP>|holdfast term\\ 1.2" + strings.Repeat("é", 59) + "\x1b\\"},
		{"not reset", light, "\x1bc\x1b[16t", "\x1b[6;18;9t"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			term := New(Config{})
			term.SetAppearance(tt.a)
			term.Write([]byte(tt.in))
			if got := string(term.Replies()); got != tt.want {
				t.Errorf("%q has the reply %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

// Every sequence that requests focus events counts, and no other sequence.
func TestFocusAsked(t *testing.T) {
	term := New(Config{})
	term.Write([]byte("\x1b[?1004h\x1b[?1004h\x1b[?1004;2004h\x1b[?1004l\x1b[?1003h"))
	if m := term.Modes(); term.FocusAsked() != 3 || m.Focus || !m.BracketedPaste {
		t.Errorf("%d requests of focus events, modes %+v", term.FocusAsked(), m)
	}
}

// Replies that only the core may give are kept apart, and are saved. With mode 2048 the restored terminal also
// reports its size, although a snapshot does not set that mode.
func TestRepliesAlone(t *testing.T) {
	term := New(Config{HistoryLines: 10})
	term.Write([]byte("\x1b[5n\x1b[?69$p\x1b[?2048h\x1b[6n"))
	if got, want := string(term.RequiredReplies()), "\x1b[?69;0$y\x1b[48;24;80;0;0t"; got != want {
		t.Errorf("alone: got %q, want %q", got, want)
	}
	record, rest := savedOf(t, term, 10)
	if strings.Contains(string(record), "2048") {
		t.Errorf("the snapshot sets the mode: %q", record)
	}
	next := New(Config{HistoryLines: 10})
	next.PrepareRestore(rest)
	next.Refill(record)
	next.FinishRestore(rest)
	if got, want := string(next.RequiredReplies()), string(term.RequiredReplies()); got != want {
		t.Errorf("the restored terminal has the required replies %q, want %q", got, want)
	}
	if got, want := string(next.Replies()), string(term.Replies()); got != want {
		t.Errorf("the restored terminal has the replies %q, want %q", got, want)
	}
	next.Resize(100, 30)
	if got, want := string(next.Replies()), "\x1b[48;30;100;0;0t"; got != want || len(next.RequiredReplies()) > 0 {
		t.Errorf("after a resize the restored terminal reports %q, want %q once", got, want)
	}
}

// A snapshot sets or resets mode 1007 if the program has done so. Otherwise the viewer's terminal keeps its own
// setting.
func TestSnapshotOfAlternateScroll(t *testing.T) {
	for _, tt := range []struct{ in, want string }{{"x", ""}, {"x\x1b[?1007h", "\x1b[?1007h"}, {"x\x1b[?1007l", "\x1b[?1007l"}, {"x\x1b[?1007l\x1bc", ""}} {
		term := New(Config{})
		term.Write([]byte(tt.in))
		snapshot := string(term.Snapshot())
		if got := strings.Contains(snapshot, "1007"); got != (tt.want != "") || !strings.Contains(snapshot, tt.want) {
			t.Errorf("after %q the snapshot is %q, want %q in it", tt.in, snapshot, tt.want)
		}
	}
}

// savedOf returns the bytes that Save writes, and the remainder.
func savedOf(t testing.TB, term *Term, history int) ([]byte, *Remainder) {
	t.Helper()
	var record bytes.Buffer
	rest, err := term.Save(&record, history)
	if err != nil {
		t.Fatal(err)
	}
	return record.Bytes(), rest
}
