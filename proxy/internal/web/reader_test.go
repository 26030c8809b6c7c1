package web

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gobwas/ws"
)

// readAll reads all messages and returns their descriptions, one a line, with the error at the end as the last.
func readAll(r *reader) []string {
	var got []string
	for {
		op, m, err := r.next()
		var v *violation
		switch {
		case errors.As(err, &v):
			return append(got, fmt.Sprintf("violation %d", v.status))
		case err != nil:
			return append(got, err.Error())
		}
		got = append(got, fmt.Sprintf("%d %q", op, m[headroom:]))
	}
}

func frames(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestReader(t *testing.T) {
	const limit = 1000
	long := strings.Repeat("x", limit)
	text := func(s string) []byte { return masked(ws.OpText, true, []byte(s)) }
	bad := func(f ws.Frame) []byte { b, _ := ws.CompileFrame(f); return b }
	tests := []struct {
		name string
		in   []byte
		want []string
	}{
		{"nothing", nil, []string{"EOF"}},
		{"messages", frames(text("a"), masked(ws.OpBinary, true, []byte("bc")), text("")), []string{`1 "a"`, `2 "bc"`, `1 ""`, "EOF"}},
		{"largest", text(long), []string{fmt.Sprintf("1 %q", long), "EOF"}},
		{"cut", text("abc")[:7], []string{"unexpected EOF"}},
		{"cut in the header", text(long)[:3], []string{"unexpected EOF"}},
		{
			"fragments", frames(masked(ws.OpText, false, []byte("a")), masked(ws.OpContinuation, false, nil), masked(ws.OpContinuation, true, []byte("b")), text("c")),
			[]string{`1 "ab"`, `1 "c"`, "EOF"},
		},
		{
			"ping between fragments", frames(masked(ws.OpBinary, false, []byte("a")), masked(ws.OpPing, true, []byte("p")), masked(ws.OpContinuation, true, []byte("b"))),
			[]string{`9 "p"`, `2 "ab"`, "EOF"},
		},
		{"a character in two fragments", frames(masked(ws.OpText, false, []byte("\xc3")), masked(ws.OpContinuation, true, []byte("\xa4"))), []string{`1 "ä"`, "EOF"}},
		{"end between fragments", masked(ws.OpText, false, []byte("a")), []string{"unexpected EOF"}},
		{"too large", text(long + "x"), []string{"violation 1009"}},
		{"too large, announced", masked(ws.OpBinary, true, make([]byte, limit+1))[:8], []string{"violation 1009"}},
		{
			"too large in fragments", frames(masked(ws.OpText, false, []byte(long)), masked(ws.OpContinuation, false, nil), masked(ws.OpContinuation, true, []byte("x"))),
			[]string{"violation 1009"},
		},
		{"unmasked", bad(ws.NewTextFrame([]byte("a"))), []string{"violation 1002"}},
		{"compressed", bad(ws.Frame{Header: ws.Header{Fin: true, Rsv: ws.Rsv(true, false, false), OpCode: ws.OpText, Masked: true}}), []string{"violation 1002"}},
		{"reserved opcode", masked(3, true, nil), []string{"violation 1002"}},
		{"a continuation without a beginning", masked(ws.OpContinuation, true, nil), []string{"violation 1002"}},
		{"message within fragments", frames(masked(ws.OpText, false, nil), text("a")), []string{"violation 1002"}},
		{"ping in fragments", masked(ws.OpPing, false, nil), []string{"violation 1002"}},
		{"long ping", masked(ws.OpPing, true, make([]byte, 126)), []string{"violation 1002"}},
		{"endless", []byte{0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, []string{"violation 1002"}},
		{"not UTF-8", text("a\xff"), []string{"violation 1007"}},
		{"a surrogate", text("\xed\xa0\x80"), []string{"violation 1007"}},
		{"binary is not text", masked(ws.OpBinary, true, []byte("a\xff")), []string{`2 "a\xff"`, "EOF"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newReader(bytes.NewReader(tt.in), limit, nil)
			if got := readAll(r); !equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func equal(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

func TestReaderGoesOnAfterTimeout(t *testing.T) {
	in := frames(masked(ws.OpText, false, []byte("a")), masked(ws.OpContinuation, true, []byte("b")))
	for at := range len(in) {
		stream := io.MultiReader(bytes.NewReader(in[:at]), iotest.ErrReader(os.ErrDeadlineExceeded))
		r := newReader(stream, 10, nil)
		_, _, err := r.next()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("at %d: %v", at, err)
		}
		r.r = bytes.NewReader(in[at:])
		if _, m, err := r.next(); err != nil || string(m[headroom:]) != "ab" {
			t.Errorf("at %d: %q, %v", at, m, err)
		}
	}
}

// FuzzReader checks that the reader does not panic, and that its memory depends on the bytes that arrived. The result
// does not depend on how they are cut, nor on whether another reader continues, as after a handoff.
func FuzzReader(f *testing.F) {
	f.Add(frames(masked(ws.OpText, false, []byte("ab")), masked(ws.OpPing, true, []byte("p")), masked(ws.OpContinuation, true, []byte("c"))), 9)
	f.Add(frames(masked(ws.OpBinary, true, bytes.Repeat([]byte("x"), 200)), masked(ws.OpClose, true, []byte{3, 232})), 100)
	f.Add(masked(ws.OpText, true, []byte("a\xff")), 3)
	f.Add([]byte{0x82, 0xff, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}, 5)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		const limit = 1 << 20
		whole := newReader(bytes.NewReader(in), limit, nil)
		want := readAll(whole)
		if c := cap(whole.buf.Bytes()); c > 2*max(4<<10, len(in)) {
			t.Errorf("a buffer of %d bytes for %d that arrived", c, len(in))
		}
		if got := readAll(newReader(iotest.OneByteReader(bytes.NewReader(in)), limit, nil)); !equal(got, want) {
			t.Errorf("byte by byte: got %q, want %q", got, want)
		}
		cut = min(max(cut, 0), len(in))
		first := newReader(bytes.NewReader(in[:cut]), limit, nil)
		got := readAll(first)
		if end := got[len(got)-1]; strings.HasPrefix(end, "violation") {
			return
		}
		second := newReader(bytes.NewReader(in[cut:]), limit, first.leftover())
		if got := append(got[:len(got)-1], readAll(second)...); !equal(got, want) {
			t.Errorf("two readers: got %q, want %q", got, want)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	for _, size := range []int{1, 64, 32 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			wire := bytes.Repeat(masked(ws.OpBinary, true, make([]byte, size)), 64)
			src := bytes.NewReader(nil)
			r := newReader(src, 1<<20, nil)
			b.SetBytes(int64(64 * size))
			b.ReportAllocs()
			for b.Loop() {
				src.Reset(wire)
				for range 64 {
					if _, _, err := r.next(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
