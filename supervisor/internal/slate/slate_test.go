package slate

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"holdfast/shared/testkit"
)

func read(t *testing.T, s *Slate) []byte {
	t.Helper()
	p, err := s.Read()
	testkit.Must(t, err)
	return p
}

func TestWrite(t *testing.T) {
	s, err := New("slate")
	testkit.Must(t, err)
	defer s.Close()
	if p := read(t, s); len(p) != 0 {
		t.Fatalf("a new slate has %d bytes", len(p))
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range 40 {
		p := bytes.Repeat([]byte{byte(i)}, rng.IntN(200_000))
		testkit.Must(t, s.Write(p))
		if got := read(t, s); !bytes.Equal(got, p) {
			t.Fatalf("seed %d: round %d: %d bytes were written, %d read", seed, i, len(p), len(got))
		}
		if got, err := s.ReadFirst(8); err != nil || !bytes.Equal(got, p[:min(8, len(p))]) {
			t.Fatalf("seed %d: round %d: the slate begins with %q, %v", seed, i, got, err)
		}
		testkit.Must(t, s.SetWord(i%wordCount, uint64(i)))
		s.Trim()
		if got := read(t, s); !bytes.Equal(got, p) {
			t.Fatalf("seed %d: round %d: after Trim %d bytes are read, want %d", seed, i, len(got), len(p))
		}
		if i%3 > 0 {
			continue
		}
		testkit.Must(t, s.Clear())
		if got := read(t, s); len(got) != 0 {
			t.Fatalf("seed %d: round %d: after Clear %d bytes are read", seed, i, len(got))
		}
	}
}

// A write that was interrupted leaves the content before it.
func TestDiesWithin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slate")
	file, err := os.Create(path)
	testkit.Must(t, err)
	head := make([]byte, headBytes)
	copy(head, magic)
	if _, err := file.Write(head); err != nil {
		t.Fatal(err)
	}
	s, err := Adopt(file)
	testkit.Must(t, err)
	defer s.Close()
	for range 3 {
		testkit.Must(t, s.Write([]byte("whole")))
		at := int64(headBytes)
		if s.half() == 0 {
			at = otherHalf
		}
		if _, err := file.WriteAt([]byte("torn, and longer than that"), at); err != nil {
			t.Fatal(err)
		}
		again, err := os.OpenFile(path, os.O_RDWR, 0)
		testkit.Must(t, err)
		other, err := Adopt(again)
		testkit.Must(t, err)
		if got := read(t, other); string(got) != "whole" {
			t.Errorf("the next owner reads %q", got)
		}
		testkit.Must(t, other.Close())
	}
}

func TestNonsense(t *testing.T) {
	dir := t.TempDir()
	long := append([]byte(magic), bytes.Repeat([]byte{0xff}, 4096)...)
	for name, content := range map[string][]byte{
		"empty": nil, "short": []byte(magic), "other": bytes.Repeat([]byte("x"), 8192), "long": long,
	} {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, content, 0o600))
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		testkit.Must(t, err)
		if s, err := Adopt(file); err == nil {
			t.Errorf("%s was adopted as a slate: %v", name, s)
		}
		if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: the file is open: %v", name, err)
		}
	}
}
