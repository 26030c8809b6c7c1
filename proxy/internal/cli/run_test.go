package cli

import (
	"bytes"
	"strings"
	"testing"
)

// However the output is cut, CRLF becomes LF, and other bytes do not change.
func TestLineEnds(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"a\r\nb\r\n", "a\nb\n"},
		{"50%\r100%\r\n", "50%\r100%\n"},
		{"\r\r\n\n\r", "\r\n\n\r"},
		{"", ""},
	} {
		for cut := range len(tt.in) + 1 {
			var out bytes.Buffer
			l := &lineEnds{w: &out}
			for _, part := range []string{tt.in[:cut], tt.in[cut:]} {
				if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatalf("Write(%q): %d, %v", part, n, err)
				}
			}
			if strings.HasSuffix(out.String(), "\r") {
				t.Errorf("%q, cut at %d: %q is written too early", tt.in, cut, out.String())
			}
			if err := l.flush(); err != nil || out.String() != tt.want {
				t.Errorf("%q, cut at %d: %q, %v, want %q", tt.in, cut, out.String(), err, tt.want)
			}
		}
	}
}

// Asterisks stand for a secret only if there are as many as a secret has characters.
func TestMaskedFrom(t *testing.T) {
	for _, tt := range []struct {
		shown, text string
		want        bool
	}{
		{"ls *.x", "ls *.x", true},
		{"ls *.x", "ls a.x", false},
		{"-p ******* -q", "-p hunter2 -q", true},
		{"***", "abc", false},
		{"****", "abcd", true},
		{"a****", "b1234", false},
		{"*****", "abcd", false},
		{"", "", true},
	} {
		if got := isMaskedFrom(tt.shown, tt.text); got != tt.want {
			t.Errorf("%q of %q: %v", tt.shown, tt.text, got)
		}
	}
}
