package vt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []Event
	}{
		{"none", "hello\x1b[1m\r\n", nil},
		{"bells", "\x07a\x07", []Event{{Kind: Bell}, {Kind: Bell}}},
		{"the end of an OSC is no bell", "\x1b]2;t\x07", []Event{{Kind: TitleChanged, Text: "t"}}},
		{"titles by both ends", "\x1b]0;a;b\x1b\\\x1b]2;c\x1b\\", []Event{{Kind: TitleChanged, Text: "a;b"}, {Kind: TitleChanged, Text: "c"}}},
		{"the same title", "\x1b]2;a\x07\x1b]2;a\x07", []Event{{Kind: TitleChanged, Text: "a"}}},
		{"a title from the stack", "\x1b]2;a\x07\x1b[22;0t\x1b]2;b\x07\x1b[23;0t", []Event{{Kind: TitleChanged, Text: "a"}, {Kind: TitleChanged, Text: "b"}, {Kind: TitleChanged, Text: "a"}}},
		{"a title that is cut off", "\x1b]2;a\x18", nil},
		{"directories", "\x1b]7;file://host/a%20b\x07\x1b]1337;CurrentDir=/c\x07\x1b]9;9;\"/d\"\x07",
			[]Event{{Kind: WorkDirChanged, Text: "/a b"}, {Kind: WorkDirChanged, Text: "/c"}, {Kind: WorkDirChanged, Text: "/d"}}},
		{"no directories", "\x1b]7;http://x/\x07\x1b]7;file://h\x07\x1b]7;file:///%zz\x07\x1b]1337;CurrentDir=a\x07\x1b]1337;File=x\x07", nil},
		{"notifications", "\x1b]9;done\x07\x1b]777;notify;build;failed\x07", []Event{{Kind: Notification, Text: "done"}, {Kind: Notification, Title: "build", Text: "failed"}}},
		{"progress is none", "\x1b]9;4;1;50\x07\x1b]777;other\x07", nil},
		{"commands", "\x1b]133;A\x07$ \x1b]133;B\x07ls\x1b]133;C\x07\x1b]133;D;2\x07\x1b]133;D\x07",
			[]Event{{Kind: PromptStarted}, {Kind: PromptEnded}, {Kind: CommandStarted}, {Kind: CommandEnded, Code: 2}, {Kind: CommandEnded, Code: -1}}},
		{"command lines", "\x1b]133;C;cmdline_url=ls%20-l%3Bx\x07\x1b]133;C;aid=1;cmdline=echo\\ 'a;b'$'\\n\\x41\\102'\x07\x1b]633;E;a\\x3bb\\\\c;nonce\x07",
			[]Event{{Kind: CommandStarted, Text: "ls -l;x"}, {Kind: CommandStarted, Text: "echo a;b\nAB"}, {Kind: CommandLine, Text: `a;b\c`}}},
		{"command lines that are none", "\x1b]133;C;cmdline_url=%zz\x07\x1b]133;C;x=\x07\x1b]633;A\x07\x1b]133;C;cmdline=$'\\\x07",
			[]Event{{Kind: CommandStarted}, {Kind: CommandStarted}, {Kind: CommandStarted, Text: `\`}}},
		{"the clipboard", "\x1b]52;c;aGk=\x07\x1b]52;c;?\x07", nil},
		{"no number", "\x1b]x\x07\x1b];\x07\x1b]\x07", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []Event
			term := New(Config{Events: func(e Event) {
				e.Line, e.Byte, e.Begin, e.End = 0, 0, 0, 0 // package screen tests the places
				got = append(got, e)
			}})
			term.Write([]byte(tt.in))
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q: got %+v, want %+v", tt.in, got, tt.want)
			}
			if r := term.Replies(); len(r) > 0 {
				t.Errorf("%q has the reply %q", tt.in, r)
			}
		})
	}
}

func TestLongStrings(t *testing.T) {
	title := ""
	term := New(Config{Events: func(e Event) { title = e.Text }})
	term.Write([]byte("\x1b]2;" + strings.Repeat("é", maxTitle) + "\x07"))
	if len(title) > maxTitle || strings.Trim(title, "é") != "" || title == "" {
		t.Errorf("the title has %d bytes and ends with %q, want at most %d bytes and whole characters", len(title), title[max(0, len(title)-4):], maxTitle)
	}
	for _, start := range []string{"\x1b]2;", "\x1bP$q", "\x1b_", "\x1b^", "\x1bX"} {
		title = ""
		for range 100 {
			term.Write([]byte(start + strings.Repeat("x", maxString/10)))
			start = ""
		}
		if cap(term.str) > 2*maxString {
			t.Errorf("%q...: %d bytes are held", start, cap(term.str))
		}
		term.Write([]byte("\x1b\\ok"))
		if title != "" {
			t.Errorf("the title has %d bytes, want none", len(title))
		}
	}
	if got := strings.TrimRight(screenText(term), "\n "); got != "okokokokok" {
		t.Errorf("the screen is %q", got)
	}
}

func TestLinks(t *testing.T) {
	term := New(Config{Cols: 20, Rows: 2})
	term.Write([]byte("\x1b]8;id=x;http://a;b\x1b\\one\x1b]8;;\x1b\\ \x1b]8;;http://c\x1b\\two\x1b[0mthree\x1b]8;;\x1b\\."))
	s := term.State()
	var got []string
	for _, c := range s.Normal.Lines[0].Cells {
		a := s.Attrs[c.Attr]
		got = append(got, fmt.Sprintf("%s:%s:%s", c.Text, a.LinkID, a.URI))
	}
	want := strings.Fields("o:x:http://a;b n:x:http://a;b e:x:http://a;b _:: t::http://c w::http://c o::http://c " +
		"t::http://c h::http://c r::http://c e::http://c e::http://c .::")
	want[3] = " ::"
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	term.Write([]byte("\x1b[2J\x1b[H\x1b]8;;http://" + strings.Repeat("x", maxURI) + "\x1b\\y"))
	if s := term.State(); s.Attrs[s.Normal.Lines[0].Cells[0].Attr].URI != "" {
		t.Error("a link that is longer than the limit was not left out")
	}
}
