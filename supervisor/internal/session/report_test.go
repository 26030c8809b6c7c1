package session

import "testing"

func TestOnlyReports(t *testing.T) {
	for _, tt := range []struct {
		name, typed string
		want        bool
	}{
		{"nothing", "", true},
		{"focus", "\x1b[I\x1b[O", true},
		{"the cursor's place", "\x1b[12;40R", true},
		{"the same with ?", "\x1b[?12;40;1R", true},
		{"the kind of terminal", "\x1b[?1;2c\x1b[>0;276;0c", true},
		{"a status", "\x1b[0n", true},
		{"a mode", "\x1b[?2026;2$y\x1b[4;2$y", true},
		{"a size", "\x1b[8;24;80t", true},
		{"keyboard flags", "\x1b[?1u", true},
		{"a colour, by ST and by BEL", "\x1b]11;rgb:00/00/00\x1b\\\x1b]10;rgb:ff/ff/ff\a", true},
		{"a setting", "\x1bP1$r0m\x1b\\", true},
		{"graphics", "\x1b_Gi=1;OK\x1b\\", true},
		{"the mouse moves", "\x1b[<35;10;10M", true},
		{"the mouse moves, in bytes", "\x1b[M\x43!!", true},
		{"the mouse moves with Shift", "\x1b[<39;10;10M", true},
		{"a click", "\x1b[<0;10;10M", false},
		{"a release", "\x1b[<0;10;10m", false},
		{"a click, in bytes", "\x1b[M !!", false},
		{"a drag", "\x1b[<32;10;10M", false},
		{"the wheel", "\x1b[<64;10;10M", false},
		{"a letter", "x", false},
		{"a letter behind a report", "\x1b[Ix", false},
		{"escape", "\x1b", false},
		{"a key with Alt", "\x1bx", false},
		{"an arrow", "\x1b[A", false},
		{"an arrow in application mode", "\x1bOA", false},
		{"F3", "\x1bOR", false},
		{"F5", "\x1b[15~", false},
		{"Ctrl and an arrow", "\x1b[1;5C", false},
		{"a key of kitty's protocol", "\x1b[97;5u", false},
		{"a paste", "\x1b[200~\x1b[I\x1b[201~", false},
		{"half a colour", "\x1b]11;rgb:00", false},
		{"half a report", "\x1b[12;", false},
		{"a string with no end", "\x1bP\x1b[A", false},
	} {
		if got := onlyReports([]byte(tt.typed)); got != tt.want {
			t.Errorf("%s: %q is only reports: %v", tt.name, tt.typed, got)
		}
	}
}

func FuzzOnlyReports(f *testing.F) {
	f.Add([]byte("\x1b[I\x1b]11;?\x1b\\"))
	f.Fuzz(func(t *testing.T, p []byte) {
		onlyReports(p)
	})
}
