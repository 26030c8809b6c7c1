//go:build linux

package ring

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/machine"
	"holdfast/shared/testkit"
)

// memoryOf returns the bytes of memory that the file of a ring takes.
func memoryOf(t testing.TB, r *Ring) int64 {
	t.Helper()
	file := handOn(t, r)
	defer file.Close()
	var st unix.Stat_t
	testkit.Must(t, machine.Control(file, func(fd int) error { return unix.Fstat(fd, &st) }))
	return st.Blocks * 512
}

// printLines writes n lines of text from offset on, and returns the offset behind them.
func printLines(r *Ring, offset uint64, n int) uint64 {
	var b []byte
	for i := range uint64(n) {
		b = appendLine(b, offset/lineBytes+i)
	}
	write(r, b)
	return offset + uint64(len(b))
}

// TestPack checks that a ring that is packed at any time, and adopted at any time, has the same bytes as before.
func TestPack(t *testing.T) {
	for _, keep := range []int{MinBytes, 5 * blockBytes / 2} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			r := newRing(t, keep)
			rnd := rand.New(rand.NewPCG(uint64(keep), 1))
			end := uint64(0)
			for range 400 {
				switch rnd.IntN(6) {
				case 0:
					end = printLines(r, end, 1+rnd.IntN(keep/lineBytes/2))
				case 1:
					r.Pack()
				case 5: // the writer waits for output
					r.Reserve()
					if rnd.IntN(2) == 0 {
						r.Withdraw()
					}
				case 2:
					r, _ = adopted(t, r)
				case 3:
					r.Unpack()
				default:
					start, _, _ := r.Bounds()
					from := start + rnd.Uint64N(end-start+1)
					testkit.Must(t, checkPrinted(r, from, from+rnd.Uint64N(end-from+1)))
					if from < end {
						if err := checkBytes(r.View(from, int(end-from)), from); err != nil {
							t.Fatalf("View: %v", err)
						}
					}
				}
				if start, is, _ := r.Bounds(); is != end || end > uint64(keep) && end-start < uint64(keep) {
					t.Fatalf("the ring holds [%d, %d), want the last %d bytes before %d", start, is, keep, end)
				}
			}
		})
	}
}

// TestPackMemory checks that a packed ring takes little memory, and that a read of an old byte unpacks one block.
func TestPackMemory(t *testing.T) {
	r := newRing(t, DefaultBytes)
	end := printLines(r, 0, 3*DefaultBytes/lineBytes)
	full := memoryOf(t, r)
	r.Pack()
	rest := memoryOf(t, r)
	if most := int64(3 * blockBytes); rest > most {
		t.Errorf("the ring takes %d bytes, packed %d, want at most %d", full, rest, most)
	}
	if err := checkPrinted(r, end-DefaultBytes, end-DefaultBytes+1); err != nil {
		t.Error(err)
	}
	if got := memoryOf(t, r); got > rest+blockBytes {
		t.Errorf("after a read of one byte the ring takes %d bytes, before %d", got, rest)
	}
	r.Unpack()
	if got := memoryOf(t, r); got > full+pageBytes {
		t.Errorf("unpacked, the ring takes %d bytes, before it was packed %d", got, full)
	}
	t.Logf("%d KiB, packed %d KiB", full>>10, rest>>10)
}

// TestPackWaiting checks that the block in which the writer waits for output is packed, too, unless it holds little, and that its
// content survives an adoption, together with the older output behind the writer.
func TestPackWaiting(t *testing.T) {
	for _, n := range []int{minUsed / lineBytes / 2, 5 * blockBytes / 2 / lineBytes, 3 * DefaultBytes / 2 / lineBytes} {
		r := newRing(t, DefaultBytes)
		end := printLines(r, 0, n)
		r.Reserve()
		r.Withdraw()
		r.Pack()
		is := int(end % uint64(len(r.buf)) / blockBytes)
		if got, want := r.blocks.isPacked[is], n*lineBytes >= minUsed; got != want {
			t.Errorf("%d lines: the block is packed: %v, want %v", n, got, want)
		}
		t.Logf("%d KiB of output take %d KiB", n*lineBytes>>10, memoryOf(t, r)>>10)
		r, _ = adopted(t, r)
		if got, want := r.blocks.isPacked[is], n*lineBytes >= minUsed; got != want {
			t.Errorf("%d lines, adopted: the block is packed: %v, want %v", n, got, want)
		}
		end = printLines(r, end, 100)
		if err := checkPrinted(r, end-min(end, DefaultBytes), end); err != nil {
			t.Errorf("%d lines: %v", n, err)
		}
	}
}

// TestPackRandom checks that output that cannot be compressed stays as it is.
func TestPackRandom(t *testing.T) {
	r := newRing(t, DefaultBytes)
	p := make([]byte, DefaultBytes)
	rnd := rand.NewChaCha8([32]byte{1})
	rnd.Read(p)
	write(r, p)
	full := memoryOf(t, r)
	r.Pack()
	got := make([]byte, len(p))
	if _, err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got, p) || memoryOf(t, r) > full {
		t.Errorf("%v, %d bytes of memory, before %d", err, memoryOf(t, r), full)
	}
}

// TestPackForgotten checks that a packed block is not unpacked over newer output, which a program has written that
// does not know packed blocks.
func TestPackForgotten(t *testing.T) {
	for _, waits := range []bool{false, true} {
		r := newRing(t, DefaultBytes)
		end := printLines(r, 0, DefaultBytes/lineBytes)
		if waits { // then the block of the writer is packed, too, and the program that does not know it loses it
			r.Reserve()
			r.Withdraw()
		}
		r.Pack()
		r.blocks.isPacked, r.blocks.count = make([]bool, len(r.blocks.isPacked)), 0 // as if it did not know them
		last := end
		end = printLines(r, end, DefaultBytes/2/lineBytes)
		q, _ := adopted(t, r)
		if err := checkPrinted(q, last, end); err != nil {
			t.Error(err)
		}
		q.Unpack()
		if !waits {
			last = end - DefaultBytes
		}
		if err := checkPrinted(q, last, end); err != nil {
			t.Error(err)
		}
	}
}

// TestPackDamaged checks that damaged entries and slots harm nothing but the output that they hold.
func TestPackDamaged(t *testing.T) {
	r := newRing(t, DefaultBytes)
	end := printLines(r, 0, DefaultBytes/lineBytes)
	r.Pack()
	rnd := rand.New(rand.NewPCG(3, 3))
	for i := range r.blocks.entries {
		e := &r.blocks.entries[i]
		switch i % 3 {
		case 0:
			e.length.Store(rnd.Uint64())
		case 1:
			e.first.Store(rnd.Uint64())
		default:
			for k := range r.blocks.slot(i)[:1000] {
				r.blocks.slot(i)[k] = byte(rnd.Uint32())
			}
		}
	}
	q, _ := adopted(t, r)
	p := make([]byte, end)
	if n, err := q.ReadAt(p, 0); n != len(p) || err != nil {
		t.Errorf("ReadAt(0) = %d, %v; want %d bytes", n, err, end)
	}
	next := printLines(q, end, 100)
	if err := checkPrinted(q, end, next); err != nil {
		t.Error(err)
	}
}
