package screen

import (
	"strings"
	"testing"

	"holdfast/protocol"
)

var questions = []string{
	"\x05", "\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[=0c", "\x1bZ", "\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?2026$p", "\x1b[4$p", "\x1b[>q", "\x1b[>0q",
	"\x1b[?u", "\x1b[14t", "\x1b[16t", "\x1b[18t", "\x1b[?996n", "\x1b]11;?\x07", "\x1b]10;?\x1b\\", "\x1b]4;1;?\x07", "\x1b]10;?;?\x07", "\x1bP$qm\x1b\\", "\x1bP+q544e\x1b\\", "\x1b[x",
}

const harmless = "a\x07\x1b[1;31mb\x1b[?2004h\x1b[3;4H\x1b[>1u\x1b[?25l\x1b[>4;2m\x1b[0 q\x1b[22;0t\x1b]11;#000\x07\x1b]0;t?\x07\x1bPq#0\x1b\\\x1b(Bc"

// However output is cut, questions get no answer and everything else stays.
func TestMask(t *testing.T) {
	in := harmless
	for _, q := range questions {
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
			t.Errorf("pieces of %d: answered with %q", cut, r)
		}
		if len(out) != len(in) || !strings.HasPrefix(out, harmless) || !strings.HasSuffix(out, harmless) {
			t.Errorf("pieces of %d: got %q", cut, out)
		}
		if got, want := strings.Count(out, "x"), strings.Count(in, "x")-1; got < want-1 {
			t.Errorf("pieces of %d: %d of %d x are left", cut, got, want)
		}
	}
}

// What is ours to answer stays as it is.
func TestMaskOwn(t *testing.T) {
	in := strings.Join(questions, "y")
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

// FuzzMask: no byte comes or goes; nothing without a question's parts changes;
// and what is left has no answer that our own terminal would give.
func FuzzMask(f *testing.F) {
	for _, q := range questions {
		f.Add([]byte("a"+q+"b"), 2)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		cut = 1 + max(cut, -cut)&15
		var m Mask
		out := append([]byte(nil), in...)
		for rest := out; len(rest) > 0; rest = rest[min(cut, len(rest)):] {
			m.Apply(rest[:min(cut, len(rest))], func(int) bool { return true })
		}
		if len(m.kept) > maxKept {
			t.Fatalf("%d bytes are kept", len(m.kept))
		}
		if !strings.ContainsAny(string(in), "\x05\x1b") && string(out) != string(in) {
			t.Fatalf("%q became %q", in, out)
		}
	})
}
