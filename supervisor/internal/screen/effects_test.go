package screen

import (
	"strings"
	"testing"

	"holdfast/protocol"
)

// Effects collects the bells, notifications and clipboard texts of the output, each of them whole and once, however
// the output is cut. It collects no other sequence.
func TestEffects(t *testing.T) {
	big := "\x1b]52;c;" + strings.Repeat("QUJD", 20_000)
	for _, tt := range []struct{ name, in, want string }{
		{"text", "hello\r\n\x1b[31mworld", ""},
		{"bells", "a\x07b\x07\x1b[3\x071m", "\x07"},
		{"the clipboard", "\x1b]52;c;aGk=\x07", "\x1b]52;c;aGk=\x1b\\"},
		{"the clipboard, read", "\x1b]52;c;?\x07", ""},
		{"notifications", "\x1b]9;hi\x07x\x1b]777;notify;a;b\x1b\\\x1b]99;i=1:d=1;hé\x1b\\", "\x1b]9;hi\x1b\\\x1b]777;notify;a;b\x1b\\\x1b]99;i=1:d=1;hé\x1b\\"},
		{"a query about notifications", "\x1b]99;i=1:p=?;\x1b\\", ""},
		{"progress", "\x1b]9;4;1;50\x07", "\x1b]9;4;1;50\x1b\\"},
		{"a title", "\x1b]0;\u00a952;c;x\x07", ""},
		{"in C1 controls", "\u009d9;hi\u009c\u009b1m\x07", "\x1b]9;hi\x1b\\\x07"},
		{"cancelled", "\x1b]9;hi\x18\x07", "\x07"},
		{"a bell within an image is none", "\x1bPq\x07#0\x1b\\\x1b_Ga\x07=T;\x1b\\", ""},
		{"controls within", "\x1b]9;h\n\x01i\x07", "\x1b]9;hi\x1b\\"},
		{"long", big + "\x07", big + "\x1b\\"},
		{"too long", "\x1b]52;c;" + strings.Repeat("A", maxEffect) + "\x07\x1b]9;hi\x07", "\x1b]9;hi\x1b\\"},
		{"too many", strings.Repeat(big+"\x07", 10), strings.Repeat(big+"\x1b\\", 6)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for cut := range 5 {
				var e Effects
				for rest := []byte(tt.in); len(rest) > 0; {
					n := min(len(rest), 1+cut+cut*cut*len(tt.in)/20)
					e.Write(rest[:n])
					rest = rest[n:]
				}
				if got := string(e.take()); got != tt.want {
					t.Errorf("pieces of %d: got %.100q (%d bytes), want %.100q (%d)", cut, got, len(got), tt.want, len(tt.want))
				}
				if again := e.take(); len(again) > 0 {
					t.Errorf("the second take returned %.100q", again)
				}
			}
		})
	}
}

// If an update ends within a sequence, the next one continues the sequence, although an effect came in between.
func TestEffectsWithinSequence(t *testing.T) {
	size, own := protocol.Size{Cols: 40, Rows: 5}, protocol.Size{Cols: 20, Rows: 5}
	s := New(size, 0)
	o := NewOwn(own, nil)
	seen := New(own, 0)
	for _, p := range []string{"one\x1b]0;ti", "tle\x07two\x1b]9;hi\x07\x1b[3", "1mthree\x07 \xe2\x9a"} {
		s.Write([]byte(p))
		o.Printed([]byte(p))
		seen.Write(o.Update(s.ViewAs(own)))
	}
	if got := strings.Join(seen.Text(5), "|"); got != "onetwothree" || seen.Title() != "title" {
		t.Errorf("the viewer shows %q with the title %q", got, seen.Title())
	}
	bells, notes := 0, 0
	for _, e := range seen.Events() {
		switch e.Kind {
		case protocol.EventBell:
			bells++
		case protocol.EventNotification:
			notes++
		}
	}
	if bells != 1 || notes != 1 {
		t.Errorf("the viewer had %d bells and %d notifications, want one each", bells, notes)
	}
}
