package screen

import (
	"bytes"
	"testing"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt/vttest"
)

// listed returns a screen with so many lines of listings above it.
func listed(lines int) *Screen {
	s := New(protocol.Size{Cols: 200, Rows: 50}, lines)
	in := vttest.Listing.Make()
	for n := 0; n < lines+50; {
		k := min(len(in), 4096)
		s.Write(in[:k])
		n += bytes.Count(in[:k], []byte("\n"))
		in = in[k:]
	}
	return s
}

// Saving must not delay a busy supervisor. A record of 10,000 lines of coloured listings should take 5 ms to save and
// 10 ms to restore.
func BenchmarkSave(b *testing.B) {
	for _, pack := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "packed"}[pack], func(b *testing.B) {
			s := listed(10_000)
			if pack {
				s.Pack()
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Save(nowhere{}, -1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(recordOf(s, -1))), "record-B")
		})
	}
}

func BenchmarkRestore(b *testing.B) {
	record := recordOf(listed(10_000), -1)
	b.ReportAllocs()
	b.SetBytes(int64(len(record)))
	for b.Loop() {
		restored(b, record, 10_000, 64<<10)
	}
}
