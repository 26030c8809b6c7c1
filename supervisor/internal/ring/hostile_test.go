//go:build linux

package ring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/machine"
	"holdfast/shared/testkit"
)

// forge returns a sealed memory file of n bytes that begins with data.
func forge(t testing.TB, data []byte, n int64) *os.File {
	t.Helper()
	f := unsealed(t, data, n)
	testkit.Must(t, seal(f))
	return f
}

func unsealed(t testing.TB, data []byte, n int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("forged", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	testkit.Must(t, err)
	f := os.NewFile(uintptr(fd), "forged")
	_, err = f.WriteAt(data, 0)
	testkit.Must(t, errors.Join(err, f.Truncate(n)))
	return f
}

// genuine returns the beginning of a ring with three marks, and the length of its file.
func genuine(t testing.TB) (data []byte, size int64) {
	r := newRing(t, MinBytes)
	for range 2 {
		write(r, []byte("abc"))
		r.MarkSize(protocol.Size{Cols: 40, Rows: 10})
		r.MarkSize(size80)
	}
	r.Reserve()
	return bytes.Clone(r.mem[:256]), int64(len(r.mem))
}

func TestHostile(t *testing.T) {
	data, size := genuine(t)
	h := func(change func(*header)) func() *os.File {
		return func() *os.File {
			forged := new(header)
			p := unsafe.Slice((*byte)(unsafe.Pointer(forged)), unsafe.Sizeof(*forged))
			copy(p, data)
			change(forged)
			return forge(t, p, size)
		}
	}
	open := func(path string, flag int) *os.File {
		f, err := os.OpenFile(path, flag, 0)
		testkit.Must(t, err)
		return f
	}
	for _, tt := range []struct {
		name string
		file func() *os.File
		err  string
	}{
		{"empty", func() *os.File { return forge(t, nil, 0) }, "shorter than its header"},
		{"zeros", func() *os.File { return forge(t, nil, size) }, "not a ring"},
		{"half a preamble", func() *os.File { return forge(t, data[:40], 40) }, "shorter than its header"},
		{"only a header", func() *os.File { return forge(t, data, 256) }, "256 bytes long"},
		{"cut by a byte", func() *os.File { return forge(t, data, size-1) }, "bytes long"},
		{"a byte too long", func() *os.File { return forge(t, data, size+1) }, "bytes long"},
		{"not sealed", func() *os.File { return unsealed(t, data, size) }, "not sealed"},
		{"on a disk", func() *os.File {
			name := filepath.Join(t.TempDir(), "ring")
			testkit.Must(t, errors.Join(os.WriteFile(name, data, 0o600), os.Truncate(name, size)))
			return open(name, os.O_RDWR)
		}, ""},
		{"directory", func() *os.File { return open(t.TempDir(), os.O_RDONLY) }, ""},
		{"device", func() *os.File { return open(os.DevNull, os.O_RDWR) }, ""},
		{"closed", func() *os.File { f := forge(t, data, size); _ = f.Close(); return f }, "closed"},
		{"magic", h(func(h *header) { h.magic[0]++ }), "not a ring"},
		{"other machine", h(func(h *header) { h.order = 0x04030201 }), "byte order"},
		{"other version", h(func(h *header) { h.version = 2 }), "layout version 2"},
		{"header's length", h(func(h *header) { h.headerBytes = 4096 }), "lengths"},
		{"mark slots", h(func(h *header) { h.markSlots++ }), "lengths"},
		{"odd room", h(func(h *header) { h.roomBytes++ }), "lengths"},
		{"huge room", h(func(h *header) { h.roomBytes = 1 << 40 }), "lengths"},
		{"no ring", h(func(h *header) { h.ringBytes = 0 }), "lengths"},
		{"huge ring", h(func(h *header) { h.ringBytes = -h.headerBytes }), "lengths"},
		{"longer ring", h(func(h *header) { h.ringBytes = MaxBytes }), "bytes long"},
		{"no reads", h(func(h *header) { h.readBytes = 0 }), "lengths"},
		{"long reads", h(func(h *header) { h.readBytes = 9 << 10 }), "lengths"},
		{"end beyond all", h(func(h *header) { h.end.Store(1<<62 + 1); h.armed.Store(1<<62 + 1) }), "go together"},
		{"armed before", h(func(h *header) { h.armed.Store(1) }), "go together"},
		{"armed far ahead", h(func(h *header) { h.armed.Store(1 << 63) }), "go together"},
		{"armed beyond the buffer", h(func(h *header) { h.end.Store(72<<10 - 1); h.armed.Store(72<<10 + 1) }), "go together"},
		{"finished", h(func(h *header) { h.finished.Store(2) }), "go together"},
		{"no marks", h(func(h *header) { h.marked.Store(0) }), "marks: 0"},
		{"marks without number", h(func(h *header) { h.marked.Store(1 << 63) }), "marks"},
		{"marks never made", h(func(h *header) { h.marked.Store(5) }), "out of order"},
		{"mark ahead", h(func(h *header) { h.marks[2].offset.Store(7) }), "out of order"},
		{"mark twice", h(func(h *header) { h.marks[2].offset.Store(3) }), "out of order"},
		{"no size", h(func(h *header) { h.marks[0].size.Store(1 << 40) }), "size"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := tt.file()
			_, _, err := Adopt(file)
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Adopt = %v, want %q", err, tt.err)
			}
			if err := file.Close(); !errors.Is(err, os.ErrClosed) {
				t.Error("the file was left open")
			}
		})
	}
	q, _, err := Adopt(h(func(*header) {})())
	if err != nil {
		t.Fatalf("a file without a fault was refused: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzAdopt checks that Adopt refuses a file, or returns a ring that works.
func FuzzAdopt(f *testing.F) {
	data, size := genuine(f)
	f.Add(data, uint32(size))
	f.Add(data[:100], uint32(size))
	f.Add(data, uint32(0))
	f.Fuzz(func(t *testing.T, data []byte, size uint32) {
		r, rescued, err := Adopt(forge(t, data, int64(size)))
		if err != nil {
			return
		}
		start, end, finished := r.Bounds()
		if start > end || rescued > r.readSize || finished && rescued > 0 || len(r.Room()) > maxRoomBytes {
			t.Fatalf("[%d, %d), finished %v, %d rescued", start, end, finished, rescued)
		}
		p := make([]byte, end-start)
		if n, err := r.ReadAt(p, start); n != len(p) || err != nil {
			t.Fatalf("ReadAt(%d) = %d, %v; want %d", start, n, err, len(p))
		}
		for m, ok := r.NextMark(0); ok; m, ok = r.NextMark(m.Offset) {
			r.SizeAt(m.Offset)
		}
		text := bytes.Repeat([]byte("0123456789abcdef"), 1000)
		write(r, text)
		r.MarkSize(size80)
		q, _ := adopted(t, r)
		p = make([]byte, len(text))
		if _, err := q.ReadAt(p, end); err != nil || !bytes.Equal(p, text) {
			t.Fatalf("ReadAt(%d): %v, or other bytes than were written", end, err)
		}
		testkit.Must(t, r.Close())
	})
}

// TestSealed checks that a ring cannot be truncated while others have it mapped.
func TestSealed(t *testing.T) {
	file := handOn(t, newRing(t, MinBytes))
	defer file.Close()
	for _, n := range []int64{0, 1 << 30} {
		if err := file.Truncate(n); !errors.Is(err, os.ErrPermission) {
			t.Errorf("Truncate(%d) = %v, want %v", n, err, os.ErrPermission)
		}
	}
}

// TestMemory checks that a session that prints little needs little memory, and that unused room needs none.
func TestMemory(t *testing.T) {
	r := newRing(t, DefaultBytes)
	for range 100 {
		write(r, []byte("$ "))
	}
	file := handOn(t, r)
	defer file.Close()
	var st unix.Stat_t
	testkit.Must(t, machine.Control(file, func(fd int) error { return unix.Fstat(fd, &st) }))
	// A page of the header, the output, and the poison behind it.
	if got, want := st.Blocks*512, int64(2*os.Getpagesize()+firstRead); got > want {
		t.Errorf("%d bytes of memory, want %d at most", got, want)
	}
}
