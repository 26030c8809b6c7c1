package escseq

import (
	"reflect"
	"testing"
)

func TestNextInput(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	for _, tt := range []struct {
		in   string
		want Input
	}{
		{"text\r\u009bm\x1b[A", Input{Kind: Text, Len: 8, Complete: true}},
		{"\x1b[Ax", Input{Kind: CSI, Len: 3, Complete: true, Final: 'A', Body: b("")}},
		{"\x1b[1;5Ax", Input{Kind: CSI, Len: 6, Complete: true, Final: 'A', Body: b("1;5")}},
		{"\x1b[1", Input{Kind: CSI, Len: 3}},
		{"\x1b[1\nA", Input{Kind: CSI, Len: 5, Final: 'A', Body: b("1\n")}},
		{"\x1b[1\x1b[A", Input{Kind: CSI, Len: 3, Final: ESC}},
		{"\x1bOAx", Input{Kind: Escape, Len: 3, Complete: true, Final: 'A', Body: b("O")}},
		{"\x1bO\x1b[A", Input{Kind: Escape, Len: 2, Complete: true, Final: 'O'}},
		{"\x1bO", Input{Kind: Escape, Len: 2}},
		{"\x1bxy", Input{Kind: Escape, Len: 2, Complete: true, Final: 'x'}},
		{"\x1b", Input{Kind: Escape, Len: 1}},
		{"\x1b\x1b[A", Input{Kind: Escape, Len: 1, Final: ESC}},
		{"\x1b[M !\"x", Input{Kind: CSI, Len: 6, Complete: true, Final: 'M', Body: b(""), Mouse: b(" !\"")}},
		{"\x1b[M !", Input{Kind: CSI, Len: 3, Body: b("")}},
		{"\x1b[M !\x1b", Input{Kind: CSI, Len: 3, Complete: true, Final: 'M', Body: b("")}},
		{"\x1b[<0;1;1Mx", Input{Kind: CSI, Len: 9, Complete: true, Final: 'M', Body: b("<0;1;1")}},
		{"\x1b]11;é\x07x", Input{Kind: OSC, Len: 8, Complete: true, Final: BEL, Body: b("11;é")}},
		{"\x1b]11;é\x1b\\x", Input{Kind: OSC, Len: 9, Complete: true, Final: ESC, Body: b("11;é")}},
		{"\x1b]11;é\u009cx", Input{Kind: OSC, Len: 9, Complete: true, Final: ST, Body: b("11;é")}},
		{"\x1b]11;\x1b", Input{Kind: OSC, Len: 5, Body: b("11;")}},
		{"\x1b]11;\x1b[A", Input{Kind: OSC, Len: 5, Final: ESC, Body: b("11;")}},
		{"\x1bP1$r0m\x1b\\", Input{Kind: DCS, Len: 9, Complete: true, Final: ESC, Body: b("1$r0m")}},
		{"\x1b_Gi=1;OK\x1b\\", Input{Kind: APC, Len: 11, Complete: true, Final: ESC, Body: b("Gi=1;OK")}},
		{"\x1b_G", Input{Kind: APC, Len: 3}},
	} {
		if got := NextInput([]byte(tt.in)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %+v, want %+v", tt.in, got, tt.want)
		}
	}
}

// FuzzNextInput checks that a unit is within the input, that each unit except text begins with ESC, and that
// more input does not change a unit that was complete or can no longer become complete.
func FuzzNextInput(f *testing.F) {
	for _, s := range []string{"a\x1b[1;5A\x1bOA\x1b[M !!\x1b]11;x\x1b\\b", "\x1b\x1b[1\n\x1b_é\x1b\\\x1bO", "\x1b]a\u009c\x1bP\x1b"} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		for len(in) > 0 {
			u := NextInput(in)
			if u.Len <= 0 || u.Len > len(in) || (u.Kind == Text) != (in[0] != ESC) {
				t.Fatalf("%q: %+v", in, u)
			}
			part := in[:1+max(cut, -(cut+1))%len(in)]
			if v := NextInput(part); v.Kind != Text && (v.Complete || v.Final != 0) && !reflect.DeepEqual(u, v) {
				t.Fatalf("the unit of %q is %+v, but the unit of its beginning %q is %+v", in, u, part, v)
			}
			in = in[u.Len:]
		}
	})
}
