package escseq

import (
	"bytes"
	"testing"
)

// Lines must convert output to lines without sequences, and must find each character of a line in the output
// again.
func TestLines(t *testing.T) {
	for in, want := range map[string]string{
		"one\r\ntwo\n\nthree":              "one\ntwo\n\nthree",
		"\x1b[1mbold\x1b[0m and red\r\n":   "bold and red\n",
		"10%\r20%\r30%\r\n":                "10%\n20%\n30%\n",
		"a\r\x1b[K\nb":                     "a\nb",
		"\x1b[5;1Hrow 5\x1b[6;1Hrow 6":     "row 5\nrow 6",
		"name\x1b[20Gsize\x1b[3Cage":       "name size age",
		"\x1b]0;title\x07text\x1bPq\x1b\\": "text",
		"bell\x07, \x00NUL and \x7fDEL\t.": "bell, NUL and DEL\t.",
		"é世\x1b[0m界":                       "é世界",
		"a\xc2\x1b[0m\x9b1mb":              "a\x9b1mb",
		"a\xc2\x00\x9b1mb":                 "a\x9b1mb",
		"a\xc2\x9b1mb\xc2\xa7":             "ab\xc2\xa7",
		"a\r\r\nb\x1bMc":                   "a\nb\nc",
	} {
		x := Lines{MaxLine: 100}
		x.Add([]byte(in))
		if got := string(x.Bytes); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		for i, b := range x.Bytes {
			if at := x.OutputAt(i); b > ' ' && in[at] != b {
				t.Errorf("%q: character %d of %q is not at offset %d of the output", in, i, x.Bytes, at)
			}
		}
	}
	long := Lines{MaxLine: 1000}
	long.Add(bytes.Repeat([]byte("x"), 3000))
	if n := bytes.Count(long.Bytes, []byte("\n")); n != 2 {
		t.Errorf("a line of three times the limit became %d lines", n+1)
	}
}

// Only SGR is a style. Other sequences that end with m change the keyboard of a terminal, or let it answer.
func TestLinesStyles(t *testing.T) {
	x := Lines{MaxLine: 100, WithStyles: true}
	x.Add([]byte("\x1b[>4;2m\x1b[?4m\x1b[1$m\x1b[m\x1b[4:3;31mx"))
	if got, want := string(x.Take(true)), "\x1b[m\x1b[4:3;31mx"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Lines that are taken while output arrives must equal the lines of all output.
func TestLinesTaken(t *testing.T) {
	const output = "one\r\n\x1b[1mtwo\x1b[0m\x1b[3;4Hthree\rfour\n\nfive"
	for n := 1; n < len(output); n++ {
		x, got := Lines{MaxLine: 100, WithStyles: true}, ""
		for at := 0; at < len(output); at += n {
			x.Add([]byte(output[at:min(at+n, len(output))]))
			got += string(x.Take(false))
		}
		got += string(x.Take(true))
		if want := "one\n\x1b[1mtwo\x1b[0m\nthree\nfour\n\nfive"; got != want {
			t.Errorf("in pieces of %d bytes: %q, want %q", n, got, want)
		}
	}
}

// Whatever a program has printed, its lines must contain no sequence, and no control character except line
// feeds and tabs.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\xc2\x00\x9b1m\x1b[1mb\r\n"))
	f.Fuzz(func(t *testing.T, output []byte) {
		x := Lines{MaxLine: 10}
		x.Add(output)
		tokens := Tokenizer{}
		for at := 0; at < len(x.Bytes); {
			tok := tokens.Next(x.Bytes, at)
			if tok.Kind != Text {
				t.Fatalf("%q became %q, which contains a sequence", output, x.Bytes)
			}
			at = tok.End
		}
		for i, b := range x.Bytes {
			if b < ' ' && b != '\n' && b != '\t' || b == 0x7f {
				t.Fatalf("%q became %q, which contains a control character", output, x.Bytes)
			}
			if at := x.OutputAt(i); at < 0 || at > len(output) {
				t.Fatalf("character %d is at offset %d of %d bytes", i, at, len(output))
			}
		}
	})
}
