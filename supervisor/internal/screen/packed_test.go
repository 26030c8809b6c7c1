package screen

import (
	"bytes"
	"testing"
)

func packedRecordOf(t testing.TB, s *Screen) []byte {
	t.Helper()
	var m memory
	if err := s.SavePacked(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// An unpacked record is the record with all lines. A program that does not know packed sections reads the record without
// the lines.
func TestPackedRecord(t *testing.T) {
	s := listed(10_000)
	all := recordOf(s, -1)
	record := packedRecordOf(t, s)
	if got, err := Unpack(record); err != nil || !bytes.Equal(got, all) {
		t.Errorf("the unpacked record differs, %v", err)
	}
	if d := diff(restored(t, record, 10_000, 1<<20), restored(t, recordOf(s, 0), 10_000, 1<<20)); d != "" {
		t.Errorf("an older program: %s", d)
	}
	if len(record) > len(all)/3 {
		t.Errorf("the packed record has %d bytes, the other one %d", len(record), len(all))
	}
	short := listed(minPackedLines / 2)
	if record := packedRecordOf(t, short); !bytes.Equal(record, recordOf(short, -1)) {
		t.Error("a record with few lines is packed")
	}
}

// Damaged packed sections are an error, and a damaged record stays as it is.
func TestUnpackDamaged(t *testing.T) {
	record := packedRecordOf(t, listed(1000))
	for at := 0; at < len(record); at += 997 {
		bad := bytes.Clone(record)
		bad[at] ^= 0x55
		if got, err := Unpack(bad); err == nil {
			_, _ = Restore(got, 100)
		}
	}
	for _, n := range []int{0, 1, 9, len(record) / 2, len(record) - 1} {
		if got, err := Unpack(record[:n]); err == nil && !bytes.Equal(got, record[:n]) {
			t.Errorf("of %d bytes Unpack makes %d", n, len(got))
		}
	}
}
