package gate

import (
	"strings"
	"testing"
)

// Only a URL below a permitted URL may be permitted, however it is written.
func TestIsArchiveBelow(t *testing.T) {
	for begin, tt := range map[string]struct{ yes, no []string }{
		"https://a.example": {[]string{"https://a.example/x", "https://A.example/x/y"}, []string{"https://b.example/x", "https://a.example.b/x", "https://a.example:444/x"}},
		"https://a.example/dl": {
			[]string{"https://a.example/dl", "https://a.example/dl/x.tar.gz"}, []string{"https://a.example/dlx", "https://a.example/", "https://a.example/other"},
		},
		"https://a.example/dl/": {[]string{"https://a.example/dl/x"}, []string{"https://a.example/dlx"}},
	} {
		above, err := ParseArchiveURL(begin)
		if err != nil {
			t.Fatal(err)
		}
		for want, all := range map[bool][]string{true: tt.yes, false: tt.no} {
			for _, text := range all {
				u, err := ParseArchiveURL(text)
				if err != nil || IsArchiveBelow(u, above) != want {
					t.Errorf("IsArchiveBelow(%s, %s) is %v, %v", text, begin, !want, err)
				}
			}
		}
	}
	for _, text := range []string{
		"", "https://", "https:///x", "http://a/x", "HTTPS://a/x", "https:a/x", "https://a/x/../y", "https://a/%2e%2e/y", "https://a//x", "https://a/x?y", "https://a/x?",
		"https://a/x#y", "https://u@a/x", "https://u:p@a/x", "https://a/x\ny", "https://a/%2Fx", "https://a/" + strings.Repeat("x", MaxUpgradeText),
	} {
		if u, err := ParseArchiveURL(text); err == nil {
			t.Errorf("ParseArchiveURL accepts %.80q as %v", text, u)
		}
	}
}
