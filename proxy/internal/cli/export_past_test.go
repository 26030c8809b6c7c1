package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// A cast of the past has the times and sizes of the output.
func TestPastCast(t *testing.T) {
	began := time.Unix(1000, 0)
	var b bytes.Buffer
	p := &pastCastWriter{cast: castWriter{w: &b}, began: began, size: protocol.Size{Cols: 80, Rows: 24}}
	for _, part := range []client.PastOutput{
		{Offset: 5, Data: []byte("abcdef"), Times: []protocol.PastTime{{Offset: 5, At: began.Add(time.Second)}, {Offset: 8, At: began.Add(3 * time.Second)}},
			Sizes: []protocol.PastSize{{Offset: 5, Size: protocol.Size{Cols: 80, Rows: 24}}, {Offset: 7, Size: protocol.Size{Cols: 100, Rows: 24}}}},
		{Offset: 11, Data: []byte("g"), Sizes: []protocol.PastSize{{Offset: 11, Size: protocol.Size{Cols: 100, Rows: 24}}}},
	} {
		if err := p.add(part); err != nil {
			t.Fatal(err)
		}
	}
	want := `[1,"o","ab"]
[1,"r","100x24"]
[1,"o","c"]
[3,"o","def"]
[3,"o","g"]
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// A page of printed lines has their tabs.
func TestPastPageTabs(t *testing.T) {
	var p htmlPage
	p.add([]byte("name\tsize\n"))
	if page := string(screenHTML("s", &p.screen)); !strings.Contains(page, "name\tsize") {
		t.Errorf("the page is %s", page)
	}
}

// The styles of printed lines become those of a page.
func TestPastPage(t *testing.T) {
	var p htmlPage
	p.add([]byte("plain \x1b[1;31mred\nstill\x1b[0m off\n\x1b[38;2;1;2;3;48:5:200mx\x1b[39;49;22m \x1b[97;4my\n"))
	page := string(screenHTML("s", &p.screen))
	for _, part := range []string{"plain ", "red", "still", " off"} {
		if !strings.Contains(page, part) {
			t.Errorf("the page misses %q: %s", part, page)
		}
	}
	want := []protocol.Look{{}, {Bold: true, Fg: "1"}, {Fg: "#010203", Bg: "200"}, {Fg: "15", Underline: protocol.UnderlineSingle}}
	if len(p.screen.Looks) != len(want) {
		t.Fatalf("looks %+v, want %+v", p.screen.Looks, want)
	}
	for i, l := range want {
		if p.screen.Looks[i] != l {
			t.Errorf("look %d is %+v, want %+v", i, p.screen.Looks[i], l)
		}
	}
	for params, want := range map[string]protocol.Look{
		"4:3":             {Italic: true, Underline: protocol.UnderlineCurly},
		"4:0":             {Italic: true},
		"4;21":            {Italic: true, Underline: protocol.UnderlineDouble},
		";31":             {Fg: "1"},
		"31;":             {},
		"58;5;1":          {Italic: true, UnderlineColor: "1"},
		"58:2::1:0:255":   {Italic: true, UnderlineColor: "#0100ff"},
		"38:2:1:2:3;1":    {Italic: true, Bold: true, Fg: "#010203"},
		"48:2:0:1:2:3;1":  {Italic: true, Bold: true, Bg: "#010203"},
		"38;2;1;2;3;8":    {Italic: true, Invisible: true, Fg: "#010203"},
		"38:5:7;48;5;8;9": {Italic: true, Strike: true, Fg: "7", Bg: "8"},
	} {
		l := protocol.Look{Italic: true}
		if applySGR(&l, params); l != want {
			t.Errorf("SGR %s makes %+v, want %+v", params, l, want)
		}
	}
	for _, params := range []string{"38", "38;5", "38:", "38:2", "48:2:1:2:3", "58:2::1", "48;2;1", "999999999999999999999", ";;", "38;5;x"} {
		applySGR(&p.look, params) // does not panic
	}
}
