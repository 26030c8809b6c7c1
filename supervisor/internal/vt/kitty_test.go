package vt

import (
	"fmt"
	"strings"
	"testing"
)

func TestNotificationsOfKitty(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"one", "\x1b]99;;Hello\x1b\\", "|Hello"},
		{"title and body", "\x1b]99;i=1:d=0;Hello\x1b\\x\x1b]99;i=1:p=body;world\x1b\\", "Hello|world"},
		{"in pieces", "\x1b]99;i=1:d=0;He\x1b\\\x1b]99;i=1:d=0;llo\x1b\\\x1b]99;i=1:d=1:p=body;w\x1b\\", "Hello|w"},
		{"base 64", "\x1b]99;e=1;SGVsbG8=\x1b\\", "|Hello"},
		{"not base 64", "\x1b]99;e=1;%%\x1b\\", ""},
		{"another one comes between", "\x1b]99;i=1:d=0;lost\x1b\\\x1b]99;i=2;b\x1b\\", "|b"},
		{"with an icon", "\x1b]99;i=1:d=0;Hello\x1b\\\x1b]99;i=1:p=icon:e=1;AAAA\x1b\\", "|Hello"},
		{"questions", "\x1b]99;i=1:p=?;\x1b\\\x1b]99;p=alive;\x1b\\\x1b]99;i=1:p=close;\x1b\\", ""},
		{"nothing", "\x1b]99;\x1b\\\x1b]99;;\x1b\\", ""},
		{"long", strings.Repeat("\x1b]99;i=1:d=0;"+strings.Repeat("x", 1000)+"\x1b\\", 100) + "\x1b]99;i=1;\x1b\\", "|" + strings.Repeat("x", maxTitle)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			term := New(Config{Events: func(e Event) {
				if e.Kind == Notification {
					got = append(got, e.Title+"|"+e.Text)
				}
			}})
			term.Write([]byte(tt.in))
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("%.100q causes the events %.100q, want %.100q", tt.in, got, tt.want)
			}
		})
	}
}

// Text of another size is shown in the usual size. The text after it is at the place where kitty would show it.
func TestSizedText(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"the usual size", "a\x1b]66;;héllo\x1b\\b", "ahéllob"},
		{"twice as large", "\x1b]66;s=2;ab\x1b\\c", "ab  c"},
		{"of so many columns", "\x1b]66;w=3;a\x1b\\b", "a  b"},
		{"both", "\x1b]66;s=2:w=2:n=1:d=2;日\x1b\\b", "日  b"},
		{"more than its columns", "\x1b]66;w=1;abc\x1b\\d", "ad"},
		{"a cluster", "\x1b[?2027h\x1b]66;w=2;👍🏽\x1b\\b", "👍🏽b"},
		{"no room in the row", "12345678\x1b]66;s=2;ab\x1b\\c", "12345678\nab  c"},
		{"to the end of the row", "123456\x1b]66;s=2;ab\x1b\\c", "123456ab  \nc"},
		{"longer than a row", "\x1b]66;s=3;abcde\x1b\\f", "abcdef"},
		{"not UTF-8, or controls", "\x1b]66;;a\x01\xff\x7fb\x1b\\c", "abc"},
		{"without metadata", "\x1b]66;abc\x1b\\d", "d"},
		{"too long", "\x1b]66;;" + strings.Repeat("x", maxSized+1) + "\x1b\\d", "d"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			term := New(Config{Cols: 10, Rows: 4})
			term.Write([]byte(tt.in))
			s := term.State()
			text := ""
			for _, l := range s.Normal.Lines {
				line := ""
				for _, c := range l.Cells {
					if line += c.Text; c.Text == "" && c.Width > 0 {
						line += " "
					}
				}
				text += line + "\n"
			}
			got, want := strings.Fields(text), strings.Fields(tt.want)
			if fmt.Sprint(got) != fmt.Sprint(want) || !strings.HasPrefix(text, strings.Split(tt.want, "\n")[0]) {
				t.Errorf("%.100q shows %q, want %q", tt.in, text, tt.want)
			}
		})
	}
}
