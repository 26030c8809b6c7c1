package escseq

import (
	"fmt"
	"strings"
	"testing"
)

// tokensOf returns the tokens of in, which it passes in pieces of n bytes. It joins the parts of a token.
func tokensOf(t testing.TB, in []byte, n int) []string {
	tokens := Tokenizer{Room: 64}
	var all []string
	open := "" // the parts of a token that has not ended
	for at := 0; at < len(in); at += n {
		p := in[at:min(at+n, len(in))]
		for i := 0; i < len(p); {
			tok := tokens.Next(p, i)
			if tok.Start != i || tok.End < i || tok.End > len(p) {
				t.Fatalf("%q at %d: token %+v", p, i, tok)
			}
			i = tok.End
			open += string(p[tok.Start:tok.End])
			switch {
			case tok.Kind == Text && len(all) > 0 && strings.HasPrefix(all[len(all)-1], "text "):
				all[len(all)-1] += open
			case tok.Kind == Text:
				all = append(all, "text "+open)
			case tok.Final == 0:
				if tok.Complete || tok.End < len(p) {
					t.Fatalf("%q: a token without a final byte is complete or does not reach the end: %+v", p, tok)
				}
				continue
			default:
				all = append(all, fmt.Sprintf("%d %q %q %v %v %x", tok.Kind, open, tokens.Body(), tokens.IsTooLong(), tok.Complete, tok.Final))
			}
			open = ""
		}
	}
	if open != "" {
		all = append(all, fmt.Sprintf("%d %q", tokens.Kind(), open))
	}
	return all
}

// FuzzNext checks that cutting the input anywhere gives the same tokens, that tokens cover the input, and
// that a body is bounded.
func FuzzNext(f *testing.F) {
	for _, s := range []string{
		"a\x1b[1;31mb\x1b]0;t\x07c\x1b]0;t\x1b\\\x1bP$qm\x1b\\\x1b_Ga=q;AA\x1b\\\x1b(B\x1b#8\x1bXs\x1b\\\x1b^p\x18x\x1b[1\x1am",
		"\u009b1m\u009d2;t\u009c\u0090q\u009c\u009fG\u009c\u0098\u009e\u0085\u009a\xc2\xc2\x9b2m\xc2x\xc2\x1b[m",
		"\x1b[é1m\x1b[0<éc\x1bé\x1bPé\x1b]é\xc2\x07\x1b_é\x1b\\\x1b[\xe2\x82c\x1b[\xff1m\x1b]\xed\xa0\x80\x07\x1b]" + strings.Repeat("x", 100) + "\x07",
	} {
		for n := range uint8(4) {
			f.Add([]byte(s), n)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, n uint8) {
		whole, pieces := tokensOf(t, in, max(1, len(in))), tokensOf(t, in, int(n)+1)
		if a, b := strings.Join(whole, "\n"), strings.Join(pieces, "\n"); a != b {
			t.Fatalf("the tokens of %q are\n%s\nand in pieces of %d\n%s", in, a, int(n)+1, b)
		}
	})
}

func TestNext(t *testing.T) {
	for _, tt := range []struct {
		in, body string
		want     Token
	}{
		{"text\x07\n", "", Token{Text, 0, 6, true, 0}},
		{"text\u009b", "", Token{Text, 0, 5, true, 0}},
		{"\x1b[1;2$pq", "1;2$", Token{CSI, 0, 7, true, 'p'}},
		{"\x1b[1\x072m", "12", Token{CSI, 0, 6, true, 'm'}},
		{"\x1b[1", "1", Token{CSI, 0, 3, false, 0}},
		{"\x1b[1\x18m", "1", Token{CSI, 0, 4, false, CAN}},
		{"\x1b[1\x1b[", "1", Token{CSI, 0, 3, false, ESC}},
		{"\x1b[1é", "1", Token{CSI, 0, 5, false, Character}},
		{"\x1b]0;a\x07b", "0;a", Token{OSC, 0, 6, true, BEL}},
		{"\x1b]0;é\n\x1b\\b", "0;é", Token{OSC, 0, 7, true, ESC}},
		{"\x1b]0;\u009cb", "0;", Token{OSC, 0, 6, true, ST}},
		{"\x1b]0;\u009bm", "0;", Token{OSC, 0, 5, false, 0x9b}},
		{"\x1bPq\x07\x1b\\", "q\x07", Token{DCS, 0, 4, true, ESC}},
		{"\x1b_Ga\x1b\\", "Ga", Token{APC, 0, 4, true, ESC}},
		{"\x1bXa\x1b\\", "a", Token{SOS, 0, 3, true, ESC}},
		{"\x1b^a\x1b\\", "a", Token{PM, 0, 3, true, ESC}},
		{"\x1b(B", "(", Token{Escape, 0, 3, true, 'B'}},
		{"\x1b\\", "", Token{Escape, 0, 2, true, '\\'}},
		{"\x1bOA", "", Token{Escape, 0, 2, true, 'O'}},
		{"\x1b\x1b", "", Token{Escape, 0, 1, false, ESC}},
	} {
		tokens := Tokenizer{Room: 10}
		if got := tokens.Next([]byte(tt.in), 0); got != tt.want || tt.want.Kind != Text && string(tokens.Body()) != tt.body {
			t.Errorf("%q: %+v, body %q; want %+v, body %q", tt.in, got, tokens.Body(), tt.want, tt.body)
		}
	}
}

// A sequence without an end must use no memory beyond Room, and a large body must be released.
func TestNextBounds(t *testing.T) {
	tokens := Tokenizer{Room: 64 << 10}
	p := []byte("\x1b]52;c;" + strings.Repeat("A", 1<<20))
	for i := 0; i < len(p); {
		i = tokens.Next(p, i).End
	}
	if len(tokens.Body()) != tokens.Room || !tokens.IsTooLong() {
		t.Errorf("the body has %d bytes, IsTooLong is %v", len(tokens.Body()), tokens.IsTooLong())
	}
	p = []byte("\x07x")
	i := tokens.Next(p, 0).End
	tokens.Next(p, i)
	if cap(tokens.body) > maxIdleBody {
		t.Errorf("%d bytes stay allocated after the sequence", cap(tokens.body))
	}
	p = []byte(strings.Repeat("text\x1b[1;31m\x1b]0;title\x07", 100))
	if n := testing.AllocsPerRun(100, func() {
		for i := 0; i < len(p); {
			i = tokens.Next(p, i).End
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
