package screen

import (
	"os/exec"
	"strings"
	"testing"

	"holdfast/protocol"
)

// Keys returns the bytes that xterm sends (ctlseqs.ms, "Special Keys") in the modes that the output before has set.
func TestKeys(t *testing.T) {
	const application, newLine = "\x1b[?1h\x1b=", "\x1b[20h"
	for _, tt := range []struct{ modes, keys, want string }{
		{"", "Up Down Right Left Home End", "\x1b[A\x1b[B\x1b[C\x1b[D\x1b[H\x1b[F"},
		{application, "Up Down Right Left Home End", "\x1bOA\x1bOB\x1bOC\x1bOD\x1bOH\x1bOF"},
		{application + "\x1b[?1l", "Up", "\x1b[A"},
		{application + "\x1b[!p", "Up", "\x1b[A"},
		{application, "S-Up M-Up M-S-Up C-Up C-S-Left C-M-Right C-M-S-End", "\x1b[1;2A\x1b[1;3A\x1b[1;4A\x1b[1;5A\x1b[1;6D\x1b[1;7C\x1b[1;8F"},
		{"", "Insert Delete PageUp PageDown", "\x1b[2~\x1b[3~\x1b[5~\x1b[6~"},
		{"", "S-Insert C-Delete M-PageUp", "\x1b[2;2~\x1b[3;5~\x1b[5;3~"},
		{application, "F1 F2 F3 F4 F5 F6 F7 F8 F9 F10 F11 F12", "\x1bOP\x1bOQ\x1bOR\x1bOS\x1b[15~\x1b[17~\x1b[18~\x1b[19~\x1b[20~\x1b[21~\x1b[23~\x1b[24~"},
		{"", "S-F1 C-F5 M-S-F12", "\x1b[1;2P\x1b[15;5~\x1b[24;4~"},
		{"", "Enter M-Enter Tab S-Tab Escape M-Escape Space C-Space Backspace C-Backspace M-Backspace", "\r\x1b\r\t\x1b[Z\x1b\x1b\x1b \x00\x7f\b\x1b\x7f"},
		{newLine, "Enter", "\r\n"},
		{"", "a A é 世 - C-c C-C M-x M-X S-a S-é C-M-d C-@ C-[ C-\\ C-] C-^ C-_ C-/ C-? C-2 C-8", "aAé世-\x03\x03\x1bx\x1bXAÉ\x1b\x04\x00\x1b\x1c\x1d\x1e\x1f\x1f\x7f\x00\x7f"},
		{"", "M-- C- S-", ""},
		{"", "M--", "\x1b-"},
		{"", "", ""},
	} {
		got, err := printed(small, tt.modes).Keys(strings.Fields(tt.keys))
		if tt.want == "" && tt.keys != "" {
			if protocol.CodeOf(err) != protocol.CodeInvalidArgument {
				t.Errorf("%s: got %q, %v", tt.keys, got, err)
			}
			continue
		}
		if err != nil || string(got) != tt.want {
			t.Errorf("%q, %s: got %q, %v, want %q", tt.modes, tt.keys, got, err, tt.want)
		}
	}
	s := printed(small, "")
	for _, name := range []string{
		"", "up", "Hyper", "F0", "F13", "ab", "C-", "C", "C-C-x", "X-a", "\r", "\x1b", "\xff", "\u0085", "C-é", "C-1", "S-1", "C-S-a",
		"S-Enter", "C-Enter", "C-Tab", "S-Escape", "S-Space", "S-Backspace", "S-M-Tab", "M-C-Enter",
	} {
		if name == "C" {
			continue // a single character is a key
		}
		if got, err := s.Keys([]string{"x", name}); protocol.CodeOf(err) != protocol.CodeInvalidArgument || got != nil {
			t.Errorf("%q is sent as %q, %v", name, got, err)
		}
	}
}

// Programs expect the sequences of terminfo, which are those of the application modes.
func TestKeysOfTerminfo(t *testing.T) {
	infocmp, err := exec.LookPath("infocmp")
	if err != nil {
		t.Skip("no infocmp")
	}
	out, err := exec.Command(infocmp, "-1", "-x", "xterm-256color").Output()
	if err != nil {
		t.Skipf("no xterm-256color: %v", err)
	}
	known := map[string]string{}
	for _, line := range strings.Split(string(out), "\n") {
		if name, value, ok := strings.Cut(strings.Trim(line, "\t,"), "="); ok {
			known[name] = strings.ReplaceAll(value, `\E`, "\x1b")
		}
	}
	s := printed(small, known["smkx"])
	asked := 0
	for key, name := range map[string]string{
		"Up": "kcuu1", "Down": "kcud1", "Left": "kcub1", "Right": "kcuf1", "Home": "khome", "End": "kend", "Insert": "kich1", "Delete": "kdch1",
		"PageUp": "kpp", "PageDown": "knp", "S-Tab": "kcbt", "F1": "kf1", "F2": "kf2", "F3": "kf3", "F4": "kf4", "F5": "kf5", "F6": "kf6",
		"F7": "kf7", "F8": "kf8", "F9": "kf9", "F10": "kf10", "F11": "kf11", "F12": "kf12", "S-F1": "kf13", "C-F1": "kf25",
		"S-Left": "kLFT", "S-Right": "kRIT", "S-Home": "kHOM", "S-End": "kEND", "S-Delete": "kDC", "S-Insert": "kIC", "S-PageUp": "kPRV", "S-PageDown": "kNXT",
		"C-Up": "kUP5", "C-Left": "kLFT5", "M-Right": "kRIT3", "C-S-Down": "kDN6", "C-Delete": "kDC5", "C-M-Home": "kHOM7",
	} {
		want, ok := known[name]
		if !ok {
			continue // an older terminfo lacks the key
		}
		asked++
		if got, err := s.Keys([]string{key}); err != nil || string(got) != want {
			t.Errorf("%s (%s): got %q, %v, want %q", key, name, got, err, want)
		}
	}
	if asked < 20 {
		t.Errorf("terminfo has only %d of the keys", asked)
	}
}

func TestPaste(t *testing.T) {
	const on = "\x1b[?2004h"
	for _, tt := range []struct{ modes, text, want string }{
		{"", "a\nb\r\nc\rd\r\n\r\n\n", "a\rb\rc\rd\r\r\r"},
		{on, "a\nb", "\x1b[200~a\rb\x1b[201~"},
		{on + "\x1b[?2004l", "a", "a"},
		{on, "a\x1b[201~rm\n", "\x1b[200~a[201~rm\r\x1b[201~"},
		{on, "a\u009b201~", "\x1b[200~a201~\x1b[201~"},
		{on, "a\x9b201~", "\x1b[200~a201~\x1b[201~"},
		{"", "a\tb\x03\x04\x7f\x00\x1b[A", "a\tb[A"},
		{"", "é世\U0001f600\xff\xc3", "é世\U0001f600\xff\xc3"},
		{on, "", "\x1b[200~\x1b[201~"},
	} {
		if got := string(printed(small, tt.modes).Paste([]byte(tt.text))); got != tt.want {
			t.Errorf("%q, %q: got %q, want %q", tt.modes, tt.text, got, tt.want)
		}
	}
}

// FuzzPaste checks that no pasted text can end its own frame.
func FuzzPaste(f *testing.F) {
	f.Add([]byte("a\x1b[201~"))
	f.Add([]byte("\x1b[20\x1b[201~1~"))
	s := printed(small, "\x1b[?2004h")
	f.Fuzz(func(t *testing.T, text []byte) {
		got := string(s.Paste(text))
		if strings.Count(got, "\x1b") != 2 || !strings.HasPrefix(got, pasteBegins) || !strings.HasSuffix(got, pasteEnds) || strings.Contains(got, "\n") {
			t.Errorf("%q is pasted as %q", text, got)
		}
	})
}
