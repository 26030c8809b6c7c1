package plain

import "testing"

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "build": 5, "é": 1, "e\u0301": 1, "日本": 4, "한글": 4, "ｆｕ": 4, "🚀": 2, "…": 1, "\u200d": 0, "→": 1,
	} {
		if got := Width(s); got != want {
			t.Errorf("%q has %d columns, want %d", s, got, want)
		}
	}
}
