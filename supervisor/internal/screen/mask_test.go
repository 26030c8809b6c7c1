package screen

import (
	"bytes"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/escseq"
)

var questions = []string{
	"\x05", "\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[=0c", "\x1bZ", "\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?2026$p", "\x1b[4$p",
	"\x1b[?u", "\x1b[14t", "\x1b[16t", "\x1b[18t", "\x1b[?996n", "\x1b]11;?\x07", "\x1b]10;?\x1b\\", "\x1b]4;1;?\x07", "\x1b]10;?;?\x07", "\x1bP$qm\x1b\\", "\x1bP+q544e\x1b\\", "\x1b[x",
	"\x1b[?4m",
}

// unanswered are queries that some terminals answer, and the session does not.
var unanswered = []string{
	"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\", "\x1b_Ga=q;\x1b\\", "\x1b_Ga=T,f=100,i=7;AAAA\x1b\\", "\x1b_Gi=7,q=1;AAAA\x1b\\",
	"\x1b_GI=3,m=1;AAAA\x1b\\", "\x1b_Gm=1;AAAA\x1b\\", "\x1b_Gm=0;AAAA\x1b\\", "\x1b_Ga=p,i=7\x1b\\",
	"\x1b[?1;1;0S", "\x1b[?2;4;0S", "\x1b[#S", "\x1b[1;1;1;1;10;10*y", "\x1b[1$w", "\x1b[1$u", "\x1b[&u", "\x1b[\"v", "\x1b['|", "\x1b[1;1#|", "\x1b[#R",
	"\x1b[?1m", "\x1b[?4g", "\x1bP+Q66\x1b\\", "\x1b[> q",
	"\x1b]1337;ReportCellSize\x07", "\x1b]1337;Capabilities\x1b\\", "\x1b]1337;ReportVariable=bmFtZQ==\x07",
	"\x1b]21;foreground=?\x1b\\", "\x1b]22;?__current__\x1b\\", "\x1b]99;i=1:p=?;\x1b\\", "\x1b]99;i=1:p=alive;\x1b\\", "\x1b]5522;type=read;dGV4dA==\x1b\\",
	"\x1b]52;c;?\x07", "\x1b]50;?1\x07", "\x1b]60\x07", "\x1b]61;allowTitleOps\x07",
	// The same with C1 controls.
	"\u009bc", "\u009b6n", "\u009b?2026$p", "\u009d11;?\x07", "\u009d10;?\u009c", "\u0090$qm\u009c", "\x1bP+q544e\u009c", "\u009fGa=q,i=1;AAAA\u009c", "\u009a",
}

// notQuestions look like queries, and must stay unchanged.
const notQuestions = "\x1b_Ga=T,q=2,i=7,m=1;AA\x1b\\\x1b_Gm=0;AA\x1b\\\x1b_Ga=T,f=32,s=1,v=1;AAAA\x1b\\\x1b_Ga=d,d=i,i=7\x1b\\" +
	"\x1b]22;pointer\x07\x1b]21;foreground=red\x1b\\\x1b]99;i=1:d=0;Hi?\x1b\\\x1b]2;really;?\x07\x1b]1337;SetMark\x07\x1b]8;;?\x07\x1b]8;;\x07" +
	"\x1b[3;4r\x1b[2S\x1b[1;1;2;2;5;5;1$v\x1b[4u\x1b[?1049h\u0085\u0091\u00c2\u009b1m\u009d2;t\u009c"

const harmless = "a\x07\x1b[1;31mb\x1b[?2004h\x1b[3;4H\x1b[>1u\x1b[?25l\x1b[>4;2m\x1b[0 q\x1b[22;0t\x1b]11;#000\x07\x1b]0;t?\x07\x1bPq#0\x1b\\\x1b(Bc"

// However output is cut, masked queries get no answer, and all other output stays unchanged.
func TestMask(t *testing.T) {
	harmless := harmless + notQuestions
	in := harmless
	for _, q := range append(append([]string(nil), questions...), unanswered...) {
		in += q + "x"
	}
	in += harmless
	for cut := 1; cut < 9; cut++ {
		var m Mask
		out := ""
		for rest := []byte(in); len(rest) > 0; {
			n := min(cut, len(rest))
			m.Apply(rest[:n], func(int) bool { return true })
			out += string(rest[:n])
			rest = rest[n:]
		}
		s := New(protocol.Size{Cols: 80, Rows: 24}, 0)
		s.SetAppearance(protocol.Appearance{CellWidth: 8, CellHeight: 16})
		s.Write([]byte(out))
		if r := s.Replies(); len(r) > 0 {
			t.Errorf("pieces of %d: the terminal replied %q", cut, r)
		}
		if len(out) != len(in) || !strings.HasPrefix(out, harmless) || !strings.HasSuffix(out, harmless) {
			t.Errorf("pieces of %d: got %q", cut, out)
		}
		for _, q := range unanswered {
			if strings.Contains(out, q) {
				t.Errorf("pieces of %d: %q was not masked", cut, q)
			}
		}
		if got, want := strings.Count(out, "x"), strings.Count(in, "x")-1; got < want-1 {
			t.Errorf("pieces of %d: %d of %d x are left", cut, got, want)
		}
	}
}

// Queries that the viewer should answer stay unchanged.
func TestMaskOwn(t *testing.T) {
	in := strings.Join(append(append([]string(nil), questions...), unanswered...), "y") + notQuestions
	var m Mask
	p := []byte(in)
	m.Apply(p, func(int) bool { return false })
	if string(p) != in {
		t.Errorf("got %q, want %q", p, in)
	}
	m.Apply(p, func(i int) bool { return i > len(p)/2 })
	if string(p[:len(p)/2]) != in[:len(p)/2] || string(p) == in {
		t.Errorf("got %q, want its second half alone changed", p)
	}
}

// FuzzMask checks that the mask keeps the number of bytes, changes no output without the parts of a query, and leaves
// no query that the core would answer.
func FuzzMask(f *testing.F) {
	for _, q := range append(append([]string(nil), questions...), unanswered...) {
		f.Add([]byte("a"+q+"b"), 2)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		cut = 1 + max(cut, -cut)&15
		var m Mask
		out := append([]byte(nil), in...)
		for rest := out; len(rest) > 0; rest = rest[min(cut, len(rest)):] {
			m.Apply(rest[:min(cut, len(rest))], func(int) bool { return true })
		}
		if n := len(m.tokens.Body()); n > maxKept {
			t.Fatalf("the mask keeps %d bytes", n)
		}
		if !strings.ContainsAny(string(in), "\x05\x1b") && strings.IndexByte(string(in), escseq.C1Lead) < 0 && string(out) != string(in) {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

// FuzzMaskFollow checks that the mask is in the same state after output without a question, whether it has followed the output or
// parsed all of it.
func FuzzMaskFollow(f *testing.F) {
	for _, p := range []string{"", "text", "\x1b[31mred\x1b[", "\x1b]0;20 \u00b0", "\x1bPq#1", "\x1b]0;t\x1b\\\xc2", "\u009b1;", "\x1b_Ga=d\x1b"} {
		for _, q := range append([]string{"6n", "\\c", "?\x07"}, questions...) {
			f.Add([]byte(p), []byte(q))
		}
	}
	f.Fuzz(func(t *testing.T, p, q []byte) {
		var all, followed Mask
		asks := false
		parsed := bytes.Clone(p)
		all.Apply(parsed, func(int) bool { asks = true; return false })
		if asks || !bytes.Equal(parsed, p) {
			t.Skip("the output has a question")
		}
		followed.Follow(p)
		if !bytes.Equal(parsed, p) {
			t.Fatalf("Follow has changed %q to %q", parsed, p)
		}
		want := bytes.Clone(q)
		all.Apply(want, func(int) bool { return true })
		got := bytes.Clone(q)
		followed.Apply(got, func(int) bool { return true })
		if !bytes.Equal(got, want) {
			t.Fatalf("after %q, %q became %q, want %q", p, q, got, want)
		}
	})
}

// BenchmarkMask measures the mask for a viewer that does not answer queries, and (own) for one that does.
func BenchmarkMask(b *testing.B) {
	for _, in := range []struct{ name, text string }{
		{"text", "make: entering directory /home/ada/src, no rule to make target\r\n"},
		{"colours", "\x1b[1;31merror\x1b[0m: \x1b[38;5;12mfile\x1b[39m \x1b[4mline\x1b[24m\r\n"},
		{"accents", "où est l'été «là» — 数百万の文字\r\n"},
		{"frames", "\x1b[?2026h\x1b[?25l\x1b[12;40H\x1b[38;2;10;20;30mx\x1b[K\x1b[?25h\x1b[?2026l"},
		{"titles", "\x1b]0;user@host: ~/src\x07\x1b]8;;https://example.org/some/path\x1b\\link\x1b]8;;\x1b\\\r\n"},
		{"images", "\x1b_Gm=1;" + strings.Repeat("QUJD", 1000) + "\x1b\\"},
		{"questions", "\x1b[c\x1b[6n\x1b]11;?\x1b\\\x1bP$qm\x1b\\"},
	} {
		p := []byte(strings.Repeat(in.text, 1+32<<10/len(in.text)))
		q := make([]byte, len(p))
		for own, name := range map[bool]string{false: in.name, true: in.name + "/own"} {
			b.Run(name, func(b *testing.B) {
				var m Mask
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					copy(q, p)
					if own {
						m.Pass(q)
					} else {
						m.Apply(q, func(int) bool { return true })
					}
				}
			})
		}
		b.Run(in.name+"/effects", func(b *testing.B) {
			var e Effects
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				e.Skip(p)
			}
		})
	}
}
