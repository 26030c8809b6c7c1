package resend

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A session that accepts, loses and repeats input in any order receives each byte once.
func TestBuffer(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	var b Buffer
	var typed, received []byte
	for len(received) < 10_000 {
		switch rnd.IntN(6) {
		case 0, 1:
			p := make([]byte, rnd.IntN(50))
			for i := range p {
				p[i] = byte(rnd.Uint32())
			}
			b.Add(p)
			typed = append(typed, p...)
		case 2: // the connection breaks, or the session asks for the input again
			b.Resume(uint64(len(received)))
		case 3:
			b.Repeat()
		case 4:
			b.Accept(uint64(len(received)) - uint64(rnd.IntN(1+len(received)-int(b.Base()))))
		default:
			window := 1 + rnd.IntN(100)
			p, offset := b.Next(1+rnd.IntN(20), window)
			if sent := int(offset) + len(p); len(p) > 0 && sent-int(b.Base()) > window {
				t.Fatalf("seed %d: %d bytes are sent and not accepted, want at most %d", seed, sent-int(b.Base()), window)
			}
			if at := len(received) - int(offset); len(p) > 0 && at >= 0 && at < len(p) && rnd.IntN(4) > 0 { // otherwise the bytes are lost or repeated
				received = append(received, p[at:]...)
			}
		}
		if string(received) != string(typed[:len(received)]) {
			t.Fatalf("seed %d: the session has received other bytes than were typed", seed)
		}
	}
}

// A session that has forgotten the writer, and one that names an offset that the buffer does not know, continue with the
// bytes that are not accepted.
func TestOtherOffsets(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*Buffer)
		base uint64
		want string
	}{
		{"forgotten", func(b *Buffer) { b.Resume(0) }, 0, "cdef"},
		{"a new writer", func(b *Buffer) { b.Renumber(40) }, 40, "cdef"},
		{"accepted before", func(b *Buffer) { b.Accept(1) }, 2, "ef"},
		{"accepted in part", func(b *Buffer) { b.Accept(3) }, 3, "ef"},
		{"accepted beyond the end", func(b *Buffer) { b.Accept(50) }, 50, ""},
		{"resumed beyond the end", func(b *Buffer) { b.Resume(50) }, 50, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b Buffer
			b.Add([]byte("abcdef"))
			b.Next(4, math.MaxInt)
			b.Accept(2)
			tt.do(&b)
			p, offset := b.Next(100, math.MaxInt)
			if b.Base() != tt.base || string(p) != tt.want || len(p) > 0 && offset+uint64(len(p)) != b.Base()+uint64(b.Len()) {
				t.Errorf("the base is %d, and %q is sent at %d; want %d and %q", b.Base(), p, offset, tt.base, tt.want)
			}
		})
	}
}
