package front

import (
	"errors"
	"strings"
	"testing"

	"holdfast/shared/plain"
)

func TestPickerKeys(t *testing.T) {
	for _, tt := range []struct {
		typed  string // "|" ends the input of one read
		chosen int    // -1 if the user leaves
		ahead  string
	}{
		{"\r", 0, ""}, {"\rls\r", 0, "ls\r"}, {"\x1b[B\r", 1, ""}, {"\x1bOB\x1bOA\r", 0, ""}, {"jjk\n", 1, ""}, {"\x1b[A\r", 0, ""},
		{"3\r", 2, ""}, {"12\r", 11, ""}, {"1|2\r", 11, ""}, {"99\r", 8, ""}, {"1j2\r", 1, ""}, {"0\r", 0, ""}, {"10\r", 9, ""},
		{strings.Repeat("j", 50) + "\r", 11, ""}, {"\x1b[1;5B\r", 0, ""}, {"\x1b[|B\r", 0, ""}, {"x\x1bx\r", 0, ""},
		{"q", -1, ""}, {"\x1b", -1, ""}, {"\x03", -1, ""}, {"j\x04", -1, ""}, {"\x1c", -1, ""},
	} {
		p := &picker{items: make([]Item, 12)}
		done, chosen := false, 0
		for _, part := range strings.Split(tt.typed, "|") {
			var err error
			if done, err = p.filter([]byte(part)); err != nil {
				chosen = -1
				if !errors.Is(err, ErrLeft) {
					t.Errorf("%q: %v", tt.typed, err)
				}
			}
		}
		if chosen == 0 {
			chosen = p.chosen
		}
		if chosen != tt.chosen || done != (chosen >= 0) || string(p.earlyInput) != tt.ahead {
			t.Errorf("%q: %d, %q, want %d, %q", tt.typed, chosen, p.earlyInput, tt.chosen, tt.ahead)
		}
	}
}

func TestPickerLines(t *testing.T) {
	p := &picker{items: []Item{
		{Name: "build", Age: "1m", Runs: "make -j8", Dir: "~/src"},
		{Name: "a" + strings.Repeat("b", 40), Age: "0s", Runs: "a\x07title: sh \x1b[31mred\u202e", Dir: "/" + strings.Repeat("deep/", 30) + "end"},
	}}
	want := []string{
		"1  build                       1m  make -j8  ~/src",
		"2  abbbbbbbbbbbbbbbbbbbbbb…    0s  a?title: sh ?[31mred?  …p/deep/deep/deep/end",
	}
	got := p.lines(80)
	if got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	p.items = []Item{{Name: "build", Age: "1m", Runs: strings.Repeat("日本語", 10), Dir: "/家/" + strings.Repeat("深い/", 12)}}
	if got := p.lines(60)[0]; plain.Width(got) > 59 || !strings.Contains(got, "…  …") {
		t.Errorf("%q has %d columns, and at most 59 fit behind the mark of the chosen session", got, plain.Width(got))
	}
	for _, cols := range []int{1, 10, 40, 200} { // no width is too small
		_ = p.lines(cols)
	}
}
