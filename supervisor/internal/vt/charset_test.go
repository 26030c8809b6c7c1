package vt

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCharset(t *testing.T) {
	const line = "#@[\\]^_`{|}~"
	for _, tt := range []struct {
		designators string
		want        string
	}{
		{"0", "#@[\\]^_◆π≠£·"},
		{"A", "£@[\\]^_`{|}~"},
		{"B", line},
		{"4", "£¾i½|^_`¨f¼´"},
		{"C5", "#@ÄÖÅÜ_éäöåü"},
		{"R", "£à°ç§^_`éùè¨"},
		{"Q", "#àâçêî_ôéùèû"},
		{"K", "#§ÄÖÜ^_`äöüß"},
		{"Y", "£§°çé^_ùàòèì"},
		{"E6", "#ÄÆØÅÜ_äæøåü"},
		{"Z", "£§¡Ñ¿^_`°ñç~"},
		{"H7", "#ÉÄÖÅÜ_éäöåü"},
		{"=", "ùàéçêîèôäöüû"},
	} {
		for _, designator := range []byte(tt.designators) {
			t.Run(string(designator), func(t *testing.T) {
				set := charsetFor(designator)
				var got []rune
				for _, b := range []byte(line) {
					got = append(got, set.at(b))
				}
				if string(got) != tt.want {
					t.Errorf("%s is shown as %s, want %s", line, string(got), tt.want)
				}
				if !knownCharset(designator) {
					t.Error("the charset is not known")
				}
				if set != nil && set.designators != tt.designators {
					t.Errorf("the charset has the designators %q", set.designators)
				}
			})
		}
	}
}

func TestCharsetKeepsOtherBytes(t *testing.T) {
	for i := range charsets {
		set := &charsets[i]
		for b := range 256 {
			if got := set.at(byte(b)); (b < 0x21 || b > 0x7e || b >= '0' && b <= '9') && got != rune(b) {
				t.Errorf("%s: %#x is %#x, want itself", set.designators, b, got)
			}
		}
	}
	if set := (*charset)(nil); set.at('q') != 'q' || set.at(0xe4) != 0xe4 {
		t.Error("nil is not US ASCII")
	}
}

func TestUnknownCharsets(t *testing.T) {
	for b := range 256 {
		known := b == 'B'
		for _, set := range charsets {
			known = known || strings.IndexByte(set.designators, byte(b)) >= 0
		}
		if got := knownCharset(byte(b)); got != known {
			t.Errorf("knownCharset(%#x) = %v, want %v", b, got, known)
		}
		if got := charsetFor(byte(b)); (got != nil) != (known && b != 'B') {
			t.Errorf("charsetFor(%#x) = %v", b, got)
		}
	}
}

func TestCharsetsAreXterms(t *testing.T) {
	var sets map[string][]rune
	if err := json.Unmarshal(xtermWidths(t, nil, "charsets"), &sets); err != nil {
		t.Fatal(err)
	}
	for designator := byte(0x30); designator < 0x7f; designator++ {
		shown, known := sets[string(designator)]
		if got := knownCharset(designator); got != known {
			t.Errorf("knownCharset(%q) = %v, xterm.js says %v", designator, got, known)
		}
		for i, want := range shown {
			b := byte(0x20 + i)
			if got := charsetFor(designator).at(b); got != want {
				t.Errorf("%c: %q is %q, xterm.js shows %q", designator, b, got, want)
			}
		}
	}
}
