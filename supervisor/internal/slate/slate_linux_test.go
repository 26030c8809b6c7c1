package slate

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// A slate that adopts another descriptor of the file has the content, and can be written.
func TestAdopt(t *testing.T) {
	s, err := New("slate")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := errors.Join(s.Write([]byte("first")), s.Write([]byte("second")), s.SetWord(7, 39)); err != nil {
		t.Fatal(err)
	}
	var path string
	raw, err := s.file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { path = fmt.Sprintf("/proc/self/fd/%d", fd) })
	}
	if err != nil {
		t.Fatal(err)
	}
	dup, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Adopt(dup)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := make([]byte, 4<<20)
	for range 5 {
		if err := s.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	info, err := s.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 5<<20 {
		t.Errorf("4 MiB take %d bytes", used)
	}
}
