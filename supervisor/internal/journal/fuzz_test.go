//go:build linux

package journal

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// FuzzAdopt adopts arbitrary content of a room, a pipe and a queue's file. Adopt must not panic, and must not take
// more than the files contain. If it succeeds, the journal can be used, and the terminal receives the pending bytes,
// which are limited.
func FuzzAdopt(f *testing.F) {
	l := newLife(f, 100_000)
	if _, _, err := l.j.Accept("writer", 0, make([]byte, 90_000)); err != nil {
		f.Fatal(err)
	}
	l.j.begin(pouring, slot{l.room, 0}, l.j.end, 10, 10)
	f.Add(l.room[:headBytes], l.room[headBytes:headBytes+2*slotBytes], uint16(pipeBytes), uint32(90_000))
	f.Add([]byte{}, []byte{}, uint16(0), uint32(0))
	for d := range operationCount {
		l.j.begin(d, slot{l.room, 1}, l.j.piped, 100, 100)
		f.Add(append([]byte{}, l.room[:headBytes]...), []byte{5}, uint16(d), uint32(d))
	}
	f.Fuzz(func(t *testing.T, head, table []byte, inPipe uint16, queued uint32) {
		l := &life{room: make([]byte, RoomBytes), files: Files{-1, -1}}
		copy(l.room[:headBytes], head)
		copy(l.room[headBytes:], table)
		if len(head) > 8 { // without a valid head hardly any room would be accepted
			room(l.room).store(wordVersion, version)
		}
		var err error
		if l.files.Pipe, err = newPipe(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = errors.Join(closeFile(l.files.Pipe), closeFile(l.files.Queue)) }()
		if _, err := writePipe(l.files.Pipe, make([]byte, inPipe)); err != nil {
			t.Fatal(err)
		}
		if queued > 0 {
			if l.files.Queue, err = newFile(); err != nil {
				t.Fatal(err)
			}
			testkit.Must(t, unix.Ftruncate(l.files.Queue, int64(queued)))
		}
		if l.adopt() == nil {
			l.use(t)
		}
	})
}

func (l *life) use(t *testing.T) {
	if l.j.Pending() < 0 || l.j.Pending() > maxMax+pipeBytes || l.j.Known() > slots {
		t.Fatalf("%d bytes pending, %d writers", l.j.Pending(), l.j.Known())
	}
	pending := l.j.Pending()
	m := &terminal{room: 1 << 20}
	for range 4 {
		accepted, n, err := l.j.Accept("w", 0, []byte("abc"))
		if n > 0 {
			pending += n
		}
		if err == nil && accepted > 3 && n > 0 {
			t.Fatalf("%d, %d", accepted, n)
		}
		if _, err := l.j.Flush(m); err != nil {
			break // the queue's file is shorter than the room claims
		}
	}
	if got := l.j.Pending() + len(m.delivered); got != pending {
		t.Fatalf("%d bytes are pending or delivered, want %d", got, pending)
	}
	if err := l.j.Drop(); err != nil || l.j.Pending() != 0 {
		t.Fatal(err, l.j.Pending())
	}
	testkit.Must(t, l.adopt())
}
