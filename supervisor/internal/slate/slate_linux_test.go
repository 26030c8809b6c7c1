package slate

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
	"testing"

	"holdfast/shared/machine"
	"holdfast/shared/testkit"
)

// A slate that adopts another descriptor of the file has the content, and can be written.
func TestAdopt(t *testing.T) {
	s, err := New("slate")
	testkit.Must(t, err)
	defer s.Close()
	testkit.Must(t, errors.Join(s.Write([]byte("first")), s.Write([]byte("second")), s.SetWord(7, 39)))
	var path string
	raw, err := s.file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { path = fmt.Sprintf("/proc/self/fd/%d", fd) })
	}
	testkit.Must(t, err)
	dup, err := os.OpenFile(path, os.O_RDWR, 0)
	testkit.Must(t, err)
	other, err := Adopt(dup)
	testkit.Must(t, err)
	defer other.Close()
	if got := read(t, other); string(got) != "second" {
		t.Errorf("the adopted slate has %q", got)
	}
	if v, err := other.Word(7); v != 39 || err != nil {
		t.Errorf("the word is %d, %v", v, err)
	}
	if err := other.Write([]byte("more")); err != nil || string(read(t, other)) != "more" {
		t.Errorf("the adopted slate cannot be written: %v", err)
	}
}

// The memory of the content before is released.
func TestReleases(t *testing.T) {
	s, err := New("slate")
	testkit.Must(t, err)
	defer s.Close()
	p := make([]byte, 4<<20)
	for range 5 {
		testkit.Must(t, s.Write(p))
	}
	info, err := s.file.Stat()
	testkit.Must(t, err)
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 5<<20 {
		t.Errorf("4 MiB take %d bytes", used)
	}
}

// A slate is written, adopted and written again under a limit for the length of files, also if the limit changes meanwhile.
func TestFileSizeLimit(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	s, err := New("slate")
	testkit.Must(t, err)
	defer func() { _ = s.Close() }()
	for round, limit := range []uint64{1 << 20, 1 << 20, 64 << 10, 10 << 30, 128 << 10, math.MaxInt64, 1 << 20} {
		lift := testkit.LimitFiles(t, limit)
		for i := range 5 {
			want := bytes.Repeat([]byte{byte(round), byte(i)}, 10_000)
			if err := s.Write(want); err != nil {
				t.Fatalf("round %d, limit %d, write %d: %v", round, limit, i, err)
			}
			file, err := machine.Duplicate(s.file, "slate")
			testkit.Must(t, err)
			other, err := Adopt(file)
			if err != nil {
				t.Fatalf("round %d, limit %d, write %d: %v", round, limit, i, err)
			}
			if !bytes.Equal(read(t, s), want) || !bytes.Equal(read(t, other), want) {
				t.Fatalf("round %d, limit %d, write %d: another content", round, limit, i)
			}
			if i%2 == 1 { // both halves get to be the content of an adopted slate
				s, other = other, s
			}
			testkit.Must(t, other.Close())
		}
		if limit == 64<<10 {
			before := read(t, s)
			if err := s.Write(make([]byte, limit)); err == nil || !bytes.Equal(read(t, s), before) {
				t.Fatalf("a content beyond the limit: %v, or the content before it has changed", err)
			}
		}
		lift()
	}
}
