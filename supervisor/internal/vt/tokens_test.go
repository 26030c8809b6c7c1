package vt

import (
	"testing"

	"holdfast/shared/escseq"
)

// kindOf returns the kind of the sequence that the terminal's parser is in.
func kindOf(t *Term) escseq.Kind {
	switch t.state {
	case ground:
		return escseq.Text
	case escape, escapeIntermediate:
		return escseq.Escape
	case csiEntry, csiParam, csiIntermediate, csiIgnore:
		return escseq.CSI
	case oscString:
		return escseq.OSC
	case otherString:
		return map[byte]escseq.Kind{'X': escseq.SOS, '^': escseq.PM, '_': escseq.APC}[t.opener]
	}
	return escseq.DCS
}

// FuzzTokens checks that package escseq and the parser agree, after each byte, on whether a sequence continues, and
// of which kind it is.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{
		"a\x1b[1;31mb\x1b]0;t\x07c\x1b]0;t\x1b\\\x1bP$qm\x1b\\\x1b_Ga=q;AA\x1b\\\x1b(B\x1b#8\x1bXs\x1b\\\x1b^p\x18x\x1b[1\x1am",
		"\u009b1m\u009d2;t\u009c\u0090q\u009c\u009fG\u009c\u0098\u009e\u0085\u009a\xc2\xc2\x9b2m\xc2x\xc2\x1b[m",
		"\x1b[é1m\x1b[0<éc\x1bé\x1bPé\x1bP1é\x1bP0<éq\x1bPqé\x1b]é\x07\x1b_é\x1b\\\x1b[\xe2\x82c\x1b[\xff1m\x1b[\xed\xa0\x80m\x1b[\xef\xbb\xbfm\x1b[\xc0\x80m",
		"\x1b\x1b\x7f[m\x1b[\x7f\x05m\x1b(\x7fB\x1b(\x1b[\x1b]\x1b[ 1m\x1b[ qx\x1b[1?mx\x1b]\u0085x\x1b]\xc2\x07\x1b]\xc2\x1b\\",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		term := New(Config{})
		var tokens escseq.Tokenizer
		for i := range in {
			p := in[i : i+1]
			term.Write(p)
			for from := 0; from < 1; from = tokens.Next(p, from).End {
			}
			if got, want := tokens.Kind(), kindOf(term); got != want {
				t.Fatalf("after %q the tokenizer is in %d, the parser in %d", in[:i+1], got, want)
			}
			if tokens.IsBetween() == term.InSequence() && term.partial == 0 {
				t.Fatalf("after %q the tokenizer is between sequences: %v", in[:i+1], tokens.IsBetween())
			}
		}
	})
}
