package cli

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"holdfast/protocol"
)

func TestSGR(t *testing.T) {
	for _, tt := range []struct {
		look protocol.Look
		want string
	}{
		{protocol.Look{}, ""},
		{protocol.Look{Link: "http://x"}, ""},
		{protocol.Look{Bold: true, Dim: true, Italic: true, Blink: true, Inverse: true, Invisible: true, Strike: true, Overline: true}, "1;2;3;5;7;8;9;53"},
		{protocol.Look{Fg: "1", Bg: "255"}, "38;5;1;48;5;255"},
		{protocol.Look{Fg: "#102030", Bg: "#ffeedd"}, "38;2;16;32;48;48;2;255;238;221"},
		{protocol.Look{Underline: protocol.UnderlineSingle}, "4"},
		{protocol.Look{Underline: protocol.UnderlineCurly, UnderlineColor: "9"}, "4:3;58:5:9"},
		{protocol.Look{Underline: protocol.UnderlineDashed, UnderlineColor: "#010203"}, "4:5;58:2::1:2:3"},
		{protocol.Look{Underline: "wild", Fg: "red"}, ""},
	} {
		if got := sgrOf(tt.look); got != tt.want {
			t.Errorf("%+v is %q, want %q", tt.look, got, tt.want)
		}
	}
}

// The replies of several requests become one, in which each style has one number.
func TestHistoryOfParts(t *testing.T) {
	red, bold := protocol.Look{Fg: "1"}, protocol.Look{Bold: true}
	line := func(n uint64, looks ...int) protocol.HistoryLine {
		l := protocol.HistoryLine{Line: n}
		for _, look := range looks {
			l.Spans = append(l.Spans, protocol.Span{Text: "x", Look: look})
		}
		return l
	}
	all := &protocol.HistoryContent{Looks: []protocol.Look{{}, red}, Lines: []protocol.HistoryLine{line(9, 0, 1)}, More: true}
	addHistory(all, &protocol.HistoryContent{
		Looks: []protocol.Look{{}, bold, red}, Lines: []protocol.HistoryLine{line(8, 2, 0, 1), line(7, 5, -1)},
	})
	want := &protocol.HistoryContent{
		Looks: []protocol.Look{{}, red, bold}, Lines: []protocol.HistoryLine{line(9, 0, 1), line(8, 1, 0, 2), line(7, 5, -1)},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got %+v, want %+v", all, want)
	}
	var b strings.Builder
	for _, o := range []historyOptions{{}, {number: true}, {ansi: true}} {
		for _, l := range all.Lines {
			o.print(&b, l, all.Looks)
		}
	}
	const text = "xx\nxxx\nxx\n9:xx\n8:xxx\n7:xx\nx\x1b[38;5;1mx\x1b[0m\n\x1b[38;5;1mx\x1b[0mx\x1b[1mx\x1b[0m\nxx\n"
	if b.String() != text {
		t.Errorf("printed %q, want %q", b.String(), text)
	}
}

func TestHighlight(t *testing.T) {
	for _, tt := range []struct {
		text   string
		ranges []protocol.Range
		want   string
	}{
		{"abc", nil, "abc"},
		{"abcde", []protocol.Range{{Start: 0, End: 1}, {Start: 3, End: 5}}, "<a>bc<de>"},
		{"äöü", []protocol.Range{{Start: 2, End: 4}}, "ä<ö>ü"},
		{"abc", []protocol.Range{{Start: 1, End: 1}, {Start: 2, End: 9}, {Start: -1, End: 1}}, "abc"},
		{"abc", []protocol.Range{{Start: 1, End: 3}, {Start: 2, End: 3}}, "a<bc>"},
		{"a\x1bc", []protocol.Range{{Start: 1, End: 2}}, "a<?>c"},
	} {
		want := strings.NewReplacer("<", "\x1b[1;31m", ">", "\x1b[m").Replace(tt.want)
		if got := highlight(tt.text, tt.ranges); got != want {
			t.Errorf("%q %v: got %q, want %q", tt.text, fmt.Sprint(tt.ranges), got, want)
		}
	}
}
