package ring

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

var size80 = protocol.Size{Cols: 80, Rows: 24}

func newRing(t testing.TB, keep int) *Ring {
	t.Helper()
	r, err := New(keep, size80)
	testkit.Must(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// write writes p into the ring as the PTY's reader does, one reservation at a time.
func write(r *Ring, p []byte) {
	for len(p) > 0 {
		n := copy(r.Reserve(), p)
		r.Commit(n)
		r.Wake()
		p = p[n:]
	}
}

func TestReadAt(t *testing.T) {
	r := newRing(t, MinBytes)
	write(r, []byte("abc"))
	for _, tt := range []struct {
		name   string
		offset uint64
		want   string
		err    error
	}{
		{"all", 0, "abc", nil},
		{"rest", 2, "c", nil},
		{"end", 3, "", nil},
		{"ahead", 4, "", ErrAhead},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := make([]byte, 10)
			n, err := r.ReadAt(p, tt.offset)
			if string(p[:n]) != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("ReadAt(%d) = %q, %v; want %q, %v", tt.offset, p[:n], err, tt.want, tt.err)
			}
		})
	}
}

// TestKeepsWhatItPromises checks for writes of any size that the last keep bytes can be read, even during a
// reservation.
func TestKeepsWhatItPromises(t *testing.T) {
	r := newRing(t, MinBytes)
	var all []byte
	rnd := rand.New(rand.NewPCG(1, 2))
	for len(all) < 10*MinBytes {
		p := make([]byte, 1+rnd.IntN(r.readSize))
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		write(r, p)
		all = append(all, p...)
		r.Reserve()
		from := max(0, len(all)-MinBytes)
		got := make([]byte, MinBytes)
		n, err := r.ReadAt(got, uint64(from))
		if err != nil || !bytes.Equal(got[:n], all[from:]) {
			t.Fatalf("after %d bytes: ReadAt(%d) = %d bytes, %v; want the last %d", len(all), from, n, err, len(all)-from)
		}
	}
	if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrGone) {
		t.Errorf("offset 0 = %v, want ErrGone", err)
	}
}

func TestMarks(t *testing.T) {
	r := newRing(t, MinBytes)
	small := protocol.Size{Cols: 40, Rows: 10}
	write(r, []byte("abc"))
	r.MarkSize(small)
	r.MarkSize(size80)
	r.MarkSize(small) // if several marks have one offset, the last one counts
	write(r, []byte("def"))
	if got := r.SizeAt(2); got != size80 {
		t.Errorf("SizeAt(2) = %v, want %v", got, size80)
	}
	if got := r.SizeAt(3); got != small {
		t.Errorf("SizeAt(3) = %v, want %v", got, small)
	}
	if m, ok := r.NextMark(0); !ok || m != (ResizeMark{3, small}) {
		t.Errorf("NextMark(0) = %v, %v; want offset 3", m, ok)
	}
	if m, ok := r.NextMark(3); ok {
		t.Errorf("NextMark(3) = %v, want none", m)
	}
	write(r, make([]byte, 3*MinBytes))
	if start, _, _ := r.Bounds(); r.SizeAt(start) != small || len(r.marks) != 1 {
		t.Errorf("after the ring was overwritten: size %v, %d marks; want %v, 1", r.SizeAt(start), len(r.marks), small)
	}
	for i := range 10 * maxMarks {
		r.MarkSize(protocol.Size{Cols: 1 + i%200, Rows: 24})
		write(r, []byte{'x'})
	}
	if len(r.marks) > maxMarks {
		t.Errorf("%d marks are kept, at most %d are allowed", len(r.marks), maxMarks)
	}
}

func TestWatch(t *testing.T) {
	r := newRing(t, MinBytes)
	c := make(chan struct{}, 1)
	r.Watch(c)
	write(r, []byte("a"))
	write(r, []byte("b")) // must not block, although the first signal was not received
	<-c
	r.Finish()
	<-c
	if _, end, finished := r.Bounds(); end != 2 || !finished {
		t.Errorf("Bounds = %d, %v; want 2, true", end, finished)
	}
	r.Unwatch(c)
	r.MarkSize(size80)
	select {
	case <-c:
		t.Error("poked after Unwatch")
	default:
	}
}

func TestClosed(t *testing.T) {
	r := newRing(t, MinBytes)
	write(r, []byte("a"))
	testkit.Must(t, r.Close())
	if _, err := r.ReadAt(make([]byte, 1), 0); err == nil {
		t.Error("ReadAt after Close succeeded")
	}
}

// FuzzRing compares a ring with all bytes in one slice: for each offset the ring must return the bytes that were
// written there.
func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 200, 3, 255, 9}, uint16(7))
	f.Fuzz(func(t *testing.T, script []byte, at uint16) {
		r := newRing(t, MinBytes)
		var all []byte
		for i, b := range script {
			room := r.Reserve()
			n := min(len(room), int(b)*41)
			for j := range n {
				room[j] = byte(i + j)
			}
			all = append(all, room[:n]...)
			r.Commit(n)
			start, end, _ := r.Bounds()
			if end != uint64(len(all)) {
				t.Fatalf("end = %d, want %d", end, len(all))
			}
			offset := uint64(at) * uint64(i)
			p := make([]byte, 1+int(b))
			k, err := r.ReadAt(p, offset)
			switch {
			case offset < start:
				if !errors.Is(err, ErrGone) {
					t.Fatalf("ReadAt(%d) = %v, want ErrGone", offset, err)
				}
			case offset > end:
				if !errors.Is(err, ErrAhead) {
					t.Fatalf("ReadAt(%d) = %v, want ErrAhead", offset, err)
				}
			case err != nil || !bytes.Equal(p[:k], all[offset:offset+uint64(k)]):
				t.Fatalf("ReadAt(%d) = %x, %v", offset, p[:k], err)
			case k != min(len(p), int(end-offset)):
				t.Fatalf("ReadAt(%d) = %d bytes of %d", offset, k, end-offset)
			}
		}
	})
}

func BenchmarkReadAt(b *testing.B) {
	r := newRing(b, DefaultBytes)
	write(r, make([]byte, DefaultBytes))
	p := make([]byte, 32<<10)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.ReadAt(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}
