package mask

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func newMasker(t testing.TB, env []string, names, patterns string) *Masker {
	t.Helper()
	n, err := ParseNames(names)
	testkit.Must(t, err)
	p, err := ParsePatterns(patterns)
	testkit.Must(t, err)
	m, _ := New(env, n, p)
	return m
}

func all(s *Stream, pieces ...string) string {
	var b strings.Builder
	for _, p := range pieces {
		b.Write(s.Write([]byte(p)))
	}
	b.Write(s.Flush())
	return b.String()
}

func TestStream(t *testing.T) {
	m := newMasker(t, []string{"TOKEN=hunter22", "KEY=a;b\\c d", "PEM=-----BEGIN-----\nabcdefghijklmnopqrst\n"}, "TOKEN KEY PEM", `gh[ps]_[A-Za-z0-9]{8} \bcard-\d{4}\b`)
	for name, c := range map[string]struct{ in, want string }{
		"none":              {"nothing\r\n", "nothing\r\n"},
		"whole":             {"a hunter22 b", "a ******** b"},
		"twice":             {"hunter22hunter22", "****************"},
		"split":             {"hun|ter|22\r\n", "********\r\n"},
		"beginning at end":  {"a hunt", "a ****"},
		"not the value":     {"hunt|ing\n", "hunting\n"},
		"coloured":          {"hun\x1b[31mter\x1b[0m22", "***\x1b[31m***\x1b[0m**"},
		"cut sequence":      {"hun\x1b[3|1mter22", "***\x1b[31m*****"},
		"broken by program": {"hunt\r\ner22", "****\r\n****"},
		"at the edge":       {"hunte \rr22", "***** \r***"},
		"corrected":         {"hunx\b \bter22", "***x\b \b*****"},
		"moved":             {"hunt\x1b[2;1Her22", "****\x1b[2;1H****"},
		"title":             {"\x1b]2;my hunter22\x07x", "\x1b]2;my ********\x07x"},
		"title in the text": {"hun\x1b]2;t\x07ter22", "***\x1b]2;t\x07*****"},
		"command line":      {"\x1b]633;E;echo a\\x3bb\\\\c\\x20d\x07", "\x1b]633;E;echo " + strings.Repeat("*", 14) + "\x07"},
		"cmdline_url":       {"\x1b]133;C;cmdline_url=echo%20a%3Bb%5Cc%20d\x1b\\", "\x1b]133;C;cmdline_url=echo%20" + strings.Repeat("*", 13) + "\x1b\\"},
		"quoted":            {`a\;b\\c\ d`, "**********"},
		"JSON":              {`"a;b\\c d"`, `"********"`},
		"a line of a value": {"abcdefghijklmnopqrst\n", strings.Repeat("*", 20) + "\n"},
		"pattern":           {"x ghp_abcdefgh y", "x ************ y"},
		"pattern, split":    {"x gh|p_abcd|efgh y\n", "x ************ y\n"},
		"pattern, coloured": {"ghp_ab\x1b[1mcdefgh\n", "******\x1b[1m******\n"},
		"pattern, boundary": {"xcard-1234 card-12345 card-1234\n", "xcard-1234 card-12345 *********\n"},
		"pattern in title":  {"\x1b]0;ghp_abcdefgh\x07", "\x1b]0;************\x07"},
	} {
		pieces := strings.Split(c.in, "|")
		if got := all(m.NewStream(), pieces...); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		var bytewise []string
		for i := range c.in {
			if c.in[i] != '|' {
				bytewise = append(bytewise, c.in[i:i+1])
			}
		}
		if got := all(m.NewStream(), bytewise...); got != c.want {
			t.Errorf("%s, byte by byte: got %q, want %q", name, got, c.want)
		}
		if name == "at the edge" || name == "corrected" { // with patterns, the whole line is held back anyway
			if got := all(newMasker(t, []string{"TOKEN=hunter22"}, "TOKEN", "").NewStream(), bytewise...); got != c.want {
				t.Errorf("%s, without patterns: got %q, want %q", name, got, c.want)
			}
		}
	}
}

// The stream must not hold back output that cannot be the beginning of a secret.
func TestHeld(t *testing.T) {
	m := newMasker(t, []string{"TOKEN=hunter22"}, "*TOKEN", "")
	s := m.NewStream()
	if got := string(s.Write([]byte("$ hu"))); got != "$ " || s.Held() != 2 {
		t.Errorf("got %q, and %d bytes are held back", got, s.Held())
	}
	if got := string(s.Write([]byte("h"))); got != "" || s.Held() != 3 { // a backspace could remove the last byte
		t.Errorf("got %q, and %d bytes are held back", got, s.Held())
	}
	if got := string(s.Flush()); got != "huh" {
		t.Errorf("got %q", got)
	}
	if got := string(s.Write([]byte("unter22 "))); got != "******* " {
		t.Errorf("got %q; the remainder of a value must be masked even if its beginning was returned", got)
	}
	s = m.NewStream()
	s.prime([]byte("\x1b]2;hunt"))
	if got := string(s.Write([]byte("er22\x07"))); got != "****\x07" {
		t.Errorf("after prime with the first half: got %q", got)
	}
}

// However a stream is divided, the result must have the same length, and the same bytes outside of secrets.
func FuzzStream(f *testing.F) {
	f.Add([]byte("a hunter22 \x1b[31mghp_abcdefgh\x1b]2;hunter22\x07\b\b\r\n"), uint64(1))
	m := newMasker(f, []string{"TOKEN=hunter22", "B=bbbb"}, "TOKEN B", `gh[ps]_[A-Za-z0-9]{8}`)
	f.Fuzz(func(t *testing.T, p []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := m.NewStream()
		var got []byte
		for rest := p; len(rest) > 0; {
			n := 1 + rng.IntN(len(rest))
			got = append(got, s.Write(rest[:n])...)
			if rng.IntN(4) == 0 {
				got = append(got, s.Flush()...)
			}
			if s.Held() > MaxLine+n+len(p) {
				t.Fatalf("%d bytes are held back", s.Held())
			}
			rest = rest[n:]
		}
		if got = append(got, s.Flush()...); len(got) != len(p) {
			t.Fatalf("%d bytes became %d", len(p), len(got))
		}
		for i := range p {
			if got[i] != p[i] && (got[i] != '*' || isControl(p[i])) {
				t.Fatalf("byte %d became %q", i, got[i])
			}
		}
		if !bytes.ContainsAny(p, "\x1b\xc2\b\r") && bytes.Contains(got, []byte("hunter22")) {
			t.Fatalf("a secret value is in the result %q", got)
		}
	})
}

func TestText(t *testing.T) {
	m := newMasker(t, []string{"TOKEN=hünter22"}, "TOKEN", `gh[ps]_[A-Za-z0-9]{8}`)
	for in, want := range map[string]string{
		"":                        "",
		"plain":                   "plain",
		"a hünter22 ghp_abcdefgh": "a ******** ************",
	} {
		if got := m.Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := m.CutText("hünter22 hünt"); got != "******** ****" {
		t.Errorf("CutText returns %q", got)
	}
	var none *Masker
	if none.Text("x") != "x" || none.Find([]byte("x"), true) != nil || none.Texts([]string{"x"})[0] != "x" {
		t.Error("a nil Masker must change nothing")
	}
}

func TestMayHide(t *testing.T) {
	for text, want := range map[string]bool{"": false, "a*** ***": false, "--token=****": true, "********": true} {
		if got := MayHide([]string{"tool", text}); got != want {
			t.Errorf("MayHide returns %v for %q", got, text)
		}
	}
}

func TestRules(t *testing.T) {
	m, unmasked := New([]string{"A=abc", "B=", "LONG=" + strings.Repeat("x", 3*maxForm+1), "MY_TOKEN=secret", "OTHER=other"}, []string{"A", "B", "LONG", "*_TOKEN", "TYPO"}, nil)
	if got := strings.Join(unmasked, " "); got != "A TYPO" {
		t.Errorf("the unmasked names are %s", got)
	}
	if got := m.Text("secret other " + strings.Repeat("x", 3*maxForm+1)); got != "****** other "+strings.Repeat("*", 3*maxForm+1) {
		t.Errorf("got %.40q", got)
	}
	if m, _ := New([]string{"A=abcd"}, nil, nil); m != nil {
		t.Error("New returns a Masker although there are no rules")
	}
	for _, p := range []string{"(", "a*", "(a{1000}){100}", strings.Repeat("a", MaxPattern+1), strings.Repeat("a ", maxPatterns+1)} {
		if _, err := ParsePatterns(p); err == nil {
			t.Errorf("pattern %.20q is accepted", p)
		}
	}
	for _, n := range []string{"A=B", "[a]", strings.Repeat("a", protocol.MaxSecretName+1), strings.Repeat("a ", protocol.MaxSecretEnv+1)} {
		if _, err := ParseNames(n); err == nil {
			t.Errorf("name %.20q is accepted", n)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	text := bytes.Repeat([]byte("\x1b[32m2026-01-02\x1b[0m compiling package number 12345 of the build\r\n"), 2000)
	for name, m := range map[string]*Masker{
		"values":   newMasker(b, []string{"A=abcdefgh12345678", "B=zyxwvuts87654321", "C=0123456789abcdefghij"}, "A B C", ""),
		"patterns": newMasker(b, []string{"A=abcdefgh12345678"}, "A", `gh[ps]_[A-Za-z0-9]{36} AKIA[0-9A-Z]{16}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				s := m.NewStream()
				s.Write(text)
				s.Flush()
			}
		})
	}
}
