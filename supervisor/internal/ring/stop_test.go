//go:build unix

package ring

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"holdfast/protocol"
)

// TestStops checks that the next owner of a ring has every byte that was read, once and in order, at whatever point
// the owner before died.
func TestStops(t *testing.T) {
	for seed := range uint64(60) {
		stops(t, seed)
	}
}

func FuzzStops(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { stops(t, seed) })
}

// A life has the model: all bytes in one slice, and all sizes.
type life struct {
	t    *testing.T
	seed uint64
	rnd  *rand.Rand
	text bool
	r    *Ring
	all  []byte
	room []byte // reserved and not used yet
	size []ResizeMark
}

func stops(t *testing.T, seed uint64) {
	l := &life{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 2)), size: []ResizeMark{{0, size80}}}
	l.text = l.rnd.IntN(2) == 0
	l.r = newRing(t, MinBytes<<l.rnd.IntN(2))
	for range 60 {
		for range l.rnd.IntN(8) {
			l.goOn()
		}
		l.die()
		l.check()
	}
}

// goOn does what an owner does: it may resize, reserves, and reads and commits a few times.
func (l *life) goOn() {
	if l.rnd.IntN(4) == 0 {
		l.resize()
	}
	l.room = l.r.Reserve()
	for range l.rnd.IntN(5) {
		l.commit(l.read())
	}
}

func (l *life) resize() {
	s := protocol.Size{Cols: 1 + l.rnd.IntN(protocol.MaxCols), Rows: 1 + l.rnd.IntN(protocol.MaxRows)}
	l.size = append(l.size, ResizeMark{l.r.MarkSize(s), s})
}

// read stands for read(2): it puts bytes into the reserved room and returns them.
func (l *life) read() []byte {
	n := min(len(l.room), l.rnd.IntN(1+l.rnd.IntN(6000)))
	p := l.room[:n]
	for i := 0; i < n; {
		if !l.text {
			p[i] = byte(l.rnd.Uint32())
			i++
			continue
		}
		r := utf8.AppendRune(nil, []rune{'a', 'é', '→', 0x1d11e, l.rnd.Int32N(utf8.MaxRune + 1)}[l.rnd.IntN(5)])
		i += copy(p[i:], r)
	}
	return p
}

func (l *life) commit(p []byte) {
	l.all = append(l.all, p...)
	l.r.Commit(len(p))
	l.room = l.room[len(p):]
}

// die stops the owner at a random point, and another one adopts the ring.
func (l *life) die() {
	var read []byte
	switch l.rnd.IntN(5) {
	case 0: // between two calls: after Reserve, Commit or MarkSize
	case 1, 2: // between a read(2) and its Commit
		if l.rnd.IntN(2) == 0 {
			l.room = l.r.Reserve()
		}
		read = l.read()
	case 3: // while it wrote the poison for the longest read
		_, end, _ := l.r.Bounds()
		at := int(max(l.r.armed, end) % uint64(len(l.r.buf)))
		n := max(0, l.r.ahead(end)-int(max(l.r.armed, end)-end))
		layPoison(l.r.buf[at:at+l.rnd.IntN(n+1)], at)
	case 4:
		beginMark(l.r, l.rnd.Uint64())
	}
	at := len(l.all) % len(l.r.buf)
	next, rescued := adopted(l.t, l.r)
	want := len(read)
	for !l.text && want > 0 && read[want-1] == poison[(at+want-1)%poisonPeriod] {
		want-- // binary output may end with bytes of the poison, which are lost
	}
	if rescued != want {
		l.t.Fatalf("seed %d: %d bytes rescued at offset %d, want %d of %d", l.seed, rescued, len(l.all), want, len(read))
	}
	l.all = append(l.all, read[:rescued]...)
	if err := l.r.Close(); err != nil {
		l.t.Fatal(err)
	}
	l.r, l.room = next, nil
}

// beginMark does the first step of MarkSize.
func beginMark(r *Ring, offset uint64) {
	r.head.marks[r.head.marked.Load()%markSlots].offset.Store(offset)
}

// check compares the ring with the model.
func (l *life) check() {
	l.t.Helper()
	start, end, _ := l.r.Bounds()
	if end != uint64(len(l.all)) || end-start < uint64(min(len(l.all), l.r.Keep())) {
		l.t.Fatalf("seed %d: [%d, %d) is kept, want the last %d of %d", l.seed, start, end, l.r.Keep(), len(l.all))
	}
	p := make([]byte, end-start)
	if n, err := l.r.ReadAt(p, start); err != nil || !bytes.Equal(p[:n], l.all[start:]) {
		l.t.Fatalf("seed %d: ReadAt(%d) of %d: %d bytes that differ, %v", l.seed, start, end, n, err)
	}
	for i, m := range l.size {
		if later := i+1 < len(l.size) && l.size[i+1].Offset <= max(start, m.Offset); !later {
			if got := l.r.SizeAt(max(start, m.Offset)); got != m.Size {
				l.t.Fatalf("seed %d: SizeAt(%d) = %v, want %v", l.seed, max(start, m.Offset), got, m.Size)
			}
		}
	}
}
