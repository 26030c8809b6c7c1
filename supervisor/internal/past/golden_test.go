package past

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// writeGolden writes a life with all that a version 1 can hold.
func writeGolden(t *testing.T, s *Store) {
	c := &clock{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.now = c.now
	w, err := s.OpenWriter(aLife, Full)
	testkit.Must(t, err)
	testkit.Must(t, w.SetMeta(Meta{Mode: Full, Created: c.Time, Argv: []string{"sh"}, Size: protocol.Size{Cols: 80, Rows: 24}}),
		w.Resize(0, protocol.Size{Cols: 80, Rows: 24}), w.Append(0, textAt(0, 1000)), w.Mark(500, 'C', "make all"))
	c.Time = c.Add(time.Second)
	testkit.Must(t, w.Append(1000, textAt(1000, 1000)), w.Keyframe(2000, []byte("the screen at 2000")),
		w.Resize(2000, protocol.Size{Cols: 100, Rows: 30}), w.Append(2000, textAt(2000, 10)), w.Sync(),
		w.Append(3000, textAt(3000, 100)), w.Close())
}

// Files that were written by version 1 are read as they were written.
func TestGolden(t *testing.T) {
	for name, key := range map[string]*Key{"v1": nil, "v1-sealed": ownKey} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", name)
			if testkit.WritesGolden() {
				testkit.Must(t, os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
				writeGolden(t, New(dir, key))
			}
			checkGolden(t, New(dir, key))
		})
	}
}

func checkGolden(t *testing.T, s *Store) {
	entries, err := s.List()
	testkit.Must(t, err)
	if len(entries) != 1 || entries[0].Err != nil || entries[0].Life != aLife || !slices.Equal(entries[0].Meta.Argv, []string{"sh"}) {
		t.Fatalf("list: %+v", entries)
	}
	r := reader(t, s)
	b, err := r.Bounds()
	if b != (Bounds{0, 3100, 2010}) || err != nil {
		t.Errorf("bounds %+v, %v", b, err)
	}
	v, err := r.At(2010)
	testkit.Must(t, err)
	if string(v.Keyframe) != "the screen at 2000" || v.Size != (protocol.Size{Cols: 80, Rows: 24}) || !v.Exact {
		t.Errorf("view %+v", v)
	}
	got := pieces(t, v.Replay)
	if want := []string{"2000 100x30", "2000 10 bytes at 03:04:06"}; !slices.Equal(got, want) {
		t.Errorf("replay %q, want %q", got, want)
	}
	got = pieces(t, r.Range(0, 4000))
	want := []string{
		"0 80x24", "0 1000 bytes at 03:04:05", "1000 1000 bytes at 03:04:06", "2000 100x30", "2000 10 bytes at 03:04:06",
		"2010 990 missing", "3000 100 bytes at 03:04:06",
	}
	if !slices.Equal(got, want) {
		t.Errorf("pieces %q, want %q", got, want)
	}
	for m, err := range marks(r, 0, 4000) {
		if m.Offset != 500 || m.Kind != 'C' || m.Text != "make all" || err != nil {
			t.Errorf("mark %+v, %v", m, err)
		}
	}
}

// pieces returns the pieces as text.
func pieces(t *testing.T, all func(func(Piece, error) bool)) (list []string) {
	t.Helper()
	for p, err := range all {
		testkit.Must(t, err)
		switch {
		case p.Missing > 0:
			list = append(list, fmt.Sprint(p.Offset, " ", p.Missing, " missing"))
		case p.Size != protocol.Size{}:
			list = append(list, fmt.Sprint(p.Offset, " ", p.Size))
		default:
			if !bytes.Equal(p.Output, textAt(p.Offset, len(p.Output))) {
				t.Errorf("wrong output at %d", p.Offset)
			}
			list = append(list, fmt.Sprint(p.Offset, " ", len(p.Output), " bytes at ", p.Time.UTC().Format(time.TimeOnly)))
		}
	}
	return list
}
