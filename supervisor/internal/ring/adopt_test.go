//go:build unix

package ring

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// handOn returns a duplicate of the ring's file, as the next owner receives it.
func handOn(t testing.TB, r *Ring) *os.File {
	t.Helper()
	file, err := r.File()
	testkit.Must(t, err)
	return file
}

// adopted returns r in another mapping, as if its owner had died.
func adopted(t testing.TB, r *Ring) (*Ring, int) {
	t.Helper()
	q, rescued, err := Adopt(handOn(t, r))
	testkit.Must(t, err)
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q, rescued
}

func TestAdopt(t *testing.T) {
	r := newRing(t, MinBytes)
	write(r, []byte("abc"))
	small := protocol.Size{Cols: 40, Rows: 10}
	r.MarkSize(small)
	copy(r.Reserve(), "défg\xc3") // read and not committed; the last byte begins a character
	copy(r.Room()[RoomBytes-3:], "end")
	q, rescued := adopted(t, r)
	if rescued != 6 {
		t.Errorf("%d bytes rescued, want 6", rescued)
	}
	p := make([]byte, 20)
	n, err := q.ReadAt(p, 0)
	if want := "abcdéfg\xc3"; string(p[:n]) != want || err != nil {
		t.Errorf("ReadAt(0) = %q, %v; want %q", p[:n], err, want)
	}
	if got, want := q.SizeAt(2), size80; got != want {
		t.Errorf("SizeAt(2) = %v, want %v", got, want)
	}
	if got := q.SizeAt(3); got != small {
		t.Errorf("SizeAt(3) = %v, want %v", got, small)
	}
	if got := q.Room(); len(got) != RoomBytes || string(got[RoomBytes-3:]) != "end" || got[0] != 0 {
		t.Errorf("the room is %d bytes and ends with %q, want %d and \"end\"", len(got), got[len(got)-3:], RoomBytes)
	}
	if q.readSize != r.readSize || q.Keep() != r.Keep() {
		t.Errorf("ReadSize, Keep = %d, %d; want %d, %d", q.readSize, q.Keep(), r.readSize, r.Keep())
	}
}

// TestAdoptFinished checks that the end of a finished ring is final, whatever bytes are behind it.
func TestAdoptFinished(t *testing.T) {
	r := newRing(t, MinBytes)
	write(r, []byte("abc"))
	copy(r.Reserve(), "d")
	r.Finish()
	q, rescued := adopted(t, r)
	if _, end, finished := q.Bounds(); end != 3 || !finished || rescued != 0 {
		t.Errorf("end %d, finished %v, %d rescued; want 3, true, 0", end, finished, rescued)
	}
}

// TestAdoptMarks checks that an owner adopts all resize marks that the ring keeps, even if marks were merged.
func TestAdoptMarks(t *testing.T) {
	for _, n := range []int{1, maxMarks - 2, maxMarks - 1, maxMarks, maxMarks + 1, 5*maxMarks + 7} {
		r := newRing(t, MinBytes)
		for i := range n {
			write(r, []byte{'x'})
			r.MarkSize(protocol.Size{Cols: 1 + i%500, Rows: 1 + i%300})
		}
		beginMark(r, uint64(n)) // then the owner died
		q, _ := adopted(t, r)
		oldest := uint64(max(0, n-maxMarks/2+1)) // the ring always keeps at least this many marks
		for o := oldest; o <= uint64(n); o++ {
			if got, want := q.SizeAt(o), r.SizeAt(o); got != want {
				t.Fatalf("%d marks: SizeAt(%d) = %v, want %v", n, o, got, want)
			}
		}
		if len(q.marks) > maxMarks {
			t.Errorf("%d marks are kept, at most %d are allowed", len(q.marks), maxMarks)
		}
		q.MarkSize(size80)
		q, _ = adopted(t, q)
		if got := q.SizeAt(uint64(n)); got != size80 {
			t.Errorf("%d marks and one by the next owner: SizeAt(%d) = %v, want %v", n, n, got, size80)
		}
	}
}

// TestAdoptWrapped checks two reads whose owner died before the commit: one that ends where the buffer ends, and the
// one before it.
func TestAdoptWrapped(t *testing.T) {
	r := newRing(t, MinBytes)
	all := bytes.Repeat([]byte("0123456789abcde\n"), (MinBytes+r.readSize)/16)
	write(r, all[:len(all)-5])
	if got := len(r.Reserve()); got != 5 {
		t.Fatalf("%d bytes reserved, want the 5 before the buffer ends", got)
	}
	copy(r.Reserve(), "HELLO")
	q, rescued := adopted(t, r)
	if rescued != 5 {
		t.Fatalf("%d bytes rescued, want 5", rescued)
	}
	copy(q.Reserve(), "again")
	q, rescued = adopted(t, q)
	p := make([]byte, 10)
	from := uint64(len(all) - 5)
	if _, err := q.ReadAt(p, from); string(p) != "HELLOagain" || err != nil || rescued != 5 {
		t.Errorf("ReadAt(%d) = %q, %v, %d rescued; want HELLOagain, 5", from, p, err, rescued)
	}
	if start, end, _ := q.Bounds(); start == 0 || end-start < MinBytes {
		t.Errorf("[%d, %d) is kept, want at least %d bytes and a lost beginning", start, end, MinBytes)
	}
	if _, err := q.ReadAt(p, 0); !errors.Is(err, ErrGone) {
		t.Errorf("offset 0 = %v, want ErrGone", err)
	}
}

func TestFileOfClosed(t *testing.T) {
	r := newRing(t, MinBytes)
	file := handOn(t, r)
	write(r, []byte("abc"))
	testkit.Must(t, r.Close())
	if f, err := r.File(); err == nil {
		t.Error("File after Close succeeded")
		_ = f.Close()
	}
	if r.Room() != nil {
		t.Error("there is room after Close")
	}
	q, _, err := Adopt(file)
	testkit.Must(t, err)
	if _, end, finished := q.Bounds(); end != 3 || finished {
		t.Errorf("the next owner has the end %d, finished %v; want 3, false", end, finished)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
