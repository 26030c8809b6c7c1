package slate

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

func read(t *testing.T, s *Slate) []byte {
	t.Helper()
	p, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWrite(t *testing.T) {
	s, err := New("slate")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if p := read(t, s); len(p) != 0 {
		t.Fatalf("a new slate has %d bytes", len(p))
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range 40 {
		p := bytes.Repeat([]byte{byte(i)}, rng.IntN(200_000))
		if err := s.Write(p); err != nil {
			t.Fatal(err)
		}
		if got := read(t, s); !bytes.Equal(got, p) {
			t.Fatalf("seed %d: round %d: %d bytes were written, %d read", seed, i, len(p), len(got))
		}
		if got, err := s.ReadFirst(8); err != nil || !bytes.Equal(got, p[:min(8, len(p))]) {
			t.Fatalf("seed %d: round %d: the slate begins with %q, %v", seed, i, got, err)
		}
		if err := s.SetWord(i%Words, uint64(i)); err != nil {
			t.Fatal(err)
		}
		s.Trim()
		if got := read(t, s); !bytes.Equal(got, p) {
			t.Fatalf("seed %d: round %d: after Trim %d bytes are read, want %d", seed, i, len(got), len(p))
		}
		if i%3 > 0 {
			continue
		}
		if err := s.Clear(); err != nil {
			t.Fatal(err)
		}
		if got := read(t, s); len(got) != 0 {
			t.Fatalf("seed %d: round %d: after Clear %d bytes are read", seed, i, len(got))
		}
	}
}

// A write that was interrupted leaves the content before it.
func TestDiesWithin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slate")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, headBytes)
	copy(head, magic)
	if _, err := file.Write(head); err != nil {
		t.Fatal(err)
	}
	s, err := Adopt(file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 3 {
		if err := s.Write([]byte("whole")); err != nil {
			t.Fatal(err)
		}
		at := int64(headBytes)
		if s.half() == 0 {
			at = otherHalf
		}
		if _, err := file.WriteAt([]byte("torn, and longer than that"), at); err != nil {
			t.Fatal(err)
		}
		again, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		other, err := Adopt(again)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, other); string(got) != "whole" {
			t.Errorf("the next owner reads %q", got)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNonsense(t *testing.T) {
	dir := t.TempDir()
	long := append([]byte(magic), bytes.Repeat([]byte{0xff}, 4096)...)
	for name, content := range map[string][]byte{
		"empty": nil, "short": []byte(magic), "other": bytes.Repeat([]byte("x"), 8192), "long": long,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := Adopt(file); err == nil {
			t.Errorf("%s was adopted as a slate: %v", name, s)
		}
		if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: the file is open: %v", name, err)
		}
	}
}
