package past

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// seal writes the right checksums into a segment, because otherwise hardly any input of the fuzzer would be read
// further.
func seal(p []byte) []byte {
	if len(p) < headBytes {
		return p
	}
	copy(p, segmentMagic)
	binary.LittleEndian.PutUint32(p[28:], checksum(p[:28]))
	for rest := p[headBytes:]; len(rest) >= blockHeadBytes; {
		n := int(binary.LittleEndian.Uint32(rest[4:]))
		if n > len(rest)-blockHeadBytes {
			n = len(rest) - blockHeadBytes
			binary.LittleEndian.PutUint32(rest[4:], uint32(n))
		}
		binary.LittleEndian.PutUint32(rest[20:], checksum(rest[blockHeadBytes:blockHeadBytes+n]))
		binary.LittleEndian.PutUint32(rest[24:], checksum(rest[:24]))
		rest = rest[blockHeadBytes+n:]
	}
	return p
}

// FuzzOpen checks that reading arbitrary files of a life neither panics nor exceeds the limits of memory, and that a
// writer refuses the life or continues it.
func FuzzOpen(f *testing.F) {
	key := newDataKey()
	keyFile, err := ownKey.wrap(key, aLife.String())
	testkit.Must(f, err)
	addSeeds(f, nil)
	addSeeds(f, keyFile)
	f.Fuzz(func(t *testing.T, first, second, meta []byte, start, end uint64) {
		s := New(t.TempDir(), nil)
		s.disk = quickDisk{s.disk}
		dir := s.path(aLife)
		isSealed := func(p []byte) bool { return len(p) > 7 && p[7] == sealedGCM }
		names := []string{openName(start & maxOffset), closedName(end&maxOffset, end&maxOffset+uint64(len(second)))}
		testkit.Must(t, os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, metaName), meta, 0o600),
			os.WriteFile(filepath.Join(dir, names[0]), seal(first), 0o600), os.WriteFile(filepath.Join(dir, names[1]), seal(second), 0o600))
		if isSealed(first) || isSealed(second) {
			s.key = ownKey
			testkit.Must(t, os.WriteFile(filepath.Join(dir, keyName), keyFile, 0o600))
		}
		if _, err := s.List(); err != nil {
			t.Fatal(err)
		}
		r, err := s.Open(aLife)
		testkit.Must(t, err)
		b, _ := r.Bounds()
		for _, offset := range []uint64{0, b.Start, b.Exact, b.End, start, end} {
			if v, err := r.At(offset); err == nil {
				read(t, v.Replay, v.KeyframeAt, offset)
			}
			read(t, r.Range(offset, b.End), offset, b.End)
			_, _ = r.TimeAt(offset)
		}
		_, _ = r.Gaps()
		_, _ = r.OffsetAt(time.Now())
		for m, err := range r.Notes(0, maxOffset) {
			if err == nil && len(m.Text) > MaxMark {
				t.Fatalf("a mark with %d bytes", len(m.Text))
			}
		}
		_, err = s.Trim(Policy{Total: 1})
		testkit.Must(t, err)
		w, err := s.OpenWriter(aLife, Full)
		if err != nil {
			return
		}
		at := w.End()
		if at > maxOffset-10 {
			testkit.Must(t, w.Close())
			return
		}
		testkit.Must(t, w.Append(at, textAt(0, 10)), w.Keyframe(at+10, []byte("k")), w.Close())
		if b, err := r.Bounds(); err == nil && b.End != at+10 {
			t.Fatalf("a writer continued at %d, and the end is %d", at, b.End)
		}
	})
}

// addSeeds adds the segments of a life, which is sealed if there is a key file.
func addSeeds(f *testing.F, keyFile []byte) {
	s, c := newStore(f)
	if keyFile != nil {
		s.key = ownKey
		testkit.Must(f, os.MkdirAll(s.path(aLife), 0o700), os.WriteFile(filepath.Join(s.path(aLife), keyName), keyFile, 0o600))
	}
	d := &driver{Rand: rand.New(rand.NewPCG(13, 14)), w: open(f, s, Full), truth: &truth{}, clock: c, big: 2000}
	testkit.Must(f, d.begin())
	for range 60 {
		testkit.Must(f, d.step())
	}
	testkit.Must(f, d.w.SetMeta(Meta{Argv: []string{"sh"}}), d.w.Close())
	meta, err := os.ReadFile(filepath.Join(d.w.dir, metaName))
	testkit.Must(f, err)
	all, err := os.ReadDir(d.w.dir)
	testkit.Must(f, err)
	for _, e := range all {
		p, err := os.ReadFile(filepath.Join(d.w.dir, e.Name()))
		testkit.Must(f, err)
		if segment, ok := parseSegment(e.Name()); ok {
			f.Add(p, p, meta, segment.start, segment.end)
			f.Add(p, p[:len(p)/2], meta[:len(meta)/2], segment.start, segment.end)
		}
	}
}

// read fails if the pieces are not in order.
func read(t *testing.T, pieces func(func(Piece, error) bool), at, to uint64) {
	count := 0
	for p, err := range pieces {
		if err != nil {
			if p.Output != nil {
				t.Fatal("an error with output")
			}
			return
		}
		if p.Offset != at {
			t.Fatalf("a piece at %d, want %d", p.Offset, at)
		}
		at += uint64(len(p.Output)) + p.Missing
		if at > to {
			t.Fatalf("pieces up to %d, want %d", at, to)
		}
		if count++; count > 3*maxRaw/entryBytes[entryResize] {
			t.Fatal("too many pieces")
		}
	}
}

// The limits of lengths hold before memory is taken.
func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		kind        byte
		stored, raw uint32
	}{
		{kindKeyframe, 10, maxKeyframe + 1}, {kindOutput, 10, maxOutput + 1}, {kindEntries, 10, maxEntries + 1},
		{kindOutput, 11, 10}, {kindOutput, 0, 0}, {0, 1, 1}, {4, 1, 1},
	} {
		p := make([]byte, blockHeadBytes)
		p[0] = tt.kind
		binary.LittleEndian.PutUint32(p[4:], tt.stored)
		binary.LittleEndian.PutUint32(p[8:], tt.raw)
		binary.LittleEndian.PutUint32(p[24:], checksum(p[:24]))
		if _, err := parseBlock(p, 0); !errors.Is(err, errTorn) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	// A frame whose header announces too much, and one whose content is longer than its header announces.
	bomb := make([]byte, 1<<20)
	stored, _ := compress(nil, bomb)
	if _, err := decompress(encodingZstd, stored, 1000); !errors.Is(err, errTorn) {
		t.Errorf("a frame that is too long: %v", err)
	}
	if _, err := decompress(encodingZstd, stored[:len(stored)/2], 1<<20); !errors.Is(err, errTorn) {
		t.Errorf("a torn frame: %v", err)
	}
}
